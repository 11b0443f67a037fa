// The console in Firefox: node console-firefox.mjs FIREFOX API PASSWORD. The accounts and the profile of console.mjs are there. It signs in, adds a device, runs the line that
// the page shows, sees the message come in, and writes in the editor of JSON; on a name of the LAN, over plain http.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { launch } from 'puppeteer-core'

const [executablePath, api, password] = process.argv.slice(2)
const address = new URL(api)
const lanName = 'gateway.lan'
const there = address.hostname
address.hostname = lanName
const run = (line) => promisify(execFile)('bash', ['-c', line]).catch((err) => err)
const passed = (what) => process.stdout.write(what + '\n')
function holds(what, ok, ...why) {
  if (!ok) throw new Error([what, ...why.map((w) => (typeof w === 'string' ? w : JSON.stringify(w)))].join('\n      '))
  passed(what)
}

// Firefox takes the name for its own machine; every other name is looked for at a proxy that is not there.
const browser = await launch({
  browser: 'firefox', executablePath, headless: true,
  extraPrefsFirefox: { 'network.dns.localDomains': lanName, 'network.proxy.type': 1, 'network.proxy.socks': '127.0.0.1', 'network.proxy.socks_port': 9, 'network.proxy.socks_remote_dns': true, 'network.proxy.no_proxies_on': lanName },
})
const complaints = []
try {
  const page = await browser.newPage()
  await page.setViewport({ width: 1280, height: 900 })
  const hosts = new Set()
  page.on('request', (r) => { if (/^(https?|wss?):/.test(r.url())) hosts.add(new URL(r.url()).host) })
  page.on('console', (m) => complaints.push(`${m.type()}: ${m.text()}`))
  page.on('pageerror', (e) => complaints.push(e.message))
  await page.evaluateOnNewDocument(() => {
    window.violations = []
    addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.violatedDirective}: ${e.blockedURI} ${e.sourceFile}:${e.lineNumber} ${e.sample}`), true)
  })
  // until waits for what a function finds in the page.
  const until = async (what, found, ...args) => {
    for (let tries = 0; tries < 1200; tries++) {
      if (await page.evaluate(found, ...args)) return
      await new Promise((go) => setTimeout(go, 50))
    }
    throw new Error(`${what}: not within a minute\n      ${await page.evaluate(() => document.body.innerText)}`)
  }
  const text = (what) => until(what, (t) => document.body.innerText.includes(t), what)
  const headed = (what) => until(`the heading ${what}`, (t) => [...document.querySelectorAll('h1, h2')].some((h) => h.textContent.trim() === t), what)
  const element = async (selector, name) => {
    await until(`${selector} ${name}`, (s, n) => [...document.querySelectorAll(s)].some((e) => e.textContent.trim() === n && !e.disabled), selector, name)
    return page.evaluateHandle((s, n) => [...document.querySelectorAll(s)].find((e) => e.textContent.trim() === n && !e.disabled), selector, name)
  }
  const press = async (name, selector = 'button, a') => (await element(selector, name)).click()
  const field = async (label) => {
    await until(`the field ${label}`, (n) => [...document.querySelectorAll('label')].some((l) => l.textContent.trim() === n && l.control), label)
    return page.evaluateHandle((n) => [...document.querySelectorAll('label')].find((l) => l.textContent.trim() === n).control, label)
  }
  const fill = async (label, value) => (await field(label)).type(value)
  const go = (place) => page.evaluate((p) => { location.hash = `#/acme/${p}` }, place)

  await page.goto(`${address.origin}/`)
  await headed('Sign in')
  await text('is not encrypted')
  await fill('Email', 'you@example.org')
  await fill('Password', password)
  await press('Sign in')
  await until('the navigation', () => document.querySelector('nav[aria-label=Main]') !== null)
  holds(`Firefox ${(await browser.version()).replace(/^firefox\//i, '')} signs in, on a name of the LAN`, true)

  await go('devices/-/new')
  await headed('Add a device')
  await fill('Name', 'Fox 1')
  await (await field('Type')).select('boiler')
  await press('Add the device')
  await headed('3 Send the first reading')
  await until('the line', () => document.querySelector('pre[aria-label=mosquitto_pub]') !== null)
  const line = await page.evaluate(() => document.querySelector('pre[aria-label=mosquitto_pub]').textContent)
  await text('Waiting for the first message')
  const sent = await run(line.replaceAll(lanName, there))
  await until('the attempt', () => [...document.querySelectorAll('.attempts li')].some((l) => l.textContent.includes('stored: temp=21.5'))).catch((err) => holds('the first reading appears', false, err.message, sent))
  holds('a device is added, and the line as it is shown is its proof', true)

  await go('messages')
  await until('the stream', () => [...document.querySelectorAll('.chip')].some((c) => c.textContent === 'live'))
  await run(line.replaceAll(lanName, there))
  await until('the message', () => [...document.querySelectorAll('tbody tr')].some((r) => r.textContent.includes('temp=21.5') && r.textContent.includes('fox-1')))
  holds('a message appears by itself', true)

  await go('rules')
  await press('Edit too-hot')
  await press('JSON')
  await until('the editor', () => [...document.querySelectorAll('div')].some((d) => d.shadowRoot?.querySelector('.cm-line span')))
  const shown = await page.evaluate(() => {
    const content = [...document.querySelectorAll('div')].map((d) => d.shadowRoot?.querySelector('.cm-content')).find(Boolean)
    content?.focus()
    return content && { lines: content.querySelectorAll('.cm-line').length, colours: new Set([...content.querySelectorAll('span')].map((x) => getComputedStyle(x).color)).size, font: getComputedStyle(content).fontFamily }
  })
  holds('the editor of JSON has its colours', shown && shown.lines > 3 && shown.colours >= 3, shown)
  const length = () => page.evaluate(() => document.getElementById('definition').value.length)
  const before = await length()
  await page.keyboard.type('xy')
  await until('what was typed', (n) => document.getElementById('definition').value.length === n + 2, before)
  await until('the mark', () => [...document.querySelectorAll('div')].some((d) => d.shadowRoot?.querySelector('.cm-content[aria-invalid=true]')))
  await page.keyboard.press('Escape')
  await page.keyboard.press('Tab')
  await until('the next field', () => document.activeElement.id === 'enabled')
  holds('…takes what is typed, marks a mistake, and is left by Escape and Tab', true)
  await press('Drop the changes')

  const violations = await page.evaluate(() => window.violations)
  holds('Firefox has blocked nothing, and says nothing', violations.length === 0 && complaints.length === 0, violations, complaints)
  holds('no request has left the instance', [...hosts].every((h) => h === address.host), [...hosts])
} catch (err) {
  process.stdout.write(`FAIL ${[err.message, ...complaints].join('\n      ')}\n`)
  process.exitCode = 1
} finally {
  await browser.close()
}
