// A definition of a rule as a sentence.
import { number } from './words'

interface Condition { metric?: string; op?: string; threshold?: number; thresholdAttr?: string; clear?: number; cel?: string }
export interface Action { type?: string; raiseAlarm?: { alarmKey?: string }; sendCommand?: { command?: string }; httpCall?: { url?: string }; publish?: { connectorRef?: string } }
export interface Definition extends Condition { name?: string; type?: string; severity?: string; when?: Condition; actions?: Action[]; window?: string; hold?: string; timeout?: string; gap?: string; count?: number; rate?: boolean; windowMode?: string; agg?: string; anchorType?: string }

const ops: Record<string, string> = { gt: 'above', ge: 'at least', lt: 'below', le: 'at most', eq: 'equal to', ne: 'not equal to' }

function condition(c: Condition | undefined): string {
  if (!c) return ''
  if (c.cel) return `“${c.cel}” holds`
  const than = c.thresholdAttr ? `the attribute ${c.thresholdAttr}` : c.threshold === undefined ? '…' : number(c.threshold)
  return c.metric ? `${c.metric} is ${ops[c.op ?? ''] ?? c.op ?? '…'} ${than}` : ''
}

// what is when a definition fires.
export function what(d: Definition): string {
  const when = condition(d.when)
  const given = when && ` while ${when}`
  const limit = `${ops[d.op ?? ''] ?? '…'} ${d.threshold === undefined ? '…' : number(d.threshold)}`
  switch (d.type) {
    case 'threshold': return `when ${when || '…'}`
    case 'deltaRate': return `when ${d.metric ?? '…'} changes by ${limit}${d.rate ? ' per second' : ''}${given}`
    case 'repeating': return `when ${when || '…'} ${d.count ?? '…'} times within ${d.window ?? '…'}`
    case 'duration': return `when ${when || '…'} for ${d.hold ?? '…'} without a break`
    case 'absence': return `when nothing comes for ${d.timeout ?? '…'}`
    case 'aggregate': {
      const over = d.windowMode === 'session' ? `a session that ends with ${d.gap ?? '…'} of silence` : d.windowMode === 'count' ? `${d.count ?? '…'} samples` : `${d.windowMode === 'sliding' ? 'the last ' : ''}${d.window ?? '…'}`
      return `when the ${d.agg ?? '…'}${d.metric ? ` of ${d.metric}` : ''} over ${over} is ${limit}${given}`
    }
    case 'correlation': return `when ${d.count ?? '…'} devices of one ${d.anchorType ?? '…'} have ${when || '…'} within ${d.window ?? '…'}`
    case 'connectivity': return 'when a device disconnects'
  }
  return `rule of the kind ${d.type ?? '…'}`
}

// act is what an action does.
export function act(a: Action): string {
  switch (a.type) {
    case 'raiseAlarm': return `raise the alarm${a.raiseAlarm?.alarmKey ? ` ${a.raiseAlarm.alarmKey}` : ''}`
    case 'sendCommand': return `send the command ${a.sendCommand?.command ?? '…'}`
    case 'httpCall': return `call ${a.httpCall?.url ?? '…'}`
    case 'publish': return `publish to ${a.publish?.connectorRef ?? '…'}`
  }
  return a.type ?? '…'
}

// sentence is what a definition does, null for a text that is no object.
export function sentence(text: string, profile = ''): string | null {
  try {
    const d = JSON.parse(text) as Definition
    if (typeof d !== 'object' || d === null || Array.isArray(d)) return null
    const acts = (Array.isArray(d.actions) ? d.actions : []).map(act)
    const clear = d.when?.clear ?? d.clear
    const said = `${what(d)}${profile ? ` on a device of profile ${profile}` : ''}, ${acts.length > 0 ? acts.join(', and ') : 'keep the edge and do nothing else'}${d.severity ? ` (${d.severity})` : ''}.`
    return said.charAt(0).toUpperCase() + said.slice(1) + (clear !== undefined ? ` It resolves only past ${number(clear)}.` : '')
  } catch {
    return null
  }
}
