import { link } from "../address.js";
import { quoted } from "../command.js";
import { button, wholeOr } from "../dialog.js";
import { empty, h, tag, title } from "../elements.js";
import { indented } from "../json_text.js";
import { pages, table } from "../table.js";
import { count, size, whole } from "../text.js";
import { heldNote } from "../timeline.js";

const COLUMNS = [
  ["partition", "n", "partition"],
  ["log start", "n", "log_start_offset"],
  ["last stable offset", "n", "last_stable_offset"],
  ["high watermark", "n", "high_watermark"],
  ["size", "n", "size_bytes"],
  ["segments", "n", "segments"],
  ["leader epoch", "n", "leader_epoch"],
  ["producers", "n", "producers"],
  ["read"],
];
const SETTING_COLUMNS = [["setting", "name", "name"], ["value", "mono"], ["source", "", "source"]];

export const topic = (view) => {
  const own = view.settings.filter((each) => each.source !== "DEFAULT");
  const row = (each) => partitionRow(view.name, each);
  return [
    title(view.name, `topic id ${view.topic_id}`),
    h("p", {}, link("Records of all partitions", "records", { topic: view.name })),
    view.partitions.map((each) => each.held).filter(Boolean).map(heldNote),
    table("Partitions", COLUMNS, view.partitions, row, "partition", true),
    pages(view, view.partitions.length),
    view.is_internal ? null : h(
      "div",
      { class: "buttons" },
      button("Produce…", produce(view.name)),
      button("Add partitions…", addPartitions(view)),
      button("Change a setting…", alter(view)),
      button("Delete records…", deleteRecords(view)),
      button("Delete topic…", deleteTopic(view.name)),
    ),
    h("h2", {}, "Settings that are not defaults"),
    own.length
      ? table("Settings", SETTING_COLUMNS, own, settingRow, "name")
      : empty("All settings have their default values."),
    h("h2", {}, "All settings"),
    table("All settings", SETTING_COLUMNS, view.settings, settingRow, "name"),
  ];
};

const partitionRow = (name, each) => {
  const named = { topic: name, partition: each.partition };
  return [
    whole(each.partition),
    whole(each.log_start_offset),
    whole(each.last_stable_offset),
    whole(each.high_watermark),
    size(each.size_bytes),
    whole(each.segments),
    whole(each.leader_epoch),
    whole(each.producers),
    each.offline
      ? tag(each.offline, "bad")
      : [link("records", "records", named), " ", link("timeline", "partition", named)],
  ];
};
const settingRow = (each) => [each.name, each.value ?? "–", each.source.toLowerCase().replace("_", " ")];

// A value that starts like an object or array must be JSON, so that a typing error does not reach consumers.
const produce = (topic) => ({
  action: "produce",
  command: `odradek produce -t ${quoted(topic)}`,
  title: `Produce a record to ${topic}`,
  words: "An empty key is null. A value that begins with { or [ must be JSON.",
  go: "Produce",
  fields: [
    ["key", "Key", {}],
    ["value", "Value", { rows: 6 }],
    ["headers", "Headers, one per line", { rows: 2, placeholder: "name: value" }],
    ["partition", "Partition", { type: "number", min: 0, placeholder: "by key, as clients choose it" }],
  ],
  body: ({ key, value, headers, partition }) => {
    if (/^\s*[[{]/.test(value) && indented(value) === null) throw new Error("The value is not valid JSON.");
    const pairs = headers.split("\n").filter(Boolean).map((line) => {
      const at = line.indexOf(":");
      if (at < 1) throw new Error(`A header is written as name: value, not as ${line}`);
      return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    });
    return {
      topic,
      key: key || null,
      value,
      headers: Object.fromEntries(pairs),
      partition: wholeOr(partition, null),
      timestamp: Date.now(),
    };
  },
});
const addPartitions = ({ name, total }) => ({
  action: "add-partitions",
  command: `odradek topics alter ${quoted(name)} --partitions ${total + 1}`,
  title: `Add partitions to ${name}`,
  words: `It has ${count(total, "partition")}. Keys may move to other partitions. You cannot remove partitions.`,
  go: "Add",
  fields: [["partitions", "New total", { type: "number", min: total + 1, required: true, value: total + 1 }]],
  body: (given) => ({ topic: name, partitions: Number(given.partitions) }),
});
const alter = ({ name, settings }) => ({
  action: "alter-topic",
  command: `odradek configs alter -t ${quoted(name)} --add-config retention.ms=3600000`,
  title: `Change a setting of ${name}`,
  words: "Leave the value empty to restore the default.",
  go: "Change",
  fields: [
    ["setting", "Setting", { options: settings.map((each) => each.name) }],
    ["value", "Value", { placeholder: "default" }],
  ],
  body: ({ setting, value }) =>
    value === "" ? { topic: name, reset: setting } : { topic: name, configs: { [setting]: value } },
});

const deleteTopic = (name) => ({
  action: "delete-topic",
  command: `odradek topics delete ${quoted(name)}`,
  title: `Delete topic ${name}`,
  words: "This permanently deletes its records, and the offsets that groups have committed in it.",
  go: "Delete",
  typed: name,
  body: () => ({ topic: name }),
  after: "#topics",
});
const deleteRecords = ({ name, partitions }) => ({
  action: "delete-records",
  command: `odradek records delete -t ${quoted(name)} -p 0 --before-offset 1000`,
  title: `Delete records of ${name}`,
  words: "This permanently deletes the records of one partition that are before an offset.",
  go: "Delete",
  typed: name,
  fields: [
    ["partition", "Partition", { type: "number", min: 0, required: true, value: partitions[0]?.partition ?? 0 }],
    ["before_offset", "Before offset", { type: "number", min: 0, placeholder: "all committed records" }],
  ],
  body: (given) => ({
    topic: name,
    partition: Number(given.partition),
    before_offset: wholeOr(given.before_offset, -1),
  }),
});
