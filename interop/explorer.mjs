// The explorer of the developer tools, GraphiQL: node explorer.mjs CHROMIUM API SEND. API is the address of the listener; SEND is a
// shell command that has the rule of the first run resolve.
import { execFile } from 'node:child_process'
import { createServer, request } from 'node:http'
import { promisify } from 'node:util'
import { browse, complaints, desk, headed, holds, looks, open, ownHost, quiet, requests } from './browser.mjs'

const [executablePath, api, send] = process.argv.slice(2)
const query = '.graphiql-query-editor'
const variables = '.graphiql-editor-tool'
const response = '.graphiql-response'

await browse('explorer', { executablePath, hosts: [`EXCLUDE ${new URL(api).hostname}`] }, async () => {
  const page = await open(`${api}/api/device-management/graphiql`, { viewport: desk, hasTouch: false, isMobile: false })
  const text = (editor) => page.evaluate((editor) => document.querySelector(`${editor} .CodeMirror`)?.CodeMirror.getValue() ?? '', editor)
  const write = (editor, text) => page.evaluate(([editor, text]) => document.querySelector(`${editor} .CodeMirror`).CodeMirror.setValue(text), [editor, text])
  const result = (text) => page.waitForFunction(([editor, text]) => document.querySelector(`${editor} .CodeMirror`)?.CodeMirror.getValue().includes(text), [response, text])
  const status = (text) => page.waitForFunction((text) => document.getElementById('status').textContent.includes(text), text)
  const area = async (name) => {
    const before = await page.locator(`${query} .CodeMirror`).elementHandle()
    await page.getByLabel('Area').selectOption({ label: name })
    await before.waitForElementState('hidden')
    await page.waitForFunction((editor) => document.querySelector(`${editor} .CodeMirror`)?.CodeMirror.getValue(), query)
  }
  // A hint hangs below the mouse, outside of the page's parts.
  const inspect = async (name) => {
    await page.mouse.move(1, 1)
    await page.locator('.CodeMirror-info').waitFor({ state: 'detached' })
    await looks(page, name)
  }
  const run = () => page.getByRole('button', { name: /^Execute query/ }).click()

  await headed(page, 'API explorer')
  await page.locator(`${query} .CodeMirror`).waitFor()
  holds('it begins with the document of the area', (await text(query)).includes('devices(criteria:'))
  await page.getByRole('button', { name: 'Show Documentation Explorer' }).click()
  await page.getByRole('button', { name: 'Query', exact: true }).or(page.getByRole('link', { name: 'Query', exact: true })).click()
  const docs = page.locator('.graphiql-doc-explorer')
  await docs.getByText('Distinct values in use, sorted.').waitFor()
  await docs.getByText('DeviceFacet', { exact: true }).first().click()
  await docs.getByText('MANUFACTURER').first().waitFor()
  holds('introspection fills the documentation: fields with their descriptions, types behind them', true)
  await inspect('1 Before')
  await page.getByRole('button', { name: 'Hide Documentation Explorer' }).click()

  const example = await text(query)
  await write(query, '')
  await page.locator(`${query} .CodeMirror`).click()
  await page.keyboard.type('{ facetV')
  await page.locator('.CodeMirror-hints').getByText('facetValues').waitFor()
  holds('the editor completes the names of fields', true)
  await page.keyboard.press('Escape')
  await write(query, example)

  await run()
  await result('UNAUTHENTICATED')
  await page.locator('summary').click()
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
  await inspect('2 Signed in')
  await page.locator('summary').click()
  await run()
  await result('"token": "device-1"')
  holds('the first document shows the devices', true)

  await write(query, 'query($tokens: [String!]!) { devicesByToken(tokens: $tokens) { token deviceType { token } } }')
  await write(variables, '{"tokens": ["device-1", "nothing"]}')
  await run()
  await result('"devicesByToken"')
  holds('a query with variables is answered', JSON.parse(await text(response)).data.devicesByToken.length === 1, await text(response))

  for (const [name, answer] of [['user-management', '"email": "you@example.org"'], ['event-management', '"name": "rpm"'], ['device-state', '"deviceToken": "device-1"'],
    ['event-processing', '"ruleToken": "rpm-lt"'], ['dashboard-management', '"dashboards": {'], ['event-sources', '"_empty": null']]) {
    await area(name)
    await run()
    await result(answer)
    holds(`${name}: the token is kept, and its first document answers`, page.url() === `${api}/api/${name}/graphiql`, page.url())
  }
  await area('event-processing')
  await write(query, 'subscription($profile: String!) {\n  detectionStream(profileToken: $profile) { ruleToken edge series }\n}')
  await write(variables, '{"profile": "device"}')
  await page.locator(`${query} .CodeMirror`).click()
  await page.keyboard.press('Control+Enter')
  await status('Subscribed')
  await promisify(execFile)('bash', ['-c', send])
  await result('"edge": "resolved"')
  holds('a subscription shows a firing as it comes', true)
  await inspect('3 Subscribed')
  await page.getByRole('button', { name: /^Stop/ }).click()
  await area('device-management')
  await area('event-processing')
  holds('the document of an area is still there after a look at another', (await text(query)).startsWith('subscription('))

  // On the identity planes the form keeps the identity token itself, which both take.
  await area('user-management, admin')
  await run()
  await result('UNAUTHENTICATED')
  const refused = complaints.splice(0) // the console's line on the refusal
  holds('the admin plane refuses the access token of a tenant', refused.every((c) => c.includes('401')), refused)
  await page.locator('summary').click()
  await page.getByLabel('Password').fill('correct horse')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await status('Signed in to the instance')
  await page.locator('summary').click()
  for (const [name, answer] of [['admin', '"token": "sud-werk-co"'], ['settings', '"key": "entity.token_masks"']]) {
    if (name !== 'admin') await area(`user-management, ${name}`)
    await run()
    await result(answer)
    holds(`user-management, ${name}: signed in to the instance, its first document answers`, page.url() === `${api}/api/user-management/${name}/graphiql`, page.url())
  }
  await inspect('4 The settings plane')

  // Behind an ingress that serves the instance below a path of its own.
  const ingress = createServer((r, w) => {
    r.pipe(request(`${api}${r.url.replace(/^\/iot/, '')}`, { method: r.method, headers: r.headers }, (answer) => answer.pipe(w.writeHead(answer.statusCode, answer.headers))))
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => ingress.on('listening', resolve))
  const outside = `http://127.0.0.1:${ingress.address().port}`
  await page.goto(`${outside}/iot/api/event-sources/graphiql`)
  await page.locator(`${query} .CodeMirror`).waitFor()
  await run()
  await result('"_empty": null')
  const asked = requests.map((r) => r.url()).filter((u) => u.startsWith(outside) && u.endsWith('/graphql'))
  holds('it asks the endpoint by the way on which it was reached', asked.length > 1 && asked.every((u) => u === `${outside}/iot/api/event-sources/graphql`), asked)
  quiet()
  ownHost(new URL(api).host, new URL(outside).host)
  ingress.close()
})
