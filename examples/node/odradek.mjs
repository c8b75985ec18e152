// Fresh Kafka clusters for tests: `const kafka = await odradek(t)` with the context `t` of node:test or of vitest.
//
// The first test starts Odradek, unless ODRADEK_CONTROL=HOST:PORT names one, and ODRADEK_TOKEN the token it asks for.

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
  // It ends when its standard input does, and keeps nobody waiting until then.
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

const clusters = new Set(); // that no test has deleted yet
// A hook that fails keeps node:test from calling the hooks behind it, and so from deleting the cluster.
process.once("beforeExit", () => Promise.allSettled([...clusters].map((each) => each.delete())));

/**
 * One broker, or several nodes. Rules, conditions and answers: see docs/testing.md of Odradek. Methods reject with an
 * Error whose `status` and `problem` are those of the refusal.
 */
export class Cluster {
  constructor({ id, bootstrap, listeners = [], ca_certificate, client_certificates }, options, test) {
    this.test = test;
    this.ruled = "preset" in options || "fork" in options; // maybe
    this.id = id;
    this.brokers = bootstrap.split(",");
    this.listeners = listeners; // with name, protocol, bootstrap and mechanisms
    this.caCertificate = ca_certificate; // PEM
    this.clientCertificates = client_certificates ?? {}; // PEM of key and certificate, by user
    this.path = `/clusters/${id}`;
    clusters.add(this);
  }

  /** Any other call of the control interface. */
  call(method, path, body) {
    this.ruled = true;
    return send(method, this.path + path, body);
  }

  /** Adds a rule, or a list of rules; resolves to them. If one of them has done nothing, the test fails. */
  fault(rule) {
    return this.call("POST", "/faults", rule);
  }

  /** The rules, with `matched`, `hits`, and `unmade`: how many answers could not be edited. */
  faults() {
    return this.call("GET", "/faults");
  }

  /** Rejects if nothing has matched a rule, or no answer had what it edits. The end of the test calls it. */
  async checkFaults() {
    const unused = (await this.faults()).filter((rule) => rule.matched === rule.unmade && rule.unused !== "ok");
    if (unused.length) throw new Error(`these rules have done nothing: ${JSON.stringify(unused)}`);
  }

  /** Deletes the rule of this name, or all rules. Requests that wait at its holds continue. */
  clearFaults(name) {
    return this.call("DELETE", name === undefined ? "/faults" : `/faults/${encodeURIComponent(name)}`);
  }

  /** How many wait at each hold, by its name. */
  async holds() {
    const found = await this.call("GET", "/holds");
    return Object.fromEntries(found.map((hold) => [hold.name, hold.waiting]));
  }

  /** Lets all that wait at this hold continue; resolves to their number. */
  async release(hold) {
    return (await this.call("POST", `/holds/${encodeURIComponent(hold)}/release`, {})).released;
  }

  /** Waits up to ten seconds (`timeout_ms`) for a condition and resolves to its facts. */
  wait(condition) {
    return this.call("POST", "/wait", condition);
  }

  /** The last exchanges, decoded, the oldest first; `{ since, api, client_id, limit }` choose. */
  requests(where = {}) {
    return this.call("GET", `/requests?${new URLSearchParams(where)}`);
  }

  /** Leader, epoch and offsets of each partition. */
  partitions() {
    return this.rows("partitions");
  }

  /** Each transactional id, with its state, its producer and the partitions of its transaction. */
  transactions() {
    return this.rows("transactions");
  }

  /** Groups of every type, with their state and members. */
  groups() {
    return this.rows("groups");
  }

  /** Share partitions in memory, with their records in flight. */
  sharePartitions() {
    return this.rows("share_partitions");
  }

  /** The state of each producer id in each partition. */
  producers() {
    return this.rows("producers");
  }

  /** Fetch sessions and share sessions. */
  sessions() {
    return this.rows("sessions");
  }

  /** The open connections. */
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

  /** Brings a rare state about, as in `preset("open-transaction", { topic: "orders" })`; resolves to its facts. */
  preset(name, parameters = {}) {
    return this.call("POST", `/presets/${encodeURIComponent(name)}`, parameters);
  }

  /** The rare states that there are, with their parameters. */
  presets() {
    return this.call("GET", "/presets");
  }

  /** Gives rare but lawful answers from now on; 0 ends it. Without a seed: resolves to seed and oddities only. */
  odd(seed, percent = {}) {
    return seed === undefined ? this.call("GET", "/odd") : this.call("POST", "/odd", { seed, percent });
  }

  /** A copy of this cluster, deleted at the end of the same test. */
  fork() {
    return odradek(this.test, { fork: this.id });
  }

  /** Copies log and clock. */
  checkpoint(name) {
    return this.call("POST", "/checkpoint", { name });
  }

  /** Goes back to a checkpoint. Connections are cut; the ports stay. */
  rewind(name) {
    return this.call("POST", "/rewind", { name });
  }

  /** Leaves on the disk what `kill -9` leaves. */
  crash() {
    return this.call("POST", "/crash", {});
  }

  /** Starts again on the same ports. */
  restart({ clean = true } = {}) {
    return this.call("POST", "/restart", { clean });
  }

  /** `id`, `host`, `port`, `state` of each node. */
  async nodes() {
    return (await this.call("GET", "")).nodes;
  }

  /** clean: other nodes lead from now on; else metadata takes it for alive for 9 s of the cluster's time. */
  stopNode(node, { clean = true } = {}) {
    return this.call("POST", `/nodes/${node}/stop`, { clean });
  }

  startNode(node) {
    return this.call("POST", `/nodes/${node}/start`, {});
  }

  /** The node is unreachable for this client until the rule is deleted. */
  cutOff(node, clientId) {
    return this.call("POST", `/nodes/${node}/unreachable_for`, { client_id: clientId });
  }

  /** The node leads the partition in a new leader epoch. */
  moveLeader(topic, partition, node) {
    return this.call("POST", `/partitions/${encodeURIComponent(topic)}/${partition}/leader`, { node });
  }

  /** kind: `group`, `transaction` or `share`. The coordinator reads its log anew. */
  moveCoordinator(kind, key, node) {
    return this.call("POST", `/coordinators/${kind}/${encodeURIComponent(key)}`, { node });
  }

  /** Leaders tell consumers of this rack to read from this node (KIP-392); null: the node is in no rack. */
  putInRack(node, rack) {
    return this.call("POST", `/nodes/${node}/rack`, { rack });
  }

  /** The node, a follower, has the log below the offset `end`; null: all of it. */
  follow(topic, partition, node, end) {
    return this.call("POST", `/partitions/${encodeURIComponent(topic)}/${partition}/follower`, { node, end });
  }

  /** An unclean election: what is not wholly below the offset is lost. node: the next leader, or null for the same. */
  truncate(topic, partition, offset, node = null) {
    return this.call("POST", `/partitions/${encodeURIComponent(topic)}/${partition}/truncate`, { offset, node });
  }

  /** The cluster's time in milliseconds since the epoch. */
  async now() {
    return (await this.call("GET", "/clock")).now_ms;
  }

  /** Stops the cluster's clock. */
  freeze() {
    return this.call("POST", "/clock/freeze", {});
  }

  /** The clock runs again. */
  resume() {
    return this.call("POST", "/clock/resume", {});
  }

  /** Moves the cluster's clock; resolves when all that became due has happened. */
  advance(ms) {
    return this.call("POST", "/clock/advance", { ms });
  }

  /** Sets the cluster's clock to milliseconds since the epoch. */
  setClock(ms) {
    return this.call("POST", "/clock/set", { ms });
  }

  /** Writes what clients send and get from now on to a file, for `odradek judge`, until the cluster is deleted. */
  async record(file) {
    const answer = await begin("GET", `${this.path}/recording`);
    if (answer.statusCode >= 400) throw new Error(`recording: ${await text(answer)}`);
    this.recording = pipeline(answer, createWriteStream(file));
    this.recording.catch(() => {}); // `delete` tells of it
  }

  /** It is deleted after so many seconds from now on, unless it is leased again; null: it stays. */
  lease(seconds) {
    return this.call("POST", "/lease", { ttl_s: seconds });
  }

  /** Cuts its connections and removes its files, before the test ends. */
  async delete() {
    clusters.delete(this);
    await send("DELETE", this.path);
    await this.recording;
  }

  async end(failed) {
    if (!clusters.has(this)) return; // the test has deleted it
    const exchanges = failed ? await this.requests({ limit: 20 }).catch(() => []) : []; // it may have crashed
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
 * A fresh cluster. Options are those of `POST /clusters`, such as `{ nodes: 3 }`. It is deleted after all hooks of the
 * test: a consumer that the test disconnects in one of them still finds its coordinator.
 */
export async function odradek(t, options = {}) {
  const cluster = new Cluster(await send("POST", "/clusters", options), options, t);
  if (t.onTestFinished) {
    t.onTestFinished(() => cluster.end(t.task.result?.state === "fail")); // vitest calls the first one last
  } else {
    // node:test calls the first hook first. This one puts the deletion behind all that the test has registered.
    t.after(() => t.after(() => cluster.end(t.passed === false)));
  }
  return cluster;
}
