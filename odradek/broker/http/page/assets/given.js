// The values that the broker wrote into the document.
// token: needed for actions; null if they are off. first: the facts of the overview.

export const { token, first } = JSON.parse(document.getElementById("given").textContent);
