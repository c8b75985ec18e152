import { find, go, link } from "../address.js";
import { quoted, shell } from "../command.js";
import { brief, briefly, Content, Decoded } from "../content.js";
import { color, empty, Group, h, note, Part, tag, title } from "../elements.js";
import { count, when, whole } from "../text.js";

const COLUMNS = [["partition", "n"], ["offset", "n"], ["time"], ["state"], ["key"], ["value"]];
const STATES = [
  ["", "all records and markers"],
  ["plain,committed", "committed, or without a transaction"],
  ["open", "open"],
  ["aborted", "aborted"],
  ["control", "markers"],
];
const PLACES = [["any", "key, value and headers"], ["key", "key"], ["value", "value"], ["headers", "headers"]];
const PATH = { name: "path", placeholder: "$.order.id == 7", title: "A JSONPath that selects something in the value" };

export const records = (view, query) => [
  title(query.partition ? `${view.topic}-${query.partition}` : view.topic, bounds(view)),
  view.partitions_left_out
    ? note(
      "",
      h("p", {}, `${count(view.partitions_left_out, "more partition")} not shown: name them below to see them.`),
    )
    : null,
  h("div", { class: "bar" }, find(query, "Text")),
  filters(view, query),
  view.records.length ? list(view) : empty(...none(view, query)),
  progress(view),
];

const none = ({ topic, isLooking }, query) => {
  if (isLooking) return ["Nothing yet."];
  if (["find", "partition", ...FILTERS].some((name) => query[name])) return ["No records here."];
  return ["No records here. ", shell(`odradek produce -t ${quoted(topic)}`), " writes one."];
};

const bounds = (view) => {
  const sum = (name) => view.partitions.reduce((all, each) => all + each[name], 0);
  const held = sum("high_watermark") - sum("last_stable_offset");
  const only = view.partitions.length === 1 ? view.partitions[0] : null;
  return [
    only
      ? `Offsets ${whole(only.log_start_offset)} to ${whole(only.high_watermark)}`
      : `${count(view.partitions.length, "partition")}, ${
        whole(sum("high_watermark") - sum("log_start_offset"))
      } offsets`,
    held ? `; readers of committed data do not get ${whole(held)} yet` : "",
    ". ",
    link("The topic", "topic", { name: view.topic }),
  ];
};

const progress = (view) =>
  h(
    "p",
    { class: "pages" },
    `${count(view.records.length, "record")} shown, ${whole(view.looked_at)} read. `,
    view.isLooking
      ? h("button", { type: "button", class: "act", onClick: view.stop }, "Stop")
      : view.is_done
      ? null
      : h("button", { type: "button", class: "act", onClick: view.further }, "Show more"),
  );

const filters = (view, query) => {
  const field = (words, name, given = {}) =>
    h("label", {}, words, h("input", { name, defaultValue: query[name] ?? "", autocomplete: "off", ...given }));
  const choice = (words, name, options, chosen) =>
    h(
      "label",
      {},
      words,
      h(
        "select",
        { name },
        options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
      ),
    );
  const time = (words, name, ms) => field(words, name, { type: "datetime-local", step: 1, defaultValue: local(ms) });
  const isUsed = Object.keys(query).some((name) => FILTERS.includes(name));
  const form = h(
    "form",
    { onSubmit: (event) => submit(event, view, query) },
    choice("Text in", "in", PLACES, query.in ?? "any"),
    field("JSONPath", "path", PATH),
    field("Partitions", "partition", { class: "short", placeholder: "all" }),
    field("From offset", "offset", { class: "short", inputmode: "numeric" }),
    time("From time", "timestamp", query.timestamp),
    time("To time", "until", query.until),
    choice("State", "state", STATES, query.state ?? (query.isolation === "committed" ? "plain,committed" : "")),
    choice("First", "order", [["newest", "the newest"], ["oldest", "the oldest"]], view.order),
    h("button", { class: "go" }, "Show"),
  );
  return h("details", { open: isUsed }, h("summary", {}, "Filters and order"), form);
};
const FILTERS = ["in", "path", "offset", "timestamp", "until", "state", "isolation", "order"];
const local = (ms) => ms ? when(Number(ms)).slice(0, 19).replace(" ", "T") : "";
const submit = (event, view, query) => {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.currentTarget));
  const ms = (text) => text ? new Date(text).getTime() : "";
  go("records", {
    topic: view.topic,
    find: query.find,
    ...given,
    in: given.in === "any" ? "" : given.in,
    timestamp: ms(given.timestamp),
    until: ms(given.until),
  });
};

const list = (view) =>
  h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Records" },
    h(
      "table",
      { class: "records" },
      h("thead", {}, h("tr", {}, COLUMNS.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
      h(
        "tbody",
        {},
        view.records.map((each) => h(Row, { key: `${each.partition}:${each.offset}`, topic: view.topic, each })),
      ),
    ),
  );

class Row extends Part {
  state = { isOpen: false };

  render() {
    const { topic, each } = this.props;
    const { isOpen } = this.state;
    const onClick = () => this.setState({ isOpen: !isOpen });
    const label = `Record ${each.offset} of partition ${each.partition}`;
    const opener = h("button", { type: "button", "aria-expanded": isOpen, "aria-label": label, onClick }, sign(isOpen));
    const cells = [
      [opener, " ", String(each.partition)],
      whole(each.offset),
      when(each.timestamp),
      state(each),
      briefly(each, "key"),
      each.data !== undefined ? brief(each.data) : briefly(each, "value"),
    ];
    return h(
      Group,
      {},
      h(
        "tr",
        {},
        cells.map((cell, at) => h("td", { class: COLUMNS[at][1], "data-name": COLUMNS[at][0] }, h("div", {}, cell))),
      ),
      isOpen ? h("tr", { class: "open" }, h("td", { colspan: COLUMNS.length }, details(topic, each))) : null,
    );
  }
}
// The headers that the list omits. Their names are loaded on demand, and then each value is loaded separately.
const AT_ONCE = 20;
class MoreHeaders extends Part {
  state = { names: null, shown: this.props.each.headers.length, said: "" };

  async more() {
    const { where } = this.props;
    const found = await (await fetch(`/api/record?${new URLSearchParams({ ...where, of: "key" })}`)).json();
    if (found.error) return this.setState({ said: found.error });
    const names = found.headers;
    this.setState({ names, shown: Math.min(names.length, this.state.shown + AT_ONCE) });
  }

  render() {
    const { where, each } = this.props;
    const { names, shown, said } = this.state;
    const first = each.headers.length;
    const content = (name, at) => {
      const of = `header:${first + at}`;
      return h(Content, { key: of, title: `Header ${name}`, where, of, shown: { text: "", size: null } });
    };
    const left = each.header_count - shown;
    const more = `Show ${count(Math.min(left, AT_ONCE), "more header")} of ${whole(left)}`;
    return [
      names?.slice(first, shown).map(content),
      left ? h("button", { type: "button", class: "act", onClick: () => this.more() }, more) : null,
      h("p", { role: "status" }, said),
    ];
  }
}
const sign = (isOpen) => isOpen ? "▾" : "▸";
const MARKER = { COMMIT: "good", ABORT: "bad" };
const state = (each) => [
  each.control ? tag(String(each.control), MARKER[each.control] ?? color(each.status)) : tag(each.status),
  each.damage ? h("span", {}, ` ${each.damage}`) : null,
  each.type ? h("span", { class: "mono" }, ` ${each.type}`) : null,
];
const details = (topic, each) => {
  const where = { topic, partition: each.partition, offset: each.offset };
  const part = (title, of, shown) => {
    const schema = each[`${of}_schema`];
    return h(schema ? Decoded : Content, { key: of, title, where, of, shown, schema });
  };
  const facts = [
    `producer ${each.producer_id}, epoch ${each.producer_epoch}`,
    each.compression === "none" ? "" : `, ${each.compression}`,
  ];
  return [
    h("p", { class: "lead" }, facts),
    part("Key", "key", each.key),
    part("Value", "value", each.data !== undefined ? each.data : each.value),
    each.headers.map(([name, value], at) => part(`Header ${name}`, `header:${at}`, value)),
    each.header_count > each.headers.length ? h(MoreHeaders, { where, each }) : null,
  ];
};
