import { link, to } from "../address.js";
import { quoted } from "../command.js";
import { asking, doing } from "../dialog.js";
import { empty, facts, h, note, tag, title } from "../elements.js";
import { table } from "../table.js";
import { count, span, when, whole } from "../text.js";
import { control } from "./clusters.js";

const STEPS_MS = [["1 s", 1_000], ["1 min", 60_000], ["1 h", 3_600_000], ["7 days", 604_800_000]];
const RULE_COLUMNS = [["rule", "name"], ["at"], ["match", "mono"], ["do", "mono"], ["matched", "n"], ["acted", "n"], [
  "change",
]];
const HELD_COLUMNS = [["hold", "name"], ["waiting", "n"], ["what waits, and where"], ["change"]];

export const cluster = (view) => {
  if (view.off) return [title("Clusters"), empty(view.off)];
  const path = `/clusters/${encodeURIComponent(view.id)}`;
  const isRunning = view.state === "running";
  return [
    title(`Cluster ${view.id}`, view.is_default ? "The broker of this process." : null),
    h("p", { class: "ranges" }, tag(view.state), isRunning ? browse(view) : null),
    facts([
      ["bootstrap", view.bootstrap ? h("span", { class: "mono" }, view.bootstrap.replaceAll(",", ", ")) : "–"],
      view.nodes > 1 ? ["nodes", nodes(view.node_states)] : null,
      ["checkpoints", view.checkpoints.join(", ") || "none"],
      ["lease", view.ttl_s === null ? "none" : span(view.ttl_s * 1000)],
    ].filter(Boolean)),
    view.is_default ? null : h("div", { class: "buttons" }, changes(view, path)),
    h("h2", {}, "Clock"),
    h(
      "p",
      {},
      h("span", { class: "clock", "data-ms": view.now_ms }, when(view.now_ms)),
      " ",
      view.frozen ? tag("frozen", "wait") : tag("runs", "good"),
    ),
    h("div", { class: "buttons" }, clockButtons(view, path)),
    h("h2", {}, "Holds"),
    view.hold_list.length
      ? table("Holds", HELD_COLUMNS, view.hold_list, (each) => held(each, path, view), "name")
      : empty("Nothing waits at a hold."),
    h("h2", {}, "Rules"),
    view.rule_list.length
      ? [
        unused(view),
        table("Rules", RULE_COLUMNS, view.rule_list, (each) => rule(each, path), "name"),
        others(view.rules - view.rule_list.length),
        h("div", { class: "buttons" }, doing("Delete all rules", () => control("DELETE", `${path}/faults`))),
      ]
      : empty("No rules yet. ", h("code", {}, `odradek control fault -C ${quoted(view.id)} @RULE.json`), " adds one."),
  ];
};

// The note above each view of a cluster, except for the broker that serves the page.
export const clusterNote = (id) =>
  h(
    "p",
    { class: "of" },
    "Cluster ",
    link(id, "cluster", { id }),
    ". Follow the link for its clock, rules and holds. ",
    h("a", { href: "#overview" }, "Back to the broker of the process"),
  );

const browse = (view) => {
  const given = view.is_default ? {} : { cluster: view.id };
  return ["topics", "transactions", "groups", "connections"].map((name) => h("a", { href: to(name, given) }, name));
};
const nodes = (states) =>
  states.map((each) => h("div", {}, `${each.id} at ${each.host}:${each.port} `, tag(each.state)));

const changes = (view, path) => [
  view.state === "running"
    ? asking("Crash…", {
      title: `Crash ${view.id}`,
      words: "This cuts the connections of the cluster, and leaves its files as kill -9 would leave them.",
      isDanger: true,
      go: "Crash",
      send: () => control("POST", `${path}/crash`, {}),
    })
    : null,
  doing("Restart", () => control("POST", `${path}/restart`, {})),
  asking("Delete…", {
    title: `Delete ${view.id}`,
    words: "This cuts the connections of the cluster and removes its files.",
    go: "Delete",
    typed: view.id,
    send: () => control("DELETE", path),
    after: "#clusters",
  }),
];

const clockButtons = (view, path) => {
  const move = (how, body) => () => control("POST", `${path}/clock/${how}`, body);
  return [
    view.frozen ? doing("Resume", move("resume", {})) : doing("Freeze", move("freeze", {})),
    STEPS_MS.map(([words, ms]) => doing(`+ ${words}`, move("advance", { ms }), `Advance by ${words}`)),
  ];
};

const held = (each, path, view) => [
  each.name,
  whole(each.waiting),
  [each.who.map((one) => h("div", {}, who(one, view))), others(each.waiting - each.who.length)],
  doing(
    "Release",
    () => control("POST", `${path}/holds/${encodeURIComponent(each.name)}/release`, {}),
    `Release ${each.name}`,
  ),
];
const others = (left) => left > 0 ? h("div", {}, `and ${count(left, "other")}`) : null;
const WHERE = {
  received: "not handled yet",
  applied: "done, not answered",
  verified: "expected by the coordinator, not written yet",
  prepared: "decided, before the first marker",
  marker: "marker not written",
  completed: "last marker written, before the coordinator learns of it",
  loading: "before its coordinator reads the log",
};
const who = (one, view) => {
  const given = view.is_default ? {} : { cluster: view.id };
  return [
    one.api ? h("b", {}, `${one.api} `) : null,
    one.client_id ? `of ${one.client_id} ` : null,
    one.transactional_id
      ? ["transaction ", link(one.transactional_id, "transaction", { id: one.transactional_id, ...given }), " "]
      : null,
    one.transactional_id === undefined && one.producer_id !== undefined ? `producer id ${one.producer_id} in ` : null,
    one.group ? `group ${one.group} ` : null,
    [...one.partitions, ...(one.topics ?? [])].join(", "),
    ` – ${one.at}: ${WHERE[one.at] ?? "held"}`,
  ];
};

const unused = (view) => {
  if (!view.unused) return null;
  return note("", h("p", {}, `${count(view.unused, "rule")} matched nothing so far.`));
};
const rule = (each, path) => [
  [each.name, each.unused ? [" ", tag("unused", "wait")] : null],
  [each.at, Object.entries(each.counts).map(([name, value]) => h("div", {}, `${name} ${value}`))],
  pairs(each.match),
  pairs(each.do),
  whole(each.matched),
  whole(each.hits),
  doing("Delete", () => control("DELETE", `${path}/faults/${encodeURIComponent(each.name)}`), `Delete ${each.name}`),
];
const pairs = (told) => {
  const found = Object.entries(told);
  if (!found.length) return "anything";
  return found.map(([name, value]) =>
    h("div", {}, `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
  );
};
