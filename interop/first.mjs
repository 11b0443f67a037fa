// From the start of the program to the first own firing, as a person clicks: node first.mjs CHROMIUM LINK BEGAN. LINK is the
// printed one, BEGAN the time in ms at which the program was started.
import { axeRuns, browse, desk, headed, holds, looks, open, ownHost, quiet } from './browser.mjs'

const [executablePath, link, began] = process.argv.slice(2)
const most = 60 // s

await browse('first', { executablePath, hosts: [`EXCLUDE ${new URL(link).hostname}`] }, async () => {
  const page = await open(link, { viewport: desk, isMobile: false, hasTouch: false })
  const field = (label) => page.locator('section:not([hidden])').getByLabel(label, { exact: true })
  const click = (name) => page.getByRole('button', { name, exact: true }).click()

  await headed(page, 'Make the first administrator')
  holds('on the machine itself the page does not warn of the network', await page.locator('#plain').isHidden())
  await looks(page, '1 Administrator')
  await field('Email').fill('you@example.org')
  await field('Password').fill('correct horse')
  await field('Password again').fill('correct horse')
  await click('Make the administrator')

  await headed(page, 'Make a tenant')
  await looks(page, '2 Tenant')
  await field('Name').fill('Acme')
  await click('Make the tenant')

  await headed(page, 'Make a first device')
  await looks(page, '3 Device')
  await click('Make the device')

  await headed(page, 'Send the first reading')
  await looks(page, '4 Waiting for a reading')
  await click('Send a test reading')
  await page.locator('#arrival.good').waitFor()
  await looks(page, '5 A reading')
  await click('Make a rule that watches it')

  await headed(page, 'Make a rule')
  holds('the rule is proposed after what has arrived', await field('Metric').inputValue() === 'temp' &&
    await field('Threshold').inputValue() === '24' && await field('Severity').inputValue() === 'major')
  await looks(page, '6 Rule')
  await click('Make the rule')

  await headed(page, 'See the rule fire')
  await looks(page, '7 Waiting for a firing')
  await click('Send a test reading')
  await page.locator('#fired.good').waitFor()
  const took = (Date.now() - Number(began)) / 1000
  const text = await page.locator('#fired').textContent()
  holds(`the first own firing is in the browser: ${text}`, text.startsWith('FIRING temp-gt raised (major): temp = 26 on device-1, '))
  holds(`…${took.toFixed(1)} s after the start of the program, with ${axeRuns.count} runs of axe in between; ${most} s is the maximum`, took <= most)
  await looks(page, '8 The firing')
  holds('the page says where to look from now on', (await page.locator('#done').innerText()).includes('weir firings --follow') &&
    (await page.locator('#done').innerText()).includes('detections'))

  await page.getByRole('link', { name: 'To the start page' }).click()
  await headed(page, 'Signed in', 2)
  holds('the start page shows the firing, signed in', /temp-gt\s+raised\s+26/.test(await page.locator('main').innerText()), await page.locator('main').innerText())
  await looks(page, '9 The start page')
  quiet()
  ownHost(new URL(link).host)
})
