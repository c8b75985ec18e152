// Applications based on @platformatic/kafka, one function each. The last line that is printed is the application's
// result.
Promise.withResolvers ??= () => {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}
const { Consumer, ProduceAcks, Producer, stringSerializers } = require("@platformatic/kafka")

const at = { clientId: "platformatic", bootstrapBrokers: [process.env.ODRADEK_BOOTSTRAP] }

async function readOne() {
  const consumer = new Consumer({ ...at, groupId: "g", isolationLevel: 1 })
  const stream = await consumer.consume({ topics: ["orders"], mode: "earliest", maxWaitTime: 100 })
  for await (const { value } of stream) return `read ${value}`
}

async function readInALongRebalance() {
  const consumer = new Consumer({ ...at, groupId: "g", heartbeatInterval: 300, maxWaitTime: 100 })
  const stream = await consumer.consume({ topics: ["orders"], mode: "earliest", autocommit: 1000 })
  stream.on("data", () => {})
  stream.on("error", () => {})
  await new Promise((done) => setTimeout(done, 5_000))
  return "read"
}

async function readForAWhile() {
  const consumer = new Consumer({ ...at, groupId: "g", isolationLevel: 1 })
  const offsets = [{ topic: "orders", partition: 0, offset: 1n }]
  const stream = await consumer.consume({ topics: ["orders"], mode: "manual", offsets, maxWaitTime: 50 })
  stream.on("data", () => {})
  await new Promise((done) => setTimeout(done, 4_000))
  return "read"
}

function sender(more) {
  const producer = new Producer({ ...at, serializers: stringSerializers, idempotent: true, acks: ProduceAcks.ALL, ...more })
  return [producer, (value) => producer.send({ messages: [{ topic: "orders", partition: 0, value }] })]
}

// Sends records without waiting for earlier sends.
async function sendConcurrently() {
  const [producer, send] = sender({ retries: 0 })
  await send("first")
  for (let round = 0; round < 5; round += 1) await Promise.allSettled(["a", "b", "c"].map(send))
  await producer.close()
  return "sent"
}

// Sends eight records one after another, and continues if one fails.
async function sendEight() {
  const [producer, send] = sender({})
  for (let number = 0; number < 8; number += 1) await send(`${number}`).catch(() => {})
  await producer.close()
  return "sent"
}

process.on("uncaughtException", (error) => {
  console.log(`crashes: ${error.message}`)
  process.exit(0)
})

const functions = { readOne, readInALongRebalance, readForAWhile, sendConcurrently, sendEight }
functions[process.argv[2]]()
  .catch((error) => `raised ${error.message}`)
  .then((seen) => console.log(seen))
  .then(() => process.exit(0))
