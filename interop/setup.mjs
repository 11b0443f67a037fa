// The setup page in a real browser, as a user of a phone uses it: node setup.mjs CHROMIUM LINK. LINK is a printed one;
// the browser opens it on a name of the LAN, over plain http. Writes one line per check that holds, and ends with 1 at the
// first that does not.
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { browse, complaints, headed, holds, looks, open, ownHost, quiet, requests } from './browser.mjs'

const [executablePath, printed] = process.argv.slice(2)
const lanName = 'gateway.lan'
const link = new URL(printed)
link.hostname = lanName
const secret = link.hash.slice(1)
const sourcePath = (name) => fileURLToPath(new URL(`../web/${name}`, import.meta.url))
const source = (name) => readFileSync(sourcePath(name), 'utf8')

const at = (page) => page.evaluate(() => ({ tag: document.activeElement.tagName, id: document.activeElement.id, text: document.activeElement.textContent }))

// step waits for the heading of a step and holds where the focus is, besides what must be true of each state.
async function step(page, heading) {
  await headed(page, heading)
  const focus = await at(page)
  holds(`${heading}: the focus is at the heading`, focus.tag === 'H1' && focus.text === heading, focus)
  await looks(page, heading)
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

await browse('setup', { executablePath, hosts: [`MAP ${lanName} ${new URL(printed).hostname}`] }, async () => {
  const plain = await open(link.href, { javaScriptEnabled: false })
  holds('without JavaScript the page says what to do instead', (await plain.locator('body').innerText()).includes('weir admin create you@example.org'))
  await step(await open(link.href.split('#')[0]), 'Weir has no administrator yet')

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
  holds('it warns that it is not encrypted', (await page.locator('#plain').innerText()).includes('weir cert'))
  holds('its footer has the version and a link to the documentation', /^Weir \S+ · Documentation$/.test(await page.locator('footer').innerText()),
    await page.locator('footer').innerText())
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
  holds('the commands of mosquitto_pub and curl are shown, programs in Python and Go are folded', commands.length === 4 && curl &&
    commands.some((c) => c.startsWith('mosquitto_pub ')) && await page.locator('#snippets details:not([open]) pre').count() === 2 &&
    commands.some((c) => c.includes('import paho.mqtt.client')) && commands.some((c) => c.startsWith('package main')), commands)
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

  await page.locator('#test-metric').fill('')
  await page.getByRole('button', { name: 'Send a test reading' }).click()
  await refused(page, 'test-metric', 'Must have a name')
  await page.locator('#test-metric').fill('rpm')
  await page.locator('#test-value').fill('-7.5')
  await page.locator('#test-value').press('Enter')
  await page.waitForFunction(() => document.getElementById('arrival').textContent.includes('rpm = -7.5'))
  holds('a test reading of another metric appears by itself', true)
  await page.getByRole('button', { name: 'Make a rule that watches it' }).click()
  await step(page, 'Make a rule')
  await page.locator('#rule-metric').selectOption('rpm')
  await page.locator('#rule-op').selectOption('lt')
  holds('the threshold is proposed on the far side of the value', await page.locator('#rule-threshold').inputValue() === '-8.5', await page.locator('#rule-threshold').inputValue())
  await page.locator('#rule-threshold').fill('')
  await page.locator('#rule-threshold').press('Enter')
  await refused(page, 'rule-threshold', 'Must be a number')
  await page.locator('#rule-threshold').fill('-10')
  await page.locator('#rule-threshold').press('Enter')
  await step(page, 'See the rule fire')
  await page.reload()
  await step(page, 'See the rule fire')
  await page.locator('#fire-value').fill('-9')
  await page.locator('#fire-value').press('Enter')
  await page.getByRole('button', { name: 'Change the rule' }).click()
  await headed(page, 'Make a rule')
  await page.locator('#rule-metric').selectOption('rpm')
  await page.locator('#rule-op').selectOption('lt')
  await page.locator('#rule-threshold').fill('-20')
  await page.locator('#rule-threshold').press('Enter')
  await headed(page, 'See the rule fire')
  holds('a reading that does not meet the condition fires nothing', (await page.locator('#fired').textContent()) === 'Nothing yet.')
  await page.locator('#fire-value').fill('-21')
  await page.locator('#fire-value').press('Enter')
  await page.locator('#fired.good').waitFor()
  holds('after a reload and a change of the rule it fires', (await page.locator('#fired').textContent()).includes('FIRING rpm-lt raised (major): rpm = -21 on device-1'))
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

  ownHost(link.host)
  const heads = await Promise.all(requests.map((r) => r.allHeaders().catch(() => ({}))))
  holds('the link stands in no address and no header of a request',
    !requests.some((r) => r.url().split('#')[0].includes(secret)) && !heads.some((h) => JSON.stringify(h).includes(secret)))
})
