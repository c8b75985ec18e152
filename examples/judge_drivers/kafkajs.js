// A driver for `odradek judge --suite` that uses KafkaJS.
const readline = require("readline");
const { Kafka, logLevel } = require("kafkajs");

const env = process.env;
const kafka = new Kafka({ clientId: "judged", brokers: env.ODRADEK_BOOTSTRAP.split(","), logLevel: logLevel.NOTHING });
let producer, transaction, consumer;
const asked = {}; // settings from the command `set`
const unread = [];
const offsets = {};

async function producing() {
  if (!producer) {
    const transactionalId = env.ODRADEK_TRANSACTIONAL_ID;
    const idempotent = env.ODRADEK_IDEMPOTENCE !== "off";
    producer = kafka.producer({ transactionalId, idempotent, maxInFlightRequests: 1, metadataMaxAge: 1000 });
    await producer.connect();
  }
  return producer;
}

async function administered(act) {
  const admin = kafka.admin();
  await admin.connect();
  const found = await act(admin);
  await admin.disconnect();
  return found;
}

const verbs = {
  async produce(topic, partition, ...values) {
    const sender = transaction || (await producing());
    const send = (value) => sender.send({ topic, acks: -1, messages: [{ value, partition: Number(partition) }] });
    await Promise.all(values.map(send));
    return {};
  },
  async begin() {
    transaction = await (await producing()).transaction();
    return {};
  },
  async commit() {
    const ending = transaction;
    transaction = undefined;
    await ending.commit();
    return {};
  },
  async abort() {
    const ending = transaction;
    transaction = undefined;
    await ending.abort();
    return {};
  },
  async set(name, value) {
    if (name === "rack") asked.rackId = value;
    else if (name === "create_topics") asked.allowAutoTopicCreation = value !== "off";
    else return { unimplemented: true };
    return {};
  },
  async subscribe(topic) {
    if (consumer) await consumer.stop();
    else {
      consumer = kafka.consumer({ groupId: env.ODRADEK_GROUP, metadataMaxAge: 1000, ...asked });
      await consumer.connect();
    }
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        unread.push(message.value.toString());
        offsets[partition] = { topic, partition, offset: String(BigInt(message.offset) + 1n) };
      },
    });
    return {};
  },
  async poll(timeoutMs) {
    const until = Date.now() + Number(timeoutMs);
    while (!unread.length && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 20));
    return { records: unread.splice(0) };
  },
  async ack() {
    await consumer.commitOffsets(Object.values(offsets));
    return {};
  },
  async unsubscribe() {
    await consumer.stop(); // this makes the consumer leave the group
    return {};
  },
  async create(topic) {
    await administered((admin) => admin.createTopics({ topics: [{ topic }] }));
    return {};
  },
  async groups() {
    const { groups } = await administered((admin) => admin.listGroups());
    return { records: groups.map((each) => each.groupId) };
  },
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split(" ");
    let told = { unimplemented: true };
    try {
      if (verbs[verb]) told = await verbs[verb](...words);
    } catch (error) {
      told = { error: String(error) };
    }
    console.log(JSON.stringify(told));
  }
  if (producer) await producer.disconnect();
  if (consumer) await consumer.disconnect();
  process.exit(0);
})();
