// Buttons that make changes if the broker allows them (`token`). A button opens a dialog that the user must confirm.

import { route } from "./address.js";
import { shell } from "./command.js";
import { draw, h, Part } from "./elements.js";
import { token } from "./given.js";

export const isChangeable = token !== null;
const SETTING = "odradek.http.actions=true";

// action: the name of the action in the API. body: turns the fields into the request body. command: the command that
// does the same. The other properties are for `asking`. If actions are off, the dialog explains how to turn them on.
// Views of other clusters have no such buttons, because the API only changes the broker that serves the page.
export const button = (words, { action, body, command, ...rest }) => {
  if (route().query.cluster) return null;
  if (!isChangeable) return opening(words, () => open(h(Off, { title: rest.title, command })));
  return asking(words, { ...rest, send: (given) => post(action, body(given)) });
};

// A button that asks for confirmation.
// title, words: describe the change. go: the label of the button that makes the change.
// fields: [name, label, attributes]. typed: the text that the user must type to confirm. isDanger: data will be lost.
// blocked: the reason why the change is currently impossible, shown instead of the button that makes it.
// send: sends the fields and returns the response. after: the address to open afterwards, or a function that gets the
// response and returns this address.
export const asking = (words, action) => opening(words, () => open(h(Confirm, action)));

const opening = (words, onClick) => h("button", { type: "button", class: "act", onClick }, words);
const dialog = () => /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));
const open = (content) => {
  draw(null, dialog());
  draw(content, dialog());
  dialog().showModal();
};
const close = () => dialog().close();
const heading = (text) => h("h2", { id: "dialog-title" }, text);
const closing = () => h("div", { class: "choice" }, h("button", { type: "button", onClick: close }, "Close"));

const Off = ({ title, command }) =>
  h(
    "form",
    {},
    heading(title),
    h("p", { class: "lead" }, "This page cannot make changes. To allow them, start the broker with"),
    h("p", {}, h("code", {}, `odradek serve --override ${SETTING}`)),
    command ? [h("p", { class: "lead" }, "On the command line:"), h("p", {}, shell(command))] : null,
    closing(),
  );

class Confirm extends Part {
  state = { kind: "", said: "", isBusy: false, isDone: false, typed: "" };

  async submit(event) {
    event.preventDefault();
    const { send, after } = this.props;
    const given = Object.fromEntries(new FormData(event.currentTarget));
    this.setState({ isBusy: true, kind: "", said: "…" });
    try {
      const answer = await send(given); // Throws an error if a field is invalid.
      const told = await answer.json();
      this.setState({
        isBusy: false,
        isDone: answer.ok,
        kind: answer.ok ? "good" : "bad",
        said: answer.ok ? told.done ?? "Done." : refusal(told),
      });
      if (!answer.ok) return;
      dispatchEvent(new Event(CHANGED));
      if (after) location.hash = typeof after === "function" ? after(told) : after;
    } catch (error) {
      this.setState({ isBusy: false, kind: "bad", said: error.message });
    }
  }

  render() {
    const { title, words, go, fields = [], typed, isDanger = typed !== undefined, blocked } = this.props;
    const { kind, said, isBusy, isDone } = this.state;
    const isReady = !isBusy && (typed === undefined || this.state.typed === typed);
    const onInput = ({ currentTarget }) => this.setState({ typed: currentTarget.value });
    const name = h("input", { id: "typed", autocomplete: "off", spellcheck: false, onInput });
    return h(
      "form",
      { onSubmit: (event) => this.submit(event) },
      heading(title),
      h("p", { class: "lead" }, words),
      blocked ? h("p", { class: "bad" }, blocked) : fields.map(labelled),
      typed !== undefined && !blocked ? h("label", {}, `Type ${typed} to confirm`, name) : null,
      h("p", { role: "status", class: kind }, said),
      h(
        "div",
        { class: "choice" },
        h("button", { type: "button", onClick: close }, isDone || blocked ? "Close" : "Cancel"),
        isDone || blocked
          ? null
          : h("button", { type: "submit", class: isDanger ? "go danger" : "go", disabled: !isReady }, go),
      ),
    );
  }
}

// The event that follows a change and makes the page reload its view.
export const CHANGED = "changed";

// A button that makes a change without confirmation. If the change is refused, a dialog shows the reason.
export const doing = (words, send, name) => {
  const onClick = async ({ currentTarget: element }) => {
    element.disabled = true;
    try {
      const answer = await send();
      if (!answer.ok) tell(refusal(await answer.json()));
    } catch (error) {
      tell(`The broker did not answer: ${error.message}`);
    }
    element.disabled = false;
    dispatchEvent(new Event(CHANGED));
  };
  return h("button", { type: "button", class: "act", "aria-label": name, onClick }, words);
};
const tell = (words) => open(h("form", {}, heading("The change failed"), h("p", { class: "bad" }, words), closing()));
const refusal = (told) => `Refused: ${told.error ?? told.detail}`;

// options: texts, or pairs of value and text. rows: the height of a multi-line field.
const labelled = ([name, words, { options, rows, value, ...given }]) => {
  const attributes = { ...given, name, autocomplete: "off", spellcheck: false };
  const field = options
    ? h("select", { name }, options.map((each) => h("option", { value: [each].flat()[0] }, [each].flat().at(-1))))
    : rows
    ? h("textarea", { ...attributes, rows, defaultValue: value })
    : h("input", { type: "text", ...attributes, defaultValue: value });
  return h("label", {}, words, field);
};
const post = (action, given) =>
  fetch(`/api/actions/${action}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Odradek-Token": token },
    body: JSON.stringify(given),
  }).catch((error) => {
    throw new Error(`The broker did not answer: ${error.message}`);
  });
export const wholeOr = (given, other) => given === "" || given === undefined ? other : Number(given);
