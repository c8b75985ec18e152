// What can be changed, where the broker allows it (`token`): a button opens a dialog, which has to be confirmed.

import { h } from "./elements.js";
import { token } from "./given.js";

export const isChangeable = token !== null;

// action: its name in the API. title, words: what happens. go: the verb on the button that does it.
// fields: [name, label, attributes]. typed: what has to be typed before it can be done.
// body: from the fields to what is sent. after: where to go then.
export const button = (words, action) => {
  if (!isChangeable) return null;
  const element = h("button", { type: "button", class: "act" }, words);
  element.addEventListener("click", () => confirm(action));
  return element;
};

const confirm = ({ action, title, words, go, fields = [], typed, body, after }) => {
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
      const answer = await post(action, body(Object.fromEntries(new FormData(form))));
      const told = await answer.json();
      say(answer.ok ? "good" : "bad", answer.ok ? told.done : `Refused: ${told.error}`);
      if (answer.ok) {
        doIt.remove();
        cancel.textContent = "Close";
        cancel.focus();
        if (after) location.hash = after;
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
