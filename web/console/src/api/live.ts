// Streams: one socket of an area while one of its streams is open. A lost socket is opened again, and the stream says that there was a gap.
import { createClient, type Client } from 'graphql-ws'
import { documentOf, endpoint, type Area } from './ask'
import { AskError, errorOf } from './error'
import { session } from './session.svelte'

export type LiveState = 'opening' | 'live' | 'lost' | 'refused'

const clients = new Map<Area, Client>()
const sockets = new Map<Client, WebSocket>() // those that are open
const unauthorized = 4401
const hiddenFor = 30_000 // ms after which a tab that is not seen has no stream

// A socket goes on with the new token that a ping brings it; without one the server closes it when its token ends.
session.onRenewed = (token) => {
  for (const socket of sockets.values()) if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: 'ping', payload: { token } }))
}
// The next session has sockets of its own.
session.onEnded = () => {
  for (const client of clients.values()) void client.dispose()
  clients.clear()
  sockets.clear()
}

function clientOf(area: Area): Client {
  const known = clients.get(area)
  if (known) return known
  const client = createClient({
    url: new URL(endpoint(area), document.baseURI).href.replace(/^http/, 'ws'),
    lazy: true,
    lazyCloseTimeout: 1000,
    keepAlive: 20_000,
    retryAttempts: Infinity,
    shouldRetry: () => session.phase === 'in',
    retryWait: async (n) => { await new Promise((go) => setTimeout(go, Math.min(1000 * 2 ** n, 30_000))) },
    connectionParams: async () => ({ token: await session.token() }),
  })
  client.on('connected', (socket) => sockets.set(client, socket as WebSocket))
  client.on('closed', () => sockets.delete(client))
  clients.set(area, client)
  return client
}

export interface Listener<T> {
  next(value: T): void
  state(now: LiveState, err?: AskError): void
}

// stream opens a subscription and returns what ends it. In a tab that is not seen it is lost after a while, until the tab is seen again.
export function stream<T>(area: Area, name: string, variables: Record<string, unknown>, to: Listener<T>): () => void {
  let over = false
  let away = false // since the tab is not seen
  let hide: ReturnType<typeof setTimeout> | undefined
  let renewed = 0 // when the token was last renewed because the server took it no longer
  let end = () => {}
  to.state('opening')

  const open = () => {
    const client = clientOf(area)
    const watches = [
      // The subscription is sent right after the acknowledgement, and takes effect at once.
      client.on('connected', () => { if (!over) to.state('live') }),
      client.on('closed', () => { if (!over) to.state('lost') }),
    ]
    const unsubscribe = client.subscribe<T>({ query: documentOf(area, name), variables }, {
      next: (m) => {
        const err = errorOf(200, m)
        if (err) to.state('refused', err)
        else if (m.data) {
          to.state('live')
          to.next(m.data)
        }
      },
      error: (e) => {
        for (const off of watches) off()
        if (over || away || session.phase !== 'in') return
        if ((e as CloseEvent | null)?.code === unauthorized && Date.now() - renewed > 10_000) {
          renewed = Date.now()
          to.state('lost')
          session.renew().then(() => { if (!over && !away) open() }, (err) => to.state('refused', err))
          return
        }
        const first = Array.isArray(e) ? e[0] : null
        const why = first ? errorOf(200, { errors: [first] }) : null
        to.state('refused', why ?? new AskError('offline', 'The stream was closed.'))
      },
      complete: () => { if (!over) to.state('lost') },
    })
    end = () => {
      for (const off of watches) off()
      unsubscribe()
    }
  }
  const seen = () => {
    clearTimeout(hide)
    if (document.hidden) {
      hide = setTimeout(() => {
        away = true
        end()
        to.state('lost')
      }, hiddenFor)
    } else if (away) {
      away = false
      open()
    }
  }
  document.addEventListener('visibilitychange', seen)
  seen() // which may be in a tab that is not seen
  open()
  return () => {
    over = true
    clearTimeout(hide)
    document.removeEventListener('visibilitychange', seen)
    end()
  }
}
