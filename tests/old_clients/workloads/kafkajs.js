// Applications on KafkaJS, one function each. The last line that one prints is all that it sees.
const { Kafka, logLevel } = require("kafkajs")

const kafka = new Kafka({ brokers: [process.env.ODRADEK_BOOTSTRAP], clientId: "kafkajs", logLevel: logLevel.NOTHING })

async function emptyTransaction() {
  const producer = kafka.producer({ transactionalId: "t", maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  await (await producer.transaction()).commit()
  const second = await producer.transaction()
  await second.send({ topic: "orders", messages: [{ value: "a" }] })
  await second.commit()
  return "committed"
}

const functions = { emptyTransaction }
functions[process.argv[2]]()
  .then((seen) => console.log(seen), (error) => console.log(`raised ${error.message}`))
  .then(() => process.exit(0))
