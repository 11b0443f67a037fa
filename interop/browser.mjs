// A real browser as a person uses it, and what is held of every state of a page: node SCRIPT CHROMIUM …. A script writes one
// line per check that holds, and ends with 1 at the first that does not.
import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const shots = process.env.SHOTS // a directory for pictures, for a visual check
if (shots) mkdirSync(shots, { recursive: true })

export const phone = { width: 390, height: 844 }
export const desk = { width: 1280, height: 900 }

export const passed = (what) => process.stdout.write(what + '\n')
export function holds(what, ok, ...why) {
  if (!ok) throw new Error([what, ...why.map((w) => (typeof w === 'string' ? w : JSON.stringify(w)))].join('\n      '))
  passed(what)
}

export const requests = []
export const complaints = [] // what the browser's console says
export const axeRuns = { count: 0 }
let browser
let series

// browse runs a script in a browser that reaches a host by the addresses of hosts only.
export async function browse(name, { executablePath, hosts = [] }, script) {
  series = name
  browser = await chromium.launch({ executablePath, args: [`--host-resolver-rules=${[...hosts, 'MAP * ~NOTFOUND'].join(',')}`] })
  try {
    await script()
  } catch (err) {
    process.stdout.write(`FAIL ${[err.message, ...complaints].join('\n      ')}\n`)
    process.exitCode = 1
    if (shots) await Promise.all(browser.contexts().flatMap((c) => c.pages()).map((p, i) => p.screenshot({ path: `${shots}/${series}-failed-${i}.png` })))
  } finally {
    await browser.close()
  }
}

export async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: phone, hasTouch: true, isMobile: true, ...options })
  context.on('request', (r) => requests.push(r))
  const page = await context.newPage()
  page.on('console', (m) => complaints.push(`${m.type()}: ${m.text()} ${m.location().url}`))
  page.on('pageerror', (e) => complaints.push(e.message))
  page.setDefaultTimeout(60000) // a busy machine is slow, and no verdict depends on it
  if (url) await page.goto(url)
  return page
}

// headed waits for the heading of a state.
export const headed = (page, text, level = 1) => page.getByRole('heading', { level, name: text, exact: true }).waitFor()

// looks holds what must be true of each state: no sideways scrolling, nothing that axe objects to, on a phone and on a desk, in
// light and in dark.
export async function looks(page, name) {
  const before = page.viewportSize()
  for (const size of [desk, phone]) {
    await page.setViewportSize(size)
    const widths = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth])
    if (widths[0] > widths[1]) holds(`${name}: nothing to scroll sideways at ${size.width} px`, false, widths)
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme })
      await page.evaluate(axe)
      const { violations, passes } = await page.evaluate(() => globalThis.axe.run(document))
      axeRuns.count++
      if (violations.length > 0 || passes.length <= 5) {
        holds(`${name}: axe finds nothing, ${size.width} px, ${colorScheme}`, false, ...violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).join(' ')}`))
      }
      if (shots) await page.evaluate(() => scrollTo(0, 0)) // what sticks to the top stands there in a picture of the whole page
      if (shots) await page.screenshot({ path: `${shots}/${series}-${name.replace(/\W+/g, '-')}-${size.width}-${colorScheme}.png`, fullPage: true })
    }
  }
  await page.setViewportSize(before)
  passed(`${name}: axe finds nothing, and nothing scrolls sideways, at 390 and 1280 px, in light and dark`)
}

// editorOf is the editor of JSON with a label: box is where a person writes, text what is in it, write puts another in its place, as by pasting.
export function editorOf(page, label, id) {
  const box = page.getByRole('textbox', { name: label, exact: true }).and(page.locator('.cm-content'))
  const text = () => page.locator(`#${id}`).inputValue() // the editor draws what is in sight; the field that it stands for has all of it
  return {
    box,
    text,
    async write(next) {
      await box.focus()
      await page.keyboard.press('ControlOrMeta+a')
      await box.evaluate((at, next) => {
        const data = new DataTransfer()
        data.setData('text/plain', next)
        at.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true, composed: true }))
      }, next)
      await page.waitForFunction(([id, next]) => document.getElementById(id).value === next, [id, next])
    },
  }
}

// quiet holds that the browser has said nothing: no error of the policy, none of a script.
export function quiet() {
  holds('the console is empty: nothing was blocked, nothing failed', complaints.length === 0, complaints)
}

// ownHost holds that no request has left the instance.
export function ownHost(...allowed) {
  const hosts = [...new Set(requests.map((r) => new URL(r.url()).host))]
  holds(`${requests.length} requests, and not one to another host`, hosts.every((h) => allowed.includes(h)), hosts)
}
