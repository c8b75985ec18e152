import { find, link } from "../address.js";
import { empty, h, tag, title } from "../elements.js";
import { pages, table } from "../table.js";

const KINDS = [["acls", "ACLs"], ["users", "Users"], ["quotas", "Quotas"]];
const ACL_COLUMNS = [
  ["principal", "name", "principal"],
  ["permission", "", "permission"],
  ["operation", "", "operation"],
  ["resource", "", "resource"],
  ["name", "mono", "name"],
  ["pattern", "", "pattern"],
  ["host", "mono", "host"],
];
const USER_COLUMNS = [["user", "name", "user"], ["mechanism", "", "mechanism"], ["iterations", "n", "iterations"]];
const QUOTA_COLUMNS = [["for", "name", "entity"], ["limit", "mono", "limit"], ["value", "n", "value"]];
const ADD_ACL = "odradek acls add --allow-principal User:alice --operation Read --topic orders";
const ADD_USER = "odradek users set-password alice";
const ADD_QUOTA = "odradek quotas set --user alice producer_byte_rate=1048576";

const list = (words, command, columns, row) => (view, query, name, key) => [
  title(words, KINDS.map(([kind, text]) => [kind === name ? text : link(text, kind), " "])),
  find(query, "Name"),
  view[name].length ? [table(words, columns, view[name], row, key, true), pages(view, view[name].length)] : empty(
    query.find ? "No entry contains this text." : ["There are none yet. ", h("code", {}, command), " adds one."],
  ),
];
const showAcls = list("ACLs", ADD_ACL, ACL_COLUMNS, (each) => [
  each.principal,
  tag(each.permission),
  each.operation.toLowerCase(),
  each.resource,
  each.name,
  each.pattern,
  each.host,
]);
const showUsers = list("Users", ADD_USER, USER_COLUMNS, (each) => [each.user, each.mechanism, String(each.iterations)]);
const showQuotas = list("Quotas", ADD_QUOTA, QUOTA_COLUMNS, (each) => [each.entity, each.limit, String(each.value)]);
const all = (each) => JSON.stringify(each);

export const acls = (view, query) => showAcls(view, query, "acls", all);
export const users = (view, query) => showUsers(view, query, "users", all);
export const quotas = (view, query) => showQuotas(view, query, "quotas", all);
