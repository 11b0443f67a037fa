// One request: an operation of operations.json, to its area.
import operations from '../../operations.json'
import { AskError, errorOf } from './error'
import { link } from './link.svelte'

export type Area = keyof typeof operations
export const documentOf = (area: Area, name: string): string => (operations[area] as Record<string, string>)[name] ?? ''

// endpoint is the address of an area, relative to the page: it holds below the path prefix of a proxy.
export const endpoint = (area: Area) => `api/${area.replace(/-(admin|settings)$/, '/$1')}/graphql`

export const timeout = 30_000 // ms

export interface Sent { area: Area; name: string; variables: Record<string, unknown>; at: number }

// sent are the last requests, for Show as, of each operation the last one. Those that carry a password or a token are left out.
export const sent: Sent[] = []
const secret = new Set(['login', 'selectTenant', 'refresh', 'tenants'])

// post sends an operation. It throws an AskError.
export async function post<T>(area: Area, name: string, variables: Record<string, unknown>, token = '', signal?: AbortSignal): Promise<T> {
  if (!secret.has(name)) {
    const before = sent.findIndex((s) => s.area === area && s.name === name)
    if (before >= 0) sent.splice(before, 1)
    sent.unshift({ area, name, variables, at: Date.now() })
    sent.length = Math.min(sent.length, 20)
  }
  const limit = AbortSignal.timeout(timeout)
  let answer: Response
  let text: string
  try {
    answer = await fetch(endpoint(area), {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...(token && { Authorization: `Bearer ${token}` }) },
      body: JSON.stringify({ query: documentOf(area, name), variables }),
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
