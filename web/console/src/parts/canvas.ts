// A rule as a picture: its canvas, as the program lays it out, and where in the definition each node stands.
import { act, what, type Action, type Definition } from './rulewords'

export interface Node { id: string; type: string; title: string; detail: string; x: number; y: number; to: string[]; from: string[] }
export type Path = (string | number)[]

interface Wire { nodes: { id: string; type: string; config: Record<string, unknown>; ui?: { x?: number; y?: number } }[]; edges: { from: string; to: string }[] }

// nodesOf are the nodes of a canvas that shows a definition, in the order of the canvas.
export function nodesOf(graph: string, definition: string): Node[] {
  const wire = JSON.parse(graph) as Wire
  const d = JSON.parse(definition) as Definition
  const whole = (s: string) => s.slice(0, s.lastIndexOf(':'))
  return wire.nodes.map((n) => ({
    id: n.id, type: n.type, ...told(n, d), x: n.ui?.x ?? 0, y: n.ui?.y ?? 0,
    to: wire.edges.filter((e) => whole(e.from) === n.id).map((e) => whole(e.to)), from: wire.edges.filter((e) => whole(e.to) === n.id).map((e) => whole(e.from)),
  }))
}

function told(n: Wire['nodes'][number], d: Definition): { title: string; detail: string } {
  const action = actionOf(n.id)
  if (n.type === 'source') return { title: 'Devices', detail: `of the profile ${String((n.config.scope as { profileToken?: string } | undefined)?.profileToken ?? '')}` }
  if (n.type === 'branch') return { title: 'Only where', detail: String(n.config.when ?? '') }
  if (action !== null) return { title: `Action ${action + 1}`, detail: act((d.actions?.[action] ?? {}) as Action) }
  return { title: `${n.type}${d.severity ? `, ${d.severity}` : ''}`, detail: what(d) }
}

// actionOf is the place of a node among the actions: the program numbers them.
function actionOf(id: string): number | null {
  const n = id.match(/^action-(\d+)$/)?.[1]
  return n ? Number(n) - 1 : null
}

// placesOf are the members of a definition that a node stands for, the likeliest first.
export function placesOf(n: Node, nodes: Node[]): Path[] {
  const action = actionOf(n.id)
  if (action !== null) return [['actions', action, 'type'], ['actions', action], ['actions']]
  if (n.type === 'source') return [['when', 'metric'], ['metric'], ['when', 'cel'], ['type']]
  if (n.type === 'branch') {
    const first = nodes.find((x) => n.to.includes(x.id))
    return first ? [['actions', actionOf(first.id) ?? 0, 'guard'], ...placesOf(first, nodes)] : [['actions']]
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

// lines are a text in lines of so many letters; what does not fit into so many lines ends with an ellipsis, and is told whole elsewhere.
export function lines(text: string, width: number, most: number): string[] {
  const out: string[] = []
  let line = ''
  for (let w of text.replace(/\s+/g, ' ').trim().split(' ')) {
    while (w.length > width) { // no word of people
      if (line) out.push(line)
      line = ''
      out.push(w.slice(0, width))
      w = w.slice(width)
    }
    if (line && line.length + 1 + w.length > width) {
      out.push(line)
      line = w
    } else line = line ? `${line} ${w}` : w
  }
  if (line) out.push(line)
  return out.length <= most ? out : [...out.slice(0, most - 1), `${out[most - 1]!.slice(0, width - 1)}…`]
}

// near is the node that an arrow key goes to from one; the node itself where there is none.
export function near(n: Node, key: string, nodes: Node[]): Node {
  const of = (ids: string[]) => nodes.find((x) => ids.includes(x.id))
  const column = nodes.filter((x) => x.x === n.x).sort((a, b) => a.y - b.y)
  const at = column.indexOf(n)
  return ({ ArrowRight: of(n.to), ArrowLeft: of(n.from), ArrowDown: column[at + 1], ArrowUp: column[at - 1] } as Record<string, Node | undefined>)[key] ?? n
}
