import { link } from "../address.js";
import { facts, h, title } from "../elements.js";
import { pictureOf } from "../picture.js";
import { whole } from "../text.js";
import { heldNote, timeline } from "../timeline.js";

export const partition = (view) => [
  title(`${view.topic}-${view.partition}`, "The contents of its log, and coordinators’ decisions about it."),
  view.held ? heldNote(view.held) : null,
  facts([
    ["log start offset", whole(view.log_start_offset)],
    ["last stable offset", whole(view.last_stable_offset)],
    ["high watermark", whole(view.high_watermark)],
    ["leader epoch", whole(view.leader_epoch)],
    ["shown", shown(view)],
    ["records", link("read them", "records", { topic: view.topic, partition: view.partition })],
  ]),
  pictureOf(view.picture),
  h("h2", {}, "What happened, latest first"),
  timeline(view.timeline, "No records here."),
];

const shown = (view) => {
  const move = (offset) =>
    link(`from ${whole(offset)}`, "partition", { topic: view.topic, partition: view.partition, offset });
  const back = Math.max(view.log_start_offset, view.start - (view.next - view.start));
  return [
    `offsets ${whole(view.start)} to ${whole(view.next)} `,
    view.start > view.log_start_offset ? [move(back), " "] : null,
    view.next < view.high_watermark ? move(view.next) : null,
  ];
};
