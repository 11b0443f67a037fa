// The inspector under load: node console-soak.mjs CHROMIUM API PASSWORD HOST PORT LINE SECONDS RATE DEVICES. LINE is the mosquitto_pub line of the device.
import mqtt from 'mqtt'
import { browse, desk, headed, holds, open, passed, quiet } from './browser.mjs'

const [executablePath, api, password, host, port, line, seconds, rate, devices] = process.argv.slice(2)
const option = (name) => line.match(new RegExp(` -${name} '?([^' ]+)'?`))?.[1]
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms)) // a load takes its time

await browse('console-soak', { executablePath, hosts: [`EXCLUDE ${new URL(api).hostname}`] }, async () => {
  const page = await open('', { viewport: desk, isMobile: false, hasTouch: false })
  const seen = { shown: 0, leftOut: 0 }
  page.on('websocket', (socket) => socket.on('framereceived', ({ payload }) => {
    const batch = JSON.parse(String(payload)).payload?.data?.messageStream
    if (batch) seen.shown += batch.messages.length
    if (batch) seen.leftOut += batch.leftOut
  }))
  await page.goto(`${api}/`)
  await headed(page, 'Sign in')
  await page.getByLabel('Email', { exact: true }).fill('you@example.org')
  await page.getByLabel('Password', { exact: true }).fill(password)
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
  await page.getByRole('navigation', { name: 'Main' }).waitFor()
  // --- what is asked ---
  let asked = 0
  page.on('request', (r) => { if (r.url().endsWith('/graphql') && r.method() === 'POST') asked++ })
  const counted = async (what, go) => {
    asked = 0
    await go()
    passed(`${what}: ${asked} API requests, ${await page.locator('tbody tr').count()} rows, ${await page.evaluate(() => document.querySelectorAll('*').length)} nodes`)
  }
  const rows = (text) => page.locator('tbody tr', { hasText: text }).first().waitFor()
  await counted(`${devices} devices, the first rows`, async () => { await page.evaluate(() => { location.hash = '#/acme/devices' }); await rows(/\S/) })
  holds('a list has 4 API requests at most to its first rows, and 3,000 nodes', asked <= 4 && await page.evaluate(() => document.querySelectorAll('*').length) <= 3000, asked)
  await counted('…its last page, by its address', async () => {
    await page.evaluate(() => { location.hash = '#/acme/rules' })
    await page.getByRole('heading', { level: 1, name: /rule/ }).waitFor()
    asked = 0
    await page.evaluate((n) => { location.hash = `#/acme/devices?page=${n}` }, Math.ceil((Number(devices) + 1) / 100))
    await page.getByText(new RegExp(`of ${(Number(devices) + 1).toLocaleString('en-US')}`)).first().waitFor()
  })
  await counted('a minute of Overview', async () => { await page.evaluate(() => { location.hash = '#/acme/overview' }); await wait(60_000) })
  holds('Overview has 40 API requests a minute at most', asked <= 40, asked)

  await page.evaluate(() => { location.hash = '#/acme/messages' })
  await page.getByText('live', { exact: true }).waitFor()

  const devtools = await page.context().newCDPSession(page)
  const look = async () => {
    await devtools.send('HeapProfiler.collectGarbage')
    const { usedSize } = await devtools.send('Runtime.getHeapUsage')
    return { heap: usedSize, nodes: await page.evaluate(() => document.querySelectorAll('*').length), busy: (await devtools.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value }
  }
  await devtools.send('Performance.enable')
  const client = await mqtt.connectAsync(`mqtt://${host}:${port}`, { clientId: option('i') ?? 'soak', username: option('u'), password: option('P'), reconnectPeriod: 0 })
  const began = Date.now()
  const [sent, took] = [{ n: 0, acknowledged: 0 }, []]
  const load = async (until) => {
    while (Date.now() < until) {
      const due = Math.floor(((Date.now() - began) / 1000) * Number(rate))
      for (; sent.n < due && sent.n - sent.acknowledged < 4000; sent.n++) {
        const at = performance.now()
        client.publishAsync(option('t'), JSON.stringify({ temp: sent.n % 100 }), { qos: 1 }).then(() => {
          sent.acknowledged++
          if (took.length < 1_000_000) took.push(performance.now() - at)
        })
      }
      await wait(10)
    }
  }
  await load(began + Math.min(60, seconds / 3) * 1000)
  const first = await look()
  const since = Date.now()
  await load(began + seconds * 1000)
  const last = await look()
  const share = (last.busy - first.busy) / ((Date.now() - since) / 1000)
  for (let tries = 0; tries < 600 && (sent.acknowledged < sent.n || seen.shown + seen.leftOut < sent.n); tries++) await wait(100)
  client.end()
  took.sort((a, b) => a - b)
  passed(`${sent.n} messages, ${seen.shown} shown, ${seen.leftOut} counted; heap ${(first.heap / 1e6).toFixed(2)} → ${(last.heap / 1e6).toFixed(2)} MB, nodes ${first.nodes} → ${last.nodes}, ` +
    `main thread ${Math.round(share * 100)} %, PUBACK p99 ${took[Math.floor(took.length * 0.99)]?.toFixed(1)} ms`)
  holds('every message is shown or counted', seen.shown + seen.leftOut === sent.n, { sent, seen })
  holds('the page says how many were too fast to show', seen.leftOut === 0 || await page.getByText('too fast to show').isVisible())
  holds('the heap has grown by 3 MB at most', last.heap - first.heap <= 3e6, first, last)
  holds('the nodes are those of before, within 2 %', Math.abs(last.nodes - first.nodes) <= first.nodes * 0.02 + 2, first, last)
  quiet()
})
