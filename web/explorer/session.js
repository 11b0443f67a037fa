// The caller of the explorer: a token that was pasted, or one of a sign-in, which is renewed while the page is open. The page
// stores nothing.
const $ = (id) => document.getElementById(id)
let renewal = 0

export const say = (text) => { $('status').textContent = text }

export const bearer = () => $('token').value.trim() && `Bearer ${$('token').value.trim()}`

export async function post(url, body, headers = {}) {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...(bearer() && { Authorization: bearer() }), ...headers },
    body: JSON.stringify(body),
    credentials: 'omit',
  })
  return answer.json()
}

// askUsers is the data of an answer of user-management; the first error is thrown.
async function askUsers(root, query, variables) {
  const answer = await post(`${root}api/user-management/graphql`, { query, variables })
  if (answer.errors) throw new Error(answer.errors[0].message)
  return answer.data
}

// ofInstance reports whether the chosen area is of the identity plane, which takes the identity token itself: api/AREA/PLANE/graphiql.
const ofInstance = () => $('area').value.split('/').length > 3

async function signIn(root) {
  say('Signing in…')
  const who = (await askUsers(root, 'mutation($e: String!, $p: String!) { login(email: $e, password: $p) { identityToken memberships { tenant } } }',
    { e: $('email').value, p: $('password').value })).login
  if (ofInstance()) {
    clearTimeout(renewal)
    $('token').value = who.identityToken
    $('password').value = ''
    say('Signed in to the instance.')
    return
  }
  const tenants = who.memberships.map((m) => m.tenant)
  $('tenants').replaceChildren(...tenants.map((t) => new Option(t, t)))
  if (!$('tenant').value && tenants.length === 1) $('tenant').value = tenants[0]
  if (!$('tenant').value) {
    say('Name a tenant' + (tenants.length ? ': ' + tenants.join(', ') : '.'))
    $('tenant').focus()
    return
  }
  hold(root, (await askUsers(root, 'mutation($i: String!, $t: String!) { selectTenant(identityToken: $i, tenant: $t) { accessToken refreshToken expiresAt } }',
    { i: who.identityToken, t: $('tenant').value })).selectTenant)
  $('password').value = ''
  say(`Signed in to ${$('tenant').value}.`)
}

// hold keeps the tokens of a session, and renews them a minute before they expire.
function hold(root, session) {
  $('token').value = session.accessToken
  clearTimeout(renewal)
  renewal = setTimeout(async () => {
    try {
      hold(root, (await askUsers(root, 'mutation($t: String!) { refresh(refreshToken: $t) { accessToken refreshToken expiresAt } }', { t: session.refreshToken })).refresh)
    } catch (e) {
      say(`The sign-in has ended: ${e.message || e}`)
    }
  }, Math.max(Date.parse(session.expiresAt) - Date.now() - 60000, 1000))
}

// offerSignIn makes the form work. root is the address of the instance.
export function offerSignIn(root) {
  $('plain').hidden = isSecureContext
  $('where').addEventListener('submit', (event) => event.preventDefault())
  $('sign-in').addEventListener('submit', async (event) => {
    event.preventDefault()
    try {
      await signIn(root)
    } catch (e) {
      say(String(e.message || e))
    }
  })
}
