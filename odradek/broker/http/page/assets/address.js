// Reads and writes the part of the address after "#", which names a view and its parameters.

import { h } from "./elements.js";

// The section of the navigation bar that each view belongs to.
export const SECTION = {
  overview: "overview",
  transactions: "transactions",
  transaction: "transactions",
  topics: "topics",
  topic: "topics",
  partition: "topics",
  records: "topics",
  groups: "groups",
  group: "groups",
  shares: "shares",
  connections: "connections",
  warnings: "warnings",
  acls: "security",
  users: "security",
  quotas: "security",
  clusters: "clusters",
  cluster: "clusters",
};
// Views whose links never keep the cluster of the current view.
const OF_ALL = ["clusters", "cluster"];

export const route = () => {
  const [view, query] = decodeURI(location.hash.slice(1)).split("?");
  const given = location.hash.split("?")[1] ?? query ?? "";
  return {
    view: view || "overview",
    query: Object.fromEntries(new URLSearchParams(given)),
  };
};
export const to = (view, given) => {
  const { cluster } = route().query;
  const all = new URLSearchParams({ ...given, ...(cluster && !OF_ALL.includes(view) ? { cluster } : {}) });
  return `#${view}${all.size ? `?${all}` : ""}`;
};
export const go = (view, given) => {
  const kept = Object.entries(given).filter(([, value]) => value !== "" && value !== undefined);
  location.hash = to(view, Object.fromEntries(kept));
};

export const link = (text, view, given) => h("a", { href: to(view, given) }, text);
export const transactionLink = (id) => link(id, "transaction", { id });

// Splits a name such as "orders-0" into topic and partition.
export const topicAndPartition = (name) => {
  const at = name.lastIndexOf("-");
  return [name.slice(0, at), name.slice(at + 1)];
};
export const partitionLink = (name) => {
  const [topic, partition] = topicAndPartition(name);
  return link(name, "records", { topic, partition });
};

// Changes parameters of the current view in the address, without adding an entry to the history or switching the view.
export const NARROWED = "narrowed";
export const narrow = (changed) => {
  const { cluster: _, from: __, ...kept } = route().query;
  const next = Object.entries({ ...kept, ...changed }).filter(([, value]) => value !== "" && value !== undefined);
  history.replaceState(null, "", to(route().view, Object.fromEntries(next)));
  dispatchEvent(new Event(NARROWED));
};

// Returns a search field. A quarter of a second after the last keystroke, it limits the view to names that contain the
// typed text. Events never change its text.
let typing;
export const find = (query, words) => {
  const typed = ({ currentTarget: field }) => {
    clearTimeout(typing);
    typing = setTimeout(() => field.isConnected && narrow({ find: field.value }), 250);
  };
  const given = { type: "search", id: "find", defaultValue: query.find ?? "", autocomplete: "off" };
  const field = h("input", { ...given, spellcheck: false, onInput: typed });
  return h("form", { role: "search", onSubmit: (event) => event.preventDefault() }, h("label", {}, words, field));
};
