// The console as a person uses it: node console.mjs CHROMIUM first LINK APPLY. LINK is the printed one of the setup page, APPLY a command
// that makes profiles and rules once the tenant is there. The browser opens the page on a name of the LAN, over plain http.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { browse, complaints, desk, headed, holds, looks, open, ownHost, phone, quiet, requests } from './browser.mjs'

const [executablePath, , printed, apply] = process.argv.slice(2)
const lanName = 'gateway.lan'
const link = new URL(printed)
const hosts = [`MAP ${lanName} ${link.hostname}`]
link.hostname = lanName
const email = 'you@example.org'
const password = 'correct horse'
const run = (line) => promisify(execFile)('bash', ['-c', line]).catch((err) => err)

async function signIn(page) {
  await headed(page, 'Sign in')
  await page.getByLabel('Email', { exact: true }).fill(email)
  await page.getByLabel('Password', { exact: true }).fill(password)
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
}

const says = (page, text) => page.getByText(text).first().waitFor()
const to = async (page, entry, heading) => {
  await page.getByRole('link', { name: entry, exact: true }).first().click()
  await page.getByRole('heading', { level: 1, name: heading }).waitFor()
}

await browse('console', { executablePath, hosts }, async () => {
  const setup = await open(link.href, { viewport: desk, isMobile: false, hasTouch: false })
  const field = (label) => setup.locator('section:not([hidden])').getByLabel(label, { exact: true })
  await headed(setup, 'Make the first administrator')
  await field('Email').fill(email)
  await field('Password').fill(password)
  await field('Password again').fill(password)
  await setup.getByRole('button', { name: 'Make the administrator', exact: true }).click()
  await headed(setup, 'Make a tenant')
  await field('Name').fill('Acme')
  await setup.getByRole('button', { name: 'Make the tenant', exact: true }).click()
  await headed(setup, 'Make a first device')
  await run(apply)

  // --- sign-in ---
  const page = await open(`${link.origin}/`, { viewport: phone })
  await headed(page, 'Sign in')
  await looks(page, 'Sign in')
  holds('over plain http the page says that the line is not encrypted', await page.getByText('is not encrypted').isVisible())
  await page.getByLabel('Email', { exact: true }).fill(email)
  await page.getByLabel('Password', { exact: true }).fill('wrong horse')
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
  await page.getByRole('alert').waitFor()
  holds('a wrong password is told at the sign-in, in the words of the API', (await page.getByRole('alert').innerText()).includes('invalid credentials'), await page.getByRole('alert').innerText())
  await looks(page, 'Sign in, refused')
  await page.getByLabel('Password', { exact: true }).fill(password)
  await page.keyboard.press('Enter')
  await headed(page, 'No device yet')
  await looks(page, 'Overview, nothing there yet')
  const stored = await page.evaluate(() => [Object.keys(localStorage).length, JSON.stringify({ ...sessionStorage })])
  holds('no access token is stored, and nothing outlives the tab', stored[0] === 0 && !stored[1].includes('accessToken'), stored)

  // --- add a device, with the proof ---
  await page.getByRole('link', { name: 'Add a device', exact: true }).click()
  await headed(page, 'Add a device')
  await page.getByLabel('Name', { exact: true }).fill('Boiler 1')
  holds('the token is suggested', await page.getByLabel('Token', { exact: true }).inputValue() === 'boiler-1')
  await page.getByLabel('Type', { exact: true }).selectOption('boiler')
  await looks(page, 'Add a device')
  await page.getByRole('button', { name: 'Add the device', exact: true }).click()
  await headed(page, '3 Send the first reading', 2)
  const lineOf = async (title) => {
    await page.getByRole('button', { name: title, exact: true }).click()
    return page.getByRole('region', { name: title, exact: true }).innerText()
  }
  const publish = await lineOf('mosquitto_pub')
  const post = await lineOf('curl')
  await says(page, 'Waiting for the first message')
  await looks(page, 'Add a device, waiting')
  const secret = post.match(/Bearer (\S+?)'/)[1]
  const attempts = page.locator('.attempts li')

  await run(publish.replaceAll(secret, 'no-such-token'))
  await attempts.filter({ hasText: 'connection refused' }).first().waitFor()
  holds('a wrong access token over MQTT appears by itself, with its reason and what to do', /mqtt connection refused: \S+[\s\S]*→ /.test(await attempts.last().innerText()), await attempts.last().innerText())
  await run(post.replaceAll(secret, 'no-such-token'))
  await attempts.filter({ hasText: 'bad-credential' }).first().waitFor()
  holds('…and over HTTP', /http (refused|dead letter): bad-credential[\s\S]*Copy the whole line again/.test(await attempts.last().innerText()), await attempts.last().innerText())
  await run(post.replaceAll('/boiler-1/', '/boiler-9/'))
  await page.waitForFunction(() => document.querySelectorAll('.attempts li').length >= 2)
  await run(post.replaceAll('21.5', '999'))
  await attempts.filter({ hasText: 'invalid-value' }).first().waitFor()
  holds('a value out of its range is a dead letter, with the reason', /dead letter: invalid-value[\s\S]*profile/.test(await attempts.filter({ hasText: 'invalid-value' }).innerText()))
  holds('…and nothing of it counts as the proof', await page.getByRole('link', { name: 'Open the device' }).count() === 0)
  await looks(page, 'Add a device, refused')

  const sent = await run(publish)
  await attempts.filter({ hasText: 'stored: temp=21.5' }).first().waitFor()
  holds('the mosquitto_pub line, as it is shown, is the proof', await page.getByRole('link', { name: 'Open the device' }).isVisible(), sent)
  const over = await run(post)
  await page.waitForFunction(() => [...document.querySelectorAll('.attempts li')].filter((li) => li.textContent.includes('stored: temp=21.5')).length === 2)
  holds('…and so is the curl line', over.stdout?.includes('202 Accepted'), over)
  await looks(page, 'Add a device, proven')

  // --- the device ---
  await page.getByRole('link', { name: 'Open the device' }).click()
  await headed(page, 'Boiler 1')
  await says(page, /21\.5 °C/)
  await page.getByText(/last 21\.5 °C/).waitFor()
  await looks(page, 'The device')

  // --- devices ---
  await to(page, 'Devices', '1 device')
  await page.getByRole('link', { name: 'Boiler 1', exact: true }).waitFor()
  await page.locator('td .outcome', { hasText: 'active' }).waitFor()
  await looks(page, 'Devices')
  await page.getByLabel('Find', { exact: true }).fill('no-such')
  await says(page, 'No device matches “no-such”')
  await looks(page, 'Devices, nothing matches')
  await page.getByRole('button', { name: 'Show all', exact: true }).click()
  await page.getByRole('link', { name: 'Boiler 1', exact: true }).waitFor()

  // --- messages, live ---
  await to(page, 'Messages', 'Messages')
  await page.getByText('live', { exact: true }).waitFor()
  await says(page, 'Nothing has come in since')
  await looks(page, 'Messages, none yet')
  await run(post)
  await page.locator('tbody tr', { hasText: 'temp=21.5' }).waitFor()
  await run(post.replaceAll('21.5', '"warm"'))
  await page.locator('tbody tr', { hasText: 'invalid-value' }).or(page.locator('tbody tr', { hasText: 'undecodable' })).first().waitFor()
  holds('the inspector shows what was stored and what was not, with the reason', await page.locator('tbody tr').count() === 2)
  await looks(page, 'Messages')
  await page.locator('tbody tr', { hasText: 'temp=21.5' }).getByRole('button').click()
  await page.getByRole('complementary', { name: 'Message' }).getByText('on disk before it was acknowledged').waitFor()
  await looks(page, 'A message')
  await page.keyboard.press('Escape')
  await page.getByRole('button', { name: 'Pause', exact: true }).click()
  await run(post)
  await page.getByRole('button', { name: 'Go on, 1 new', exact: true }).waitFor()
  holds('paused it counts, and draws nothing', await page.locator('tbody tr').count() === 2)
  await page.getByRole('button', { name: 'Go on, 1 new', exact: true }).click()
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 3)
  holds('…and goes on with what came', true)

  // --- alarms ---
  await to(page, 'Alarms', 'Nothing needs you')
  await looks(page, 'Alarms, none')
  await page.getByText('live', { exact: true }).waitFor()
  await run(post.replaceAll('21.5', '97.2'))
  await headed(page, '1 alarm wants you')
  const card = page.locator('.card')
  holds('an alarm of a real message appears by itself', /Critical boiler\/too-hot[\s\S]*boiler-1 · temp 97.2/.test(await card.innerText()), await card.innerText())
  await looks(page, 'Alarms')
  await page.getByRole('button', { name: 'Acknowledge', exact: true }).click()
  await says(page, `acknowledged by ${email}`)
  holds('it is acknowledged at once', await page.getByRole('button', { name: 'Acknowledge', exact: true }).count() === 0)
  await card.getByRole('link', { name: 'boiler/too-hot' }).click()
  await headed(page, 'History', 2)
  await page.locator('ol.plain li', { hasText: 'acknowledged' }).waitFor()
  holds('its history has both', await page.locator('ol.plain li').count() === 2)
  await looks(page, 'An alarm')
  await page.getByRole('button', { name: 'Clear', exact: true }).click()
  await page.getByRole('dialog').waitFor()
  holds('clearing asks, with the focus on Cancel', await page.evaluate(() => document.activeElement.textContent) === 'Cancel')
  await looks(page, 'An alarm, asked')
  await page.getByRole('dialog').getByRole('button', { name: 'Clear', exact: true }).click()
  await page.locator('ol.plain li', { hasText: 'cleared' }).waitFor()
  await to(page, 'Alarms', 'Nothing needs you')

  // --- rules ---
  await to(page, 'Rules', '1 rule')
  await page.getByText('fired 1 time').waitFor()
  await looks(page, 'Rules')
  await page.getByRole('button', { name: 'Edit too-hot' }).click()
  await says(page, 'It compiles')
  const definition = page.getByLabel('Definition, as JSON')
  await definition.fill((await definition.inputValue()).replace('"temp"', '"tmp"').replace('"gt"', '"above"'))
  await page.locator('#verdict .bad').waitFor()
  holds('what does not compile is told, and cannot be saved', await page.getByRole('button', { name: 'Save', exact: true }).isDisabled())
  await looks(page, 'A rule, refused')
  await definition.fill((await definition.inputValue()).replace('"tmp"', '"temp"').replace('"above"', '"gt"').replace('90', '50'))
  await says(page, 'It compiles')
  await page.getByRole('button', { name: 'Save', exact: true }).click()
  await says(page, 'Devices are judged by it once boiler is published')
  await page.getByRole('button', { name: 'Publish boiler' }).click()
  await says(page, 'Version 2 is active.')
  await run(post.replaceAll('21.5', '60'))
  await to(page, 'Alarms', '1 alarm wants you')
  holds('the rule, changed and published, judges what comes', true)

  // --- overview, reload, keys ---
  await to(page, 'Overview', /^Critical: boiler\/too-hot on boiler-1/)
  await looks(page, 'Overview')
  await page.reload()
  await page.getByRole('heading', { level: 1, name: /^Critical/ }).waitFor()
  holds('a reload keeps the session', true)
  await page.keyboard.press('g')
  await page.keyboard.press('d')
  await page.getByRole('heading', { level: 1, name: '1 device' }).waitFor()
  holds('the keys g d lead to the devices, and the heading has the focus', await page.evaluate(() => document.activeElement.tagName) === 'H1')

  // --- by the keyboard alone, on a desk ---
  const keys = await open(`${link.origin}/`, { viewport: desk, isMobile: false, hasTouch: false })
  await headed(keys, 'Sign in')
  for (const text of [email, password]) {
    await keys.keyboard.press('Tab')
    await keys.keyboard.type(text)
  }
  await keys.keyboard.press('Enter')
  await keys.getByRole('heading', { level: 1, name: /^Critical/ }).waitFor()
  await keys.keyboard.press('g')
  await keys.keyboard.press('d')
  await keys.getByRole('heading', { level: 1, name: '1 device' }).waitFor()
  await keys.keyboard.press('Tab') // to Add a device
  await keys.keyboard.press('Enter')
  await headed(keys, 'Add a device')
  await keys.keyboard.press('Tab')
  await keys.keyboard.type('Pump 1')
  await keys.keyboard.press('Enter')
  await headed(keys, '3 Send the first reading', 2)
  await says(keys, 'Waiting for the first message')
  await run((await keys.getByRole('region', { name: 'mosquitto_pub' }).innerText()))
  await keys.locator('.attempts li', { hasText: 'stored: temp=21.5' }).waitFor()
  holds('a device is added and proven by the keyboard alone', true)

  // --- links, tenants, sign-out ---
  const told = complaints.splice(0)
  holds('the console of the browser has nothing but its own line for the answers that were provoked', told.every((c) => /Failed to load resource.*40[13]/.test(c)), told)
  await keys.goto(`${link.origin}/#/globex/devices`)
  await headed(keys, 'Another tenant')
  await looks(keys, 'Another tenant')
  await keys.goto(`${link.origin}/#/acme/nothing`)
  await headed(keys, 'There is no such screen')
  await keys.locator('summary', { hasText: email }).click()
  await keys.getByRole('button', { name: 'Sign out', exact: true }).click()
  await headed(keys, 'Sign in')
  holds('after signing out nothing of the session is left', await keys.evaluate(() => sessionStorage.length + localStorage.length) === 0)
  await page.context().close()
  const before = requests.length
  await keys.reload()
  await headed(keys, 'Sign in')
  holds('…and no request asks for it', requests.slice(before).every((r) => !r.url().includes('/api/')))
  quiet()
  ownHost(link.host)
})
