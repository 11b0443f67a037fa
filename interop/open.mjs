// What MQTT 5 has, with mqtt.js against the open topics: node open.mjs URL USER. Each line it writes is a check that holds;
// it ends with 1 at the first that does not.
import mqtt from 'mqtt'

const [url, username] = process.argv.slice(2)
const passed = (what) => process.stdout.write(what + '\n')
const clients = []

function hold(what, ok, got) {
  if (ok) return passed(what)
  process.stdout.write(what + '\n')
  process.stderr.write('got: ' + JSON.stringify(got) + '\n')
  process.exit(1)
}

// connect opens a session; what it receives is kept in got until next asks for it.
async function connect(clientId, options = {}) {
  const client = mqtt.connect(url, { protocolVersion: 5, clientId, username, clean: true, reconnectPeriod: 0, ...options })
  clients.push(client)
  const got = []
  const waiting = []
  client.on('message', (topic, payload, packet) => {
    const m = { topic, payload: payload.toString(), retain: packet.retain, qos: packet.qos, properties: packet.properties ?? {} }
    waiting.length ? waiting.shift()(m) : got.push(m)
  })
  client.on('error', () => {})
  client.next = () => got.length ? Promise.resolve(got.shift()) : Promise.race([
    new Promise((resolve) => waiting.push(resolve)),
    new Promise((_, reject) => setTimeout(() => reject(new Error('nothing came')), 10_000).unref()),
  ])
  client.ack = await new Promise((resolve, reject) => { client.once('connect', resolve); client.once('error', reject) })
  return client
}

const a = await connect('a')
const b = await connect('b', { properties: { topicAliasMaximum: 4 } })
hold('CONNACK: all of MQTT is available, with a receive maximum and topic aliases', a.ack.properties.maximumQoS === undefined &&
  a.ack.properties.retainAvailable === undefined && a.ack.properties.topicAliasMaximum > 0 && a.ack.properties.receiveMaximum > 0, a.ack.properties)

await b.subscribeAsync('request/#', { qos: 1, properties: { subscriptionIdentifier: 7 } })
await a.subscribeAsync('answer/a', { qos: 1 })
await a.publishAsync('request/sum', '1+1', { qos: 1, properties: { responseTopic: 'answer/a', correlationData: Buffer.from([0, 255]),
  contentType: 'text/plain', payloadFormatIndicator: true, messageExpiryInterval: 60, userProperties: { k: ['1', '2'], l: '3' } } })
const asked = await b.next()
hold('a request arrives with response topic, correlation data, content type and user properties', asked.properties.responseTopic === 'answer/a' &&
  asked.properties.correlationData.equals(Buffer.from([0, 255])) && asked.properties.contentType === 'text/plain' &&
  JSON.stringify(asked.properties.userProperties) === '{"k":["1","2"],"l":"3"}', asked)
hold('…with the subscription identifier and what is left of its time', asked.properties.subscriptionIdentifier === 7 &&
  asked.properties.messageExpiryInterval > 50 && asked.properties.messageExpiryInterval <= 60, asked)
await b.publishAsync(asked.properties.responseTopic, '2', { qos: 1, properties: { correlationData: asked.properties.correlationData } })
const answer = await a.next()
hold('the response comes back', answer.payload === '2' && answer.properties.correlationData.equals(Buffer.from([0, 255])), answer)

await a.publishAsync('request/alias', 'first', { properties: { topicAlias: 1 } })
await a.publishAsync('', 'second', { properties: { topicAlias: 1 } })
const [first, second] = [await b.next(), await b.next()]
hold('topic aliases, in and out', first.topic === 'request/alias' && second.topic === 'request/alias' && second.payload === 'second', [first, second])

await a.publishAsync('state/x', 'on', { qos: 1, retain: true })
await b.subscribeAsync('state/#', { qos: 1, rap: true, rh: 1 })
const retained = await b.next()
hold('retained, with retain handling 1 on a new subscription', retained.retain && retained.payload === 'on', retained)
await b.subscribeAsync('state/#', { qos: 1, rap: true, rh: 1 })
await a.publishAsync('state/x', 'off', { qos: 1, retain: true })
const live = await b.next()
hold('…and not again on one that was there; retain as published', live.retain && live.payload === 'off', live)

await a.subscribeAsync('loop', { nl: true })
await a.publishAsync('loop', 'own', { qos: 1 })
await b.publishAsync('loop', 'other', { qos: 1 })
const looped = await a.next()
hold('no local', looped.payload === 'other', looped)

let mortal = await connect('mortal', { properties: { sessionExpiryInterval: 60 }, will: { topic: 'state/mortal', payload: 'gone', qos: 1,
  properties: { willDelayInterval: 1, contentType: 'text/plain' } } })
mortal.stream.destroy()
const gone = await b.next()
hold('a will after its delay, with its properties', gone.topic === 'state/mortal' && gone.payload === 'gone' && gone.properties.contentType === 'text/plain', gone)

let sleeper = await connect('sleeper', { clean: false, properties: { sessionExpiryInterval: 60 } })
await sleeper.subscribeAsync('dreams', { qos: 2 })
await sleeper.endAsync()
for (let i = 0; i < 30; i++) await a.publishAsync('dreams', String(i), { qos: 1 })
sleeper = await connect('sleeper', { clean: false, properties: { sessionExpiryInterval: 60, receiveMaximum: 2 } })
const dreams = []
while (dreams.length < 30) dreams.push((await sleeper.next()).payload)
hold('a session is resumed, and what waited comes in its order', sleeper.ack.sessionPresent && dreams.every((d, i) => d === String(i)), dreams)

const refused = await a.publishAsync('weir/acme/devices/gateway-1/events', '{}', { qos: 1 }).then(() => null, (err) => err)
hold('the topic of a device: PUBACK 0x87', refused?.code === 0x87, refused)
const denied = await new Promise((resolve) => a.subscribe('bad/#/filter', (err, granted) => resolve({ err: err?.message, granted })))
hold('a filter of bad form is refused', denied.err !== undefined || denied.granted?.[0]?.qos >= 128, denied)
for (const c of clients) c.end(true)
