// One MQTT session with mqtt.js, told as JSON: node mqtt.mjs '{"url": …, "version": 4 or 5, "clientId": …, "username": …,
// "password": …, "steps": [{"publish": {"topic", "payload", "qos"}}, {"subscribe": {"topic", "qos"}},
// {"answer": {"commands", "responses", "payload", "error"}}, {"receive": {"topic"}}]}'.
// Writes one line of JSON per thing that happened; what the server refuses is a line like any other, not a failure.
import mqtt from 'mqtt'

const session = JSON.parse(process.argv[2])
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n')

const client = mqtt.connect(session.url, {
  protocolVersion: session.version,
  clientId: session.clientId,
  username: session.username,
  password: session.password,
  clean: true,
  reconnectPeriod: 0, // a refusal is an answer, not something to try again
  connectTimeout: 10_000,
})

const closed = new Promise((resolve) => client.once('close', () => resolve({ ok: false, closed: true })))

const connected = await new Promise((resolve) => {
  client.once('connect', (ack) => resolve({ ok: true, code: ack.reasonCode ?? ack.returnCode, properties: ack.properties }))
  client.once('error', (err) => resolve({ ok: false, code: err.code, message: err.message }))
  closed.then(resolve)
})
say({ connect: connected })
client.on('error', () => {}) // the step that meets the error reports it
client.on('disconnect', (packet) => say({ disconnect: { code: packet.reasonCode, reason: packet.properties?.reasonString } }))

const refusal = (err, packet) => ({ ok: false, code: err.code ?? packet?.reasonCode, message: err.message, reason: packet?.properties?.reasonString })

function publish({ topic, payload, qos = 1 }) {
  return new Promise((resolve) => {
    client.publish(topic, payload, { qos }, (err, packet) => resolve(err ? refusal(err, packet) : { ok: true, code: packet?.reasonCode ?? 0 }))
  })
}

function subscribe({ topic, qos = 1 }) {
  return new Promise((resolve) => {
    client.subscribe(topic, { qos }, (err, granted) => {
      const code = granted?.[0]?.qos
      resolve(err ? refusal(err) : { ok: code < 128, code })
    })
  })
}

// answer subscribes to commands, answers the first, and ends when that answer is acknowledged.
async function answer({ commands, responses, error, payload }) {
  const came = new Promise((resolve) => client.once('message', (_, body) => resolve(JSON.parse(body))))
  const granted = await subscribe({ topic: commands })
  if (!granted.ok) return granted
  const command = await came
  const said = { commandToken: command.token, dispatchNonce: command.dispatchNonce, success: !error, error, payload }
  return { ...await publish({ topic: responses, payload: JSON.stringify(said) }), command }
}

// receive subscribes and ends with the first message.
async function receive({ topic }) {
  const came = new Promise((resolve) => client.once('message', (at, body, packet) => resolve({ topic: at, body: JSON.parse(body), qos: packet.qos, retain: packet.retain })))
  const granted = await subscribe({ topic })
  return granted.ok ? { ...granted, ...await came } : granted
}

const verbs = { publish, subscribe, answer, receive }

if (connected.ok) {
  for (const step of session.steps ?? []) {
    const [verb, what] = Object.entries(step)[0]
    const act = verbs[verb](what)
    const outcome = await Promise.race([act, closed])
    say({ [verb]: outcome })
    if (outcome.closed) break
  }
}
client.end(true)
