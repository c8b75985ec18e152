// Creates elements of the document. Texts are inserted as text nodes, so no data of a broker can become markup.

import { whole } from "./text.js";

export const h = (name, given = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...flat(children));
  return element;
};
// Flattens nested lists of children, and drops null, undefined and false.
export const flat = (children) =>
  children.flat(9).filter((each) => each !== null && each !== undefined && each !== false);

// Colors of states.
const COLOR = {
  ...{ Ongoing: "wait", PrepareCommit: "wait", PrepareAbort: "wait", CompleteCommit: "good", CompleteAbort: "bad" },
  ...{ Stable: "good", Empty: "", Dead: "bad" },
  ...{ committed: "good", plain: "", aborted: "bad", open: "wait", control: "doubt" },
  ...{ AVAILABLE: "", ACQUIRED: "wait", TX_PENDING: "doubt", ACKNOWLEDGED: "good", ARCHIVED: "bad" },
  ...{ running: "good", stopped: "bad", crashed: "bad" },
  ...{ ERROR: "bad", CRITICAL: "bad", WARNING: "wait" },
};
export const color = (state) => COLOR[state] ?? "";
export const tag = (text, kind) => h("span", { class: `tag ${kind ?? color(text)}` }, text);

export const title = (text, lead) => [h("h1", {}, text), lead ? h("p", { class: "lead" }, lead) : null];
export const empty = (...words) => h("p", { class: "empty" }, ...words);
export const note = (kind, ...words) => h("div", { class: `note ${kind}` }, ...words);
export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

// columns: pairs of a name and the class of the cells. rows: lists with a cell for each column.
export const table = (label, columns, rows) => {
  const head = columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name));
  const body = rows.map((row) => h("tr", {}, row.map((cell, at) => tableCell(columns[at], cell))));
  const shown = h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, shown);
};
// On a narrow screen, each row is shown as a list, in which every cell is labelled with the name of its column.
const tableCell = ([name, kind], cell) => h("td", { class: kind, "data-name": name }, h("div", {}, cell));
export const more = (total, shown) => {
  if (total <= shown) return null;
  const words = `${whole(shown)} of ${whole(total)} are shown: find the others by a part of their name.`;
  return h("p", { class: "lead" }, words);
};
