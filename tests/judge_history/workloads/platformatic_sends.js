Promise.withResolvers ??= function () {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}
// Sends of an idempotent producer, one after the other; those that fail are given up.
const { Producer, ProduceAcks, stringSerializers } = require("@platformatic/kafka")

async function main() {
  const producer = new Producer({
    clientId: "judged",
    bootstrapBrokers: [process.env.ODRADEK_BOOTSTRAP],
    serializers: stringSerializers,
    idempotent: true,
    acks: ProduceAcks.ALL,
  })
  for (let number = 0; number < 8; number += 1) {
    try {
      await producer.send({ messages: [{ topic: "orders", partition: 0, value: `${number}` }] })
    } catch (error) {
      console.log(error.message)
    }
  }
  await producer.close()
}

main()
