// Reads and writes the part of the address after "#", which names a view and its parameters.

import { h } from "./elements.js";

// The section of the navigation that each view belongs to.
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
  clusters: "clusters",
  cluster: "clusters",
};
// Links in a view of a cluster lead to views of the same cluster, except for these views.
const OF_ALL = ["clusters", "cluster"];

export const route = () => {
  const [view, query] = decodeURI(location.hash.slice(1)).split("?");
  const given = location.hash.split("?")[1] ?? query ?? "";
  return {
    view: Object.hasOwn(SECTION, view) ? view : "overview",
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

// A search field. A quarter of a second after the last key, it limits the view to names that contain the typed text.
let typing;
export const find = (query, words) => {
  const value = query.find ?? "";
  const field = h("input", { type: "search", id: "find", value, autocomplete: "off", spellcheck: "false" });
  const narrow = () => go(route().view, { ...route().query, find: field.value });
  field.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(narrow, 250);
  });
  return h("form", { role: "search", onsubmit: "return false" }, h("label", {}, words, field));
};
