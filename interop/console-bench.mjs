// What bench measures of the console: node console-bench.mjs SETTINGS. SETTINGS is JSON, made by bench/part_console.go; each line that is written is a figure, as JSON.
import { browse, desk, open } from './browser.mjs'
import { announced, nodesOf, quantile, requestsOf, Sender, signedIn, soak, wait } from './console-load.mjs'

const s = JSON.parse(process.argv[2])
const figure = (name, value, ...notes) => process.stdout.write(JSON.stringify({ name, value, note: notes.filter(Boolean).join('; ') }) + '\n')
const round = (v) => Math.round(v)
const onDesk = { viewport: desk, isMobile: false, hasTouch: false }
const slow = 6 // times that the processor of the browser is slowed

// drawnAt makes painted() in each page: the time from the beginning of the navigation until the frame after a state was reached.
const drawnAt = (context, state) => context.addInitScript({ content: `(${(reached) => {
  const at = new Promise((done) => {
    const look = () => {
      if (!reached()) return
      watch.disconnect()
      requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())))
    }
    const watch = new MutationObserver(look)
    watch.observe(document, { subtree: true, childList: true, characterData: true, attributes: true })
    look()
  })
  window.painted = () => at
}})(${state})` })
const throttled = async (page, rate) => {
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('Emulation.setCPUThrottlingRate', { rate })
  return devtools
}
// taken begins a measurement in page, which resolves window.took, before go is done: a key may overtake what is evaluated meanwhile.
const taken = async (page, begin, argument, go) => {
  await page.evaluate(begin, argument)
  await go()
  return Promise.race([page.evaluate(() => window.took), wait(60_000).then(() => { throw new Error(`not within a minute: ${begin}`) })])
}
const spread = (all) => `${all.length} times, ${round(Math.min(...all))} to ${round(Math.max(...all))} ms`
const to = (page, place) => page.evaluate((p) => { location.hash = `#/acme/${p}` }, place)
const frames = (page, ms) => page.evaluate((ms) => new Promise((done) => {
  const took = []
  let last = performance.now()
  const end = last + ms
  const next = (now) => {
    took.push(now - last)
    last = now
    if (now < end) requestAnimationFrame(next)
    else done(took.slice(1))
  }
  requestAnimationFrame(next)
}), ms)

async function signInPage() {
  const run = async (rate, times) => {
    const all = []
    for (let i = 0; i < times; i++) {
      const page = await open('', onDesk)
      await drawnAt(page.context(), () => document.querySelector('h1')?.textContent === 'Sign in')
      await throttled(page, rate)
      await page.goto(`${s.api}/`)
      all.push(await page.evaluate(() => window.painted()))
      await page.context().close()
    }
    return all
  }
  const [slowed, plain] = [await run(slow, s.times), await run(1, s.times)]
  figure('signIn', quantile(slowed, 0.5), `the middle of ${spread(slowed)}`, `not slowed ${round(quantile(plain, 0.5))} ms`)
}

async function overviewPage(page) {
  const state = () => document.querySelector('.flow strong') && document.querySelector('main .plot svg path')
  await to(page, 'overview')
  await page.waitForFunction(state)
  await drawnAt(page.context(), state)
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('Network.enable')
  const run = async (rate, line) => {
    const all = []
    await devtools.send('Emulation.setCPUThrottlingRate', { rate })
    await devtools.send('Network.emulateNetworkConditions', line ?? { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 })
    for (let i = 0; i < s.times; i++) {
      await devtools.send('Network.clearBrowserCache')
      await page.reload()
      all.push(await page.evaluate(() => window.painted()))
    }
    return all
  }
  const slowed = await run(slow)
  const line = await run(slow, { offline: false, latency: 150, downloadThroughput: 1.6e6 / 8, uploadThroughput: 0.75e6 / 8 })
  const plain = await run(1)
  figure('overview', quantile(slowed, 0.5), `the middle of ${spread(slowed)}`, `not slowed ${round(quantile(plain, 0.5))} ms`)
  figure('overviewLine', quantile(line, 0.5), `the middle of ${spread(line)}`)
}

async function manyDevices(page) {
  const asked = requestsOf(page)
  const all = s.devices.toLocaleString('en-US')
  const first = () => page.getByText(`–50 of ${all}`).waitFor()
  await to(page, 'instance/api')
  await page.getByRole('heading', { level: 1, name: 'The API', exact: true }).waitFor()
  await asked.rest()
  asked.n = 0
  await to(page, 'devices')
  await first()
  await asked.rest()
  const rows = await page.locator('tbody tr').count()
  figure('firstRows', asked.n)
  figure('rows', rows)
  figure('listNodes', await nodesOf(page))
  asked.n = 0
  await page.getByRole('button', { name: 'Last', exact: true }).click()
  await page.getByText(`–${all} of ${all}`).waitFor()
  await asked.rest()
  figure('lastRows', asked.n, 'by its button: the list has pages, and is not scrolled there')
  await to(page, 'rules')
  await page.getByRole('heading', { level: 1, name: /rule/ }).waitFor()
  await to(page, 'devices')
  await page.getByText(`1–${rows} of ${all}`).waitFor()

  const devtools = await page.context().newCDPSession(page)
  const search = async (text) => {
    const field = page.getByLabel('Find', { exact: true })
    await field.fill('')
    await page.waitForFunction(() => /^[\d,]+ devices$/.test(document.querySelector('h1').textContent))
    await field.focus()
    return taken(page, (text) => { window.took = new Promise((done) => {
      let at = 0
      document.getElementById('search').addEventListener('keydown', () => { at = performance.now() })
      const look = () => {
        const rows = [...document.querySelectorAll('tbody tr')]
        if (!/match/.test(document.querySelector('h1').textContent) || rows.length === 0 || !rows.every((r) => r.textContent.includes(text)) || document.getElementById('search').value !== text) return
        watch.disconnect()
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - at)))
      }
      const watch = new MutationObserver(look)
      watch.observe(document.body, { subtree: true, childList: true, characterData: true })
    }) }, text, () => page.keyboard.type(text, { delay: 30 }))
  }
  let slowly = []
  for (const rate of [slow, 1]) {
    await devtools.send('Emulation.setCPUThrottlingRate', { rate })
    const took = []
    for (const text of s.searches) took.push(await search(text))
    if (rate === slow) slowly = took
    else figure('search', quantile(slowly, 0.5), `the middle of ${spread(slowly)}`, `not slowed ${round(quantile(took, 0.5))} ms`, 'of them 150 ms are waited for a further key')
  }
  await page.getByLabel('Find', { exact: true }).fill('')
  await page.waitForFunction(() => /^[\d,]+ devices$/.test(document.querySelector('h1').textContent))
  const scroll = async (rate) => {
    await devtools.send('Emulation.setCPUThrottlingRate', { rate })
    await page.evaluate(() => {
      let down = true
      window.scrolling = true
      const step = () => {
        scrollBy(0, down ? 60 : -60)
        if (scrollY <= 0) down = true
        if (scrollY + innerHeight >= document.documentElement.scrollHeight - 1) down = false
        if (window.scrolling) requestAnimationFrame(step)
      }
      requestAnimationFrame(step)
    })
    const took = await frames(page, 5000)
    await page.evaluate(() => { window.scrolling = false })
    return quantile(took, 0.95)
  }
  const slowed = await scroll(slow)
  figure('scroll', slowed, `not slowed ${round(await scroll(1))} ms`, `over the ${rows} rows of a page`)
}
// month takes the time from when a dashboard of plots over 30 days is asked for until the last of them is drawn. Its pieces are not there yet.
async function month(page) {
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('Network.enable')
  const run = async (rate) => {
    const all = []
    for (let i = 0; i < s.times; i++) {
      await devtools.send('Emulation.setCPUThrottlingRate', { rate: 1 })
      await to(page, 'alarms')
      await devtools.send('Network.clearBrowserCache')
      await page.reload()
      await page.getByText('live', { exact: true }).waitFor()
      await devtools.send('Emulation.setCPUThrottlingRate', { rate })
      all.push(await page.evaluate((plots) => new Promise((done) => {
        const at = performance.now()
        const look = () => {
          if (document.querySelectorAll('.widget .plot canvas').length < plots) return
          watch.disconnect()
          requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - at)))
        }
        const watch = new MutationObserver(look)
        watch.observe(document, { subtree: true, childList: true })
        location.hash = '#/acme/dashboards/month'
      }), s.plots))
    }
    return all
  }
  const slowed = await run(slow)
  const told = (await page.locator('.widget [role=status]').allInnerTexts()).map((t) => Number(t.match(/([\d,]+) readings/)?.[1].replaceAll(',', '')))
  const readings = told.reduce((n, v) => n + v, 0)
  if (told.length !== s.plots || Math.abs(readings - s.readings) > s.readings / 1000) throw new Error(`the plots tell of ${told.join(', ')} readings, and ${s.readings} are there`)
  const plain = await run(1)
  figure('month', quantile(slowed, 0.5), `the middle of ${spread(slowed)}`, `not slowed ${round(quantile(plain, 0.5))} ms`, `${s.plots} series of a device each, in plots of their own; ${readings.toLocaleString('en-US')} readings; with the pieces of the page, which are fetched meanwhile`)
  await devtools.send('Emulation.setCPUThrottlingRate', { rate: 1 })
}

async function canvas(page) {
  await to(page, 'rules')
  await page.getByRole('button', { name: `Edit ${s.rule}`, exact: true }).click()
  await page.getByRole('group', { name: 'View' }).getByRole('button', { name: 'Canvas' }).click()
  const picture = page.getByRole('group', { name: 'The rule as a picture' })
  const nodes = picture.locator('.svelte-flow__node')
  await nodes.nth(s.nodes - 1).waitFor()
  const many = await nodes.count()
  await picture.scrollIntoViewIfNeeded()
  const devtools = await page.context().newCDPSession(page)
  const drag = async (rate) => {
    await devtools.send('Emulation.setCPUThrottlingRate', { rate })
    const { x, y, width, height } = await nodes.nth(1).locator('strong').boundingBox()
    const [cx, cy] = [x + width / 2, y + height / 2]
    await page.mouse.move(cx, cy)
    await page.mouse.down()
    const took = frames(page, 3000)
    const until = Date.now() + 3000
    for (let i = 0; Date.now() < until; i++) await page.mouse.move(cx + 60 * Math.sin(i / 12), cy + 40 * Math.sin(i / 9))
    const all = await took
    await page.mouse.move(cx + 80, cy + 60)
    await page.mouse.up()
    return all
  }
  const before = await nodes.nth(1).evaluate((n) => n.style.transform)
  const [slowed, plain] = [await drag(slow), await drag(1)]
  if (await nodes.nth(1).evaluate((n) => n.style.transform) === before) throw new Error('the node was not dragged')
  figure('drag', quantile(slowed, 0.95), `${many} nodes, ${slowed.length} frames in 3 s`, `not slowed ${round(quantile(plain, 0.95))} ms`)

  await devtools.send('Emulation.setCPUThrottlingRate', { rate: slow })
  const branch = picture.locator('.svelte-flow__node', { hasText: 'Only where' }).first()
  await branch.focus()
  await page.keyboard.press('Enter')
  const field = page.getByLabel('Only where', { exact: true })
  const right = await field.inputValue()
  const all = []
  for (let i = 0; i < s.times; i++) {
    await field.fill(right)
    await page.waitForFunction(() => !document.querySelector('.svelte-flow__node.refused'))
    await page.waitForTimeout(1000)
    await field.focus()
    await page.keyboard.press('End')
    all.push(await taken(page, () => { window.took = new Promise((done) => {
      let at = 0
      document.addEventListener('input', () => { at = performance.now() }, { capture: true, once: true })
      const watch = new MutationObserver(() => {
        if (!at || !document.querySelector('.svelte-flow__node.refused')) return
        watch.disconnect()
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - at)))
      })
      watch.observe(document.body, { subtree: true, childList: true, attributes: true })
    }) }, null, () => page.keyboard.press('(')))
  }
  figure('diagnostic', quantile(all, 0.5), `the middle of ${spread(all)}`, 'of them 400 ms are waited for a further key')
  await devtools.send('Emulation.setCPUThrottlingRate', { rate: 1 })
  await field.fill(right)
}

// aMinute counts what an open tab asks, one with a dashboard, and one that is not seen.
async function aMinute(page) {
  const context = page.context()
  const opened = async (place) => {
    const p = await context.newPage()
    const sockets = new Set()
    p.on('websocket', (socket) => {
      sockets.add(socket)
      socket.on('close', () => sockets.delete(socket))
    })
    const asked = requestsOf(p)
    await p.goto(`${s.api}/#/acme/${place}`)
    await p.getByRole('navigation', { name: 'Main' }).waitFor()
    return { p, asked, sockets }
  }
  const hidden = []
  for (const place of ['messages', 'alarms', 'actions', 'devices', 'dashboards/wall', 'overview']) {
    const tab = await opened(place)
    if (place === 'messages' || place === 'alarms' || place === 'actions') await tab.p.getByText('live', { exact: true }).waitFor()
    else await tab.asked.rest()
    await tab.p.evaluate(() => {
      Object.defineProperty(document, 'hidden', { get: () => true })
      Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' })
      document.dispatchEvent(new Event('visibilitychange'))
    })
    tab.before = tab.sockets.size
    hidden.push(tab)
  }
  const sum = (of) => hidden.reduce((n, tab) => n + of(tab), 0)
  for (const tab of hidden) await tab.asked.rest()
  for (const tab of hidden) tab.asked.n = 0
  const overview = await opened('overview')
  const board = await opened('dashboards/wall')
  await board.p.locator('.widget').nth(s.widgets - 1).waitFor()
  await Promise.all([overview.asked.rest(), board.asked.rest()])
  overview.asked.n = board.asked.n = 0
  let sockets = 0
  for (const end = Date.now() + s.minute * 1000; Date.now() < end; await wait(500)) sockets = Math.max(sockets, overview.sockets.size, board.sockets.size)
  const inAMinute = (n) => Math.round((n * 60) / s.minute)
  figure('askedOverview', inAMinute(overview.asked.n))
  figure('askedBoard', inAMinute(board.asked.n), `${s.widgets} widgets: ${s.board}`)
  figure('askedHidden', inAMinute(sum((tab) => tab.asked.n)), 'messages, alarms, commands, devices, a dashboard and Overview, none of which is seen, together')
  figure('socketsHidden', sum((tab) => tab.sockets.size), `of the same six: ${sum((tab) => tab.before)} before, ${s.minute} s after`)
  for (const place of ['messages', 'alarms', 'actions', 'rules/detections', 'overview']) {
    await to(overview.p, place)
    await overview.p.waitForTimeout(1500)
    sockets = Math.max(sockets, overview.sockets.size)
  }
  figure('sockets', sockets, 'the most while Overview, a dashboard, messages, alarms, commands and detections are shown one after the other')
  for (const { p } of [...hidden, overview, board]) await p.close()
}

// toTheRow takes the time from a message that is sent to its row.
async function toTheRow(page, sender) {
  await page.bringToFront() // another one has no frames
  await to(page, 'messages')
  await page.getByText('live', { exact: true }).waitFor()
  await page.evaluate(() => {
    window.rows = []
    new MutationObserver((changes) => {
      const fresh = changes.flatMap((c) => [...c.addedNodes]).filter((n) => n.nodeName === 'TR').map((n) => Number(n.cells[2].textContent.match(/temp=([\d.,]+)/)?.[1].replaceAll(',', '')))
      if (fresh.length > 0) requestAnimationFrame(() => setTimeout(() => { // once the frame is made
        const now = Date.now()
        for (const n of fresh) window.rows.push([n, now])
      }))
    }).observe(document.querySelector('main'), { subtree: true, childList: true })
  })
  const from = sender.sent
  await sender.load(500, Date.now() + s.live * 1000, { stamped: true })
  await sender.settled()
  await wait(1000)
  const rows = await page.evaluate(() => window.rows)
  const took = rows.filter(([n]) => n >= from && sender.at[n]).map(([n, at]) => at - sender.at[n])
  if (took.length < 100) throw new Error(`${took.length} of ${sender.sent - from} messages had a row of ${rows.length} that were looked at, as in ${JSON.stringify(await page.evaluate(() => [...document.querySelectorAll('tbody tr')].slice(0, 2).map((n) => n.innerText)))} and ${JSON.stringify(rows.slice(0, 2))} from ${from}`)
  figure('toTheRow', quantile(took, 0.99), `half of them ${quantile(took, 0.5)} ms`, `from just before the PUBLISH; ${took.length} of ${sender.sent - from} messages had a row: the newest 100 have one, four times a second`)
}

const sender = await Sender.connect({ url: s.mqtt, topic: s.topic, clientId: s.clientId, username: s.username })
await browse('console-bench', { executablePath: s.chromium, hosts: [`EXCLUDE ${new URL(s.api).hostname}`] }, async () => {
  await sender.load(50, Date.now() + s.before * 1000) // something for Overview to show
  await signInPage()
  let page = await open('', onDesk)
  await signedIn(page, s.api, s.email, s.password, true)
  await overviewPage(page)
  await page.close()
  page = await open('', onDesk)
  await signedIn(page, s.api, s.email, s.password, true)
  await manyDevices(page)
  await month(page)
  await canvas(page)
  await aMinute(page)
  await page.close()
  page = await open('', onDesk)
  const seen = announced(page)
  await signedIn(page, s.api, s.email, s.password)
  await toTheRow(page, sender)
  await to(page, 'alarms') // where no message is shown
  await page.getByText('live', { exact: true }).waitFor()
  await wait(2000)
  sender.took = []
  await sender.load(s.rate, Date.now() + s.alone * 1000, { wraps: 100 })
  await sender.settled()
  const alone = quantile(sender.took, 0.99)
  await to(page, 'messages')
  await page.getByText('live', { exact: true }).waitFor()
  await wait(2000)
  const from = sender.sent - seen.shown - seen.leftOut
  const { first, last, share } = await soak(page, sender, { seconds: s.soak, rate: s.rate, settle: s.settle })
  await sender.settled(seen, from)
  const span = `from second ${s.settle} to ${s.soak}`
  figure('heap', (last.heap - first.heap) / 1e6, `${(first.heap / 1e6).toFixed(2)} to ${(last.heap / 1e6).toFixed(2)} MB, ${span}`)
  figure('nodes', (Math.abs(last.nodes - first.nodes) / first.nodes) * 100, `${first.nodes} to ${last.nodes}`)
  figure('uncounted', Math.abs(sender.sent - from - seen.shown - seen.leftOut), `${sender.sent - from} sent, ${seen.shown} announced, ${seen.leftOut} counted`)
  figure('busy', share * 100, `at ${s.rate}/s, not slowed, over ${s.soak - s.settle} s: not the hour of make console-soak`)
  const watched = quantile(sender.took, 0.99)
  figure('puback', watched / alone, `${watched.toFixed(1)} ms while the inspector is open, ${alone.toFixed(1)} ms before; the sender and the browser are on the same two cores`)
})
sender.end() // also after a failure: its connection would keep the script running
