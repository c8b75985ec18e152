import { Kafka, logLevel } from "kafkajs";
import { expect, test } from "vitest";

import { odradek } from "./odradek.mjs";

const ended = []; // hooks that have run

test("the same with vitest", async (t) => {
  const kafka = await odradek(t);
  const producer = new Kafka({ brokers: kafka.brokers, logLevel: logLevel.NOTHING }).producer();
  t.onTestFinished(() => producer.disconnect());
  await producer.connect();
  const [record] = await producer.send({ topic: "orders", messages: [{ value: "a" }] });
  expect(record.baseOffset).toBe("0");
});

test("the cluster outlives all that the test registers", async (t) => {
  const kafka = await odradek(t);
  t.onTestFinished(async () => {
    await kafka.call("GET", "/clock");
    ended.push("registered");
  });
});

test("every hook of the test before this one has found its cluster", () => {
  expect(ended).toEqual(["registered"]);
});
