// Draws the diagram of a timeline as SVG.

import { route } from "./address.js";
import { doing } from "./dialog.js";
import { h } from "./elements.js";
import { layout } from "./layout.js";
import { control } from "./views/clusters.js";

export const pictureOf = (picture) => {
  if (!picture?.times.length) return null;
  const main = document.getElementById("main");
  const { paddingLeft, paddingRight } = getComputedStyle(main);
  const drawn = layout(picture, main.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight));
  const about =
    "A lane for the coordinator and one per partition; time runs to the right. The list below has the same events.";
  const given = { class: "picture", width: drawn.width, height: drawn.height, role: "img", "aria-label": about };
  return [
    h(
      "figure",
      {},
      h("svg", given, drawn.shapes.map(([name, attributes, text]) => h(name, attributes, text))),
      h(
        "figcaption",
        {},
        LEGEND,
        CLOCK[picture.clock],
        picture.left_out ? " Earlier events are in the list below." : null,
      ),
    ),
    picture.words.map((each) => h("p", { class: "note" }, each)),
    h("div", { class: "buttons" }, picture.holds.map(release)),
  ];
};
const LEGEND =
  "Events are in order, but not to scale. Bars are batches, diamonds are markers, and two bars are a hold. The " +
  "dashed line is the last stable offset, where readers of committed data wait.";
const CLOCK = {
  broker: " All times are from the broker’s clock.",
  producers: " All times are from the producers’ clocks.",
};
const release = (name) => {
  const id = route().query.cluster ?? "default";
  const path = `/clusters/${encodeURIComponent(id)}/holds/${encodeURIComponent(name)}/release`;
  return doing(`Release ${name}`, () => control("POST", path, {}));
};
