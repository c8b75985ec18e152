import { Kafka, logLevel } from "kafkajs";
import { expect, test } from "vitest";

import { odradek } from "./odradek.mjs";

test("the same with vitest", async (t) => {
  const kafka = await odradek(t);
  const producer = new Kafka({ brokers: kafka.brokers, logLevel: logLevel.NOTHING }).producer();
  t.onTestFinished(() => producer.disconnect());
  await producer.connect();
  const [record] = await producer.send({ topic: "orders", messages: [{ value: "a" }] });
  expect(record.baseOffset).toBe("0");
});
