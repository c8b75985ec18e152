Promise.withResolvers ??= () => {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}
const { Consumer, ProduceAcks, Producer, stringSerializers } = require("@platformatic/kafka")

const at = { clientId: "judged", bootstrapBrokers: [process.env.ODRADEK_BOOTSTRAP] }

async function step(action) {
  try {
    await Promise.race([action(), new Promise((_, fail) => setTimeout(() => fail(new Error("time-out")), 25000))])
  } catch (error) {
    console.log(String(error))
  }
}

function producerOf(more) {
  return new Producer({ ...at, serializers: stringSerializers, idempotent: true, acks: ProduceAcks.ALL, ...more })
}

async function produces() {
  const producer = producerOf({})
  for (let number = 0; number < 20; number += 1) {
    await step(() => producer.send({ messages: [{ topic: "orders", partition: 0, value: `${number}` }] }))
  }
  await producer.close()
}

async function commits() {
  const producer = producerOf({ transactionalId: "t" })
  for (let number = 0; number < 4; number += 1) {
    await step(async () => {
      const transaction = await producer.beginTransaction()
      await transaction.send({ messages: [{ topic: "orders", partition: 0, value: `${number}` }] })
      await (number === 1 ? transaction.abort() : transaction.commit())
    })
  }
  await producer.close()
}

async function consumes(groupId, groupProtocol) {
  const more = groupProtocol === "classic" ? { heartbeatInterval: 500, sessionTimeout: 6000 } : {}
  const consumer = new Consumer({ ...at, groupId, groupProtocol, isolationLevel: 1, maxWaitTime: 100, ...more })
  const stream = await consumer.consume({ topics: ["orders"], mode: "earliest", autocommit: 500 })
  stream.on("data", () => {})
  stream.on("error", (error) => console.log(String(error)))
  await new Promise((done) => setTimeout(done, 6000))
  await stream.close()
  await consumer.close()
}

process.on("uncaughtException", (error) => console.log(`crashes: ${error.message}`))

;(async () => {
  await step(produces)
  await step(commits)
  await step(() => consumes("g", "classic"))
  await step(() => consumes("g-848", "consumer"))
  process.exit(0)
})()
