// The part of the address behind "#": a view and its parameters.

import { h } from "./elements.js";

// In which section of the navigation each view is.
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
// A view below a cluster is of that cluster, and so are those that it leads to.
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

// name: topic-partition
export const topicAndPartition = (name) => {
  const at = name.lastIndexOf("-");
  return [name.slice(0, at), name.slice(at + 1)];
};
export const partitionLink = (name) => {
  const [topic, partition] = topicAndPartition(name);
  return link(name, "records", { topic, partition });
};

// Narrows a view to the names that contain what is typed, a quarter of a second after the last key.
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
