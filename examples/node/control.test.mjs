import assert from "node:assert/strict";
import { readFile, unlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Kafka, logLevel } from "kafkajs";

import { odradek } from "./odradek.mjs";

/** Returns a connected producer, which is disconnected at the end of the test. */
async function connected(t, kafka) {
  const client = new Kafka({ brokers: kafka.brokers, logLevel: logLevel.NOTHING });
  const producer = client.producer();
  t.after(() => producer.disconnect());
  await producer.connect();
  return producer;
}

test("a request is held until it is released", async (t) => {
  const kafka = await odradek(t, { topics: { orders: 1 } });
  await kafka.fault({ name: "slow", match: { api: "Produce" }, at: "received", do: { hold: "send" } });
  const producer = await connected(t, kafka);
  const sent = producer.send({ topic: "orders", messages: [{ value: "a" }] });
  await kafka.wait({ hold: "send" });
  assert.deepEqual(await kafka.holds(), { send: 1 });
  assert.equal(await kafka.release("send"), 1);
  assert.equal((await sent)[0].baseOffset, "0");
  const [rule] = await kafka.faults();
  assert.equal(rule.hits, 1);
  await kafka.clearFaults("slow");
  assert.deepEqual(await kafka.faults(), []);
});

test("a cluster begins with the records of its seed", async (t) => {
  const records = [{ key: "a", value: "one tea" }];
  const kafka = await odradek(t, { seed: { topics: [{ name: "orders", partitions: 1, records }] } });
  await kafka.wait({ topic: "orders", partition: 0, log_end_offset: 1 });
  const refused = odradek(t, { seed: "topics:\n- partitions: 1\n" });
  await assert.rejects(refused, (error) => error.problem.detail === "line 2: seed.topics[0]: name is missing");
});

test("a rule that nothing matched is told, and a refusal has its words", async (t) => {
  const kafka = await odradek(t);
  await kafka.fault({ name: "never", match: { api: "EndTxn" }, do: { error: "NOT_COORDINATOR" } });
  await assert.rejects(kafka.checkFaults(), /never/);
  await kafka.clearFaults();
  await assert.rejects(kafka.wait({ topic: "orders", log_end_offset: 1, timeout_ms: 1 }), { status: 408 });
  await assert.rejects(kafka.fault({ mach: {} }), (error) => error.problem.field === "mach");
});

test("a rule that could edit no answer is told", async (t) => {
  const kafka = await odradek(t, { topics: { orders: 1 } });
  const edit = { "topics[7].errorCode": 3 };
  await kafka.fault({ match: { api: "Metadata" }, do: { observe: true } });
  await kafka.fault({ name: "far", at: "applied", match: { api: "Metadata" }, do: { edit } });
  const producer = await connected(t, kafka);
  await producer.send({ topic: "orders", messages: [{ value: "a" }] });
  await assert.rejects(kafka.checkFaults(), /: \[\{"name":"far".*the answer has no topics\[7\]/);
  await kafka.clearFaults();
});

test("the clock stops, moves and is set", async (t) => {
  const kafka = await odradek(t);
  await kafka.freeze();
  const now = await kafka.now();
  await kafka.advance(1_000);
  assert.equal(await kafka.now(), now + 1_000);
  await kafka.setClock(now + 5_000);
  assert.equal(await kafka.now(), now + 5_000);
  await kafka.resume();
});

test("leaders and coordinators move, and nodes stop and start", async (t) => {
  const kafka = await odradek(t, { nodes: [1, 2, 3], topics: { "orders": 1 } });
  const producer = await connected(t, kafka);
  await producer.send({ topic: "orders", messages: [{ value: "a" }, { value: "b" }] });
  await kafka.moveLeader("orders", 0, 3);
  const [orders] = (await kafka.partitions()).filter((each) => each.topic === "orders");
  assert.equal(orders.leader, 3);
  await kafka.preset("open-transaction", { transactional_id: "a/b" });
  await kafka.moveCoordinator("transaction", "a/b", 2);
  const { state } = await kafka.wait({ transaction: "a/b", state: "Ongoing" });
  assert.equal(state, "Ongoing");
  assert.equal((await kafka.transactions())[0].transaction, "a/b");
  await kafka.stopNode(3);
  assert.deepEqual((await kafka.nodes()).map((node) => node.state), ["running", "running", "stopped"]);
  await kafka.startNode(3);
  await kafka.stopNode(2, { clean: false });
  await kafka.startNode(2);
  await kafka.cutOff(2, "nobody");
  await kafka.clearFaults();
  await kafka.putInRack(2, "r");
  await kafka.putInRack(2, null);
  await kafka.follow("orders", 0, 2, 0);
  await kafka.follow("orders", 0, 2, null);
});

test("a cluster goes back to a checkpoint, crashes and starts again", async (t) => {
  const kafka = await odradek(t, { topics: { orders: 1 } });
  const producer = await connected(t, kafka);
  await producer.send({ topic: "orders", messages: [{ value: "a" }, { value: "b" }] });
  await kafka.checkpoint("two");
  const { log_end_offset } = await kafka.truncate("orders", 0, 0);
  assert.equal(log_end_offset, 0);
  await kafka.rewind("two");
  await kafka.lease(600);
  assert.ok((await kafka.presets()).some((each) => each.name === "aborted-tail"));
  for (const each of [kafka, await kafka.fork()]) await each.wait({ topic: "orders", log_end_offset: 2 });
  await kafka.crash();
  await kafka.restart({ clean: false });
  await kafka.wait({ topic: "orders", log_end_offset: 2 });
});

test("requests, state and rare answers are read", async (t) => {
  const kafka = await odradek(t, { topics: { orders: 1 } });
  const file = join(tmpdir(), `${kafka.id}-${process.pid}.recording`);
  t.after(() => unlink(file));
  await kafka.record(file);
  await kafka.odd(7, { "cut write": 0 });
  assert.equal((await kafka.odd()).seed, 7);
  await kafka.odd(0);
  const producer = await connected(t, kafka);
  await producer.send({ topic: "orders", messages: [{ value: "a" }] });
  const [produce] = await kafka.requests({ api: "Produce" });
  assert.equal(produce.client_id, "kafkajs");
  assert.deepEqual(await kafka.requests({ since: produce.number, api: "Produce" }), []);
  assert.equal((await kafka.connections())[0].client_id, "kafkajs");
  for (const rows of [kafka.groups(), kafka.sharePartitions(), kafka.producers(), kafka.sessions()]) {
    assert.deepEqual(await rows, []);
  }
  await kafka.delete();
  assert.ok((await readFile(file)).includes("orders"));
});

test("a client logs in over TLS", async (t) => {
  const kafka = await odradek(t, {
    nodes: 2,
    topics: { orders: 1 },
    listeners: [{ name: "open" }, { name: "secure", protocol: "SASL_SSL" }],
    users: { alice: "secret" },
  });
  const { bootstrap, mechanisms } = kafka.listeners.find((each) => each.name === "SECURE");
  assert.deepEqual(mechanisms, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]);
  for (const mechanism of mechanisms.map((each) => each.toLowerCase())) {
    const client = new Kafka({
      brokers: bootstrap.split(","),
      logLevel: logLevel.NOTHING,
      ssl: { ca: [kafka.caCertificate] },
      sasl: { mechanism, username: "alice", password: "secret" },
    });
    const producer = client.producer();
    t.after(() => producer.disconnect());
    await producer.connect();
    await producer.send({ topic: "orders", messages: [{ value: mechanism }] });
  }
  await kafka.wait({ topic: "orders", log_end_offset: 3 });
  assert.ok((await kafka.connections()).every((each) => each.principal === "User:alice"));
});
