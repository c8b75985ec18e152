// Shows the view that the address names, and updates it from server-sent events.

import { NARROWED, route, SECTION, to } from "./address.js";
import { browse } from "./browse.js";
import { CHANGED } from "./dialog.js";
import { draw, Group, h, title } from "./elements.js";
import { first } from "./given.js";
import { cluster, clusterNote } from "./views/cluster.js";
import { clusters } from "./views/clusters.js";
import { connections } from "./views/connections.js";
import { group } from "./views/group.js";
import { groups } from "./views/groups.js";
import { overview } from "./views/overview.js";
import { partition } from "./views/partition.js";
import { records } from "./views/records.js";
import { acls, quotas, users } from "./views/security.js";
import { shares } from "./views/shares.js";
import { topic } from "./views/topic.js";
import { topics } from "./views/topics.js";
import { transaction } from "./views/transaction.js";
import { transactions } from "./views/transactions.js";
import { warnings } from "./views/warnings.js";

// Functions that turn the facts of a view and the parameters in the address into elements.
const VIEWS = {
  ...{ overview, transactions, transaction, topics, topic, partition, records },
  ...{ groups, group, shares, acls, users, quotas, connections, warnings, clusters, cluster },
};
const NAV = [
  ["overview", "Overview"],
  ["transactions", "Transactions"],
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["shares", "Share partitions"],
  ["acls", "Security"],
  ["connections", "Connections"],
  ["warnings", "Warnings"],
  ["clusters", "Clusters"],
];
// Parameters that filter, sort or page a view. Changing them does not switch the view.
const WITHIN = ["find", "sort", "from"];
const main = document.getElementById("main");
const live = document.getElementById("live");
const words = document.getElementById("live-words");
const pause = /** @type {HTMLButtonElement} */ (document.getElementById("pause"));
let stream = null;
let latest = null; // the view, its query and its facts, as of the last event
let isPaused = false;
let lostAt = null;

const isKnown = (view) => Object.hasOwn(VIEWS, view);
const isSelecting = () => {
  const selection = getSelection();
  return !selection.isCollapsed && (main.contains(selection.anchorNode) || main.contains(selection.focusNode));
};
const identity = ({ view, query }) =>
  JSON.stringify([view, Object.entries(query).filter(([name]) => !WITHIN.includes(name))]);

const content = ({ view, query, facts }) => {
  if (!isKnown(view)) return title(`There is no view ${view}`, "Choose a view in the navigation above.");
  return facts.error ? title("Not found", facts.error) : VIEWS[view](facts, query);
};
const paint = () => {
  if (!latest) return;
  const { query } = latest;
  const tree = h(Group, { key: identity(latest) }, query.cluster ? clusterNote(query.cluster) : null, content(latest));
  draw(tree, main);
  document.title = `${main.querySelector("h1").textContent} – Odradek`;
};
const isHeld = () => isPaused || isSelecting();
const say = () => {
  live.className = lostAt === null ? "on" : "";
  main.classList.toggle("stale", lostAt !== null);
  if (lostAt !== null) {
    words.textContent = `not connected since ${lostAt}: the broker is down or starting. The numbers are from that time`;
  } else words.textContent = isPaused ? "paused" : isSelecting() ? "paused while text is selected" : "live";
};
// Shows the latest facts, unless the user has paused the page or is selecting text in it.
const update = () => {
  if (!isHeld()) paint();
  say();
};

const show = () => {
  const { view, query } = route();
  const current = (name) => (SECTION[view] ?? "") === (SECTION[name] ?? name) ? "page" : null;
  const links = NAV.map(([name, text]) => h("a", { href: to(name), "aria-current": current(name) }, text));
  draw(links, document.getElementById("nav"));
  stream?.close();
  // isAsked: whether the user requested these facts, so that they are shown even if the page is paused.
  const changed = (facts, isAsked = false) => {
    lostAt = null;
    const isOther = isAsked || latest === null || identity(latest) !== identity({ view, query }) || isNarrowed;
    latest = { view, query, facts };
    isNarrowed = false;
    if (isOther) paint();
    update();
  };
  const lost = () => {
    lostAt ??= new Date().toTimeString().slice(0, 8);
    say();
  };
  stream = view === "records" ? browse(query, { changed, lost, isHeld }) : listen(view, query, changed, lost);
};
const listen = (view, query, changed, lost) => {
  const source = new EventSource(`/live/${isKnown(view) ? view : "overview"}?${new URLSearchParams(query)}`);
  source.onmessage = (event) => changed(JSON.parse(event.data));
  source.onerror = lost;
  return source;
};
// If true, the next event is the result of the user's last input, so it is shown even if the page is paused.
let isNarrowed = false;

let shown = route();
addEventListener("hashchange", () => {
  const isSame = identity(shown) === identity(route());
  shown = route();
  isNarrowed = true;
  show();
  if (isSame) return;
  getSelection().removeAllRanges();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener(NARROWED, () => {
  shown = route();
  isNarrowed = true;
  show();
});
addEventListener(CHANGED, () => {
  isNarrowed = true;
  show();
});
addEventListener("resize", update);
document.addEventListener("selectionchange", update);
pause.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.textContent = isPaused ? "Resume" : "Pause";
  update();
});
addEventListener("keydown", (event) => {
  const field = document.getElementById("find");
  if (event.key !== "/" || !field || /INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) return;
  field.focus();
  event.preventDefault();
});
if (first && route().view === "overview") {
  latest = { view: "overview", query: {}, facts: first };
  paint();
}
show();
