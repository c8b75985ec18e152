// A program with @confluentinc/schemaregistry and KafkaJS. test_registry_clients.py describes what it must do.
const registry = require("@confluentinc/schemaregistry");
const { createMutableRegistry, createFileRegistry, create, toBinary } = require("@bufbuild/protobuf");
const { FileDescriptorProtoSchema, FileDescriptorSetSchema, FieldDescriptorProto_Type: Type } = require("@bufbuild/protobuf/wkt");
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, url, prefix, given] = process.argv.slice(2);
const client = new registry.SchemaRegistryClient({ baseURLs: [url] });
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
const ORDER = { id: 7, price: { currency: "EUR", units: 12 }, note: "gift" };

// Returns the descriptors that protoc-gen-es would generate for the second version of the schema.
function descriptors() {
  const field = (name, number, type, typeName) => ({ name, number, type, label: 1, ...(typeName && { typeName }) });
  const money = {
    name: "shop/money.proto", package: "shop", syntax: "proto3",
    messageType: [{ name: "Money", field: [field("currency", 1, Type.STRING), field("units", 2, Type.INT64)] }],
  };
  const order = {
    name: "shop/order.proto", package: "shop", syntax: "proto3", dependency: ["shop/money.proto"],
    messageType: [{
      name: "Order",
      field: [field("id", 1, Type.INT64), field("price", 2, Type.MESSAGE, ".shop.Money"), field("note", 3, Type.STRING)],
    }],
  };
  return createFileRegistry(create(FileDescriptorSetSchema, { file: [create(FileDescriptorProtoSchema, money), create(FileDescriptorProtoSchema, order)] }));
}

function serializers(kind) {
  const latest = { autoRegisterSchemas: false, useLatestVersion: true };
  if (kind === "AVRO") {
    return [new registry.AvroSerializer(client, registry.SerdeType.VALUE, latest), new registry.AvroDeserializer(client, registry.SerdeType.VALUE, {})];
  }
  if (kind === "JSON") {
    return [new registry.JsonSerializer(client, registry.SerdeType.VALUE, latest), new registry.JsonDeserializer(client, registry.SerdeType.VALUE, {})];
  }
  const types = createMutableRegistry(...["shop.Money", "shop.Order"].map((name) => descriptors().getMessage(name)));
  return [
    new registry.ProtobufSerializer(client, registry.SerdeType.VALUE, { autoRegisterSchemas: true, registry: types }),
    new registry.ProtobufDeserializer(client, registry.SerdeType.VALUE, {}),
  ];
}

async function main() {
  for (const [kind, texts] of Object.entries(JSON.parse(given))) {
    const topic = `${prefix}-${kind.toLowerCase()}`;
    const [subject, reference] = [`${topic}-value`, `${topic}-money`];
    await client.register(reference, { schema: texts.money, schemaType: kind });
    const references = [{ name: texts.name, subject: reference, version: 1 }];
    const info = (name) => ({ schema: texts[name], schemaType: kind, references });
    const ids = [await client.register(subject, info("first")), await client.register(subject, info("second"))];
    const refused = await client.register(subject, info("refused")).then(() => 200, (error) => error.status);
    if ((await client.getId(subject, info("second"))) !== ids[1]) throw new Error("another id");
    if (!(await client.testSubjectCompatibility(subject, info("second")))) throw new Error("not compatible with itself");

    const [write, read] = serializers(kind);
    const order = kind === "PROTOBUF"
      ? create(descriptors().getMessage("shop.Order"), { id: 7n, price: create(descriptors().getMessage("shop.Money"), { currency: "EUR", units: 12n }), note: "gift" })
      : ORDER;
    const producer = kafka.producer();
    await producer.connect();
    await producer.send({ topic, messages: [{ value: await write.serialize(topic, order) }] });
    await producer.disconnect();
    const consumer = kafka.consumer({ groupId: topic });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    const value = await new Promise((resolve, reject) => {
      consumer.run({ eachMessage: async ({ message }) => resolve(message.value) }).catch(reject);
    });
    const found = await read.deserialize(topic, value);
    await consumer.disconnect();
    const shown = { id: Number(found.id), price: { currency: found.price.currency, units: Number(found.price.units) }, note: found.note };
    console.log(JSON.stringify({ type: kind, ids, refused, read: shown }));
  }
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
