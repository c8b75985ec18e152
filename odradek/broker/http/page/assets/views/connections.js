import { find } from "../address.js";
import { empty, title } from "../elements.js";
import { pages, table } from "../table.js";
import { whole } from "../text.js";

const COLUMNS = [
  ["from", "mono", "from"],
  ["software", "name", "software"],
  ["version", "", "version"],
  ["listener", "", "listener"],
  ["principal", "", "principal"],
  ["address given to the client", "mono"],
];

export const connections = (view, query) => [
  title("Connections", Object.entries(view.software).map(([name, count]) => `${whole(count)} × ${name}`).join(" · ")),
  find(query, "Address or software"),
  view.connections.length
    ? [table("Connections", COLUMNS, view.connections, row, "from", true), pages(view, view.connections.length)]
    : empty("No connections."),
];

const row = (each) => [each.from, each.software, each.version, each.listener, each.principal, each.told ?? "–"];
