import { find, link } from "../address.js";
import { quoted, shell } from "../command.js";
import { button, wholeOr } from "../dialog.js";
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
  ["change"],
];
const USER_COLUMNS = [["user", "name", "user"], ["mechanism", "", "mechanism"], ["iterations", "n", "iterations"], [
  "change",
]];
const QUOTA_COLUMNS = [["for", "name", "entity"], ["limit", "mono", "limit"], ["value", "n", "value"], ["change"]];
const ADD_ACL = "odradek acls add --allow-principal User:alice --operation Read --topic orders";
const ADD_USER = "odradek users set-password alice";
const ADD_QUOTA = "odradek quotas set --user alice producer_byte_rate=1048576";
const OPERATIONS = [
  ...["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "ALL", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"],
  ...["CLUSTER_ACTION", "IDEMPOTENT_WRITE", "TWO_PHASE_COMMIT", "CREATE_TOKENS", "DESCRIBE_TOKENS"],
];
const RESOURCES = ["TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER", "DELEGATION_TOKEN", "USER"];
const MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256"];
const LIMITS = [
  ...["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"],
  "connection_creation_rate",
];

const list = (words, add, columns, row) => (view, query, name, key) => [
  title(words, KINDS.map(([kind, text]) => [kind === name ? text : link(text, kind), " "])),
  h("div", { class: "bar" }, find(query, "Name"), add.map(([words, given]) => button(words, given))),
  view[name].length ? [table(words, columns, view[name], row, key, true), pages(view, view[name].length)] : empty(
    query.find ? "No entry contains this text." : ["There are none yet. ", shell(add[0][1].command), " adds one."],
  ),
];

const ADD = {
  action: "add-acl",
  command: ADD_ACL,
  title: "Add an ACL",
  words: "An ACL allows or denies an operation to a principal. ACLs take effect only if the broker has an authorizer.",
  go: "Add",
  fields: [
    ["principal", "Principal", { required: true, placeholder: "User:alice" }],
    ["permission", "Permission", { options: ["ALLOW", "DENY"] }],
    ["operation", "Operation", { options: OPERATIONS }],
    ["resource", "Resource", { options: RESOURCES }],
    ["name", "Name of the resource", { placeholder: "orders, or * for all" }],
    ["pattern", "The name is", { options: [["LITERAL", "the whole name"], ["PREFIXED", "a prefix"]] }],
    ["host", "From the address", { placeholder: "any" }],
  ],
  body: (given) => ({ ...given, name: given.name || null, host: given.host || null }),
};
const RESOURCE_OPTIONS = { user: "user-principal" }; // the options whose names differ from their resources
const remove = ({ principal, permission, operation, resource, name, pattern, host }) => {
  const kind = permission.toLowerCase();
  const whom = `--${kind}-principal ${quoted(principal)}${host === "*" ? "" : ` --${kind}-host ${quoted(host)}`}`;
  const option = RESOURCE_OPTIONS[resource] ?? resource.replace(" ", "-");
  const type = pattern === "literal" ? "" : ` --resource-pattern-type ${pattern}`;
  const what = resource === "cluster" ? "--cluster" : `--${option} ${quoted(name)}${type}`;
  return {
    action: "remove-acl",
    command: `odradek acls remove ${whom} --operation ${operation} ${what}`,
    title: "Remove an ACL",
    words: `${permission} ${principal} ${operation} on ${resource} ${name} (${pattern}) from ${host}. ` +
      "This takes effect immediately.",
    go: "Remove",
    isDanger: true,
    body: () => ({ principal, permission, operation, resource, name, pattern, host }),
  };
};

const setPassword = (user = "") => ({
  action: "set-password",
  command: user ? `odradek users set-password ${quoted(user)}` : ADD_USER,
  title: user ? `Change the password of ${user}` : "Add a user",
  words: "The user will log in with SCRAM. Existing connections stay open.",
  go: user ? "Change" : "Add",
  fields: [
    ["user", "User", { required: true, value: user, readonly: user !== "" }],
    ["password", "Password", { required: true, type: "password" }],
    ["mechanism", "Mechanism", { options: MECHANISMS }],
  ],
  body: (given) => given,
});
const deletePassword = ({ user, mechanism }) => ({
  action: "delete-password",
  command: `odradek users delete-password ${quoted(user)} --mechanism ${mechanism}`,
  title: `Delete the ${mechanism} password of ${user}`,
  words: "The user can no longer log in with this password. Existing connections stay open.",
  go: "Delete",
  isDanger: true,
  body: () => ({ user, mechanism }),
});

const SET_QUOTA = {
  action: "set-quota",
  command: ADD_QUOTA,
  title: "Set a quota",
  words: "Name a user, a client id, both, or an address.",
  go: "Set",
  fields: [
    ["user", "User", { placeholder: "alice" }],
    ["client_id", "Client id", {}],
    ["ip", "Address", {}],
    ["limit", "Limit", { options: LIMITS }],
    ["value", "Value", { type: "number", min: 0, step: "any", required: true }],
  ],
  body: ({ user, client_id, ip, limit, value }) => ({
    user: user || null,
    client_id: client_id || null,
    ip: ip || null,
    limit,
    value: wholeOr(value, null),
  }),
};
const ENTITY_OPTIONS = { user: "user", client_id: "client", ip: "ip" };
const removeQuota = ({ entity, of, limit }) => {
  const options = Object.entries(of).map(([kind, name]) =>
    name === "" ? `--${ENTITY_OPTIONS[kind]}-defaults` : `--${ENTITY_OPTIONS[kind]} ${quoted(name)}`
  );
  const entities = options.join(" ");
  return {
    action: "set-quota",
    command: `odradek quotas unset ${entities} ${limit}`,
    title: `Remove the quota ${limit}`,
    words: `This removes the quota of ${entity}.`,
    go: "Remove",
    isDanger: true,
    body: () => ({ ...of, limit }),
  };
};

const showAcls = list("ACLs", [["Add an ACL…", ADD]], ACL_COLUMNS, (each) => [
  each.principal,
  tag(each.permission),
  each.operation.toLowerCase(),
  each.resource,
  each.name,
  each.pattern,
  each.host,
  button("Remove…", remove(each)),
]);
const showUsers = list("Users", [["Add a user…", setPassword()]], USER_COLUMNS, (each) => [
  each.user,
  each.mechanism,
  String(each.iterations),
  [button("Change…", setPassword(each.user)), " ", button("Delete…", deletePassword(each))],
]);
const showQuotas = list("Quotas", [["Set a quota…", SET_QUOTA]], QUOTA_COLUMNS, (each) => [
  each.entity,
  each.limit,
  String(each.value),
  button("Remove…", removeQuota(each)),
]);
const all = (each) => JSON.stringify(each);

export const acls = (view, query) => showAcls(view, query, "acls", all);
export const users = (view, query) => showUsers(view, query, "users", all);
export const quotas = (view, query) => showQuotas(view, query, "quotas", all);
