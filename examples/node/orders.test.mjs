import assert from "node:assert/strict";
import { test } from "node:test";

import { Kafka, logLevel } from "kafkajs";

import { odradek } from "./odradek.mjs";

const ended = []; // hooks that have run

/** Begins a transaction and writes a record in it. */
async function written(t, kafka) {
  const client = new Kafka({ brokers: kafka.brokers, logLevel: logLevel.NOTHING });
  const producer = client.producer({ transactionalId: "t", maxInFlightRequests: 1, idempotent: true });
  t.after(() => producer.disconnect());
  await producer.connect();
  const transaction = await producer.transaction();
  const [record] = await transaction.send({ topic: "orders", messages: [{ value: "a" }] });
  assert.equal(record.baseOffset, "0", "the cluster is fresh");
  return transaction;
}

test("a record whose partition has moved is sent again", async (t) => {
  const kafka = await odradek(t);
  await kafka.fault({
    name: "moved",
    match: { api: "Produce" },
    do: { error: "NOT_LEADER_OR_FOLLOWER" },
    times: 1,
  });
  const transaction = await written(t, kafka);
  await transaction.commit();
  await kafka.wait({ fault: "moved", hits: 1 });
  await kafka.wait({ topic: "orders", last_stable_offset: 2 });
});

test("a transaction that nobody ends times out", async (t) => {
  const kafka = await odradek(t, { nodes: 3 });
  const transaction = await written(t, kafka);
  await kafka.advance(70_000);
  await kafka.wait({ transaction: "t", state: "CompleteAbort" });
  await assert.rejects(transaction.commit());
});

test("the cluster outlives all that the test registers", async (t) => {
  const kafka = await odradek(t, { topics: { orders: 1 } });
  const alive = async (hook) => {
    await kafka.call("GET", "/clock");
    ended.push(hook);
  };
  const client = new Kafka({ brokers: kafka.brokers, logLevel: logLevel.NOTHING });
  const consumer = client.consumer({ groupId: "g", maxWaitTimeInMs: 100 });
  t.after(() => alive("before"));
  t.after(() => consumer.disconnect());
  t.after(() => alive("after"));
  await consumer.connect();
  await consumer.subscribe({ topic: "orders" });
  await consumer.run({ eachMessage: async () => {} });
});

test("every hook of the test before this one has found its cluster", () => {
  assert.deepEqual(ended, ["before", "after"]);
});
