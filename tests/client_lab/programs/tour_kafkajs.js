const { Kafka, logLevel } = require("kafkajs");

const kafka = new Kafka({ clientId: "judged", brokers: [process.env.ODRADEK_BOOTSTRAP], logLevel: logLevel.ERROR });

async function step(action) {
  try {
    await Promise.race([action(), new Promise((_, fail) => setTimeout(() => fail(new Error("time-out")), 25000))]);
  } catch (error) {
    console.log(String(error));
  }
}

async function produces() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (let number = 0; number < 20; number += 1) {
    await step(() => producer.send({ topic: "orders", messages: [{ value: String(number), partition: 0 }] }));
  }
  await producer.disconnect();
}

async function commits() {
  const producer = kafka.producer({ transactionalId: "t", idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (let number = 0; number < 4; number += 1) {
    const transaction = await producer.transaction();
    await transaction.send({ topic: "orders", messages: [{ value: String(number), partition: 0 }] });
    await (number === 1 ? transaction.abort() : transaction.commit());
  }
  await producer.disconnect();
}

async function consumes() {
  const consumer = kafka.consumer({ groupId: "g", heartbeatInterval: 500, sessionTimeout: 6000 });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  await consumer.run({ eachMessage: async () => {} });
  await new Promise((done) => setTimeout(done, 8000));
  await consumer.disconnect();
}

(async () => {
  await step(produces);
  await step(commits);
  await step(consumes);
  process.exit(0);
})();
