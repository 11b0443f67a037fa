// What became of a message, and what to do about it, in words.
import words from './outcomes.json'

export interface Seen {
  receivedTime: string
  transport: string
  source: string | null
  deviceToken: string | null
  connection: boolean
  outcome: keyof typeof words.outcomes
  reason: string | null
  detail: string | null
  eventType: string | null
  values: string[]
  readings: number
  occurredTime: string | null
  storedTime: string | null
  altId: string | null
  outOfRange: number
  bytes: number
  offset: string | null
  delayMs: number
  firings: { ruleToken: string; edge: string; severity: string | null }[]
}

export interface Explained { title: string; what: string; todo: string; good: boolean }

// explain says what became of a message.
export function explain(m: Pick<Seen, 'connection' | 'outcome' | 'reason' | 'detail' | 'values' | 'delayMs' | 'outOfRange'>): Explained {
  const outcome = words.outcomes[m.outcome] ?? m.outcome
  if (m.outcome === 'stored') {
    return { title: `stored: ${m.values.join(', ') || 'no readings'}`, what: `It was on disk before it was acknowledged, ${duration(m.delayMs)} after its receipt.${m.outOfRange ? ` Outside the range that its profile declares: ${m.outOfRange}; marked, and judged by rules.` : ''}`, todo: '', good: true }
  }
  const known = m.connection
    ? ((words.connections as Record<string, string[]>)[m.reason ?? ''] ?? words.otherConnection)
    : ((words.reasons as Record<string, string[]>)[m.reason ?? ''] ?? [])
  const what = m.outcome === 'duplicate' ? 'The same event has been stored before.' : (known[0] ?? '')
  const title = m.connection ? `connection refused${m.reason ? `: ${m.reason}` : ''}` : `${outcome}${m.reason ? `: ${m.reason}` : ''}`
  return { title, what: [what, m.detail ? sentence(m.detail) : ''].filter(Boolean).join(' '), todo: known[1] ?? '', good: m.outcome === 'duplicate' }
}

const sentence = (text: string) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.')

export function duration(ms: number): string {
  if (ms < 10) return `${Math.round(ms * 10) / 10} ms`
  return ms < 1000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 100) / 10} s`
}
