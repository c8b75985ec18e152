// Computes the shapes of a timeline's diagram from its lanes and columns, for the available width. Columns that do not
// fit are wrapped like lines of text, so nothing is cut off.

import { count, when } from "./text.js";

const COLUMN = 92;
const WIDEST = 150;
const LETTER = 6.9; // maximum width of a letter in the small font
const LINE = 14;
const MAX_LINES = 6;
const ROOM = 12; // space above and below the symbols of a lane

const wrap = (text, most) => {
  const letters = Math.max(1, most);
  const lines = [];
  let line = "";
  for (const word of String(text).split(" ")) {
    let rest = word;
    if (line && line.length + 1 + rest.length <= letters) {
      line += ` ${rest}`;
      continue;
    }
    if (line) lines.push(line);
    while (rest.length > letters) {
      lines.push(rest.slice(0, letters));
      rest = rest.slice(letters);
    }
    line = rest;
  }
  lines.push(line);
  return lines.length > MAX_LINES ? [...lines.slice(0, MAX_LINES - 1), "…"] : lines;
};

// Returns the shapes as [element, attributes, text], and the total width and height.
export const layout = (picture, room) => {
  const width = Math.max(COLUMN, room);
  const fits = Math.max(1, Math.floor(width / COLUMN));
  const columns = picture.times.length;
  const step = Math.min(WIDEST, Math.floor(width / Math.min(fits, Math.max(columns, 1))));
  const shapes = [];
  let y = 0;
  for (let first = 0; first < columns; first += fits) {
    y = band(picture, { first, last: Math.min(first + fits, columns), step, width, columns, shapes }, y) + 10;
  }
  return { width, height: y, shapes };
};

const band = (picture, of, y) => {
  const { first, last, step, width, shapes } = of;
  const letters = Math.floor((step - 6) / LETTER);
  picture.lanes.forEach((lane, number) => {
    for (const line of wrap(laneName(lane), Math.floor(width / LETTER))) {
      y += LINE;
      shapes.push(["text", { x: 0, y, class: "lane" }, line]);
    }
    const top = y + 4;
    const middle = top + ROOM;
    const right = (last - first) * step;
    shapes.push(["line", { x1: 0, y1: middle, x2: right, y2: middle, class: "track" }]);
    let below = middle + ROOM;
    for (const event of picture.events) {
      if (event.lane !== number || event.column < first || event.column >= last) continue;
      const x = (event.column - first) * step;
      const lines = event.label.flatMap((each) => wrap(each, letters));
      shapes.push(...symbol(event, x, step, middle));
      lines.forEach((line, at) => {
        shapes.push(["text", { x: x + 3, y: middle + ROOM + 10 + at * LINE, class: "label" }, line]);
      });
      below = Math.max(below, middle + ROOM + 10 + lines.length * LINE - 8);
    }
    const stable = lane.stable_column;
    if (stable !== null && stable >= first && (stable < last || (stable === last && last === of.columns))) {
      const x = Math.max(1, Math.min((stable - first) * step, width - 1));
      shapes.push(["line", { x1: x, y1: top, x2: x, y2: below, class: "stable" }]);
    }
    y = below + 4;
  });
  let day = null;
  picture.times.slice(first, last).forEach((at_ms, at) => {
    if (at_ms === null) return;
    const [date, time] = when(at_ms).split(" ");
    const words = date === day ? [time] : [time, date];
    day = date;
    words.forEach((each, line) => {
      shapes.push(["text", { x: at * step + 3, y: y + LINE * (line + 1), class: "time" }, each]);
    });
  });
  return y + 2 * LINE + 4;
};

const laneName = (lane) => {
  if (lane.last_stable === null) return lane.name;
  const left = lane.end - lane.last_stable;
  return `${lane.name}: last stable offset ${lane.last_stable}${
    left ? `, before ${count(left, "record")}` : ", the end"
  }`;
};

const symbol = ({ kind, tone }, x, step, y) => {
  const shape = `shape ${kind} ${tone}`;
  const center = x + 12;
  if (kind === "batch") return [["rect", { x: x + 3, y: y - 7, width: step - 10, height: 14, rx: 3, class: shape }]];
  if (kind === "marker") {
    const points = `${center - 9},${y} ${center},${y - 9} ${center + 9},${y} ${center},${y + 9}`;
    return [["polygon", { points, class: shape }]];
  }
  if (kind === "hold") {
    return [-6, 2].map((left) => ["rect", { x: center + left, y: y - 9, width: 5, height: 18, class: shape }]);
  }
  return [["circle", { cx: center, cy: y, r: 7, class: shape }]];
};
