// The explorer of the developer tools: node explorer.mjs CHROMIUM API SEND. API is the address of the listener; SEND is a shell
// command that has the rule of the first run resolve.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { browse, headed, holds, looks, open, ownHost, quiet } from './browser.mjs'

const [executablePath, api, send] = process.argv.slice(2)

await browse('explorer', { executablePath, hosts: [`EXCLUDE ${new URL(api).hostname}`] }, async () => {
  const page = await open(`${api}/api/device-management/graphiql`)
  const result = (text) => page.waitForFunction((text) => document.getElementById('result').textContent.includes(text), text)
  const status = (text) => page.waitForFunction((text) => document.getElementById('status').textContent.includes(text), text)
  const area = (name) => page.getByLabel('Area').selectOption({ label: name })
  const run = () => page.getByRole('button', { name: 'Run' }).click()
  const docs = page.locator('#docs')

  await headed(page, 'API explorer')
  await docs.getByText('deviceTypes(criteria').waitFor()
  holds('the schema is there, with the descriptions of its fields', (await docs.innerText()).includes('Distinct values in use, sorted.'))
  await looks(page, '1 Before')
  await page.getByLabel('Find a field or a type').fill('facetVal')
  holds('the filter leaves what it names', (await docs.locator('dt').count()) === 1)
  await docs.getByRole('button', { name: 'DeviceFacet!' }).click()
  holds('a type of a signature leads to it', (await docs.innerText()).includes('MANUFACTURER'))
  await page.getByLabel('Find a field or a type').fill('')

  await run()
  await result('UNAUTHENTICATED')
  await page.getByText('Sign in').first().click()
  await page.getByLabel('Email').fill('you@example.org')
  await page.getByLabel('Password').fill('not this one')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await status('invalid credentials')
  await page.getByLabel('Password').fill('correct horse')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await status('Name a tenant')
  await page.getByLabel('Tenant').fill('sud-werk-co')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await status('Signed in to sud-werk-co')
  await looks(page, '2 Signed in')
  await run()
  await result('"token": "device-1"')
  holds('the first document shows the devices', true)

  for (const [name, text] of [['user-management', '"email": "you@example.org"'], ['event-management', '"name": "rpm"'], ['device-state', '"deviceToken": "device-1"'],
    ['event-processing', '"ruleToken": "rpm-lt"'], ['event-sources', '"_empty": null']]) {
    await area(name)
    await run()
    await result(text)
    holds(`${name}: the token is kept, and its first document answers`, page.url() === `${api}/api/${name}/graphiql`, page.url())
  }
  await area('device-management')
  await area('event-processing')
  await page.getByLabel('Document').fill('subscription($profile: String!) {\n  detectionStream(profileToken: $profile) { ruleToken edge series }\n}')
  await page.getByLabel('Variables (JSON)').fill('{"profile": "device"}')
  await page.getByLabel('Document').press('Control+Enter')
  await status('Subscribed')
  await promisify(execFile)('bash', ['-c', send])
  await result('"edge": "resolved"')
  holds('a subscription shows a firing as it comes', true)
  await looks(page, '3 Subscribed')
  await page.getByRole('button', { name: 'Stop the subscription' }).click()
  await area('device-management')
  await area('event-processing')
  holds('the document of an area is still there after a look at another', (await page.getByLabel('Document').inputValue()).startsWith('subscription('))
  quiet()
  ownHost(new URL(api).host)
})
