// The setup page. What proves the right to use it stands in the fragment of its address, which the browser sends to
// nobody; it goes into the bodies of the calls below and nowhere else.
'use strict'

const $ = (id) => document.getElementById(id)
const main = document.querySelector('main')
const pollEvery = 1000 // ms
const timeout = 20000 // ms until the page says what to check

let link = location.hash.slice(1)
let page = '' // with what the page goes on once the link is used up; after a reload a cookie that no script reads gives it back
let busy = false
let device = '' // the first one
let rule = null // that was made last

// Refusal is what a call was answered when it was not done.
class Refusal extends Error {
  constructor(status, body, after) {
    super(body.error)
    Object.assign(this, { status, field: body.field || '', code: body.code || '', after })
  }
}

async function call(name, body) {
  let answer, result
  try {
    answer = await fetch('setup/v1/' + name, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
      credentials: 'same-origin', // the answer about the administrator signs this browser in
      cache: 'no-store',
    })
  } catch {
    throw new Refusal(0, { error: 'No answer came. See that this machine still reaches Weir, and try again.' })
  }
  try {
    result = await answer.json()
  } catch {
    result = { error: 'Weir cannot answer just now. Try again in a moment.' }
  }
  if (!answer.ok) throw new Refusal(answer.status, result, answer.headers.get('Retry-After'))
  return result
}

// show leaves one section on the page and moves the focus to its heading.
function show(id) {
  for (const section of main.querySelectorAll('section')) section.hidden = section.id !== id
  let current = false
  for (const li of $('steps').children) {
    const here = li.dataset.for.split(' ').includes(id)
    if (here) li.setAttribute('aria-current', 'step')
    else li.removeAttribute('aria-current')
    current = current || here
  }
  $('steps').hidden = !current
  const heading = $(id).querySelector('h1')
  document.title = heading.textContent + ' – Weir'
  window.scrollTo(0, 0)
  heading.focus()
}

function say(text) {
  if ($('status').textContent !== text) $('status').textContent = text
}

function fill(name, text) {
  for (const e of document.querySelectorAll('.' + name)) e.textContent = text
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1)

// showErrors puts errors next to their inputs (by name; '' is the form itself) and moves the focus to the first.
function showErrors(form, errors) {
  for (const p of form.querySelectorAll('[data-error]')) {
    const text = errors[p.dataset.error] || ''
    p.textContent = text && sentence(text)
    p.hidden = !text
    const input = p.dataset.error && form.elements[p.dataset.error]
    if (!input) continue
    if (text) input.setAttribute('aria-invalid', 'true')
    else input.removeAttribute('aria-invalid')
  }
  const bad = form.querySelector('[aria-invalid]')
  if (bad) {
    bad.focus()
  } else if (errors['']) {
    form.querySelector('[role=alert]').focus()
  }
  return Object.keys(errors).length === 0
}

// explain turns a refusal into what stands in the form, or leaves the form when it cannot go on.
function explain(form, refusal) {
  if (refusal.code === 'UNAUTHENTICATED') return show(page ? 'over' : 'refused')
  if (refusal.status === 429) {
    return showErrors(form, { '': `Too many wrong links were tried. Try again in ${refusal.after || 60} seconds.` })
  }
  const known = refusal.field && form.querySelector(`[data-error="${CSS.escape(refusal.field)}"]`)
  showErrors(form, { [known ? refusal.field : '']: refusal.message })
}

// step has a form checked and then done, once at a time.
function step(id, doing, check, act) {
  const form = $(id).querySelector('form')
  form.addEventListener('submit', async (event) => {
    event.preventDefault()
    if (busy || !showErrors(form, check(form.elements))) return
    const button = form.querySelector('[type=submit]')
    busy = true
    button.setAttribute('aria-disabled', 'true')
    say(doing)
    try {
      await act(form.elements)
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal
      explain(form, refusal)
    } finally {
      busy = false
      button.removeAttribute('aria-disabled')
      say('')
    }
  })
  for (const skip of form.querySelectorAll('[data-skip]')) skip.addEventListener('click', () => busy || show(skip.dataset.skip))
}

const isToken = (text) => /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/.test(text)
const tokenRule = 'Letters, digits, - and _ only, beginning with a letter or a digit.'
const checkToken = (f) => (isToken(f.token.value.trim()) ? {} : { token: tokenRule })

// tokenOf suggests a token for a name.
function tokenOf(name) {
  const plain = name.normalize('NFKD').replace(/[\u0300-\u036f]/g, '').toLowerCase()
  return plain.replace(/[^a-z0-9]+/g, '-').replace(/^-/, '').slice(0, 128).replace(/-$/, '')
}

// suggest has the token follow the name until the user types one.
function suggest(f) {
  let own = false
  f.token.addEventListener('input', () => { own = f.token.value !== '' })
  f.name.addEventListener('input', () => { if (!own) f.token.value = tokenOf(f.name.value) })
}

function snippet(s) {
  const made = $('snippet').content.cloneNode(true)
  const [heading, button, pre] = ['h2', 'button', 'pre'].map((e) => made.querySelector(e))
  heading.textContent = s.title
  pre.textContent = s.text
  pre.setAttribute('aria-label', 'Command for ' + s.title)
  const name = (text) => {
    button.textContent = text
    button.setAttribute('aria-label', text + ' the command for ' + s.title)
  }
  name('Copy')
  button.addEventListener('click', async () => {
    const done = await copy(pre)
    say(done ? 'Copied.' : 'The command is selected: copy it with the keys or the menu of your browser.')
    name(done ? 'Copied' : 'Selected')
    setTimeout(() => { name('Copy'); say('') }, timeout / 4)
  })
  return made
}

// folded shows a program on demand: it is longer than all else on the page.
function folded(s) {
  const details = document.createElement('details')
  const summary = document.createElement('summary')
  summary.textContent = 'A program in ' + s.title
  details.append(summary, snippet(s))
  return details
}

// copy works without the clipboard of secure pages, too: plain http has none.
async function copy(pre) {
  try {
    await navigator.clipboard.writeText(pre.textContent)
    return true
  } catch {
    getSelection().selectAllChildren(pre)
    return document.execCommand('copy')
  }
}

// watch asks what has arrived and what fired until the rule of the page has fired.
async function watch() {
  if (watching) return
  watching = true
  const began = Date.now()
  report('arrival', 'Waiting for the first reading…')
  for (;;) {
    try {
      const status = await call('reading', { page, device })
      arrived(status, Date.now() - began > timeout)
      if (rule && fired(status.firings || [])) break
    } catch (refusal) {
      if (refusal.code === 'UNAUTHENTICATED') {
        const over = 'This page no longer looks: its 30 minutes are over, or Weir was started again. '
        report('arrival', over + 'What arrives is seen with weir tail.')
        report('fired', over + 'What fires is seen with weir firings.')
        $('checks').hidden = false
        break
      }
      report('arrival', 'Weir does not answer just now; this page goes on trying.')
    }
    await new Promise((wake) => { wakeUp = wake; setTimeout(wake, pollEvery) })
  }
  watching = false
}

let watching = false
let wakeUp = () => {} // ends the pause of watch

function arrived({ readings, refused }, late) {
  if (readings.length > 0) {
    report('arrival', 'The newest readings: ' + readings.map((r) => `${r.metric} = ${r.value}`).join(', ') + '.', true)
    $('checks').hidden = true
    $('next').hidden = false
    offer(readings)
  } else if (refused) {
    report('arrival', `A message has come and was not stored: ${refused.reason} (${refused.summary}).`)
    $('checks').hidden = false
  } else if (late) {
    report('arrival', 'Nothing has come yet. What to check is listed below; this page keeps waiting.')
    $('checks').hidden = false
  }
}

// offer fills the form of the rule with what has arrived, and leaves alone what was chosen there.
function offer(readings) {
  const f = $('rule').querySelector('form').elements
  const chosen = f.metric.value
  f.metric.replaceChildren(...readings.map((r) => new Option(r.metric, r.metric)))
  if (readings.some((r) => r.metric === chosen)) f.metric.value = chosen
  if (!f.threshold.dataset.own) propose(f, readings)
  f.op.onchange = f.metric.onchange = () => f.threshold.dataset.own || propose(f, readings)
  f.threshold.oninput = () => { f.threshold.dataset.own = 'yes' }
}

function propose(f, readings) {
  f.threshold.value = beyond(Number(readings.find((r) => r.metric === f.metric.value).value), f.op.value)
}

const upward = (op) => op === 'gt' || op === 'ge'

// beyond is a round number on the far side of a value, as an operator sees it.
function beyond(value, op) {
  const margin = Math.max(Math.abs(value) / 10, 1)
  const far = upward(op) ? value + margin : value - margin
  const round = Number(far.toPrecision(2))
  return (upward(op) ? round > value : round < value) ? round : far
}

const words = { gt: 'is above', ge: 'is at or above', lt: 'is below', le: 'is at or below' }

let shown = '' // the firing that the page shows
let earlier = '' // the one of the rule before it was changed

function ruleMade(made) {
  rule = made
  earlier = shown
  fill('rule', made.token)
  fill('metric', made.metric)
  fill('condition', `${made.metric} ${words[made.op]} ${made.threshold}`)
  $('firing').querySelector('form').elements.value.value = beyond(made.threshold, made.op)
  report('fired', 'Nothing yet.')
  $('done').hidden = true
  show('firing')
}

// fired shows the newest edge of the rule, and reports whether it has raised.
function fired(firings) {
  const newest = firings.find((f) => f.rule === rule.token && f.edge === 'raised' && f.value !== undefined)
  if (!newest || JSON.stringify(newest) === earlier) return false
  shown = JSON.stringify(newest)
  report('fired', `FIRING ${newest.rule} raised (${newest.severity}): ${rule.metric} = ${newest.value} on ${newest.device}, ${newest.time}.`, true)
  $('done').hidden = false
  return true
}

function report(id, text, good = false) {
  if ($(id).textContent !== text) $(id).textContent = text
  $(id).classList.toggle('good', good)
}

// begin looks at the link before anything is typed.
async function begin() {
  if (!link && location.search === '?continue') return resume()
  if (!link) return show('nolink')
  say('Looking at the link…')
  try {
    await call('open', { link })
    show('administrator')
  } catch (refusal) {
    if (refusal.code === 'UNAUTHENTICATED') return show('refused')
    $('wait-error').textContent = refusal.status === 429
      ? `Too many wrong links were tried. Try again in ${refusal.after || 60} seconds.` : sentence(refusal.message)
    show('wait')
  } finally {
    say('')
  }
}

// resume goes on where the page was before it was loaded again.
async function resume() {
  say('Looking where this page was…')
  try {
    const made = await call('resume', {})
    page = made.page
    fill('who', made.email)
    if (made.tenant) fill('tenant', made.tenant)
    if (!made.tenant) return show('tenant')
    if (!made.device) return show('device')
    device = made.device
    fill('device', device)
    $('rotate').textContent = `weir device rotate ${made.tenant} ${made.device}`
    $('fresh').hidden = true
    $('resumed').hidden = false
    if (made.rule) ruleMade(made.rule)
    else show('reading')
    watch()
  } catch (refusal) {
    if (refusal.code === 'UNAUTHENTICATED') return show('over')
    $('wait-error').textContent = sentence(refusal.message)
    show('wait')
  } finally {
    say('')
  }
}

// setUp makes the page live.
function setUp() {
  $('plain').hidden = isSecureContext
  step('administrator', 'Making the administrator…', (f) => {
    const errors = {}
    if (!/^[^@\s]+@[^@\s]+$/.test(f.email.value.trim())) errors.email = 'Must be an email address, such as you@example.org.'
    if ([...f.password.value].length < 8) errors.password = 'Must have at least 8 characters.'
    else if (new TextEncoder().encode(f.password.value).length > 1024) errors.password = 'Must have at most 1024 bytes.'
    else if (f.password.value !== f.again.value) errors.again = 'The two passwords differ.'
    return errors
  }, async (f) => {
    let made
    try {
      made = await call('administrator', { link, email: f.email.value, password: f.password.value })
    } catch (refusal) {
      if (refusal.status === 0) {
        refusal.message += ' If it then says that the link is no longer valid, the administrator was made: sign in as that one.'
      }
      throw refusal
    }
    page = made.page
    link = ''
    // What is used up need not stay in the history; the query has the server send this page again after a reload.
    history.replaceState(null, '', location.pathname + '?continue')
    f.password.value = f.again.value = ''
    fill('who', made.email)
    show('tenant')
  })

  step('tenant', 'Making the tenant…', checkToken, async (f) => {
    const made = await call('tenant', { page, token: f.token.value.trim(), name: f.name.value.trim() })
    fill('tenant', made.token)
    show('device')
  })

  step('device', 'Making the device…', checkToken, async (f) => {
    const made = await call('device', { page, token: f.token.value.trim() })
    device = made.token
    fill('device', device)
    $('snippets').replaceChildren(...(made.snippets || []).map((s) => (s.language === 'sh' ? snippet(s) : folded(s))))
    $('nodoor').hidden = $('snippets').children.length > 0
    show('reading')
    watch()
  })

  const number = (f, name) => (Number.isFinite(f[name].valueAsNumber) ? {} : { [name]: 'Must be a number.' })
  const send = async (metric, value) => {
    await call('send', { page, device, metric, value })
    wakeUp()
  }
  step('reading', 'Sending…', (f) => ({ ...(f.metric.value.trim() ? {} : { metric: 'Must have a name, such as temp.' }), ...number(f, 'value') }),
    (f) => send(f.metric.value.trim(), f.value.valueAsNumber))
  step('firing', 'Sending…', (f) => number(f, 'value'), (f) => send(rule.metric, f.value.valueAsNumber))
  step('rule', 'Making the rule…', (f) => number(f, 'threshold'), async (f) => {
    ruleMade(await call('rule', { page, device, metric: f.metric.value, op: f.op.value, threshold: f.threshold.valueAsNumber, severity: f.severity.value }))
    watch()
  })
  $('to-rule').addEventListener('click', () => show('rule'))

  suggest($('tenant').querySelector('form').elements)
  $('retry').addEventListener('click', begin)
  window.addEventListener('hashchange', () => location.reload()) // another link was pasted over this one
  begin()
}

if (document.body.dataset.state === 'starting') setTimeout(() => location.reload(), pollEvery)
else setUp()
