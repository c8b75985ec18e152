// Shows the timeline of a transaction, a partition or a group, and a note that explains why its readers wait.

import { partitionLink, transactionLink } from "./address.js";
import { shell } from "./command.js";
import { empty, h, note } from "./elements.js";
import { count, span, when, whole } from "./text.js";

// steps: oldest first. The page shows the latest step first.
export const timeline = (steps, none) => {
  if (!steps.length) return empty(none);
  let latest = null; // time of the last step that was timed by the broker's clock
  const shown = steps.map((each) => {
    const isComparable = each.is_broker_time !== false;
    const gap_ms = isComparable && latest !== null ? each.at_ms - latest : -1;
    if (isComparable) latest = each.at_ms;
    return step(each, gap_ms);
  });
  return h("ol", { class: "line", reversed: true }, shown.reverse());
};
const step = (each, gap_ms) => {
  const datetime = new Date(each.at_ms).toISOString();
  const offsets = each.last_offset > each.offset
    ? `${whole(each.offset)}–${whole(each.last_offset)}`
    : whole(each.offset);
  return h(
    "li",
    { class: each.kind, key: `${each.at_ms} ${each.by} ${each.offset} ${each.what}` },
    h("time", { datetime }, when(each.at_ms)),
    gap_ms >= 0 ? h("time", {}, `+${span(gap_ms)}`) : null,
    each.is_broker_time === false ? h("small", {}, "producer’s clock") : null,
    h(
      "div",
      {},
      each.by === "log" ? [h("span", { class: "mono" }, offsets), " "] : null,
      each.id ? [transactionLink(each.id), each.by === "coordinator" ? ", its coordinator: " : ": "] : null,
      each.what,
    ),
  );
};

export const heldNote = (held) => {
  const offset = whole(held.from_offset);
  const before = ` at offset ${offset}, before ${count(held.records, "record")}, `;
  const isUnknown = held.holder && held.holder.transactional_id === null;
  return note(
    "",
    h("p", {}, "Readers of committed data wait in ", partitionLink(held.partition), before, holder(held.holder)),
    isUnknown ? h("p", {}, shell("odradek transactions find-hanging")) : null,
  );
};
const holder = (found) => {
  if (found === null) return "for the end of a transaction.";
  const id = found.transactional_id;
  if (id === null) return `for producer id ${found.producer_id}, which no coordinator knows.`;
  return ["for ", transactionLink(id), "."];
};
