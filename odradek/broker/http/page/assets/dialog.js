// Buttons for changes, if the broker allows them (`token`). A button opens a dialog that the user must confirm.

import { route } from "./address.js";
import { h } from "./elements.js";
import { token } from "./given.js";

export const isChangeable = token !== null;

// action: name of the action in the API. body: turns the fields into the body to send. The rest is for `asking`.
// Views of other clusters have no such buttons, since the API changes only the broker of the process.
export const button = (words, { action, body, ...rest }) => {
  if (!isChangeable || route().query.cluster) return null;
  return asking(words, { ...rest, send: (given) => post(action, body(given)) });
};

// A button that asks for confirmation. title, words: describe the change. go: the label of the button that makes it.
// fields: [name, label, attributes]. typed: the text that the user must type to confirm. send: sends the fields and
// returns the response. after: the address to go to afterwards, or a function of the response that returns it.
export const asking = (words, action) => {
  const element = h("button", { type: "button", class: "act" }, words);
  element.addEventListener("click", () => confirm(action));
  return element;
};

const confirm = ({ title, words, go, fields = [], typed, send, after }) => {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));
  const said = h("p", { role: "status" });
  const name = typed ? h("input", { autocomplete: "off", spellcheck: "false", id: "typed" }) : null;
  const doIt = h("button", { type: "submit", class: "go danger" }, go);
  const cancel = h("button", { type: "button" }, "Cancel");
  const form = h(
    "form",
    {},
    h("h2", { id: "dialog-title" }, title),
    h("p", { class: "lead" }, words),
    fields.map(labelled),
    name ? h("label", {}, `Type ${typed} to confirm`, name) : null,
    said,
    h("div", { class: "choice" }, cancel, doIt),
  );
  const say = (kind, text) => {
    said.className = kind;
    said.textContent = text;
  };
  if (name) {
    doIt.disabled = true;
    name.addEventListener("input", () => {
      doIt.disabled = name.value !== typed;
    });
  }
  cancel.addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    doIt.disabled = true;
    say("", "…");
    try {
      const answer = await send(Object.fromEntries(new FormData(form)));
      const told = await answer.json();
      say(answer.ok ? "good" : "bad", answer.ok ? told.done ?? "It is done." : refusal(told));
      if (answer.ok) {
        doIt.remove();
        cancel.textContent = "Close";
        cancel.focus();
        dispatchEvent(new Event(CHANGED));
        if (after) location.hash = typeof after === "function" ? after(told) : after;
        return;
      }
    } catch (error) {
      say("bad", `The broker did not answer: ${error.message}`);
    }
    doIt.disabled = false;
  });
  dialog.replaceChildren(form);
  dialog.showModal();
};

// The event after a change, at which the page reloads its view.
export const CHANGED = "changed";

// A button that makes a change without confirmation. If the change is refused, a dialog shows the reason.
export const doing = (words, send, name) => {
  const element = h("button", { type: "button", class: "act", "aria-label": name }, words);
  element.addEventListener("click", async () => {
    element.disabled = true;
    try {
      const answer = await send();
      if (!answer.ok) tell(refusal(await answer.json()));
    } catch (error) {
      tell(`The broker did not answer: ${error.message}`);
    }
    element.disabled = false;
    dispatchEvent(new Event(CHANGED));
  });
  return element;
};
const tell = (words) => {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));
  const close = h("button", { type: "button" }, "Close");
  close.addEventListener("click", () => dialog.close());
  const title = h("h2", { id: "dialog-title" }, "It was not done");
  dialog.replaceChildren(h("form", {}, title, h("p", { class: "bad" }, words), h("div", { class: "choice" }, close)));
  dialog.showModal();
};
const refusal = (told) => `Refused: ${told.error ?? told.detail}`;

const labelled = ([name, words, given]) => {
  const required = given.required ? "" : null;
  const field = given.options
    ? h("select", { name }, given.options.map((each) => h("option", { value: each }, each)))
    : h("input", { type: "text", ...given, name, required, autocomplete: "off", spellcheck: "false" });
  return h("label", {}, words, field);
};
const post = (action, given) =>
  fetch(`/api/actions/${action}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Odradek-Token": token },
    body: JSON.stringify(given),
  });
export const wholeOr = (given, other) => given === "" || given === undefined ? other : Number(given);
