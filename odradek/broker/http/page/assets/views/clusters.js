import { find, link } from "../address.js";
import { asking, wholeOr } from "../dialog.js";
import { empty, h, tag, title } from "../elements.js";
import { pages, table } from "../table.js";
import { span, whole } from "../text.js";

const COLUMNS = [
  ["cluster", "name", "id"],
  ["state", "", "state"],
  ["bootstrap", "mono", "bootstrap"],
  ["clock", "", "frozen"],
  ["rules", "", "rules"],
  ["waiting at holds", "", "waiting"],
  ["lease", "", "ttl_s"],
];
const LEAD = "Brokers for tests of clients, each with its own log, clock and faults.";
const API = "/control/v1";

// Sends a request to the control interface. path: the part of the URL after /control/v1.
export const control = (method, path, body) => {
  const told = body === undefined
    ? {}
    : { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return fetch(API + path, { method, ...told });
};

export const clusters = (view, query) => {
  if (view.off) return [title("Clusters", LEAD), empty(view.off)];
  return [
    title("Clusters", LEAD),
    h("div", { class: "bar" }, find(query, "Id"), asking("Create a cluster…", CREATE)),
    view.clusters.length
      ? [table("Clusters", COLUMNS, view.clusters, row, "id", true), pages(view, view.clusters.length)]
      : empty("No cluster id contains this text."),
  ];
};

const row = (each) => [
  link(each.id, "cluster", { id: each.id }),
  tag(each.state),
  each.bootstrap.replaceAll(",", ", ") || "–",
  each.frozen ? tag("frozen", "wait") : "runs",
  rules(each),
  each.waiting ? tag(whole(each.waiting), "wait") : "–",
  each.ttl_s === null ? "–" : span(each.ttl_s * 1000),
];
const rules = (each) => {
  if (!each.rules) return "–";
  return [whole(each.rules), each.unused ? [" ", tag(`${whole(each.unused)} unused`, "wait")] : null];
};

const nodes = (given) => given?.includes(",") ? given.split(",").map(Number) : wholeOr(given, null);

const CREATE = {
  title: "Create a cluster",
  words: "A separate broker in this process, on a free port. Its log is deleted with the cluster.",
  go: "Create",
  fields: [
    ["nodes", "Nodes", { pattern: "\\d+(, *\\d+)*", placeholder: "1, or ids such as 1, 4, 9" }],
    ["fork", "Copy of", { placeholder: "id of a cluster (optional)" }],
    ["ttl_s", "Lease in seconds", { type: "number", min: 1, placeholder: "never" }],
  ],
  send: (given) =>
    control("POST", "/clusters", {
      nodes: nodes(given.nodes),
      fork: given.fork || null,
      ttl_s: wholeOr(given.ttl_s, null),
    }),
  after: (told) => `#cluster?id=${encodeURIComponent(told.id)}`,
};
