import { find, link } from "../address.js";
import { shell } from "../command.js";
import { button, wholeOr } from "../dialog.js";
import { empty, h, tag, title } from "../elements.js";
import { pages, table } from "../table.js";
import { size, whole } from "../text.js";

const COLUMNS = [
  ["topic", "name", "name"],
  ["partitions", "n", "partitions"],
  ["records", "n", "records"],
  ["size", "n", "size_bytes"],
  ["written", "n", "bytes_in_total"],
  ["read", "n", "bytes_out_total"],
  ["held back", "n", "held_records"],
];
const COMMAND = "odradek topics create orders --partitions 3";

export const topics = (view, query) => [
  title("Topics"),
  h("div", { class: "bar" }, find(query, "Name"), button("Create a topic…", CREATE)),
  view.topics.length
    ? [table("Topics", COLUMNS, view.topics, row, "name", true), pages(view, view.topics.length)]
    : empty(query.find ? "No topic name contains this text." : none()),
];

const none = () => ["No topics yet. ", shell(COMMAND), " creates one, as does the first record sent to it."];
const row = (each) => [
  [link(each.name, "topic", { name: each.name }), each.is_internal ? [" ", tag("internal")] : null],
  whole(each.partitions),
  whole(each.records),
  size(each.size_bytes),
  size(each.bytes_in_total),
  size(each.bytes_out_total),
  each.held_records ? tag(whole(each.held_records), "wait") : "–",
];

// Parses "retention.ms=-1, cleanup.policy=compact,delete". A comma separates settings only if a name and "=" follow.
const settings = (text) => {
  const pairs = text.split(/,\s*(?=[a-z.]+=)/).filter(Boolean);
  const cut = (each) => [each.slice(0, each.indexOf("=")).trim(), each.slice(each.indexOf("=") + 1).trim()];
  return Object.fromEntries(pairs.map(cut));
};
const CREATE = {
  action: "create-topic",
  title: "Create a topic",
  command: COMMAND,
  words: "You can add partitions later, but not remove them.",
  go: "Create",
  fields: [
    ["topic", "Name", { required: true }],
    ["partitions", "Partitions", { type: "number", min: 1, placeholder: "num.partitions" }],
    ["configs", "Settings", { placeholder: "retention.ms=-1, …" }],
  ],
  body: (given) => ({
    topic: given.topic,
    partitions: wholeOr(given.partitions, null),
    configs: settings(given.configs),
  }),
};
