import { find } from "../address.js";
import { empty, more, table, title } from "../elements.js";
import { whole } from "../text.js";

const COLUMNS = [
  ["from", "mono"],
  ["software", "name"],
  ["version"],
  ["listener"],
  ["principal"],
  ["was told to use", "mono"],
];

export const connections = (view, query) => [
  title("Connections", Object.entries(view.software).map(([name, count]) => `${whole(count)} × ${name}`).join(" · ")),
  find(query, "Address or software"),
  view.connections.length
    ? [table("Connections", COLUMNS, view.connections.map(row)), more(view.total, view.connections.length)]
    : empty("Nobody is connected."),
];

const row = (each) => [each.from, each.software, each.version, each.listener, each.principal, each.told ?? "–"];
