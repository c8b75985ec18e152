// Tables that reuse their rows. Each row has a key, so events can change cells and move rows without recreating them.

import { link, route } from "./address.js";
import { h } from "./elements.js";
import { whole } from "./text.js";

// columns: the name of each column, the class of its cells, and the property of an item to sort by.
// row: turns an item into a list with a cell for each column. key: the property that identifies an item, or a function
// that returns the key. isSorted: the broker has already sorted the list.
export const table = (label, columns, items, row, key, isSorted = false) => {
  const { query } = route();
  const keyOf = typeof key === "function" ? key : (item) => item[key];
  const { by, isDown } = order(query.sort);
  const isHere = columns.some(([, , property]) => property && property === by);
  const shown = isSorted || !isHere ? items : [...items].sort((one, other) => compare(one[by], other[by], isDown));
  const body = shown.map((item) =>
    h("tr", { key: keyOf(item) }, row(item).map((cell, at) => tableCell(columns[at], cell)))
  );
  const head = h("tr", {}, columns.map((column) => heading(column, by, isDown)));
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, head), h("tbody", {}, body)),
  );
};

const order = (sort = "") => {
  const isDown = sort.startsWith("-");
  return { by: isDown ? sort.slice(1) : sort, isDown };
};
// Numbers in names are compared as numbers, so t-2 comes before t-10. The broker sorts names in the same way.
const NAMES = new Intl.Collator("en", { numeric: true });
const compare = (one, other, isDown) => {
  const isMissing = (value) => value === null || value === undefined;
  if (isMissing(one) || isMissing(other)) return Number(isMissing(one)) - Number(isMissing(other));
  const found = typeof one === "number" ? one - other : NAMES.compare(String(one), String(other));
  return isDown ? -found : found;
};
const heading = ([name, kind, property], by, isDown) => {
  const given = { scope: "col", class: kind === "n" ? "n" : null };
  if (!property) return h("th", given, name);
  const isBy = property === by;
  const next = isBy === isDown ? property : `-${property}`;
  const { view, query } = route();
  const { cluster: _, from: __, ...kept } = query;
  const sign = isBy ? (isDown ? " ↓" : " ↑") : "";
  const direction = isBy ? (isDown ? "descending" : "ascending") : null;
  return h("th", { ...given, "aria-sort": direction }, link(name + sign, view, { ...kept, sort: next }));
};
// On a narrow screen, each row is shown as a list in which every cell is labelled with the name of its column.
const tableCell = ([name, kind], cell) => h("td", { class: kind, "data-name": name }, h("div", {}, cell));

// Links to the other pages of a list. This page shows `shown` items, starting with number `from`.
export const pages = ({ total, from = 0 }, shown, step = 200) => {
  if (!from && total <= shown) return null;
  const { view, query } = route();
  const { cluster: _, ...kept } = query;
  const page = (words, at, isThere) => isThere ? [link(words, view, { ...kept, from: at }), " "] : null;
  const words = shown ? `${whole(from + 1)}–${whole(from + shown)} of ${whole(total)}. ` : `None of ${whole(total)}. `;
  return h(
    "p",
    { class: "pages" },
    words,
    page("← previous", Math.max(0, from - step), from > 0),
    page("next →", from + shown, from + shown < total),
  );
};
