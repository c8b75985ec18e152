import { find, link } from "../address.js";
import { shell } from "../command.js";
import { empty, tag, title } from "../elements.js";
import { pages, table } from "../table.js";
import { whole } from "../text.js";

const COLUMNS = [
  ["group", "name", "id"],
  ["type", "", "type"],
  ["state", "", "state"],
  ["partitions", "n", "partitions"],
  ["lag", "n", "lag"],
  ["without a commit", "n", "uncommitted"],
];

export const groups = (view, query) => [
  title("Groups"),
  find(query, "Group id"),
  view.groups.length
    ? [table("Groups", COLUMNS, view.groups, row, "id", true), pages(view, view.groups.length)]
    : empty(
      query.find ? "No group id contains this text." : ["No groups yet. ", shell(COMMAND), " creates one."],
    ),
];

const COMMAND = "odradek consume -G mygroup -t orders";

const row = (each) => [
  link(each.id, "group", { id: each.id }),
  each.type,
  tag(each.state),
  whole(each.partitions),
  whole(each.lag),
  each.uncommitted ? whole(each.uncommitted) : "–",
];
