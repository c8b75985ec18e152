import { find, link } from "../address.js";
import { empty, h, more, table, tag, title } from "../elements.js";
import { whole } from "../text.js";

const COLUMNS = [["group", "name"], ["type"], ["state"], ["partitions with offsets", "n"], ["lag", "n"]];

export const groups = (view, query) => [
  title("Groups"),
  find(query, "Group id"),
  view.groups.length ? [table("Groups", COLUMNS, view.groups.map(row)), more(view.total, view.groups.length)] : empty(
    query.find
      ? "No group contains this."
      : ["No group yet. ", h("code", {}, "odradek consume -G mygroup orders"), " makes one."],
  ),
];

const row = (each) => [
  link(each.id, "group", { id: each.id }),
  each.type,
  tag(each.state),
  whole(each.partitions),
  whole(each.lag),
];
