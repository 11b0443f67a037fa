// The inspector under load: what console-soak.mjs holds and console-bench.mjs measures.
import mqtt from 'mqtt'

export const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms)) // a load takes its time

// announced counts what the stream of messages tells page.
export function announced(page) {
  const seen = { shown: 0, leftOut: 0 }
  page.on('websocket', (socket) => socket.on('framereceived', ({ payload }) => {
    const batch = JSON.parse(String(payload)).payload?.data?.messageStream
    if (batch) seen.shown += batch.messages.length
    if (batch) seen.leftOut += batch.leftOut
  }))
  return seen
}

export const signedIn = async (page, api, email, password, stay = false) => {
  await page.goto(`${api}/`)
  await page.getByLabel('Email', { exact: true }).fill(email)
  await page.getByLabel('Password', { exact: true }).fill(password)
  if (stay) await page.getByLabel('Keep me signed in on this device', { exact: true }).check()
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
  await page.getByRole('navigation', { name: 'Main' }).waitFor()
}

// requestsOf counts the API requests of page, from when it is called or begun again. Its rest() waits until none has been under way for a while.
export function requestsOf(page) {
  const under = new Set()
  const count = { n: 0, last: 0 }
  const api = (r) => r.url().endsWith('/graphql') && r.method() === 'POST'
  page.on('request', (r) => {
    if (!api(r)) return
    count.n++
    under.add(r)
  })
  for (const ends of ['requestfinished', 'requestfailed']) page.on(ends, (r) => { if (under.delete(r)) count.last = Date.now() })
  count.rest = async (ms = 800) => {
    for (const began = Date.now(); under.size > 0 || Date.now() - Math.max(count.last, began) < ms;) {
      if (Date.now() - began > 30_000) throw new Error(`the page asks without an end: ${count.n} requests`)
      await wait(50)
    }
  }
  return count
}

export const nodesOf = (page) => page.evaluate(() => document.querySelectorAll('*').length)

// Sender publishes temp=0, 1, 2 … at QoS 1, at most 4,000 of them unacknowledged.
export class Sender {
  sent = 0
  acknowledged = 0
  at = [] // when each was sent, in ms since 1970, where it is asked for
  took = [] // ms until the acknowledgement; may be begun again

  static async connect({ url, topic, ...options }) {
    const s = new Sender()
    s.client = await mqtt.connectAsync(url, { reconnectPeriod: 0, ...options })
    s.topic = topic
    return s
  }

  // load sends rate messages a second until a moment, of a sequence that wraps at most.
  async load(rate, until, { wraps = Infinity, stamped = false } = {}) {
    const [began, before] = [Date.now(), this.sent]
    while (Date.now() < until) {
      const due = before + Math.floor(((Date.now() - began) / 1000) * rate)
      for (; this.sent < due && this.sent - this.acknowledged < 4000; this.sent++) {
        const at = performance.now()
        if (stamped) this.at[this.sent] = Date.now()
        this.client.publishAsync(this.topic, JSON.stringify({ eventType: 'Measurement', payload: { entries: [{ measurements: { temp: String(this.sent % wraps) } }] } }), { qos: 1 }).then(() => {
          this.acknowledged++
          if (this.took.length < 1_000_000) this.took.push(performance.now() - at)
        })
      }
      await wait(10)
    }
  }

  // settled waits until all is acknowledged, and, with seen, announced from a count on.
  async settled(seen, from = 0) {
    for (let tries = 0; tries < 600 && (this.acknowledged < this.sent || (seen && seen.shown + seen.leftOut < this.sent - from)); tries++) await wait(100)
  }

  end() { this.client.end() }
}

// soak watches page, which shows the inspector, while messages come in: its heap after collection and its nodes, at first and at last.
export async function soak(page, sender, { seconds, rate, settle }) {
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('Performance.enable')
  const look = async () => {
    await devtools.send('HeapProfiler.collectGarbage')
    const { usedSize } = await devtools.send('Runtime.getHeapUsage')
    return { heap: usedSize, nodes: await nodesOf(page), busy: (await devtools.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value }
  }
  const began = Date.now()
  await sender.load(rate, began + settle * 1000, { wraps: 100 })
  const first = await look()
  sender.took = []
  const since = Date.now()
  await sender.load(rate, began + seconds * 1000, { wraps: 100 })
  const last = await look()
  return { first, last, share: (last.busy - first.busy) / ((Date.now() - since) / 1000) }
}

export const quantile = (all, q) => all.toSorted((a, b) => a - b)[Math.min(all.length - 1, Math.floor(all.length * q))]
