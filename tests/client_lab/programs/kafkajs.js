// Applications based on KafkaJS, one function each. The last line that is printed is the application's result.
const { Kafka, logLevel } = require("kafkajs")

const brokers = process.env.ODRADEK_BOOTSTRAP.split(",")
const kafka = new Kafka({ brokers, clientId: "kafkajs", logLevel: logLevel.NOTHING })

async function emptyTransaction() {
  const producer = kafka.producer({ transactionalId: "t", maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  await (await producer.transaction()).commit()
  const second = await producer.transaction()
  await second.send({ topic: "orders", messages: [{ value: "a" }] })
  await second.commit()
  return "committed"
}

async function readOne() {
  const consumer = kafka.consumer({ groupId: "g", maxWaitTimeInMs: 100, maxBytesPerPartition: 1 })
  await consumer.connect()
  await consumer.subscribe({ topic: "orders", fromBeginning: true })
  const read = new Promise((done) => consumer.run({ eachMessage: async ({ message }) => done(message.value) }))
  return Promise.race([read.then((value) => `read ${value}`), after(15_000, "read nothing")])
}

// Blocks in the message handler for twice the session timeout.
async function readAndBlock() {
  const consumer = kafka.consumer({ groupId: "g", maxWaitTimeInMs: 100, sessionTimeout: 2_000, heartbeatInterval: 500 })
  await consumer.connect()
  await consumer.subscribe({ topic: "orders", fromBeginning: true })
  await new Promise((done) => consumer.run({ eachMessage: () => (done(), after(60_000)) }))
  await after(4_000)
  const { groups } = await kafka.admin().describeGroups(["g"])
  return `blocks, and its group is ${groups[0].state}`
}

async function readUntilCrash() {
  const consumer = kafka.consumer({ groupId: "g", maxWaitTimeInMs: 100, retry: { retries: 2, maxRetryTime: 500 } })
  await consumer.connect()
  await consumer.subscribe({ topic: "orders" })
  const crashed = new Promise((done) => consumer.on(consumer.events.CRASH, done))
  await consumer.run({ eachMessage: async () => {} })
  await crashed
  return "crashed"
}

async function sendLong() {
  const producers = Array.from({ length: 16 }, () => kafka.producer())
  const until = Date.now() + 10_000
  const sending = producers.map(async (producer) => {
    await producer.connect()
    while (Date.now() < until) await producer.send({ topic: "orders", messages: [{ value: "a" }] })
  })
  return Promise.race([Promise.all(sending).then(() => "sent"), after(20_000, "sends no more")])
}

// Sends five records. Each connection starts its correlation ids at 2³¹ - 3.
async function sendFive() {
  const { prototype } = require("kafkajs/src/network/connection")
  const { nextCorrelationId } = prototype
  prototype.nextCorrelationId = function () {
    this.correlationId ||= 2 ** 31 - 3
    return nextCorrelationId.call(this)
  }
  const producer = kafka.producer()
  await producer.connect()
  for (let sent = 0; sent < 5; sent++) await producer.send({ topic: "orders", messages: [{ value: "a" }] })
  return "sent"
}

// Sends records with an idempotent producer, without waiting for earlier sends.
async function sendConcurrently() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 5 })
  await producer.connect()
  const send = (value) => producer.send({ topic: "orders", messages: [{ value, partition: 0 }] })
  for (let round = 0; round < 5; round += 1) await Promise.allSettled(["a", "b", "c"].map(send))
  await producer.disconnect()
  return "sent"
}

function after(ms, seen) {
  return new Promise((done) => setTimeout(done, ms, seen))
}

const functions = { emptyTransaction, readOne, readAndBlock, readUntilCrash, sendConcurrently, sendLong, sendFive }
functions[process.argv[2]]()
  .then((seen) => console.log(seen), (error) => console.log(`raised ${error.message}`))
  .then(() => process.exit(0))
