// Shows the topology of a streams group: a picture, the topics of each subtopology, and the members that run its tasks.

import { link } from "../address.js";
import { empty, h, tag } from "../elements.js";
import { table } from "../table.js";
import { count, whole } from "../text.js";

const OWNER_COLUMNS = [
  ["member", "name", "id"],
  ["client", "", "client"],
  ["from", "mono", "host"],
  ["epoch", "n", "epoch"],
  ["process", "mono"],
  ["active tasks", "mono"],
  ["standby tasks", "mono"],
];
const TOPIC_COLUMNS = [["subtopology", "name"], ["role", ""], ["topic", "name"], ["partitions", "n"]];

export const owners = ({ owners }) =>
  owners.length
    ? table("Members", OWNER_COLUMNS, owners, ownerRow, "id")
    : empty("The group has no members now. Its next member gets all tasks.");

const ownerRow = (each) => [
  [
    each.id,
    each.instance ? [" ", tag(`static: ${each.instance}`)] : null,
    each.endpoint ? [" ", tag(`serves queries at ${each.endpoint}`)] : null,
  ],
  each.client,
  each.host,
  whole(each.epoch),
  each.process,
  each.active.join(", ") || "none",
  each.standby.join(", ") || "none",
];

export const topology = (view) => [
  h("h2", {}, "Topology"),
  h(
    "p",
    {},
    `${count(view.subtopology_count, "subtopology", "subtopologies")}, topology epoch ${whole(view.topology_epoch)}, ` +
      `assignment epoch ${whole(view.assignment_epoch)}.`,
  ),
  picture(view.subtopologies),
  table("Topics of the topology", TOPIC_COLUMNS, view.subtopologies.flatMap(topicsOf), topicRow, keyOfTopic),
  view.description
    ? [h("h2", {}, "Description that a member has sent"), h("pre", {}, view.description.join("\n"))]
    : null,
];

const topicsOf = (each) => [
  ...each.sources.map((name) => [each.id, "source", name, null]),
  ...each.repartition_sources.map((topic) => [each.id, "repartition source", topic.name, topic.partitions]),
  ...each.repartition_sinks.map((name) => [each.id, "repartition sink", name, null]),
  ...each.changelogs.map((topic) => [each.id, "changelog", topic.name, topic.partitions]),
];
const keyOfTopic = ([id, role, name]) => JSON.stringify([id, role, name]);
const topicRow = ([id, role, name, partitions]) => [
  id,
  role,
  link(name, "topic", { name }),
  partitions ? whole(partitions) : "–",
];

// The picture has a box for each subtopology, one below the other. Arrows from the left are its source topics. Arrows
// on the right are repartition topics that lead from one box to another.

const LEFT = 240, WIDTH = 220, HEIGHT = 58, STEP = 84, RIGHT = 300, MAX_DRAWN = 12;

const picture = (all) => {
  const boxes = all.slice(0, MAX_DRAWN);
  if (!boxes.length) return null;
  const about = "A box for each subtopology. The table below names the same topics.";
  const [width, height] = [LEFT + WIDTH + RIGHT, boxes.length * STEP];
  const given = {
    class: "picture",
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": about,
  };
  const left = all.length - boxes.length;
  return h(
    "figure",
    {},
    h("svg", given, boxes.map(box), boxes.map((each, place) => arrows(each, place, boxes))),
    h("figcaption", {}, LEGEND, left ? ` ${count(left, "more subtopology", "more subtopologies")} below.` : null),
  );
};
const LEGEND = "Arrows from the left are source topics, and arrows on the right are repartition topics.";

const box = (each, place) => {
  const y = place * STEP + 8;
  const tasks = each.tasks === null ? "waits for its topics" : count(each.tasks, "task");
  const stores = each.changelogs.length ? `, ${count(each.changelogs.length, "store")}` : "";
  return h(
    "g",
    {},
    h("rect", { class: "shape", x: LEFT, y, width: WIDTH, height: HEIGHT, rx: 6 }),
    h("text", { class: "lane", x: LEFT + 12, y: y + 24 }, `Subtopology ${short(each.id, 22)}`),
    h("text", { x: LEFT + 12, y: y + 42 }, tasks + stores),
  );
};

const arrows = (each, place, boxes) => {
  const y = place * STEP + 8 + HEIGHT / 2;
  const sources = each.sources.length ? [arrowIn(y, namesOf(each.sources))] : [];
  const sinks = each.repartition_sinks.map((name, number) => {
    const reader = boxes.findIndex((other) => other.repartition_sources.some((topic) => topic.name === name));
    return reader < 0 ? null : arrowBetween(y - 8 + 5 * number, reader * STEP + 16 + HEIGHT / 2, name, number);
  });
  return h("g", {}, sources, sinks);
};
const arrowIn = (y, words) => [
  h("path", { class: "flow", d: `M 8 ${y} H ${LEFT - 8}` }),
  head(LEFT - 8, y, 1),
  h("text", { class: "label", x: 8, y: y - 6 }, words),
];
const arrowBetween = (from, to, name, number) => {
  const edge = LEFT + WIDTH;
  const turn = edge + 26 + 10 * number;
  return [
    h("path", { class: "flow", d: `M ${edge} ${from} H ${turn} V ${to} H ${edge + 8}` }),
    head(edge + 8, to, -1),
    h("text", { class: "label", x: turn + 6, y: (from + to) / 2 + 4 + 12 * number }, short(name, 40)),
  ];
};
const head = (x, y, way) => h("path", { class: "flow-head", d: `M ${x + 7 * way} ${y} l ${-8 * way} -4 v 8 z` });

const namesOf = (names) => {
  const first = short(names[0], names.length > 1 ? 24 : 34);
  return names.length > 1 ? `${first} and ${names.length - 1} more` : first;
};
const short = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
