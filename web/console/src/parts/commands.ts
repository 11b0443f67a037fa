// A command to a device, and how far it is.
export interface Command {
  token: string; deviceToken: string; name: string; payload: string | null; status: string; queuedTime: string | null; sentTime: string | null; deliveredTime: string | null
  respondedTime: string | null; expiresAt: string | null; responsePayload: string | null; error: string | null; batchToken: string | null
}

export const final = (status: string) => ['SUCCESSFUL', 'FAILED', 'TIMEOUT', 'EXPIRED', 'CANCELLED'].includes(status)

// cancellable are those that are not sent yet.
export const cancellable = (status: string) => ['QUEUED', 'HELD', 'PARKED'].includes(status)

export interface Stage { name: string; at: string | null; now: boolean; tone: string }

// stages are those that a command has passed, with their times, and the one that it is in.
export function stages(c: Command): Stage[] {
  const out: Stage[] = [{ name: 'ordered', at: c.queuedTime, now: c.status === 'QUEUED', tone: '' }]
  if (c.status === 'HELD') out.push({ name: 'held until it connects', at: null, now: true, tone: 'warn' })
  if (c.status === 'PARKED') out.push({ name: 'parked while it sleeps', at: null, now: true, tone: 'warn' })
  if (c.sentTime) out.push({ name: 'sent', at: c.sentTime, now: c.status === 'SENT' && !c.deliveredTime, tone: '' })
  if (c.deliveredTime) out.push({ name: 'delivered', at: c.deliveredTime, now: c.status === 'SENT', tone: '' })
  const ends: Record<string, [string, string]> = { SUCCESSFUL: ['answered: done', 'good'], FAILED: ['answered: failed', 'bad'], TIMEOUT: ['never answered', 'bad'], EXPIRED: ['never sent in its life', 'bad'], CANCELLED: ['cancelled', 'warn'] }
  const end = ends[c.status]
  if (end) out.push({ name: end[0], at: c.respondedTime, now: true, tone: end[1] })
  return out
}

// freshToken is a token that nobody has: it makes a request that is sent twice one request.
export const freshToken = (of: string) => `${of}-${Date.now().toString(36)}-${[...crypto.getRandomValues(new Uint8Array(4))].map((b) => b.toString(16).padStart(2, '0')).join('')}`
