// The values that the broker wrote into the document.
// token: required for actions, or null if actions are off. first: the facts of the overview.

export const { token, first } = JSON.parse(document.getElementById("given").textContent);
