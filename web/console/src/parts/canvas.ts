// A rule as a canvas: what may be drawn, what each change makes of it, and where in the definition each node stands. A canvas is a text of
// JSON, as the API takes it; every function gives a new one. What the compiler has to say of it is the server's.
import type { Values } from './fields'
import { act, what, type Action, type Definition } from './rulewords'

export interface Node { id: string; type: string; title: string; detail: string; x: number; y: number; to: string[]; from: string[] }
export type Path = (string | number)[]

export interface WireNode { id: string; type: string; config: Values; ui?: { x?: number; y?: number } }
export interface WireEdge { from: string; to: string }
export interface Wire { schemaVersion: number; nodes: WireNode[]; edges: WireEdge[] }

export interface Port { name: string; carries: string }
export interface NodeType { type: string; kind?: string; in: Port[]; out: Port[]; fields: string[] }
export interface Finding { nodeId: string | null; severity: string; message: string }

// The bounds of a canvas, as the compiler has them.
export const mostNodes = 100
export const mostEdges = 200

export const nodeOf = (end: string) => end.slice(0, end.lastIndexOf(':'))
export const portOf = (end: string) => end.slice(end.lastIndexOf(':') + 1)

// wireOf is a canvas of a text, null for what is none.
export function wireOf(text: string): Wire | null {
  try {
    const w = JSON.parse(text) as Wire
    return w && Array.isArray(w.nodes) && Array.isArray(w.edges) ? w : null
  } catch {
    return null
  }
}

// nodesOf are the nodes of a canvas in words, in the order of the canvas.
export function nodesOf(wire: Wire): Node[] {
  return wire.nodes.map((n) => ({
    id: n.id, type: n.type, ...told(n, wire), x: n.ui?.x ?? 0, y: n.ui?.y ?? 0,
    to: wire.edges.filter((e) => nodeOf(e.from) === n.id).map((e) => nodeOf(e.to)), from: wire.edges.filter((e) => nodeOf(e.to) === n.id).map((e) => nodeOf(e.from)),
  }))
}

function told(n: WireNode, wire: Wire): { title: string; detail: string } {
  const c = n.config ?? {}
  switch (n.type) {
    case 'source': return { title: 'Devices', detail: `of the profile ${String((c.scope as { profileToken?: string } | undefined)?.profileToken ?? '')}` }
    case 'branch': return { title: 'Only where', detail: String(c.when ?? '…') }
    case 'compute': return { title: `Value ${String(c.name ?? '…')}`, detail: String(c.expr ?? '…') }
    case 'action': return { title: `Action ${actionsOf(wire).indexOf(n.id) + 1}`, detail: act(actionIn(c) as Action) }
  }
  return { title: `${n.type}${c.severity ? `, ${String(c.severity)}` : ''}`, detail: what({ ...conditionIn(c), type: n.type } as Definition) }
}

// actionsOf are the ids of the action nodes in the order of the actions of the rule: that of their ids.
export const actionsOf = (wire: Wire) => wire.nodes.filter((n) => n.type === 'action').map((n) => n.id).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))

// --- the config of a node, as the definition has it, and back: durations are texts there, a threshold is a number or names its attribute, an
// action has the fields of its type in an object. What is no such value stays as it is, for the compiler to refuse.

const durations = ['window', 'hold', 'timeout', 'gap', 'lateness', 'maxAge']
const units: [string, number][] = [['h', 3_600_000], ['m', 60_000], ['s', 1000], ['ms', 1]]

// spanOf is a count of milliseconds as the definition writes it: 2m, 1h30m.
export function spanOf(ms: number): string {
  let out = ''
  for (const [unit, size] of units) {
    const n = Math.floor(ms / size)
    if (n > 0) out += `${n}${unit}`
    ms -= n * size
  }
  return out || '0s'
}

// millisOf is a span of the definition in milliseconds, null for what is none of whole ones.
export function millisOf(text: string): number | null {
  if (!/^(\d+(\.\d+)?(h|ms|m|s))+$/.test(text)) return null
  let sum = 0
  for (const [, n, , unit] of text.matchAll(/(\d+(\.\d+)?)(h|ms|m|s)/g)) sum += Number(n) * (units.find(([u]) => u === unit)?.[1] ?? 0)
  return Number.isInteger(Math.round(sum * 1e6) / 1e6) ? Math.round(sum) : null
}

function spansIn(c: Values): Values {
  return Object.fromEntries(Object.entries(c).map(([k, v]) => {
    const name = durations.find((d) => k === `${d}Ms`)
    return name && typeof v === 'number' ? [name, spanOf(v)] : name ? [name, v] : [k, v]
  }))
}

function spansOut(d: Values): Values {
  return Object.fromEntries(Object.entries(d).map(([k, v]) => (durations.includes(k) ? [`${k}Ms`, (typeof v === 'string' ? millisOf(v) : null) ?? v] : [k, v])))
}

export function conditionIn(config: Values): Values {
  const out = spansIn(config)
  const when = out.when as Values | undefined
  const bound = when?.threshold as Values | undefined
  if (when && typeof bound === 'object' && bound !== null) {
    const kept = Object.entries(when).flatMap(([k, v]) => (k !== 'threshold' ? [[k, v]] : bound.kind === 'attribute' ? [['thresholdAttr', bound.attribute]] : [['threshold', bound.value]]))
    out.when = Object.fromEntries(kept)
  }
  return out
}

export function conditionOut(d: Values): Values {
  const out = spansOut(d)
  const when = out.when as Values | undefined
  if (!when) return out
  const { threshold, thresholdAttr, ...rest } = when
  const bound = thresholdAttr !== undefined && thresholdAttr !== '' ? { kind: 'attribute', attribute: thresholdAttr, ...(threshold !== undefined && { value: threshold }) } : threshold !== undefined ? { kind: 'literal', value: threshold } : null
  out.when = bound ? { ...rest, threshold: bound } : rest
  if (Object.keys(out.when as Values).length === 0) delete out.when
  return out
}

export function actionIn(config: Values): Values {
  const { action, maxAgeMs, ...rest } = config
  const type = String(action ?? '')
  return { type, ...(type && { [type]: rest }), ...(maxAgeMs !== undefined && spansIn({ maxAgeMs })) }
}

export function actionOut(d: Values): Values {
  const type = String(d.type ?? '')
  return { action: type, ...((d[type] ?? {}) as Values), ...(d.maxAge !== undefined && d.maxAge !== '' && spansOut({ maxAge: d.maxAge })) }
}

// --- changes

// refusal is why an edge cannot be drawn from an output to an input, both as node:port; '' where it can.
export function refusal(wire: Wire, types: NodeType[], from: string, to: string): string {
  const of = (end: string) => types.find((t) => t.type === wire.nodes.find((n) => n.id === nodeOf(end))?.type)
  const [a, b] = [of(from), of(to)]
  const out = a?.out.find((p) => p.name === portOf(from))
  const into = b?.in.find((p) => p.name === portOf(to))
  if (!a || !b || !out || !into) return 'There is no such port.'
  if (nodeOf(from) === nodeOf(to)) return 'A node does not lead to itself.'
  if (out.carries !== into.carries) return `A ${a.type} gives a ${out.carries}, and ${into.name} of ${b.type} takes a ${into.carries}.`
  if (wire.edges.some((e) => e.from === from && e.to === to)) return 'They are connected already.'
  if (into.carries === 'stream' && wire.edges.some((e) => e.to === to)) return 'It has its devices already: one source flows into a condition.'
  if (into.carries === 'signal' && wire.edges.some((e) => e.to === to)) return 'Something leads to it already: one edge ends there. Take that away first.'
  if (reaches(wire, nodeOf(to), nodeOf(from))) return 'That would be a circle.'
  if (wire.edges.length >= mostEdges) return `A canvas has at most ${mostEdges} edges.`
  return ''
}

function reaches(wire: Wire, from: string, to: string): boolean {
  const seen = new Set<string>()
  const next = [from]
  for (let id = next.pop(); id !== undefined; id = next.pop()) {
    if (id === to) return true
    if (seen.has(id)) continue
    seen.add(id)
    next.push(...wire.edges.filter((e) => nodeOf(e.from) === id).map((e) => nodeOf(e.to)))
  }
  return false
}

// unaddable is why a node of a type cannot be added; '' where it can.
export function unaddable(wire: Wire, type: NodeType): string {
  if (wire.nodes.length >= mostNodes) return `A canvas has at most ${mostNodes} nodes.`
  const has = type.kind ? wire.nodes.find((n) => !['source', 'branch', 'action', 'compute'].includes(n.type)) : undefined
  return has ? `A rule has one condition, and ${has.id} is it: change its type in its fields.` : ''
}

// connect draws an edge that is not refused.
export const connect = (wire: Wire, from: string, to: string): Wire => ({ ...wire, edges: [...wire.edges, { from, to }] })
export const disconnect = (wire: Wire, from: string, to: string): Wire => ({ ...wire, edges: wire.edges.filter((e) => e.from !== from || e.to !== to) })
export const remove = (wire: Wire, id: string): Wire => ({ ...wire, nodes: wire.nodes.filter((n) => n.id !== id), edges: wire.edges.filter((e) => nodeOf(e.from) !== id && nodeOf(e.to) !== id) })
const change = (wire: Wire, id: string, to: (n: WireNode) => WireNode): Wire => ({ ...wire, nodes: wire.nodes.map((n) => (n.id === id ? to(n) : n)) })
export const configure = (wire: Wire, id: string, config: Values, type?: string): Wire => change(wire, id, (n) => ({ ...n, type: type ?? n.type, config }))
const rounded = (v: number) => Math.round(v * 100) / 100
export const move = (wire: Wire, id: string, x: number, y: number): Wire => change(wire, id, (n) => ({ ...n, ui: { x: rounded(x), y: rounded(y) } }))

// add adds a node, beside one that is chosen, and connects it with that where there is one way to.
export function add(wire: Wire, types: NodeType[], type: string, profile: string, beside = '', at?: { x: number; y: number }): { wire: Wire; id: string } {
  const base = type === 'source' || type === 'branch' || type === 'action' || type === 'compute' ? type : 'condition'
  let id = base === 'source' || base === 'condition' ? base : `${base}-1`
  for (let n = 1; wire.nodes.some((x) => x.id === id); n++) id = `${base}-${n}`
  const config: Record<string, Values> = { source: { scope: { kind: 'profile', profileToken: profile } }, action: { action: 'raiseAlarm' }, branch: { when: '' }, compute: { name: '', expr: '' } }
  const near = wire.nodes.find((n) => n.id === beside)
  const before = base === 'source' || base === 'compute'
  let spot = at ?? { x: near ? (near.ui?.x ?? 0) + (before ? -1 : 1) : before ? 0 : Math.max(0, ...wire.nodes.map((n) => (n.ui?.x ?? 0) + 1)), y: near?.ui?.y ?? 0 }
  const taken = (s: { x: number; y: number }) => wire.nodes.some((n) => Math.abs((n.ui?.x ?? 0) - s.x) < 0.9 && Math.abs((n.ui?.y ?? 0) - s.y) < 0.9)
  while (taken(spot)) spot = { ...spot, y: spot.y + 1 }
  let out: Wire = { ...wire, nodes: [...wire.nodes, { id, type, config: config[type] ?? { name: '' }, ui: { x: rounded(spot.x), y: rounded(spot.y) } }] }
  const type2 = types.find((t) => t.type === type)
  const nearType = types.find((t) => t.type === near?.type)
  const ways = near && type2 && nearType ? [...nearType.out.flatMap((o) => type2.in.map((i) => [`${near.id}:${o.name}`, `${id}:${i.name}`])), ...type2.out.flatMap((o) => nearType.in.map((i) => [`${id}:${o.name}`, `${near.id}:${i.name}`]))]
    .filter(([f, t]) => refusal(out, types, f!, t!) === '') : []
  if (ways.length === 1) out = connect(out, ways[0]![0]!, ways[0]![1]!)
  return { wire: out, id }
}

// arrange lays a canvas out from left to right: a node stands behind all that lead to it, computes before what reads them.
export function arrange(wire: Wire): Wire {
  const column = new Map<string, number>()
  const of = (id: string, seen: Set<string>): number => {
    const had = column.get(id)
    if (had !== undefined) return had
    if (seen.has(id)) return 0 // a circle, which the compiler refuses
    seen.add(id)
    const before = wire.edges.filter((e) => nodeOf(e.to) === id && wire.nodes.some((n) => n.id === nodeOf(e.from))).map((e) => nodeOf(e.from))
    const at = before.length > 0 ? Math.max(...before.map((b) => of(b, seen))) + 1 : 0
    column.set(id, at)
    return at
  }
  for (const n of wire.nodes) of(n.id, new Set())
  const last = Math.max(0, ...wire.nodes.filter((n) => n.type === 'action').map((n) => column.get(n.id) ?? 0))
  for (const n of wire.nodes) {
    const to = wire.edges.filter((e) => nodeOf(e.from) === n.id).map((e) => column.get(nodeOf(e.to)) ?? 0)
    if (n.type === 'action') column.set(n.id, last)
    if (n.type === 'compute' && to.length > 0) column.set(n.id, Math.max(0, Math.min(...to) - 1))
  }
  const rows = new Map<number, number>()
  const order = [...wire.nodes].sort((a, b) => (column.get(a.id)! - column.get(b.id)!) || (a.ui?.y ?? 0) - (b.ui?.y ?? 0))
  let out = wire
  for (const n of order) {
    const x = column.get(n.id)!
    const y = rows.get(x) ?? 0
    rows.set(x, y + 1)
    out = move(out, n.id, x, y)
  }
  return out
}

// fieldOf is the field of a node that a finding names, as the form of its definition calls it, and the reason; '' for the node as a whole.
export function fieldOf(f: Finding): [field: string, reason: string] {
  const m = f.message.match(/^config\.([A-Za-z0-9_.[\]]+): ([\s\S]*)$/)
  if (!m) return ['', f.message]
  const path = m[1]!.replace(/\[(\d+)\]/g, '.$1').replace(/^(\w+)Ms\b/, (_, n: string) => n).replace(/^when\.threshold\.(value|kind)$/, 'when.threshold').replace(/^when\.threshold\.attribute$/, 'when.thresholdAttr')
  return [path, m[2]!]
}

// placesOf are the members of a definition that a node stands for, the likeliest first.
export function placesOf(n: Node, nodes: Node[], actions: string[]): Path[] {
  const actionOf = (id: string) => (actions.includes(id) ? actions.indexOf(id) : null)
  const action = actionOf(n.id)
  if (action !== null) return [['actions', action, 'type'], ['actions', action], ['actions']]
  if (n.type === 'source') return [['when', 'metric'], ['metric'], ['when', 'cel'], ['type']]
  if (n.type === 'branch') {
    const first = nodes.find((x) => n.to.includes(x.id))
    return first ? [['actions', actionOf(first.id) ?? 0, 'guard'], ...placesOf(first, nodes, actions)] : [['actions']]
  }
  return [['when', 'cel'], ['when', 'op'], ['op'], ['timeout'], ['hold'], ['window'], ['type']]
}

// rangeOf is where a member stands in a text of JSON, with its name; null where there is none.
export function rangeOf(text: string, path: Path): [number, number] | null {
  let at = 0
  const space = () => { while (/\s/.test(text[at] ?? '')) at++ }
  const string = () => {
    const from = at++
    while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1
    return text.slice(from, ++at)
  }
  // value goes over a value; where it is the one that is looked for, its range is the answer.
  let found: [number, number] | null = null
  const value = (left: Path | null, from: number) => {
    space()
    if (text[at] === '{' || text[at] === '[') {
      const [object, close] = [text[at] === '{', text[at] === '{' ? '}' : ']']
      at++
      for (let i = 0; ; i++) {
        space()
        if (text[at] === ',') {
          at++
          space()
        }
        if (text[at] === close || at >= text.length) break
        const begin = at
        let key: string | number = i
        if (object) {
          key = JSON.parse(string()) as string
          space()
          at++ // :
        }
        value(left && left[0] === key ? left.slice(1) : null, begin)
      }
      at++
    } else if (text[at] === '"') string()
    else while (at < text.length && !/[,\]}\s]/.test(text[at]!)) at++
    if (left?.length === 0) found = [from, at]
  }
  try {
    JSON.parse(text)
    value(path, 0)
  } catch {
    return null
  }
  return found
}

// near is the node that an arrow key goes to from one; the node itself where there is none.
export function near(n: Node, key: string, nodes: Node[]): Node {
  const of = (ids: string[]) => nodes.find((x) => ids.includes(x.id))
  const column = nodes.filter((x) => x.x === n.x).sort((a, b) => a.y - b.y)
  const at = column.indexOf(n)
  return ({ ArrowRight: of(n.to), ArrowLeft: of(n.from), ArrowDown: column[at + 1], ArrowUp: column[at - 1] } as Record<string, Node | undefined>)[key] ?? n
}
