// What the broker wrote into the document.
// token: what a change needs, null where changes are off. first: the facts of the overview.

export const { token, first } = JSON.parse(document.getElementById("given").textContent);
