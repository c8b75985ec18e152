Promise.withResolvers ??= function () {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}
// Sends of an idempotent producer that do not wait for each other.
const { Producer, ProduceAcks, stringSerializers } = require("@platformatic/kafka")

async function main() {
  const producer = new Producer({
    clientId: "judged",
    bootstrapBrokers: [process.env.ODRADEK_BOOTSTRAP],
    serializers: stringSerializers,
    idempotent: true,
    acks: ProduceAcks.ALL,
    retries: 0,
  })
  const send = (value) => producer.send({ messages: [{ topic: "orders", partition: 0, value }] })
  await send("first")
  for (let round = 0; round < 5; round += 1) {
    await Promise.allSettled(["a", "b", "c"].map(send))
  }
  await producer.close()
}

main()
