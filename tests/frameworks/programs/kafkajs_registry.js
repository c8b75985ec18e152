// A program with @kafkajs/confluent-schema-registry. test_registry_clients.py describes what it must do.
const { SchemaRegistry } = require("@kafkajs/confluent-schema-registry");
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, url, prefix, given] = process.argv.slice(2);
const registry = new SchemaRegistry({ host: url });
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
const ORDER = { id: 7, price: { currency: "EUR", units: 12 }, note: "gift" };

async function main() {
  for (const [type, texts] of Object.entries(JSON.parse(given))) {
    const topic = `${prefix}-${type.toLowerCase()}`;
    const [subject, reference] = [`${topic}-value`, `${topic}-money`];
    await registry.register({ type, schema: texts.money }, { subject: reference });
    const references = [{ name: texts.name, subject: reference, version: 1 }];
    const register = async (name) => (await registry.register({ type, schema: texts[name], references }, { subject })).id;
    const ids = [await register("first"), await register("second")];
    const refused = await register("refused").then(() => 200, (error) => error.status ?? error.cause?.status ?? String(error));
    if ((await registry.getLatestSchemaId(subject)) !== ids[1]) throw new Error("another id");

    const producer = kafka.producer();
    await producer.connect();
    await producer.send({ topic, messages: [{ value: await registry.encode(ids[1], ORDER) }] });
    await producer.disconnect();
    const consumer = kafka.consumer({ groupId: topic });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    const value = await new Promise((resolve, reject) => {
      consumer.run({ eachMessage: async ({ message }) => resolve(message.value) }).catch(reject);
    });
    const found = await registry.decode(value);
    await consumer.disconnect();
    const read = { id: Number(found.id), price: { currency: found.price.currency, units: Number(found.price.units) }, note: found.note };
    console.log(JSON.stringify({ type, ids, refused, read }));
  }
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
