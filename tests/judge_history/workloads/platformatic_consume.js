Promise.withResolvers ??= () => {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}
const { Consumer } = require("@platformatic/kafka")

async function main() {
  const at = process.env.ODRADEK_BOOTSTRAP
  const consumer = new Consumer({ groupId: "g", clientId: "judged", bootstrapBrokers: [at], isolationLevel: 1 })
  const stream = await consumer.consume({
    topics: ["orders"], mode: "manual", offsets: [{ topic: "orders", partition: 0, offset: 1n }], maxWaitTime: 50,
  })
  stream.on("data", () => {})
  await new Promise((done) => setTimeout(done, 4000))
}

main().then(() => process.exit(0))
