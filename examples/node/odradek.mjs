// Fresh Kafka clusters for tests: `const kafka = await odradek(t)`, where `t` is the context of node:test or vitest.
//
// The first test starts Odradek. To use a control interface that is already running, set ODRADEK_CONTROL=HOST:PORT, and
// ODRADEK_TOKEN if it requires a token.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { Agent, request } from "node:http";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";

const START = `trap '' HUP INT TERM; folder=$(mktemp -d); trap 'kill $!; wait; rm -r "$folder"' EXIT
if command -v odradek >/dev/null; then set -- odradek; else set -- python3 -m odradek; fi
"$@" serve --control --ephemeral --port 0 --override odradek.http.port=0 \\
  --ready-file "$folder/ready" >"$folder/log" 2>&1 </dev/null &
until [ -s "$folder/ready" ]; do kill -0 $! || { cat "$folder/log" >&2; exit 1; }; sleep 0.01; done
cat "$folder/ready"; exec >/dev/null 2>&1; cat`;

const AGENT = new Agent({ keepAlive: true });
const TOKEN = process.env.ODRADEK_TOKEN ?? "";

let address;

async function start() {
  if (process.env.ODRADEK_CONTROL) return process.env.ODRADEK_CONTROL;
  const shell = spawn("sh", ["-c", START], { stdio: ["pipe", "pipe", "inherit"] });
  const [ready] = await Promise.race([once(shell.stdout, "data"), once(shell.stdout, "end")]);
  if (!ready) throw new Error("odradek serve --control did not start");
  // The shell ends when its standard input is closed. It does not keep this process alive.
  for (const each of [shell, shell.stdin, shell.stdout]) each.unref();
  return `127.0.0.1:${JSON.parse(ready).http_port}`;
}

async function begin(method, path, body) {
  address ??= start();
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${TOKEN}` };
  const call = request(`http://${await address}/control/v1${path}`, { method, headers, agent: AGENT });
  const [answer] = await once(call.end(body && JSON.stringify(body)), "response");
  return answer;
}

async function send(method, path, body) {
  const answer = await begin(method, path, body);
  const told = await text(answer);
  if (answer.statusCode < 400) return JSON.parse(told);
  const error = new Error(`${method} ${path} ${JSON.stringify(body)}: ${told}`);
  throw Object.assign(error, { status: answer.statusCode, problem: JSON.parse(told) });
}

const clusters = new Set(); // clusters that no test has deleted yet
// If a hook fails, node:test skips the hooks after it, including the one that deletes the cluster.
process.once("beforeExit", () => Promise.allSettled([...clusters].map((each) => each.delete())));

/**
 * A Kafka cluster of one or more nodes. docs/testing.md of Odradek describes rules, conditions and responses. If the
 * control interface refuses a call, the method rejects with an Error that has the properties `status` and `problem`.
 */
export class Cluster {
  constructor({ id, bootstrap, listeners = [], ca_certificate, client_certificates, schema_registry }, options, test) {
    this.test = test;
    this.ruled = "preset" in options || "fork" in options; // if true, the cluster may have rules
    this.id = id;
    this.brokers = bootstrap.split(",");
    this.listeners = listeners; // each with name, protocol, bootstrap and mechanisms
    this.caCertificate = ca_certificate; // PEM
    this.clientCertificates = client_certificates ?? {}; // PEM of key and certificate, by user
    this.schemaRegistry = schema_registry; // URL, or null if the cluster has no schema registry
    this.path = `/clusters/${id}`;
    clusters.add(this);
  }

  /** Sends any request to the control interface. */
  call(method, path, body) {
    this.ruled = true;
    return send(method, this.path + path, body);
  }

  /**
   * Adds a rule or a list of rules, and resolves to them. The test fails at its end if one of them has had no effect.
   */
  fault(rule) {
    return this.call("POST", "/faults", rule);
  }

  /** Resolves to the rules with counters: `matched`, `hits`, and `unmade` for responses that could not be edited. */
  faults() {
    return this.call("GET", "/faults");
  }

  /** Rejects if a rule matched nothing, or could not edit any response. The same check runs at the end of the test. */
  async checkFaults() {
    const unused = (await this.faults()).filter((rule) => rule.matched === rule.unmade && rule.unused !== "ok");
    if (unused.length) throw new Error(`these rules have done nothing: ${JSON.stringify(unused)}`);
  }

  /** Deletes the rule with this name, or all rules. Requests that wait at their holds continue. */
  clearFaults(name) {
    return this.call("DELETE", name === undefined ? "/faults" : `/faults/${encodeURIComponent(name)}`);
  }

  /** Resolves to the number of waiting requests and broker steps, by name of the hold. */
  async holds() {
    const found = await this.call("GET", "/holds");
    return Object.fromEntries(found.map((hold) => [hold.name, hold.waiting]));
  }

  /** Lets all requests and broker steps that wait at this hold continue, and resolves to their number. */
  async release(hold) {
    return (await this.call("POST", `/holds/${encodeURIComponent(hold)}/release`, {})).released;
  }

  /** Waits up to ten seconds (`timeout_ms`) for a condition to hold, and resolves to its facts. */
  wait(condition) {
    return this.call("POST", "/wait", condition);
  }

  /** Resolves to the last exchanges, decoded, oldest first. `{ since, api, client_id, limit }` selects some of them. */
  requests(where = {}) {
    return this.call("GET", `/requests?${new URLSearchParams(where)}`);
  }

  /** Resolves to the leader, epoch and offsets of each partition. */
  partitions() {
    return this.rows("partitions");
  }

  /** Resolves to each transactional id with its state, its producer and the partitions of its transaction. */
  transactions() {
    return this.rows("transactions");
  }

  /** Resolves to the groups of all types with their state and members. */
  groups() {
    return this.rows("groups");
  }

  /** Resolves to the share partitions in memory with their records in flight. */
  sharePartitions() {
    return this.rows("share_partitions");
  }

  /** Resolves to the state of each producer id in each partition. */
  producers() {
    return this.rows("producers");
  }

  /** Resolves to the fetch sessions and share sessions. */
  sessions() {
    return this.rows("sessions");
  }

  /** Resolves to the open connections. */
  connections() {
    return this.rows("connections");
  }

  async rows(name) {
    const found = [];
    for (let more = true; more; ) {
      const page = await this.call("GET", `/${name}?skip=${found.length}`);
      found.push(...page.rows);
      more = page.more;
    }
    return found;
  }

  /**
   * Brings the cluster into a rare state, as in `preset("open-transaction", { topic: "orders" })`. Resolves to its
   * facts.
   */
  preset(name, parameters = {}) {
    return this.call("POST", `/presets/${encodeURIComponent(name)}`, parameters);
  }

  /** Resolves to the available presets with their parameters. */
  presets() {
    return this.call("GET", "/presets");
  }

  /**
   * Makes the cluster give responses that are rare but lawful; seed 0 turns them off. Without a seed, it only resolves
   * to the current seed and how often each kind of rare response was given.
   */
  odd(seed, percent = {}) {
    return seed === undefined ? this.call("GET", "/odd") : this.call("POST", "/odd", { seed, percent });
  }

  /** Creates a copy of this cluster, which is deleted at the end of the same test. */
  fork() {
    return odradek(this.test, { fork: this.id });
  }

  /** Saves a copy of the log and the clock under this name. */
  checkpoint(name) {
    return this.call("POST", "/checkpoint", { name });
  }

  /** Restores a checkpoint. It closes all connections; the ports stay the same. */
  rewind(name) {
    return this.call("POST", "/rewind", { name });
  }

  /** Stops the cluster, and leaves on the disk exactly what `kill -9` would leave. */
  crash() {
    return this.call("POST", "/crash", {});
  }

  /** Stops the cluster and starts it again on the same ports. If `clean` is false, it crashes first. */
  restart({ clean = true } = {}) {
    return this.call("POST", "/restart", { clean });
  }

  /** Resolves to the `id`, `host`, `port` and `state` of each node. */
  async nodes() {
    return (await this.call("GET", "")).nodes;
  }

  /**
   * Stops a node. If `clean` is true, other nodes become leaders of its partitions. Otherwise the node is killed, and
   * metadata lists it for another 9 s of the cluster's clock.
   */
  stopNode(node, { clean = true } = {}) {
    return this.call("POST", `/nodes/${node}/stop`, { clean });
  }

  startNode(node) {
    return this.call("POST", `/nodes/${node}/start`, {});
  }

  /** Makes the node unreachable for this client. It adds a rule; delete the rule to undo this. */
  cutOff(node, clientId) {
    return this.call("POST", `/nodes/${node}/unreachable_for`, { client_id: clientId });
  }

  /** Makes the node the leader of the partition, in a new leader epoch. */
  moveLeader(topic, partition, node) {
    return this.call("POST", `/partitions/${encodeURIComponent(topic)}/${partition}/leader`, { node });
  }

  /** Moves a coordinator to the node, where it reads its log again. The kind is `group`, `transaction` or `share`. */
  moveCoordinator(kind, key, node) {
    return this.call("POST", `/coordinators/${kind}/${encodeURIComponent(key)}`, { node });
  }

  /** Sets the rack of a node. Leaders then send consumers in this rack to the node (KIP-392). Null removes the rack. */
  putInRack(node, rack) {
    return this.call("POST", `/nodes/${node}/rack`, { rack });
  }

  /** Sets the records that the node has as a follower: those below the offset `end`, or all if it is null. */
  follow(topic, partition, node, end) {
    return this.call("POST", `/partitions/${encodeURIComponent(topic)}/${partition}/follower`, { node, end });
  }

  /**
   * Performs an unclean election: batches that do not lie entirely below the offset are lost. `node` becomes the
   * leader; null keeps the current leader.
   */
  truncate(topic, partition, offset, node = null) {
    return this.call("POST", `/partitions/${encodeURIComponent(topic)}/${partition}/truncate`, { offset, node });
  }

  /** Resolves to the time of the cluster's clock, in milliseconds since the epoch. */
  async now() {
    return (await this.call("GET", "/clock")).now_ms;
  }

  /** Stops the cluster's clock. */
  freeze() {
    return this.call("POST", "/clock/freeze", {});
  }

  /** Starts the cluster's clock again after `freeze`. */
  resume() {
    return this.call("POST", "/clock/resume", {});
  }

  /** Moves the cluster's clock forward. Resolves after everything that became due has happened. */
  advance(ms) {
    return this.call("POST", "/clock/advance", { ms });
  }

  /** Sets the cluster's clock to milliseconds since the epoch. */
  setClock(ms) {
    return this.call("POST", "/clock/set", { ms });
  }

  /** Writes all exchanges from now on to a file, until the cluster is deleted. `odradek judge` can read the file. */
  async record(file) {
    const answer = await begin("GET", `${this.path}/recording`);
    if (answer.statusCode >= 400) throw new Error(`recording: ${await text(answer)}`);
    this.recording = pipeline(answer, createWriteStream(file));
    this.recording.catch(() => {}); // `delete` reports the error.
  }

  /** Deletes the cluster after this many seconds unless the lease is renewed before. Null removes the lease. */
  lease(seconds) {
    return this.call("POST", "/lease", { ttl_s: seconds });
  }

  /** Closes all connections of the cluster and removes its files, before the end of the test. */
  async delete() {
    clusters.delete(this);
    await send("DELETE", this.path);
    await this.recording;
  }

  async end(failed) {
    if (!clusters.has(this)) return; // The test has deleted the cluster.
    // The cluster may have crashed.
    const exchanges = failed ? await this.requests({ limit: 20 }).catch(() => []) : [];
    for (const { client_id, api, request, answer } of exchanges) {
      console.error(client_id, api, JSON.stringify(request), "->", JSON.stringify(answer));
    }
    try {
      if (this.ruled && !failed) await this.checkFaults();
    } finally {
      await this.delete();
    }
  }
}

/**
 * Creates a fresh cluster. The options are those of `POST /clusters`, such as `{ nodes: 3 }`. The cluster is deleted
 * after all hooks of the test, so a consumer that a hook disconnects still finds its coordinator.
 */
export async function odradek(t, options = {}) {
  const cluster = new Cluster(await send("POST", "/clusters", options), options, t);
  if (t.onTestFinished) {
    // vitest calls hooks in reverse order, so the first one runs last.
    t.onTestFinished(() => cluster.end(t.task.result?.state === "fail"));
  } else {
    // node:test calls hooks in order. The inner `after` moves the deletion after all hooks that the test has
    // registered.
    t.after(() => t.after(() => cluster.end(t.passed === false)));
  }
  return cluster;
}
