import { find, transactionLink } from "../address.js";
import { empty, h, note, tag, title } from "../elements.js";
import { pages, table } from "../table.js";
import { span, whole } from "../text.js";
import { heldNote } from "../timeline.js";

// Ranks of transactions. The lower the rank, the more urgently the transaction needs a decision.
export const IN_DOUBT = 0;
export const OPEN = 1;
const SHOWN_PARTITIONS = 4;
const COLUMNS = [
  ["transactional id", "name", "id"],
  ["state", "", "state"],
  ["open, or last change", "n"],
  ["producer id / epoch", "n", "producer_id"],
  ["partitions", "mono"],
  ["share acknowledgements", "n"],
];
const NONE = "No transactional ids yet. A producer with ";
const MADE = " creates one when it calls initTransactions.";

export const transactions = (view, query) => [
  title("Transactions", "Transactions in doubt come first, then open ones, those being written, and ended ones."),
  view.loading ? note("", h("p", {}, view.loading)) : null,
  view.held.map(heldNote),
  find(query, "Transactional id"),
  view.transactions.length
    ? [
      table("Transactions", COLUMNS, view.transactions, (each) => row(each, view.now_ms), "id", true),
      pages(view, view.transactions.length),
    ]
    : empty(query.find ? "No transactional id contains this text." : [NONE, h("code", {}, "transactional.id"), MADE]),
];

const row = (each, now_ms) => [
  transactionLink(each.id),
  [stateTag(each), each.is_kept ? [" ", tag("kept", "doubt")] : null],
  each.rank <= OPEN && each.started_ms ? age(each, now_ms) : span(now_ms - each.updated_ms) + " ago",
  `${each.producer_id} / ${whole(each.producer_epoch)}`,
  partitions(each.partitions),
  each.pending_records === null ? "loading" : each.pending_records ? whole(each.pending_records) : "–",
];
export const stateTag = (each) => each.rank === IN_DOUBT ? tag("in doubt", "doubt") : tag(each.state);
const age = (each, now_ms) => {
  const open_ms = now_ms - each.started_ms;
  if (!each.timeout_ms) return span(open_ms);
  const filled = h("i", { style: `width:${Math.min(100, open_ms / each.timeout_ms * 100)}%` });
  return [span(open_ms), h("div", { class: "age", title: `of ${span(each.timeout_ms)}` }, filled)];
};
const partitions = (names) => {
  if (!names.length) return "–";
  const others = names.length - SHOWN_PARTITIONS;
  return names.slice(0, SHOWN_PARTITIONS).join(", ") + (others > 0 ? ` and ${others} more` : "");
};
