// The console when something is wrong: node console-faults.mjs CHROMIUM API PASSWORD STOP START SEND. STOP ends the instance, START begins it again
// at the same address, SEND sends temp=30 of boiler-1; the accounts and the devices of console.mjs are there.
import { execFile } from 'node:child_process'
import { createServer, request } from 'node:http'
import { connect } from 'node:net'
import { promisify } from 'node:util'
import { browse, complaints, desk, headed, holds, looks, open, phone, quiet } from './browser.mjs'

const [executablePath, api, password, stop, start, send] = process.argv.slice(2)
const run = (line) => promisify(execFile)('bash', ['-c', line]).catch((err) => err)
const email = 'you@example.org'

async function signIn(page, as = email) {
  await headed(page, 'Sign in')
  await page.getByLabel('Email', { exact: true }).fill(as)
  await page.getByLabel('Password', { exact: true }).fill(password)
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
  await page.getByRole('navigation', { name: 'Main' }).waitFor()
}

const answer = (code, message, extensions = {}) => ({ status: 200, contentType: 'application/json', body: JSON.stringify({ data: null, errors: [{ message, extensions: { code, requestId: 'r-1', ...extensions } }] }) })

// Each fault, what of it is said on the screen, and what a person can do.
const faults = {
  'FORBIDDEN': [answer('FORBIDDEN', 'forbidden: device:read is required'), /This needs device:read/],
  'THROTTLED': [answer('THROTTLED', 'throttled: too many requests', { retryAfterSeconds: 300 }), /Try again in \d+ s/],
  'LIMIT_EXCEEDED': [answer('LIMIT_EXCEEDED', 'the request costs too much', { hint: 'ask for smaller pages' }), /ask for smaller pages/],
  'CONFLICT': [answer('CONFLICT', 'the record has changed'), /the record has changed/],
  'UNAVAILABLE': [answer('UNAVAILABLE', 'Weir is starting: queries wait'), /Weir is starting: queries wait/],
  'a page of a proxy': [{ status: 502, contentType: 'text/html', body: '<h1>Bad gateway</h1>' }, /not one of Weir \(HTTP 502\)/],
  'an answer that was cut': [{ status: 200, contentType: 'application/json', body: '{"data": {"dev' }, /not one of Weir/],
}

await browse('console-faults', { executablePath, hosts: [`EXCLUDE ${new URL(api).hostname}`] }, async () => {
  const page = await open(`${api}/`, { viewport: phone })
  await signIn(page)

  // The access token of this page ends after a minute; it is looked at again when that is over.
  const lasting = await open(`${api}/#/acme/messages`, { viewport: desk, isMobile: false, hasTouch: false })
  await signIn(lasting)
  await lasting.getByText('live', { exact: true }).waitFor()
  const ends = Date.now() + 61_000

  const screens = { overview: 'Overview', alarms: 'Alarms', devices: 'Devices', 'devices/boiler-1': 'boiler-1', rules: 'Rules' } // with their titles
  for (const [fault, [fulfil, text]] of Object.entries(faults)) {
    // The session is renewed meanwhile, as it is due.
    await page.route('**/api/**', (route) => (route.request().url().includes('/user-management/') ? route.continue() : route.fulfill(fulfil)))
    for (const [at, title] of Object.entries(screens)) {
      await page.evaluate((at) => { location.hash = `#/acme/${at}` }, at)
      await page.waitForFunction((title) => document.title === `${title} · Weir`, title)
      await page.getByText(text).first().waitFor()
      if (await page.getByRole('navigation', { name: 'Main' }).getByRole('link').count() !== 4) holds(`${fault} at ${at}: the rest of the page lives`, false)
      if (fault === 'LIMIT_EXCEEDED') await looks(page, `${at}, ${fault}`)
    }
    await page.unroute('**/api/**')
    holds(`${fault}: overview, alarms, devices, device and rules say it in words, and the rest of the page lives`, true)
  }
  await page.evaluate(() => { location.hash = '#/acme/devices' })
  await headed(page, /^\d+ devices$/)
  holds('…and afterwards the screens are there again', true)

  await page.route('**/Rules.js', (route) => route.fulfill({ status: 404, body: 'gone' }))
  const old = await page.context().newPage()
  await old.route('**/Rules.js', (route) => route.fulfill({ status: 404, body: 'gone' }))
  await old.goto(`${api}/#/acme/overview`)
  await signIn(old)
  await old.evaluate(() => { location.hash = '#/acme/rules' })
  await headed(old, 'Weir was updated')
  holds('a page of an earlier version says so, and offers to reload', await old.getByRole('button', { name: 'Reload' }).isVisible())
  await old.close()
  await page.unroute('**/Rules.js')

  // --- without the piece of the editor the JSON is written in a plain field ---
  const plain = await page.context().newPage()
  await plain.route('**/editor.js', (route) => route.fulfill({ status: 404, body: 'gone' }))
  await plain.goto(`${api}/#/acme/rules`)
  await signIn(plain)
  await plain.getByRole('button', { name: 'Edit too-hot' }).click()
  await plain.getByRole('group', { name: 'View' }).getByRole('button', { name: 'JSON' }).click()
  await plain.getByText('The editor could not be loaded').waitFor()
  const definition = plain.getByLabel('Definition, as JSON')
  await definition.fill((await definition.inputValue()).replace('"gt"', '"above"'))
  await plain.locator('#verdict .bad').first().waitFor()
  holds('without the piece of the editor the JSON is written in a plain field, and checked', await definition.isEditable())
  await looks(plain, 'A rule as JSON, without the editor')
  await plain.getByRole('button', { name: 'Drop the changes' }).click()
  await plain.close()

  // --- a member without a role ---
  const viewer = await open(`${api}/`, { viewport: phone })
  await signIn(viewer, 'viewer@example.org')
  await viewer.evaluate(() => { location.hash = '#/acme/devices' })
  await headed(viewer, /^\d+ devices$/)
  holds('a member without device:write cannot add a device, and is told what it needs', await viewer.getByRole('button', { name: 'Add a device', exact: true }).isDisabled() &&
    (await viewer.locator('main').innerText()).includes('needs device:write'))
  await looks(viewer, 'Devices, of a viewer')
  await viewer.evaluate(() => { location.hash = '#/acme/devices/-/new' })
  await viewer.getByText('This needs device:write').waitFor()
  holds('…nor by the address', await viewer.getByRole('button', { name: 'Add the device' }).count() === 0)
  await viewer.evaluate(() => { location.hash = '#/acme/rules' })
  await viewer.getByRole('button', { name: 'Show too-hot' }).waitFor()
  holds('rules can be looked at, and not published', await viewer.getByRole('button', { name: 'Publish boiler' }).isDisabled())
  await viewer.context().close()

  // --- behind a proxy, below a path of its own ---
  const ingress = createServer((r, w) => {
    r.pipe(request(`${api}${r.url.replace(/^\/iot/, '')}`, { method: r.method, headers: r.headers }, (a) => a.pipe(w.writeHead(a.statusCode, a.headers))))
  }).on('upgrade', (r, socket) => {
    const to = connect(Number(new URL(api).port), new URL(api).hostname, () => {
      const headers = Object.entries(r.headers).map(([k, v]) => `${k}: ${v}`)
      to.write([`GET ${r.url.replace(/^\/iot/, '')} HTTP/1.1`, ...headers, '', ''].join('\r\n'))
      to.pipe(socket).pipe(to)
    })
    to.on('error', () => socket.destroy())
    socket.on('error', () => to.destroy())
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => ingress.on('listening', resolve))
  const outside = `http://127.0.0.1:${ingress.address().port}/iot/`
  const below = await open(outside, { viewport: desk, isMobile: false, hasTouch: false })
  await signIn(below)
  await below.getByRole('link', { name: 'Messages', exact: true }).click()
  await below.getByText('live', { exact: true }).waitFor()
  holds('below a path prefix: sign-in, pieces and streams', true)
  await below.context().close()
  ingress.closeAllConnections()
  ingress.close()

  await lasting.waitForFunction((ends) => Date.now() > ends, ends, { timeout: 120_000 })
  await run(send)
  await lasting.locator('tbody tr', { hasText: 'temp=30' }).waitFor()
  holds('a stream outlives its access token without a gap', await lasting.getByText('The stream was lost').count() === 0)
  await lasting.context().close()

  const provoked = complaints.splice(0)
  holds('the console of the browser has nothing but its own lines for what was provoked', provoked.every((c) => /Failed to load resource.*(40[0-9]|50[0-9])|Failed to fetch dynamically imported module|error loading dynamically/.test(c)), provoked)

  // --- Weir is away, and there again ---
  await page.evaluate(() => { location.hash = '#/acme/devices/-/new' })
  await headed(page, 'Add a device')
  await page.getByLabel('Name', { exact: true }).fill('Pump 2')
  const watching = await page.context().newPage()
  await watching.goto(`${api}/#/acme/messages`)
  await signIn(watching)
  await watching.getByText('live', { exact: true }).waitFor()
  const list = await page.context().newPage()
  await list.goto(`${api}/#/acme/devices`)
  await signIn(list)
  await headed(list, /^\d+ devices$/)
  await run(stop)
  await list.getByText(/^offline since/).waitFor()
  holds('what was there stays, with the time that it is of', (await list.locator('main').innerText()).includes('boiler-1') && /as of \d\d:\d\d:\d\d/.test(await list.locator('main').innerText()), await list.locator('main').innerText())
  await looks(list, 'Devices, offline')
  await watching.getByText('reconnecting', { exact: true }).waitFor()
  await page.getByRole('button', { name: 'Add the device' }).click()
  await page.getByText('Weir cannot be reached').waitFor()
  holds('a form keeps its text, and says that it was not sent', await page.getByLabel('Name', { exact: true }).inputValue() === 'Pump 2')
  await run(start)
  await list.getByText(/^offline since/).waitFor({ state: 'detached', timeout: 60000 })
  holds('the page comes back by itself', true)
  await watching.getByText('live', { exact: true }).waitFor({ timeout: 60000 })
  await watching.getByText('The stream was lost once').waitFor()
  holds('a stream that is there again says that there was a gap', true)
  await page.reload()
  await headed(page, 'Add a device')
  holds('…and a reload keeps what was written', await page.getByLabel('Name', { exact: true }).inputValue() === 'Pump 2')
  await page.getByRole('button', { name: 'Add the device' }).click()
  await headed(page, '3 Send the first reading', 2)
  holds('…which is sent then', true)
  holds('the console of the browser has only its own lines for the refused connections', complaints.splice(0).every((c) => /ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket connection|503/.test(c)), complaints)
  quiet()
})
