// One request: an operation of operations.json, to its area.
import operations from '../../operations.json'
import { AskError, errorOf } from './error'
import { link } from './link.svelte'

export type Area = keyof typeof operations
export const documentOf = (area: Area, name: string): string => (operations[area] as Record<string, string> | undefined)?.[name] ?? ''

// endpoint is the address of an area, relative to the page: it holds below the path prefix of a proxy.
export const endpoint = (area: Area) => `api/${area.replace(/-(admin|settings)$/, '/$1')}/graphql`

export const timeout = 30_000 // ms

export interface Sent { area: Area; name: string; document: string; variables: Record<string, unknown>; at: number; ms: number; outcome: string }

// sent are the last requests, for Show as, of each operation the last one. Those that carry a password or a token are left out.
export const sent: Sent[] = []
const secret = new Set(['login', 'selectTenant', 'refresh', 'signOut'])

// masked are variables without what nobody is shown again.
export function masked(v: unknown, secrets: string[] = []): unknown {
  if (Array.isArray(v)) return v.map((x) => masked(x, secrets))
  if (typeof v !== 'object' || v === null) return v
  const own = (v as { credentialType?: unknown }).credentialType === 'ACCESS_TOKEN' ? 'credentialId' : '' // which is the token itself
  return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, x && (/^(secret|password|newPassword|clientSecret|credentialValue)$/.test(k) || k === own || secrets.includes(k)) ? '…' : masked(x, secrets)]))
}

// recorded is how an operation stands among those that were sent.
function recorded(area: Area, name: string, document: string, variables: Record<string, unknown>): Sent {
  const s: Sent = { area, name, document, variables: masked(variables, name === 'setHttpSecret' ? ['value'] : []) as Record<string, unknown>, at: Date.now(), ms: 0, outcome: 'not answered' }
  if (secret.has(name)) return s
  const before = sent.findIndex((x) => x.area === area && x.name === name)
  if (before >= 0) sent.splice(before, 1)
  sent.unshift(s)
  sent.length = Math.min(sent.length, 100)
  return s
}

// post sends an operation, one of operations.json unless its document is given. It throws an AskError.
export async function post<T>(area: Area, name: string, variables: Record<string, unknown>, token = '', signal?: AbortSignal, document = documentOf(area, name)): Promise<T> {
  const s = recorded(area, name, document, variables)
  try {
    const answer = await send<T>(area, document, variables, token, signal)
    s.outcome = 'answered'
    return answer
  } catch (err) {
    s.outcome = err instanceof AskError ? err.code || err.kind : 'left'
    throw err
  } finally {
    s.ms = Date.now() - s.at
  }
}

async function send<T>(area: Area, document: string, variables: Record<string, unknown>, token: string, signal?: AbortSignal): Promise<T> {
  const limit = AbortSignal.timeout(timeout)
  let answer: Response
  let text: string
  try {
    answer = await fetch(endpoint(area), {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...(token && { Authorization: `Bearer ${token}` }) },
      body: JSON.stringify({ query: document, variables }),
      credentials: 'omit',
      cache: 'no-store',
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    })
    text = await answer.text()
  } catch (err) {
    if (signal?.aborted) throw err
    link.lost()
    throw new AskError('offline', limit.aborted ? `Weir has not answered within ${timeout / 1000} s.` : 'Weir cannot be reached.')
  }
  if (answer.status === 503 && !text.startsWith('{')) {
    link.lost()
    throw new AskError('offline', 'Weir is starting or stopping.')
  }
  let body: unknown = null
  try {
    body = JSON.parse(text)
  } catch { /* errorOf says so */ }
  const err = errorOf(answer.status, body)
  if (err) throw err
  link.found(answer.headers.get('Date'))
  return (body as { data: T }).data
}
