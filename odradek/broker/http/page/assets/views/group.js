import { link, partitionLink, topicAndPartition } from "../address.js";
import { quoted } from "../command.js";
import { button, wholeOr } from "../dialog.js";
import { empty, h, note, tag, title } from "../elements.js";
import { pages, table } from "../table.js";
import { count, when, whole } from "../text.js";
import { timeline } from "../timeline.js";
import { owners, topology } from "./topology.js";

const MEMBER_COLUMNS = [
  ["member", "name", "id"],
  ["client", "", "client"],
  ["from", "mono", "host"],
  ["epoch", "n", "epoch"],
  ["partitions", "mono"],
];
const OFFSET_COLUMNS = [
  ["partition", "name", "partition"],
  ["committed", "n", "committed"],
  ["end", "n", "end"],
  ["lag", "n", "lag"],
  ["committed at", "", "committed_ms"],
];

export const group = (view) => [
  title(view.id, kind(view)),
  h("p", {}, tag(view.state)),
  h("h2", {}, "Members"),
  view.streams
    ? owners(view.streams)
    : view.members.length
    ? table("Members", MEMBER_COLUMNS, view.members, memberRow, "id")
    : empty("The group has no members now."),
  view.member_count > view.members.length
    ? h("p", { class: "pages" }, `${whole(view.members.length)} of ${count(view.member_count, "member")}.`)
    : null,
  view.streams ? topology(view.streams) : null,
  h("h2", {}, view.type === "share" ? "Start offsets" : "Committed offsets"),
  button("Reset offsets…", resetOffsets(view)),
  lag(view),
  view.offsets.length
    ? [
      table("Offsets", OFFSET_COLUMNS, view.offsets, offsetRow, "partition"),
      pages(view, view.offsets.length),
    ]
    : noOffsets(view),
  h("h2", {}, "What happened, latest first"),
  timeline(view.history, "The log no longer has records of this group."),
];

const kind = ({ type, epoch, assignor }) => {
  const at = epoch === null ? "" : `, epoch ${epoch}`;
  return `${type} group${at}${assignor ? `, assigned by ${assignor}` : ""}`;
};
const lag = ({ lag: { records, uncommitted } }) => [
  records === null ? null : h("p", {}, `Lag: ${count(records, "record")}.`),
  uncommitted
    ? note(
      "",
      h(
        "p",
        {},
        `${count(uncommitted, "partition")} without a committed offset, not included in the lag. For them, `,
        h("code", {}, "auto.offset.reset"),
        " of the consumers decides where the group starts.",
      ),
    )
    : null,
];
const memberRow = (each) => [
  [each.id, each.instance ? [" ", tag(`static: ${each.instance}`)] : null],
  each.client,
  each.host,
  whole(each.epoch),
  each.partitions.join(", ") || "none",
];
const offsetRow = (each) => [
  partitionLink(each.partition),
  whole(each.committed),
  whole(each.end),
  whole(each.lag),
  when(each.committed_ms),
];
const noOffsets = (view) =>
  view.type === "share"
    ? empty("A share group commits no offsets: see ", link("its share partitions", "shares", { find: view.id }), ".")
    : empty("No committed offsets yet.");

// A share group cannot be reset to a given offset: Kafka can only reset it to the start, the end or a time.
const TARGETS = [["earliest", "the first record"], ["latest", "the end"], ["offset", "an offset"], [
  "timestamp",
  "a time",
]];
const SHARE_TARGETS = TARGETS.filter(([name]) => name !== "offset");
const resetOffsets = (view) => ({
  action: "reset-offsets",
  command: view.type === "share"
    ? `odradek share-groups reset-offsets ${quoted(view.id)} -t orders --to-earliest --execute`
    : `odradek groups reset-offsets ${quoted(view.id)} -t orders --to-earliest --execute`,
  blocked: view.member_count
    ? `The group has ${count(view.member_count, "member")}. Stop them first: their next commit would undo the reset.`
    : null,
  title: `Reset offsets of ${view.id}`,
  words: view.type === "share"
    ? "The group resumes from this position. Records in flight, and their delivery counts, are forgotten."
    : "The group resumes from this position, within the bounds of the log.",
  go: "Reset",
  typed: view.id,
  fields: [
    ["topic", "Topic", {
      required: true,
      value: view.offsets.length ? topicAndPartition(view.offsets[0].partition)[0] : "",
    }],
    ["partition", "Partition", { type: "number", min: 0, placeholder: "all" }],
    ["to", "To", { options: view.type === "share" ? SHARE_TARGETS : TARGETS }],
    view.type === "share" ? null : ["offset", "Offset", { type: "number", min: 0 }],
    ["time", "Time", { type: "datetime-local", step: 1 }],
  ].filter(Boolean),
  body: ({ topic, partition, to, offset, time }) => {
    if (to === "offset" && offset === "") throw new Error("Enter the offset.");
    if (to === "timestamp" && time === "") throw new Error("Enter the time.");
    const targets = { offset: { offset: wholeOr(offset, null) }, timestamp: { timestamp: new Date(time).getTime() } };
    const target = targets[to] ?? { to };
    return { group: view.id, topic, partition: wholeOr(partition, null), ...target };
  },
});
