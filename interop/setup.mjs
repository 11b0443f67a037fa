// The setup page in a real browser, as a user of a phone uses it: node setup.mjs CHROMIUM LINK. LINK is a printed one;
// the browser opens it on a name of the LAN, over plain http. Writes one line per check that holds, and ends with 1 at the
// first that does not.
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { chromium } from 'playwright-core'

const [executablePath, printed] = process.argv.slice(2)
const lanName = 'gateway.lan'
const link = new URL(printed)
link.hostname = lanName
const secret = link.hash.slice(1)
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const sourcePath = (name) => fileURLToPath(new URL(`../web/${name}`, import.meta.url))
const source = (name) => readFileSync(sourcePath(name), 'utf8')
const shots = process.env.SHOTS // a directory for pictures, for a visual check

const passed = (what) => process.stdout.write(what + '\n')
function holds(what, ok, ...why) {
  if (!ok) throw new Error([what, ...why.map((w) => (typeof w === 'string' ? w : JSON.stringify(w)))].join('\n      '))
  passed(what)
}

const browser = await chromium.launch({ executablePath, args: [`--host-resolver-rules=MAP ${lanName} ${new URL(printed).hostname},MAP * ~NOTFOUND`] })
const requests = []
const complaints = []

async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, ...options })
  context.on('request', (r) => requests.push(r))
  const page = await context.newPage()
  page.on('console', (m) => complaints.push(`${m.type()}: ${m.text()}`))
  page.on('pageerror', (e) => complaints.push(e.message))
  if (url) await page.goto(url)
  return page
}

const at = (page) => page.evaluate(() => ({ tag: document.activeElement.tagName, id: document.activeElement.id, text: document.activeElement.textContent }))

// step waits for the heading of a step and holds what must be true of each: where the focus is, no sideways scrolling,
// nothing that axe objects to, in light and in dark.
async function step(page, heading) {
  await page.getByRole('heading', { level: 1, name: heading, exact: true }).waitFor()
  const focus = await at(page)
  holds(`${heading}: the focus is at the heading`, focus.tag === 'H1' && focus.text === heading, focus)
  await looks(page, heading)
}

async function looks(page, name) {
  await narrow(page, name)
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme })
    await page.evaluate(axe)
    const { violations, passes } = await page.evaluate(() => globalThis.axe.run(document))
    holds(`${name}: axe finds nothing, ${colorScheme}`, violations.length === 0 && passes.length > 5,
      ...violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).join(' ')}`))
    if (shots) await page.screenshot({ path: `${shots}/${name.replace(/\W+/g, '-')}-${colorScheme}.png`, fullPage: true })
  }
}

async function narrow(page, name) {
  const widths = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth])
  holds(`${name}: nothing to scroll sideways at 390 px`, widths[0] <= widths[1] && widths[1] === 390, widths)
}

// typed fills a form with the keyboard alone: a value for each input, from the heading on, and Enter.
async function typed(page, ...values) {
  for (const value of values) {
    await page.keyboard.press('Tab')
    if (value !== null) await page.keyboard.type(value)
  }
  await page.keyboard.press('Enter')
}

async function refused(page, id, text) {
  await page.waitForFunction((id) => document.activeElement.id === id && document.activeElement.getAttribute('aria-invalid'), id)
  const told = await page.locator(`#${id}-error`).textContent()
  holds(`refused beside its input, which has the focus: ${text}`, told.includes(text), told)
}

try {
  const plain = await open(link.href, { javaScriptEnabled: false })
  holds('without JavaScript the page says what to do instead', (await plain.locator('body').innerText()).includes('weir admin create you@example.org'))
  await narrow(plain, 'Without JavaScript')
  await step(await open(link.href.split('#')[0]), 'This link is not whole')

  const early = await open('')
  let answered = 0
  await early.route('**/setup', (route) => route.fulfill({ status: 503, contentType: 'text/html', body: source('setup_starting.html') }).then(() => answered++), { times: 1 })
  await early.route('**/setup/setup.*', (route) => route.fulfill({ path: sourcePath(new URL(route.request().url()).pathname.split('/').pop()) }), { times: 3 })
  await early.goto(link.href)
  await early.getByRole('heading', { level: 1, name: 'Make the first administrator', exact: true }).waitFor()
  holds('a client that connects while Weir starts is let in afterwards, with its link', answered === 1 && complaints.splice(0).every((c) => c.includes('503')))
  const wrong = await open(link.href + 'x')
  await step(wrong, 'This link is no longer valid')
  holds('a wrong link is refused', complaints.splice(0).every((c) => c.includes('403')))

  const page = await open(link.href)
  const other = await open(link.href)
  holds('the page is no secure context: plain http on a name of the LAN', await page.evaluate(() => !isSecureContext && location.hostname === 'gateway.lan'))

  await step(page, 'Make the first administrator')
  await typed(page, null)
  await refused(page, 'email', 'Must be an email address')
  await looks(page, 'Errors')
  await page.locator('#administrator h1').focus()
  await typed(page, 'you@example.org', 'short', 'short')
  await refused(page, 'password', 'Must have at least 8 characters')
  await page.locator('#password').fill('')
  await page.locator('#again').fill('')
  await page.locator('#email').focus()
  await typed(page, 'correct horse', 'correct hose')
  await refused(page, 'again', 'The two passwords differ')
  await page.locator('#again').fill('')
  await page.locator('#password').focus()
  await typed(page, 'correct horse')

  await step(page, 'Make a tenant')
  holds('the used link has left the address', !page.url().includes(secret) && !page.url().includes('#'), page.url())
  await typed(page, 'Süd-Werk & Co.')
  await step(page, 'Make a first device')
  holds('the tenant has the token that was suggested', (await page.locator('#device .tenant').textContent()) === 'sud-werk-co')
  await typed(page, null)

  await step(page, 'Send the first reading')
  const commands = await page.locator('#snippets pre').allTextContents()
  const curl = commands.find((c) => c.startsWith('curl '))
  holds('the commands of mosquitto_pub and curl and a program in Go are shown', commands.length === 3 && curl &&
    commands.some((c) => c.startsWith('mosquitto_pub ')) && commands.some((c) => c.startsWith('package main')), commands)
  await page.getByRole('button', { name: 'Copy the command for curl' }).click()
  await page.waitForFunction(() => document.getElementById('status').textContent !== '')
  const marked = await page.evaluate(() => [document.getElementById('status').textContent, getSelection().toString()])
  holds('the copy button works on plain http', marked[0] === 'Copied.' && marked[1].trim() === curl.trim(), marked)

  const sent = await promisify(execFile)('bash', ['-c', curl])
  holds('the curl command as shown is answered with 202', sent.stdout.includes(' 202 '), sent.stdout)
  await page.locator('#arrival.good').waitFor()
  const arrival = await page.locator('#arrival').textContent()
  holds('the first reading appears by itself', arrival.includes('temp = 21.5'), arrival)
  await page.locator('#arrival').scrollIntoViewIfNeeded()
  await looks(page, 'The reading')

  await page.reload()
  await step(page, 'Send the first reading')
  await page.locator('#arrival.good').waitFor()
  holds('after a reload the page goes on, and names the command for another token',
    (await page.locator('#rotate').textContent()) === 'weir device rotate sud-werk-co device-1' && (await page.locator('#snippets pre').count()) === 0)
  await page.getByRole('link', { name: 'To the start page' }).click()
  await page.getByRole('heading', { level: 2, name: 'Signed in', exact: true }).waitFor()
  holds('the setup ends signed in on the start page', (await page.locator('main').innerText()).includes('you@example.org, administrator of this instance'))
  await looks(page, 'The start page')
  await page.getByRole('link', { name: 'Documentation' }).first().click()
  await page.getByRole('heading', { level: 1, name: 'Weir: documentation', exact: true }).waitFor()
  await looks(page, 'The documentation')

  await other.locator('#email').fill('me@example.org')
  await other.locator('#password').fill('correct horse')
  await other.locator('#again').fill('correct horse')
  quiet() // what follows is refused, and the browser says so
  await other.locator('#again').press('Enter')
  await step(other, 'This link is no longer valid')
  holds('a page that was open on the used link is refused', complaints.splice(0).every((c) => c.includes('403')))
  const again = await open(link.href)
  await again.getByRole('heading', { level: 1, name: 'Weir is set up', exact: true }).waitFor()
  holds('the used link opens a page with nothing to fill in', (await again.locator('input, form, script').count()) === 0)
  await looks(again, 'Set up')
  quiet()

  const hosts = [...new Set(requests.map((r) => new URL(r.url()).host))]
  holds(`${requests.length} requests, and not one to another host`, hosts.length === 1 && hosts[0] === link.host, hosts)
  const heads = await Promise.all(requests.map((r) => r.allHeaders().catch(() => ({}))))
  holds('the link stands in no address and no header of a request',
    !requests.some((r) => r.url().split('#')[0].includes(secret)) && !heads.some((h) => JSON.stringify(h).includes(secret)))
} catch (err) {
  process.stdout.write(`FAIL ${err.message}\n`)
  process.exitCode = 1
} finally {
  await browser.close()
}

// quiet holds that the browser has said nothing: no error of the policy, none of a script.
function quiet() {
  holds('the console is empty: nothing was blocked, nothing failed', complaints.length === 0, complaints)
}
