import { find, link, partitionLink, transactionLink } from "../address.js";
import { color, empty, h, note, tag, title } from "../elements.js";
import { pages, table } from "../table.js";
import { when, whole } from "../text.js";

const SHOWN_RANGES = 12;
const LEAD = "Records in flight, by state. Share partitions whose acknowledgements wait for a transaction come " +
  "first, even if nobody fetches from them.";
const NONE = "No share group has any state yet. The first share consumer of any client creates it.";
const COLUMNS = [
  ["group", "name", "group"],
  ["partition", "name", "partition"],
  ["start", "n", "start_offset"],
  ["next", "n", "next_offset"],
  ["behind", "n", "behind"],
  ["states"],
  ["deliveries", "mono"],
  ["waits for"],
  ["in flight", "", "in_flight"],
];

export const shares = (view, query) => [
  title("Share partitions", LEAD),
  view.loading ? note("", h("p", {}, view.loading)) : null,
  find(query, "Group id"),
  view.partitions.length
    ? [table("Share partitions", COLUMNS, view.partitions, row, keyOf, true), pages(view, view.partitions.length)]
    : empty(NONE),
];

const keyOf = (each) => `${each.partition} ${each.group}`;
const row = (each) => {
  const states = Object.entries(each.states ?? {}).map(([state, count]) =>
    tag(`${state} ${whole(count)}`, color(state))
  );
  const deliveries = Object.entries(each.deliveries ?? {}).map(([times, count]) => `${whole(count)} × ${times}`);
  return [
    link(each.group, "group", { id: each.group }),
    partitionLink(each.partition),
    whole(each.start_offset),
    whole(each.next_offset),
    each.next_offset === undefined
      ? tag(each.failure ?? (each.phase === "stored" ? "nobody fetches" : each.phase), "wait")
      : whole(each.behind),
    h("div", { class: "ranges" }, states),
    deliveries.join(", ") || "–",
    each.pending.length ? each.pending.map((one, at) => [at ? ", " : "", holder(one)]) : "–",
    h("div", { class: "ranges" }, (each.ranges ?? []).slice(0, SHOWN_RANGES).map(range)),
  ];
};
const holder = ({ transactional_id: id, producer_id: producer, records }) => [
  id === null ? `producer ${producer}` : transactionLink(id),
  ` (${whole(records)})`,
];
const range = (each) => {
  const member = each.member ? `, by ${each.member}` : "";
  const lock = each.lock_until_ms ? `, lock until ${when(each.lock_until_ms)}` : "";
  const words = `${each.state}, delivered ${each.deliveries} times${member}${lock}`;
  const offsets = each.first === each.last ? whole(each.first) : `${whole(each.first)}–${whole(each.last)}`;
  return h("span", { class: `tag ${color(each.state)}`, title: words }, offsets);
};
