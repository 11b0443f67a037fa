// The rule that is drawn: what console-screens.mjs holds of the canvas, in the editor of the rule too-hot of the profile boiler, which is open.
import { editorOf, holds, looks as look, requests } from './browser.mjs'

// canvas draws on the rule that is open in page, by the keyboard, by pointer and on a phone; text returns its definition.
export async function canvas(page, { desk, phone, text, save }) {
  const group = page.getByRole('group', { name: 'View' })
  const view = (name) => group.getByRole('button', { name }).click()
  const says = (what) => page.getByText(what).first().waitFor()
  const before = await text()
  const picture = page.getByRole('group', { name: 'The rule as a picture' })
  const nodes = picture.locator('.svelte-flow__node')
  const node = (name) => picture.getByRole('button', { name })
  const labels = () => nodes.evaluateAll((all) => all.map((n) => n.getAttribute('aria-label')))
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.id)
  // compiles waits for the definition to have so many actions, the first with this guard.
  const compiles = async (what, actions, guard = '') => {
    await page.waitForFunction((to) => {
      const d = JSON.parse(document.getElementById('definition').value)
      return (d.actions ?? []).length === to.actions && (d.actions?.[0]?.guard ?? '') === to.guard
    }, { actions, guard })
    holds(what, true)
  }

  for (const name of ['Form', 'Canvas', 'Words', 'Canvas', 'Form', 'JSON']) {
    await view(name)
    if (name === 'Canvas') await nodes.first().waitFor()
  }
  holds('a switch of views changes no byte of the definition', await text() === before)

  await view('Canvas')
  await node(/^Devices/).waitFor()
  const drawn = await labels()
  holds('a rule is drawn from its devices over its condition to its actions', drawn.length === 3 && drawn[0].startsWith('Devices of the profile boiler out. Leads to threshold') &&
    drawn[1].includes('when temp is above') && drawn[2].startsWith('Action 1 raise the alarm'), drawn)
  await page.getByText('As a list', { exact: true }).click()
  holds('…and told as a list', (await page.getByRole('listitem').filter({ hasText: 'Devices: of the profile boiler' }).locator('li').count()) === 2)
  await look(page, 'A rule as a canvas')

  // --- by the keyboard alone ---
  await node(/^threshold/).focus()
  const spot = () => node(/^threshold/).evaluate((n) => n.style.transform)
  const stood = await spot()
  await page.keyboard.press('ArrowDown')
  await page.waitForFunction((was) => [...document.querySelectorAll('.svelte-flow__node')].some((n) => n.getAttribute('aria-label').startsWith('threshold') && n.style.transform !== was), stood)
  await page.keyboard.press('Control+z')
  await page.waitForFunction((was) => [...document.querySelectorAll('.svelte-flow__node')].some((n) => n.getAttribute('aria-label').startsWith('threshold') && n.style.transform === was), stood)
  holds('an arrow moves a node, and it is taken back', await text() === before)
  await view('Canvas')
  await node(/^threshold/).focus()
  await page.keyboard.press('a')
  const palette = page.getByRole('group', { name: 'What can be added' })
  holds('a second condition is refused with its reason', await palette.getByRole('button', { name: 'duration' }).isDisabled() && (await palette.innerText()).includes('A rule has one condition'))
  await look(page, 'A canvas, adding')
  await palette.getByRole('button', { name: 'branch' }).focus()
  await page.keyboard.press('Enter')
  await node(/^Only where/).waitFor()
  await page.waitForFunction(() => document.activeElement?.getAttribute('aria-label')?.startsWith('Only where'))
  await says('config.when: required'.replace('config.', ''))
  holds('an error of the drawing is at its node', /required/.test(await node(/^Only where/).innerText()), await node(/^Only where/).innerText())
  holds('…and the rule cannot be saved', await page.getByRole('button', { name: 'Save', exact: true }).isDisabled())
  await page.keyboard.press('Enter')
  await page.waitForFunction(() => /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName ?? ''))
  const when = page.getByLabel('Only where', { exact: true })
  holds('…and at its field', await when.getAttribute('aria-invalid') === 'true')
  await look(page, 'A canvas, refused')
  await view('Form')
  await says('The drawing does not compile yet')
  await view('Canvas')
  await node(/^Only where/).waitFor()
  holds('what does not compile yet is kept over a switch of views', (await labels()).length === 4)
  await node(/^Only where/).focus()
  await page.keyboard.press('Enter')
  await page.waitForFunction(() => /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName ?? ''))
  await when.fill('value > 95.0')
  await node(/^Only where value > 95.0/).focus()
  await page.keyboard.press('c')
  const list = page.getByRole('group', { name: 'Connect…' })
  const refused = await list.getByRole('listitem').allInnerTexts()
  holds('what cannot be connected says why', refused.some((t) => /Only where \(out\) → Action 1 \(in\): Something leads to it already/.test(t)) && refused.some((t) => /gives a stream, and in of branch takes a signal/.test(t)), refused)
  await look(page, 'A canvas, connecting')
  await page.keyboard.press('Escape')
  await node(/^Action 1/).focus()
  await page.getByRole('list', { name: 'Its connections' }).getByRole('button', { name: 'Cut' }).focus()
  await page.keyboard.press('Enter')
  await node(/^Action 1/).focus()
  await page.keyboard.press('c')
  await list.getByRole('button', { name: 'Only where (out) → Action 1 (in)' }).focus()
  await page.keyboard.press('Enter')
  await compiles('a branch that is drawn before an action is its guard', 1, 'value > 95.0')
  await node(/^Action 1/).focus()
  await page.keyboard.press('Delete')
  await compiles('Delete removes a node with its edges', 0)
  await page.keyboard.press('Control+z')
  await compiles('…and it is taken back', 1, 'value > 95.0')
  await page.getByRole('button', { name: 'Arrange', exact: true }).click()
  const spots = await nodes.evaluateAll((all) => all.map((n) => n.style.transform))
  holds('arranged, no node stands on another', new Set(spots).size === 4, spots)

  // --- by pointer ---
  const centre = async (l) => { const b = await l.boundingBox(); return [b.x + b.width / 2, b.y + b.height / 2] }
  const drag = async (from, to) => {
    await page.mouse.move(...await centre(from))
    await page.mouse.down()
    await page.mouse.move(...await centre(to), { steps: 8 })
    await page.mouse.up()
  }
  await picture.scrollIntoViewIfNeeded()
  const port = (name, kind) => node(name).locator(`.svelte-flow__handle.${kind}`).first()
  await drag(port(/^Devices/, 'source'), port(/^Only where/, 'target'))
  await says('A source gives a stream, and in of branch takes a signal.')
  holds('ports that do not fit say why they refuse', true)
  const at = await spot()
  const [x, y] = await centre(node(/^threshold/).locator('strong'))
  await page.mouse.move(x, y)
  await page.mouse.down()
  await page.mouse.move(x + 20, y + 60, { steps: 8 })
  await page.mouse.up()
  holds('a node is dragged', await spot() !== at)
  await page.getByRole('button', { name: 'Undo', exact: true }).click()
  if (save) await save()

  // --- on a phone it is for looking ---
  await page.setViewportSize(phone)
  await page.getByText('On a small screen the canvas is for looking').waitFor()
  await node(/^Devices/).focus()
  await page.keyboard.press('ArrowRight')
  await page.waitForFunction(() => document.activeElement?.getAttribute('aria-label')?.startsWith('threshold'))
  holds('on a phone an arrow goes along an edge', (await focused()).startsWith('threshold'))
  await page.keyboard.press('Enter')
  await page.waitForFunction(() => document.activeElement?.id === 'rule-f-when-op')
  await view('Canvas')
  await node(/^Action 1/).click()
  await page.waitForFunction(() => document.activeElement?.id === 'rule-f-actions-0-type')
  holds('…and a node leads to its field, by the keyboard and by a tap', true)
  await page.setViewportSize(desk)
}

// editing writes in the JSON of the rule that is open in page, by the keyboard, and leaves it as it was.
export async function editing(page) {
  const pieces = () => requests.filter((r) => new URL(r.url()).pathname.endsWith('/editor.js')).length
  const view = (name) => page.getByRole('group', { name: 'View' }).getByRole('button', { name }).click()
  const before = pieces()
  for (const name of ['Words', 'Canvas', 'Form']) await view(name)
  holds('the editor is not loaded before the JSON is shown', before === 0 && pieces() === 0)
  await view('JSON')
  const { box, text, write } = editorOf(page, 'Definition, as JSON', 'definition')
  await box.waitFor()
  const whole = await text()
  const shown = () => box.evaluate((at) => [...at.querySelectorAll('.cm-line')].map((l) => l.textContent).join('\n'))
  holds('the JSON is shown in an editor that has its name, and in colours', await shown() === whole && await box.evaluate((at) => new Set([...at.querySelectorAll('.cm-line span')].map((x) => getComputedStyle(x).color)).size >= 3), await shown())

  // --- the keyboard ---
  await box.focus()
  await page.keyboard.press('ControlOrMeta+Home')
  await page.keyboard.press('End')
  await page.keyboard.press('Enter')
  await page.keyboard.type('g.?p/') // keys of the page
  await page.keyboard.press('Tab')
  await page.waitForFunction((n) => document.getElementById('definition').value.length > n, whole.length)
  holds('what is written is the draft, Tab indents, and no key leads elsewhere', (await text()).startsWith('{\n    g.?p/') && await box.evaluate((at) => at.getRootNode().activeElement === at) && (await page.title()).startsWith('Rules'), await text())
  await page.locator('.cm-lint-marker-error').waitFor()
  holds('what is no JSON is marked where it begins to be none', await box.getAttribute('aria-invalid') === 'true')
  for (let tries = 0; await text() !== whole && tries < 20; tries++) await page.keyboard.press('ControlOrMeta+z')
  holds('it is taken back', await text() === whole, await text())
  await page.keyboard.press('Escape')
  await page.keyboard.press('Tab')
  holds('Escape, then Tab, leaves the editor', await page.evaluate(() => document.activeElement.id) === 'enabled', await page.evaluate(() => document.activeElement.outerHTML))
  await page.keyboard.press('Shift+Tab')
  holds('…and Shift with Tab comes back', await box.evaluate((at) => at.getRootNode().activeElement === at))

  // --- a mistake is shown at its place ---
  await write(whole.replace('"gt"', '"above"').replace('"severity"', '"severty"'))
  await page.locator('#verdict .bad').first().waitFor()
  const marked = page.locator('.cm-lintRange-error')
  await marked.first().waitFor()
  const places = await marked.allInnerTexts()
  holds('a mistake that the compiler finds is marked at its member', places.some((t) => /"op"|"above"|"severty"/.test(t)), { places, verdict: await page.locator('#verdict').innerText() })
  await box.focus()
  await page.keyboard.press('ControlOrMeta+Home')
  await page.keyboard.press('F8')
  holds('F8 goes to it, and tells it', (await page.locator('.cm-announced').textContent()).length > 5)
  await look(page, 'A rule as JSON, refused')
  await write(whole)
  await page.getByText('It compiles').first().waitFor()
  await marked.first().waitFor({ state: 'detached' })
  holds('…and no longer once it is mended', await box.getAttribute('aria-invalid') === null)
}

// definitionsOf are those of the rules in the tests of a page of the documentation.
export function definitionsOf(markdown) {
  const found = []
  for (const m of markdown.matchAll(/^ {2}rule \S+ (?=\{)/gm)) {
    const from = m.index + m[0].length
    let [depth, at, quoted] = [0, from, false]
    do {
      const c = markdown[at++]
      if (quoted) {
        if (c === '\\') at++
        else if (c === '"') quoted = false
      } else if (c === '"') quoted = true
      else if (c === '{') depth++
      else if (c === '}') depth--
    } while (depth > 0 && at < markdown.length)
    found.push(JSON.parse(markdown.slice(from, at)))
  }
  return found
}

// gallery takes each definition through every view, and moves a node of its drawing: no byte of it changes.
export async function gallery(page, definitions, { text }) {
  const { write } = editorOf(page, 'Definition, as JSON', 'definition')
  const group = page.getByRole('group', { name: 'View' })
  const node = page.getByRole('group', { name: 'The rule as a picture' }).locator('.svelte-flow__node').first()
  const save = page.getByRole('button', { name: 'Save', exact: true })
  for (const d of definitions) {
    await text()
    const whole = JSON.stringify(d, null, 2)
    await write(whole)
    await page.waitForFunction(() => [...document.querySelectorAll('#verdict .good, #verdict .bad')].length > 0)
    for (const view of ['Form', 'Canvas', 'Words', 'Canvas']) {
      await group.getByRole('button', { name: view }).click()
      if (view === 'Canvas') await node.waitFor().catch(async (err) => holds(`${d.type} ${d.name} is drawn`, false, err.message, whole, await page.locator('form').innerText()))
    }
    await node.focus()
    const compiled = page.waitForResponse((r) => r.request().postData()?.includes('compileCanvas'))
    await page.keyboard.press('ArrowDown')
    await compiled
    await page.waitForFunction((b) => !b.disabled, await save.elementHandle())
    if (await text() !== whole) holds(`${d.type} ${d.name}: no view changes the definition`, false, whole, await text())
  }
  holds(`${definitions.length} definitions of ${new Set(definitions.map((d) => d.type)).size} kinds go through form, canvas, words and JSON, and no byte changes`, new Set(definitions.map((d) => d.type)).size === 8)
}
