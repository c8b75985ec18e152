// Sends of an idempotent producer that do not wait for each other.
const { Kafka, logLevel } = require("kafkajs")

async function main() {
  const kafka = new Kafka({ clientId: "judged", brokers: [process.env.ODRADEK_BOOTSTRAP], logLevel: logLevel.NOTHING })
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 5 })
  await producer.connect()
  for (let round = 0; round < 5; round += 1) {
    const sends = ["a", "b", "c"].map((value) => producer.send({ topic: "orders", messages: [{ value, partition: 0 }] }))
    await Promise.allSettled(sends)
  }
  await producer.disconnect()
}

main()
