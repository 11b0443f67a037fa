// GraphiQL for the areas of one instance. Built by build.mjs into built/, from where the program serves it.
import CodeMirror from 'codemirror'
import { GraphiQL } from 'graphiql'
import 'graphiql/style.css'
import { getOperationAST, parse } from 'graphql'
import { createClient } from 'graphql-ws'
import { createRoot } from 'react-dom/client'
import './explorer.css'
import { bearer, offerSignIn, post, say } from './session.js'

const place = document.getElementById('graphiql')
const areas = document.getElementById('area')
const endpoint = place.dataset.endpoint // relative: the endpoint next to the page's address, which follows the area
const root = location.pathname.slice(0, -areas.value.length)
// The address follows the area, and areas lie at different depths: the icon must not.
for (const icon of document.querySelectorAll('link[rel=icon]')) icon.href = String(icon.href)

// subscribe follows a subscription over graphql-transport-ws at the same endpoint.
async function* subscribe(request, authorization) {
  const url = new URL(endpoint, location.href)
  url.protocol = url.protocol.replace('http', 'ws')
  const client = createClient({ url: url.href, retryAttempts: 0, connectionParams: authorization ? { Authorization: authorization } : {} })
  client.on('connected', () => say('Subscribed; waiting for the next result.'))
  try {
    yield* client.iterate(request)
    say('The subscription has ended.')
  } catch (e) {
    const errors = Array.isArray(e) ? e : [{ message: e.reason || e.message || String(e) }]
    say(`The subscription has ended: ${errors[0].message}`)
    yield { errors }
  } finally {
    client.dispose()
  }
}

// subscribes reports whether the chosen operation of a document is a subscription. What cannot be parsed the server refuses.
function subscribes({ query, operationName }) {
  try {
    return getOperationAST(parse(query), operationName)?.operation === 'subscription'
  } catch {
    return false
  }
}

function fetcher(request, { headers = {} } = {}) {
  say('')
  if (!subscribes(request)) return post(endpoint, request, headers)
  return subscribe(request, Object.entries(headers).find(([name]) => name.toLowerCase() === 'authorization')?.[1] || bearer())
}

// The tabs of each area are kept as long as the page is open. GraphiQL itself stores nothing.
const drafts = new Map()
const nothing = { length: 0, getItem: () => null, setItem() {}, removeItem() {}, clear() {} }

// Each editor has a name for screen readers, and is scrolled by the keyboard.
const names = { graphql: 'Document', 'graphql-variables': 'Variables', 'graphql-results': 'Result' }
CodeMirror.defineInitHook((editor) => {
  editor.getInputField().setAttribute('aria-label', names[editor.getOption('mode')] ?? 'Headers')
  editor.getScrollerElement().tabIndex = 0
})

const view = createRoot(place)

// show makes the page that of an area: its address, its schema, and the documents that were left there or its example.
function show() {
  const { value: area, dataset } = areas.selectedOptions[0]
  const keep = ({ tabs }) => drafts.set(area, tabs.map(({ query, variables, headers }) => ({ query, variables, headers })))
  history.replaceState(null, '', root + area)
  view.render(<GraphiQL key={area} fetcher={fetcher} storage={nothing} defaultTabs={drafts.get(area) ?? [{ query: dataset.example }]} onTabChange={keep}
    defaultEditorToolsVisibility="variables" shouldPersistHeaders={false} forcedTheme="system">
    <GraphiQL.Logo><a href="https://github.com/graphql/graphiql" rel="noreferrer" target="_blank">GraphiQL</a></GraphiQL.Logo>
  </GraphiQL>)
}

offerSignIn(root)
areas.addEventListener('change', show)
show()
