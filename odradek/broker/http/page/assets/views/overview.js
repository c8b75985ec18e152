import { link, transactionLink } from "../address.js";
import { facts, h, note, title } from "../elements.js";
import { rate, size, span, whole } from "../text.js";

const SAMPLES = 60;
const samples = []; // the overviews of the last minute, used to compute rates

export const overview = (view) => {
  if (samples.at(-1) !== view) samples.push(view);
  if (samples.length > SAMPLES) samples.shift();
  const features = Object.entries(view.features).map(([name, level]) => `${name} ${level}`).join(", ");
  const about = [["version", view.version], ["cluster id", view.cluster_id], ["node id", view.node_id], [
    "features",
    features,
  ]];
  return [
    title("Overview", `${view.listeners.join(", ")} · data in ${view.data_directory}`),
    offline(view.offline),
    inDoubt(view.transactions),
    h(
      "dl",
      { class: "tiles" },
      trend("requests_total", "requests/s", rate),
      trend("records_in_total", "records in/s", rate),
      trend("bytes_in_total", "in/s", size),
      trend("bytes_out_total", "out/s", size),
    ),
    h("dl", { class: "tiles" }, tiles(view)),
    h("h2", {}, "This broker"),
    facts(about.map(([name, value]) => [name, h("span", { class: "mono" }, String(value))])),
  ];
};

const offline = (partitions) => {
  if (!partitions.length) return null;
  const words = `These partitions cannot be used: ${partitions.join(", ")}. The broker's log gives the reason.`;
  return note("bad", h("p", {}, words));
};
const inDoubt = (transactions) => {
  if (!transactions?.in_doubt) return null;
  const words = `${whole(transactions.in_doubt)} in doubt: only an external coordinator can decide. `;
  return note("doubt", h("p", {}, words, link("See which", "transactions")));
};

const tiles = (view) => {
  const { transactions, groups } = view;
  const kinds = groups ? `${groups.classic} classic, ${groups.consumer} consumer, ${groups.share} share` : null;
  const count = groups ? whole(groups.classic + groups.consumer + groups.share) : "loading";
  return [
    tile(
      "open transactions",
      transactions ? whole(transactions.open) : "loading",
      oldest(transactions?.oldest, view.now_ms),
    ),
    tile("groups", count, kinds),
    tile("topics", whole(view.topics), `${whole(view.partitions)} partitions, including internal ones`),
    tile("connections", whole(view.connections)),
    tile("logs", size(view.size_bytes), `${size(view.disk_free_bytes)} free`),
    tile("memory", size(view.memory_bytes), `up for ${span(view.now_ms - view.started_ms)}`),
    tile("warnings", whole(view.warnings), view.warnings ? link("read them", "warnings") : "none since the start"),
  ];
};
const tile = (name, value, small, picture) =>
  h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value, small ? h("small", {}, small) : null, picture));
const oldest = (transaction, now_ms) =>
  transaction
    ? [`oldest for ${span(now_ms - transaction.since_ms)}: `, transactionLink(transaction.id)]
    : "no reader waits for one";

// Shows a total as a rate, with a line chart of the last minute.
const trend = (total, words, show) => {
  const values = samples.slice(1).map((each, at) => {
    const grown = each[total] - samples[at][total];
    return Math.max(0, grown / Math.max(1, each.now_ms - samples[at].now_ms) * 1000);
  });
  return tile(words, values.length ? show(values.at(-1)) : "…", null, values.length > 1 ? sparkline(values) : null);
};
const sparkline = (values) => {
  const top = Math.max(...values, 1e-9);
  const path = values.map((value, at) => `${at ? "L" : "M"}${at} ${28 - value / top * 26}`).join("");
  const viewBox = `0 0 ${Math.max(values.length - 1, 1)} 30`;
  return h(
    "svg",
    { class: "spark", "aria-hidden": true, viewBox, preserveAspectRatio: "none" },
    h("path", { d: path }),
  );
};
