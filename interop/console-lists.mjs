// What a list asks and holds, and what a tab asks that is not seen: node console-lists.mjs CHROMIUM API PASSWORD. There are 1,000 devices w-0001 … and 120 device types t-001 …
// besides. The clock of the page stands, so that what is asked again after a while is asked when it is turned, and no verdict depends on the machine.
import { browse, desk, headed, holds, looks, open, phone, quiet } from './browser.mjs'

const [executablePath, api, password] = process.argv.slice(2)

await browse('console-lists', { executablePath, hosts: [`EXCLUDE ${new URL(api).hostname}`] }, async () => {
  const page = await open('', { viewport: desk, isMobile: false, hasTouch: false })
  const asked = []
  let running = 0
  const isAsked = (r) => r.url().endsWith('/graphql') && r.method() === 'POST'
  page.on('request', (r) => {
    if (!isAsked(r)) return
    running++
    asked.push(r.postDataJSON().query.match(/^\w+ (\w+)/)?.[1] ?? r.postData())
  })
  for (const ends of ['requestfinished', 'requestfailed']) page.on(ends, (r) => { if (isAsked(r)) running-- })
  await page.clock.install()
  await page.goto(`${api}/`)
  await headed(page, 'Sign in')
  await page.getByLabel('Email', { exact: true }).fill('you@example.org')
  await page.getByLabel('Password', { exact: true }).fill(password)
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
  await page.getByRole('navigation', { name: 'Main' }).waitFor()
  await page.clock.pauseAt(new Date(Date.now() + 2000))

  const to = (place) => page.evaluate((p) => { location.hash = `#/acme/${p}` }, place)
  const rows = page.locator('tbody tr')
  // settled waits until nothing is asked any more while the clock stands, after it went on for as long as a screen waits for a further key.
  const settled = async () => {
    await page.clock.runFor(400)
    for (let still = 0; still < 5; still = running === 0 ? still + 1 : 0) await page.evaluate(() => new Promise((done) => { const c = new MessageChannel(); c.port1.onmessage = done; c.port2.postMessage(0) }))
  }
  // shown goes somewhere, waits for a row, and holds what a list may ask and have in the document.
  const shown = async (what, most, heading, go, row) => {
    await settled()
    asked.length = 0
    await go()
    await page.getByRole('heading', { level: 1, name: heading }).waitFor()
    await page.clock.runFor(400)
    await rows.locator('td:first-child').getByText(row, { exact: true }).waitFor()
    await settled()
    const [n, nodes] = [await rows.count(), await page.evaluate(() => document.querySelectorAll('*').length)]
    holds(`${what}: ${most} API requests at most, 60 rows, 3,000 nodes`, asked.length > 0 && asked.length <= most && n <= 60 && nodes <= 3000, { asked, rows: n, nodes })
  }
  const press = (name) => page.getByRole('button', { name, exact: true }).click()
  const number = (n) => n.toLocaleString('en-US')
  const focused = () => page.evaluate(() => document.activeElement.textContent)

  await to('instance/api')
  await headed(page, 'The API')
  await shown('the first of more than 1,000 devices', 4, /devices/i, () => to('devices'), 'w-0001')
  const total = Number((await page.locator('h1').innerText()).match(/^([\d,]+) devices$/)[1].replace(',', ''))
  const last = Math.ceil(total / 50)
  const from = (page) => (page - 1) * 50 + 1
  asked.length = 0
  await page.clock.runFor(20_000)
  await settled()
  holds('…and a list that is looked at asks for the states of its rows alone, each 5 s', asked.length <= 5 && asked.every((name) => name === 'deviceStates'), asked)
  await shown('a jump to the end of them', 6, /devices/, () => press('Last'), 'Boiler 1')
  holds('…of which there are as many as are left', await rows.count() === total - from(last) + 1 && await page.getByText(`${number(from(last))}–${number(total)} of ${number(total)}`).isVisible(), await page.locator('main').innerText())
  holds('…which is in the address, and the focus is on the way back', page.url().endsWith(`/devices?page=${last}`) && await focused() === 'Previous', page.url(), await focused())
  await page.keyboard.press('Enter')
  await page.clock.runFor(400)
  await rows.filter({ hasText: `w-${String(from(last - 1)).padStart(4, '0')}` }).waitFor()
  holds('…by the keyboard', await rows.count() === 50)
  await shown('…and back to the first', 6, /devices/, () => press('First'), 'w-0001')
  await shown('a search among them', 4, /devices/, () => page.getByLabel('Find', { exact: true }).fill('w-07'), 'w-0700')
  await to('instance/api')
  await headed(page, 'The API')
  await to('devices?page=4000')
  await page.getByRole('heading', { level: 1, name: /devices/i }).waitFor()
  await page.clock.runFor(400)
  await page.getByText(`none of ${number(total)}: there is no such page`).waitFor()
  holds('a page that is not there says so, and leads back', await page.getByRole('button', { name: 'Previous', exact: true }).isEnabled() && await page.getByRole('button', { name: 'Next', exact: true }).isDisabled())

  await shown('the first of a kind, by its description', 4, /types/i, () => to('devices/-/types'), 't-001')
  await shown('…and its last', 6, /types/, () => press('Last'), 'boiler')
  // --- a tab that is not seen ---
  const sockets = new Set()
  page.on('websocket', (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { get: () => hidden, configurable: true })
    document.dispatchEvent(new Event('visibilitychange'))
  }, hidden)
  for (const place of ['alarms', 'messages', 'actions']) {
    await to(place)
    await page.getByText('live', { exact: true }).waitFor()
    await settled()
    const before = sockets.size
    await hide(true)
    asked.length = 0
    await page.clock.runFor(60_000)
    for (let tries = 0; sockets.size > 0 && tries < 500; tries++) await new Promise((go) => setTimeout(go, 20))
    holds(`${place} asks nothing while the tab is not seen, and has no socket after 30 s`, before > 0 && sockets.size === 0 && asked.length === 0, { before, sockets: sockets.size, asked })
    await hide(false)
    await page.getByText('live', { exact: true }).waitFor()
  }
  holds('…and is live again when it is seen', sockets.size > 0)
  await page.clock.resume()
  await page.setViewportSize(phone)
  await looks(page, 'Types, the last page')
  await to('devices')
  await rows.filter({ hasText: 'w-0001' }).first().waitFor()
  await looks(page, 'Devices, the first page')
  quiet()
})
