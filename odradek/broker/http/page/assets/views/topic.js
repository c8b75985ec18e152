import { link } from "../address.js";
import { button, isChangeable } from "../dialog.js";
import { empty, h, table, tag, title } from "../elements.js";
import { size, whole } from "../text.js";
import { heldNote } from "../timeline.js";

const COLUMNS = [
  ["partition", "n"],
  ["log start", "n"],
  ["last stable offset", "n"],
  ["high watermark", "n"],
  ["size", "n"],
  ["segments", "n"],
  ["leader epoch", "n"],
  ["producers", "n"],
  ["read"],
];
const SETTING_COLUMNS = [["setting", "name"], ["value", "mono"], ["source"]];

export const topic = (view) => {
  const own = view.settings.filter((each) => each.source !== "DEFAULT");
  const change = isChangeable && !view.is_internal;
  const rows = view.partitions.map((each) => [
    ...partitionRow(view.name, each),
    ...(change ? [button("Delete records…", deleteRecords(view.name, each))] : []),
  ]);
  return [
    title(view.name, `topic id ${view.topic_id}`),
    view.partitions.map((each) => each.held).filter(Boolean).map(heldNote),
    table("Partitions", change ? [...COLUMNS, ["change"]] : COLUMNS, rows),
    view.is_internal ? null : button("Delete topic…", deleteTopic(view.name)),
    h("h2", {}, "Settings of its own, or of this broker"),
    own.length ? table("Settings", SETTING_COLUMNS, own.map(settingRow)) : empty("All settings have their defaults."),
    h("h2", {}, "All settings"),
    table("All settings", SETTING_COLUMNS, view.settings.map(settingRow)),
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
  title: `Delete topic ${name}`,
  words: "Its records, and the offsets that groups have committed in it, cannot be had back.",
  go: "Delete",
  typed: name,
  body: () => ({ topic: name }),
  after: "#topics",
});
const deleteRecords = (name, { partition, log_start_offset, high_watermark }) => ({
  action: "delete-records",
  title: `Delete records of ${name}-${partition}`,
  words: `Offsets ${whole(log_start_offset)} to ${whole(high_watermark)} are there.`,
  go: "Delete",
  typed: `${name}-${partition}`,
  fields: [
    ["before_offset", "Delete all before offset", { type: "number", min: 0, required: true, value: high_watermark }],
  ],
  body: (given) => ({ topic: name, partition, before_offset: Number(given.before_offset) }),
});
