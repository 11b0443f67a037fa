// The inspector under load: node console-soak.mjs CHROMIUM API PASSWORD HOST PORT LINE SECONDS RATE DEVICES. LINE is the mosquitto_pub line of the device.
import { browse, desk, holds, open, passed, quiet } from './browser.mjs'
import { announced, nodesOf, quantile, requestsOf, Sender, signedIn, soak, wait } from './console-load.mjs'

const [executablePath, api, password, host, port, line, seconds, rate, devices] = process.argv.slice(2)
const option = (name) => line.match(new RegExp(` -${name} '?([^' ]+)'?`))?.[1]

await browse('console-soak', { executablePath, hosts: [`EXCLUDE ${new URL(api).hostname}`] }, async () => {
  const page = await open('', { viewport: desk, isMobile: false, hasTouch: false })
  const seen = announced(page)
  await signedIn(page, api, 'you@example.org', password)
  // --- what is asked ---
  const asked = requestsOf(page)
  const counted = async (what, go, rests = true) => {
    asked.n = 0
    await go()
    if (rests) await asked.rest()
    passed(`${what}: ${asked.n} API requests, ${await page.locator('tbody tr').count()} rows, ${await nodesOf(page)} nodes`)
  }
  const rows = (text) => page.locator('tbody tr', { hasText: text }).first().waitFor()
  await counted(`${devices} devices, the first rows`, async () => { await page.evaluate(() => { location.hash = '#/acme/devices' }); await rows(/\S/) })
  holds('a list has 4 API requests at most to its first rows, and 3,000 nodes', asked.n <= 4 && await nodesOf(page) <= 3000, asked.n)
  await counted('…its last page', async () => {
    await page.getByRole('button', { name: 'Last', exact: true }).click()
    const n = (Number(devices) + 1).toLocaleString('en-US')
    await page.getByText(`${n} of ${n}`).waitFor()
  })
  holds('…and 6 for a jump to the end', asked.n <= 6, asked.n)
  await counted('a minute of Overview', async () => { await page.evaluate(() => { location.hash = '#/acme/overview' }); await wait(60_000) }, false)
  holds('Overview has 40 API requests a minute at most', asked.n <= 40, asked.n)

  const sender = await Sender.connect({ url: `mqtt://${host}:${port}`, topic: option('t'), clientId: option('i') ?? 'soak', username: option('u'), password: option('P') })
  await sender.load(Number(rate), Date.now() + Math.min(60, seconds / 3) * 1000, { wraps: 100 }) // while no page shows it
  await sender.settled()
  const [alone, before] = [quantile(sender.took, 0.99), sender.sent]
  await page.evaluate(() => { location.hash = '#/acme/messages' })
  await page.getByText('live', { exact: true }).waitFor()
  await wait(2000) // what came before has been announced, and is not counted
  seen.shown = seen.leftOut = 0
  const { first, last, share } = await soak(page, sender, { seconds: Number(seconds), rate: Number(rate), settle: Math.min(60, seconds / 3) })
  await sender.settled(seen, before)
  sender.end()
  passed(`${sender.sent - before} messages, ${seen.shown} shown, ${seen.leftOut} counted; heap ${(first.heap / 1e6).toFixed(2)} → ${(last.heap / 1e6).toFixed(2)} MB, nodes ${first.nodes} → ${last.nodes}, ` +
    `main thread ${Math.round(share * 100)} %, PUBACK p99 ${quantile(sender.took, 0.99)?.toFixed(1)} ms, ${alone?.toFixed(1)} ms before`)
  holds('every message is shown or counted', seen.shown + seen.leftOut === sender.sent - before, { sent: sender.sent - before, seen })
  holds('the page says how many were too fast to show', seen.leftOut === 0 || await page.getByText('too fast to show').isVisible())
  holds('the heap has grown by 3 MB at most', last.heap - first.heap <= 3e6, first, last)
  holds('the nodes are those of before, within 2 %', Math.abs(last.nodes - first.nodes) <= first.nodes * 0.02 + 2, first, last)
  quiet()
})
