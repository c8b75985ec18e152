import { link, partitionLink } from "../address.js";
import { quoted, shell } from "../command.js";
import { button } from "../dialog.js";
import { facts, h, note, title } from "../elements.js";
import { pictureOf } from "../picture.js";
import { since, span, when, whole } from "../text.js";
import { timeline } from "../timeline.js";
import { IN_DOUBT, OPEN, stateTag } from "./transactions.js";

export const transaction = (view) => [
  title(view.id, view.words),
  view.state ? h("p", {}, stateTag(view)) : null,
  view.call ? ending(view) : null,
  view.state ? state(view) : null,
  view.picture ? [h("h2", {}, "Its last transaction"), pictureOf(view.picture)] : null,
  h("h2", {}, "What happened, latest first"),
  timeline(view.timeline ?? [], "The log no longer has records of this transactional id."),
];

const ending = (view) =>
  view.rank === IN_DOUBT
    ? note(
      "doubt",
      h("p", {}, "If the external coordinator is gone permanently, this aborts the transaction, whatever it decided:"),
      h("p", {}, shell(view.call)),
      button("Force-terminate…", forceTerminate(view.id)),
    )
    : note(
      "",
      h("p", {}, "To end it by hand, so that readers can continue:"),
      h("p", {}, shell(view.call)),
      view.rank === OPEN ? button("Abort…", abort(view.id)) : null,
    );
const state = (view) =>
  facts([
    ["producer id / epoch", `${view.producer_id} / ${whole(view.producer_epoch)}`],
    ["timeout", view.timeout_ms === null ? "none: two-phase commit" : span(view.timeout_ms)],
    ["open since", view.rank <= OPEN ? `${when(view.started_ms)} (${since(view.started_ms, view.now_ms)})` : "–"],
    [
      "partitions",
      view.partitions.length ? view.partitions.map((name, at) => [at ? ", " : "", partitionLink(name)]) : "–",
    ],
    [
      "acknowledgements of share groups that wait for it",
      view.pending === null ? "loading" : view.pending.length ? view.pending.map(waiting) : "–",
    ],
  ]);

const waiting = ({ group, partition, records }, at) => [
  at ? ", " : "",
  link(group, "group", { id: group }),
  " in ",
  partitionLink(partition),
  ` (${whole(records)})`,
];

const forceTerminate = (id) => ({
  action: "force-terminate",
  command: `odradek transactions force-terminate --transactional-id ${quoted(id)}`,
  title: `Force-terminate ${id}`,
  words:
    "This aborts the transaction, even if the external coordinator has decided to commit it; its records are then " +
    "lost. Its producer is fenced.",
  go: "Force-terminate",
  typed: id,
  body: () => ({ transactional_id: id }),
});
const abort = (id) => ({
  action: "abort",
  command: `odradek transactions abort --transactional-id ${quoted(id)}`,
  title: `Abort the transaction of ${id}`,
  words: "Readers of committed data continue without its records. Its producer is fenced, and gets an error.",
  go: "Abort",
  typed: id,
  body: () => ({ transactional_id: id }),
});
