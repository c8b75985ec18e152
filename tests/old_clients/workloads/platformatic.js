// Applications on @platformatic/kafka, one function each. The last line that one prints is all that it sees.
Promise.withResolvers ??= () => {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}
const { Consumer } = require("@platformatic/kafka")

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

process.on("uncaughtException", (error) => {
  console.log(`crashes: ${error.message}`)
  process.exit(0)
})

const functions = { readOne, readInALongRebalance }
functions[process.argv[2]]()
  .catch((error) => `raised ${error.message}`)
  .then((seen) => console.log(seen))
  .then(() => process.exit(0))
