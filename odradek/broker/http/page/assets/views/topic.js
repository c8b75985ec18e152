import { link } from "../address.js";
import { button, wholeOr } from "../dialog.js";
import { empty, h, tag, title } from "../elements.js";
import { table } from "../table.js";
import { size, whole } from "../text.js";
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
    table("Partitions", COLUMNS, view.partitions, row, "partition"),
    view.is_internal ? null : h(
      "div",
      { class: "buttons" },
      button("Delete records…", deleteRecords(view)),
      button("Delete topic…", deleteTopic(view.name)),
    ),
    h("h2", {}, "Settings of its own, or of this broker"),
    own.length
      ? table("Settings", SETTING_COLUMNS, own, settingRow, "name")
      : empty("All settings have their defaults."),
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

const deleteTopic = (name) => ({
  action: "delete-topic",
  command: `odradek topics delete ${name}`,
  title: `Delete topic ${name}`,
  words: "Its records, and the offsets that groups have committed in it, cannot be had back.",
  go: "Delete",
  typed: name,
  body: () => ({ topic: name }),
  after: "#topics",
});
const deleteRecords = ({ name, partitions }) => ({
  action: "delete-records",
  command: `odradek records delete -t ${name} -p 0 --before-offset 1000`,
  title: `Delete records of ${name}`,
  words: "The records before an offset of one partition cannot be had back.",
  go: "Delete",
  typed: name,
  fields: [
    ["partition", "Partition", {
      options: partitions.map((each) => [
        each.partition,
        `${each.partition}: offsets ${whole(each.log_start_offset)} to ${whole(each.high_watermark)}`,
      ]),
    }],
    ["before_offset", "Before offset", { type: "number", min: 0, placeholder: "all that is committed" }],
  ],
  body: (given) => ({
    topic: name,
    partition: Number(given.partition),
    before_offset: wholeOr(given.before_offset, -1),
  }),
});
