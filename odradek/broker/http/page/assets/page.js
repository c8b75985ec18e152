// Shows the view that the address names, and updates it from server-sent events.

import { route, SECTION, to } from "./address.js";
import { CHANGED } from "./dialog.js";
import { flat, h, title } from "./elements.js";
import { first } from "./given.js";
import { cluster, clusterNote } from "./views/cluster.js";
import { clusters } from "./views/clusters.js";
import { connections } from "./views/connections.js";
import { group } from "./views/group.js";
import { groups } from "./views/groups.js";
import { overview } from "./views/overview.js";
import { partition } from "./views/partition.js";
import { records } from "./views/records.js";
import { shares } from "./views/shares.js";
import { topic } from "./views/topic.js";
import { topics } from "./views/topics.js";
import { transaction } from "./views/transaction.js";
import { transactions } from "./views/transactions.js";
import { warnings } from "./views/warnings.js";

// Functions that turn the facts of a view, and the parameters in the address, into elements.
const VIEWS = {
  ...{ overview, transactions, transaction, topics, topic, partition, records },
  ...{ groups, group, shares, connections, warnings, clusters, cluster },
};
const NAV = [
  ["overview", "Overview"],
  ["transactions", "Transactions"],
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["shares", "Share partitions"],
  ["connections", "Connections"],
  ["warnings", "Warnings"],
  ["clusters", "Clusters"],
];
const main = document.getElementById("main");
const live = document.getElementById("live");
const words = document.getElementById("live-words");
let stream = null;
let paintAgain = () => {};

// The elements that can have the focus or be scrolled. They keep both when the view is painted again.
const marks = () => /** @type {HTMLElement[]} */ ([...main.querySelectorAll("a, button, .scroll")]);
const findField = () => /** @type {HTMLInputElement | null} */ (document.getElementById("find"));

const paint = (name, query, view) => {
  const searching = findField();
  const typed = searching && document.activeElement === searching ? searching.selectionStart : null;
  const active = main.contains(document.activeElement) ? document.activeElement : null;
  if (active?.closest("form") && typed === null) return; // the user is filling in a form
  const kept = marks().map((each) => ({ left: each.scrollLeft, hasFocus: each === active }));
  main.replaceChildren(...flat([
    query.cluster ? clusterNote(query.cluster) : null,
    view.error ? title("Not found", view.error) : VIEWS[name](view, query),
  ]));
  const now = marks();
  if (kept.length === now.length) {
    now.forEach((each, at) => {
      each.scrollLeft = kept[at].left;
      if (kept[at].hasFocus) each.focus({ preventScroll: true });
    });
  }
  const field = findField();
  if (typed !== null && field) {
    field.focus();
    field.setSelectionRange(typed, typed);
  }
  document.title = `${main.querySelector("h1").textContent} – Odradek`;
};

const show = () => {
  const { view, query } = route();
  const current = (name) => SECTION[view] === name ? "page" : null;
  const links = NAV.map(([name, text]) => h("a", { href: to(name), "aria-current": current(name) }, text));
  document.getElementById("nav").replaceChildren(...links);
  stream?.close();
  stream = new EventSource(`/live/${view}?${new URLSearchParams(query)}`);
  stream.onmessage = (event) => {
    live.className = "on";
    words.textContent = "live";
    paintAgain = () => paint(view, query, JSON.parse(event.data));
    paintAgain();
  };
  stream.onerror = () => {
    live.className = "";
    words.textContent = "not connected: the broker is away, or starting";
  };
};

addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener(CHANGED, show);
addEventListener("resize", () => paintAgain());
addEventListener("keydown", (event) => {
  const field = findField();
  if (event.key !== "/" || !field || /INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) return;
  field.focus();
  event.preventDefault();
});
if (first && route().view === "overview") paint("overview", {}, first);
show();
