import { go, link } from "../address.js";
import { color, empty, h, tag, title } from "../elements.js";
import { table } from "../table.js";
import { when, whole } from "../text.js";

const BACK = 50; // number of records that "earlier" goes back
const COLUMNS = [["offset", "n"], ["time"], ["what"], ["key", "mono"], ["value"], ["headers", "mono"]];

export const records = (view, query) => {
  const isolation = query.isolation ?? "all";
  const move = (words, offset, isThere) =>
    isThere ? [link(words, "records", { topic: view.topic, partition: view.partition, isolation, offset }), " "] : null;
  const isMore = view.next < view.high_watermark;
  return [
    title(`${view.topic}-${view.partition}`, bounds(view)),
    choice(view, query),
    view.records.length ? table("Records", COLUMNS, view.records, row, "offset") : empty("No records here."),
    h(
      "p",
      {},
      move("← earlier", Math.max(view.log_start_offset, view.start - BACK), view.start > view.log_start_offset),
      move("later →", view.next, isMore),
      move("the last ones", "", isMore),
    ),
  ];
};

const bounds = (view) => {
  const isHeld = view.last_stable_offset < view.high_watermark;
  return [
    `Offsets ${whole(view.log_start_offset)} to ${whole(view.high_watermark)}`,
    isHeld ? `; readers of committed data get to ${whole(view.last_stable_offset)}` : "",
    ". ",
    link("The topic", "topic", { name: view.topic }),
  ];
};
const choice = (view, query) => {
  const offset = { name: "offset", class: "short", inputmode: "numeric", placeholder: "the last ones" };
  const selected = query.isolation === "committed";
  return h(
    "form",
    { onSubmit: (event) => submit(event, view) },
    h("label", {}, "From offset", h("input", { ...offset, defaultValue: query.offset ?? "" })),
    h("label", {}, "or from time", h("input", { name: "time", type: "datetime-local", step: "1" })),
    h(
      "label",
      {},
      "Show",
      h(
        "select",
        { name: "isolation" },
        h("option", { value: "all" }, "everything"),
        h("option", { value: "committed", selected }, "what readers of committed data see"),
      ),
    ),
    h("button", { class: "go" }, "Show"),
  );
};
const submit = (event, view) => {
  event.preventDefault();
  const given = new FormData(event.currentTarget);
  const next = { topic: view.topic, partition: view.partition, isolation: given.get("isolation") };
  if (given.get("time")) next.timestamp = new Date(String(given.get("time"))).getTime();
  else if (given.get("offset") !== "") next.offset = given.get("offset");
  go("records", next);
};

const row = (each) => [
  whole(each.offset),
  when(each.timestamp),
  [
    each.control ? tag(String(each.control), MARKER[each.control] ?? color(each.status)) : tag(each.status),
    each.type ? h("div", { class: "mono" }, String(each.type)) : null,
    each.damage ? h("div", {}, each.damage) : null,
  ],
  content(each.key),
  content(each.data !== undefined ? each.data : each.value),
  each.headers.length ? each.headers.map(header) : "–",
];
const MARKER = { COMMIT: "good", ABORT: "bad" };
const header = ([name, value]) => h("div", {}, `${name}: `, value && "text" in value ? value.text : content(value));

// value: null, a number, {text} or {hex} (with the size if it is truncated), or the fields of an internal record.
const content = (value) => {
  if (value === null || value === undefined) return h("span", { class: "lead" }, "null");
  if (typeof value !== "object") return String(value);
  if (!("text" in value) && !("hex" in value)) return h("pre", {}, JSON.stringify(value, null, 1));
  const cut = value.size ? ` … (${whole(value.size)} bytes)` : "";
  return h("pre", {}, ("hex" in value ? value.hex : value.size ? value.text : indented(value.text)) + cut);
};
const indented = (text) => {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
};
