// Fresh Kafka clusters for tests: `const kafka = await odradek(t)` with the context `t` of node:test or of vitest.
//
// The first test starts Odradek, unless ODRADEK_CONTROL=HOST:PORT names one, and ODRADEK_TOKEN the token it asks for.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Agent, request } from "node:http";
import { text } from "node:stream/consumers";

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

async function send(method, path, body) {
  address ??= start();
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${TOKEN}` };
  const call = request(`http://${await address}/control/v1${path}`, { method, headers, agent: AGENT });
  const [answer] = await once(call.end(body && JSON.stringify(body)), "response");
  const told = await text(answer);
  if (answer.statusCode >= 400) throw new Error(`${method} ${path} ${JSON.stringify(body)}: ${told}`);
  return JSON.parse(told);
}

/** One broker, or several nodes. Rules, conditions and answers: see docs/testing.md of Odradek. */
export class Cluster {
  constructor({ id, bootstrap }, options) {
    this.ruled = "preset" in options || "fork" in options; // maybe
    this.brokers = bootstrap.split(",");
    this.path = `/clusters/${id}`;
  }

  /** Any other call of the control interface; rejects with its words if it is refused. */
  call(method, path, body) {
    this.ruled = true;
    return send(method, this.path + path, body);
  }

  /** Adds a rule. If nothing has matched it, the test fails. */
  fault(rule) {
    return this.call("POST", "/faults", rule);
  }

  /** Waits up to ten seconds for a condition and resolves to its facts. */
  wait(condition) {
    return this.call("POST", "/wait", condition);
  }

  /** Moves the cluster's clock; resolves when all that became due has happened. */
  advance(ms) {
    return this.call("POST", "/clock/advance", { ms });
  }

  async end(failed) {
    const rules = this.ruled ? await this.call("GET", "/faults") : [];
    const unused = rules.filter((rule) => !rule.matched && rule.unused !== "ok");
    const exchanges = failed ? await this.call("GET", "/requests?limit=20") : [];
    await this.call("DELETE", "");
    for (const { client_id, api, request, answer } of exchanges) {
      console.error(client_id, api, JSON.stringify(request), "->", JSON.stringify(answer));
    }
    if (unused.length && !failed) throw new Error(`nothing matched ${JSON.stringify(unused)}`);
  }
}

/** A fresh cluster, deleted at the end of the test. Options are those of `POST /clusters`, such as `{ nodes: 3 }`. */
export async function odradek(t, options = {}) {
  const cluster = new Cluster(await send("POST", "/clusters", options), options);
  if (t.onTestFinished) t.onTestFinished(() => cluster.end(t.task.result?.state === "fail"));
  else t.after(() => cluster.end(t.passed === false));
  return cluster;
}
