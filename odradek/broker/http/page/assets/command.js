// Builds the commands that do the same as the page, for users to paste into a shell.

import { route } from "./address.js";
import { h } from "./elements.js";
import { first } from "./given.js";

// Quotes a name for the shell, because the ids of groups and transactions may contain any characters.
export const quoted = (name) =>
  /^[\w@%+=:,.\/-]+$/.test(name) ? String(name) : `'${String(name).replaceAll("'", `'"'"'`)}'`;

const USUAL = "localhost:9092"; // the address to which a command connects without -b
const OWN = first.listeners?.[0]?.split("://")[1] ?? USUAL;

// Shows a command, with the address of the broker of the current view unless it is the usual one.
export const shell = (command) => {
  const address = route().query.cluster ? "HOST:PORT" : OWN;
  return h("code", {}, address === USUAL ? command : `${command} -b ${address}`);
};
