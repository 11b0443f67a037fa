import { expect, test } from 'vitest'
import { actionIn, actionOut, actionsOf, add, arrange, conditionIn, conditionOut, connect, disconnect, fieldOf, millisOf, near, nodesOf, placesOf, rangeOf, refusal, remove, spanOf, unaddable, wireOf, type NodeType, type Wire } from './canvas'

const definition = JSON.stringify({ name: 'Hot', type: 'threshold', severity: 'major', when: { metric: 'temp', op: 'gt', threshold: 90 },
  actions: [{ type: 'raiseAlarm', raiseAlarm: { alarmKey: 'hot' } }, { type: 'sendCommand', sendCommand: { command: 'stop' }, guard: 'value > 95.0' }] }, null, 2)
// As canvasFromRule draws it.
const graph = JSON.stringify({ schemaVersion: 1, nodes: [
  { id: 'source', type: 'source', config: { scope: { kind: 'profile', profileToken: 'boiler' } }, ui: { x: 0, y: 0 } },
  { id: 'condition', type: 'threshold', config: { name: 'Hot', severity: 'major', when: { metric: 'temp', op: 'gt', threshold: { kind: 'literal', value: 90 } } }, ui: { x: 1, y: 0 } },
  { id: 'action-1', type: 'action', config: { action: 'raiseAlarm', alarmKey: 'hot' }, ui: { x: 3, y: 0 } },
  { id: 'branch-1', type: 'branch', config: { when: 'value > 95.0' }, ui: { x: 2, y: 1 } },
  { id: 'action-2', type: 'action', config: { action: 'sendCommand', command: 'stop' }, ui: { x: 3, y: 1 } }],
edges: [{ from: 'source:out', to: 'condition:in' }, { from: 'condition:signal', to: 'action-1:in' }, { from: 'condition:signal', to: 'branch-1:in' }, { from: 'branch-1:out', to: 'action-2:in' }] })

test('a canvas is nodes in words, with what they lead to', () => {
  const nodes = nodesOf(wireOf(graph)!)
  expect(nodes.map((n) => `${n.title}: ${n.detail}`)).toEqual(['Devices: of the profile boiler', 'threshold, major: when temp is above 90', 'Action 1: raise the alarm hot', 'Only where: value > 95.0', 'Action 2: send the command stop'])
  expect(nodes[1]!.to).toEqual(['action-1', 'branch-1'])
  expect(nodes[4]!.from).toEqual(['branch-1'])
})

test('a node leads to its member of the definition', () => {
  const nodes = nodesOf(wireOf(graph)!)
  const member = (id: string) => placesOf(nodes.find((n) => n.id === id)!, nodes, actionsOf(wireOf(graph)!)).map((p) => rangeOf(definition, p)).find((r) => r !== null)!
  const text = (id: string) => definition.slice(...member(id))
  expect(text('source')).toBe('"metric": "temp"')
  expect(text('condition')).toBe('"op": "gt"')
  expect(text('action-1')).toBe('"type": "raiseAlarm"')
  expect(text('branch-1')).toBe('"guard": "value > 95.0"')
  expect(text('action-2')).toBe('"type": "sendCommand"')
})

test('a member is found whatever stands around it', () => {
  const odd = '{"a": "x\\"}", "b": [1, {"c": true}, [2, 3]], "": null}'
  const at = (...path: (string | number)[]) => { const r = rangeOf(odd, path); return r && odd.slice(...r) }
  expect(at('a')).toBe('"a": "x\\"}"')
  expect(at('b', 1, 'c')).toBe('"c": true')
  expect(at('b', 2, 1)).toBe('3')
  expect(at('')).toBe('"": null')
  expect(at('b', 7)).toBeNull()
  expect(rangeOf('{', ['a'])).toBeNull()
  expect(rangeOf('7', ['a'])).toBeNull()
})

test('arrows go along the edges, and up and down in a column', () => {
  const nodes = nodesOf(wireOf(graph)!)
  const go = (id: string, key: string) => near(nodes.find((n) => n.id === id)!, key, nodes).id
  expect(go('source', 'ArrowRight')).toBe('condition')
  expect(go('action-2', 'ArrowLeft')).toBe('branch-1')
  expect(go('action-2', 'ArrowUp')).toBe('action-1')
  expect(go('source', 'ArrowLeft')).toBe('source')
})

const [stream, signal, value] = ['stream', 'signal', 'value']
const types: NodeType[] = [
  { type: 'source', in: [], out: [{ name: 'out', carries: stream }], fields: [] },
  { type: 'threshold', kind: 'threshold', in: [{ name: 'in', carries: stream }, { name: 'value', carries: value }], out: [{ name: 'signal', carries: signal }], fields: [] },
  { type: 'branch', in: [{ name: 'in', carries: signal }, { name: 'value', carries: value }], out: [{ name: 'out', carries: signal }], fields: [] },
  { type: 'action', in: [{ name: 'in', carries: signal }], out: [], fields: [] },
  { type: 'compute', in: [], out: [{ name: 'value', carries: value }], fields: [] }]
const wire = wireOf(graph)!

test('an edge that does not fit is refused with its reason', () => {
  expect(refusal(wire, types, 'source:out', 'branch-1:in')).toBe('A source gives a stream, and in of branch takes a signal.')
  expect(refusal(wire, types, 'condition:signal', 'condition:in')).toBe('A node does not lead to itself.')
  expect(refusal(wire, types, 'source:out', 'condition:in')).toBe('They are connected already.')
  expect(refusal(wire, types, 'condition:signal', 'action-2:in')).toContain('Something leads to it already')
  expect(refusal(wire, types, 'source:no', 'condition:in')).toBe('There is no such port.')
  expect(refusal(disconnect(wire, 'branch-1:out', 'action-2:in'), types, 'condition:signal', 'action-2:in')).toBe('')
  let w: Wire = add(wire, types, 'branch', 'boiler').wire
  w = connect(disconnect(w, 'condition:signal', 'branch-1:in'), 'branch-2:out', 'branch-1:in')
  expect(refusal(w, types, 'branch-1:out', 'branch-2:in')).toBe('That would be a circle.')
})

test('a node is added beside the chosen one, connected where there is one way, and removed with its edges', () => {
  const { wire: w, id } = add(wire, types, 'action', 'boiler', 'condition')
  expect(id).toBe('action-3')
  expect(w.edges.at(-1)).toEqual({ from: 'condition:signal', to: 'action-3:in' })
  const spots = w.nodes.map((n) => `${n.ui?.x} ${n.ui?.y}`)
  expect(new Set(spots).size).toBe(spots.length)
  expect(unaddable(wire, types[1]!)).toContain('one condition')
  expect(unaddable(remove(wire, 'condition'), types[1]!)).toBe('')
  expect(remove(wire, 'branch-1').edges).toEqual([{ from: 'source:out', to: 'condition:in' }, { from: 'condition:signal', to: 'action-1:in' }])
  expect(add(remove(wire, 'source'), types, 'source', 'boiler', 'condition').wire.nodes.at(-1)).toEqual({ id: 'source', type: 'source', config: { scope: { kind: 'profile', profileToken: 'boiler' } }, ui: { x: 0, y: 0 } })
})

test('nothing stands on another node after it is arranged, and edges go to the right', () => {
  let w: Wire = { ...wire, nodes: wire.nodes.map((n) => ({ ...n, ui: { x: 0, y: 0 } })) }
  w = add(w, types, 'compute', 'boiler', 'branch-1').wire
  w = arrange(w)
  const at = (id: string) => w.nodes.find((n) => n.id === id)!.ui!
  for (const e of w.edges) expect(at(e.from.split(':')[0]!).x!).toBeLessThan(at(e.to.split(':')[0]!).x!)
  const spots = w.nodes.map((n) => `${n.ui?.x} ${n.ui?.y}`)
  expect(new Set(spots).size).toBe(spots.length)
})

test('a config is the same after its form', () => {
  const conditions = [
    { name: 'a', severity: 'major', holdMs: 120_000, when: { metric: 't', op: 'gt', threshold: { kind: 'literal', value: 80 }, clear: 75 }, latenessMs: 0 },
    { name: 'a', when: { metric: 't', op: 'gt', threshold: { kind: 'attribute', attribute: 'limit' } }, windowMs: 90_061_001 },
    { name: 'a', when: { cel: 'm.a > 1.0' }, threshold: 7, op: 'lt', timeoutMs: 'no number' }, { name: 'a' }]
  for (const c of conditions) expect(conditionOut(conditionIn(c))).toEqual(c)
  for (const a of [{ action: 'raiseAlarm' }, { action: 'httpCall', url: 'http://x', timeoutMs: 500, headers: { a: 'b' }, maxAgeMs: 60_000 }]) expect(actionOut(actionIn(a))).toEqual(a)
  expect(conditionIn(conditions[0]!)).toEqual({ name: 'a', severity: 'major', hold: '2m', when: { metric: 't', op: 'gt', threshold: 80, clear: 75 }, lateness: '0s' })
  expect([spanOf(5_400_000), spanOf(1500), millisOf('1.5s'), millisOf('1h30m'), millisOf('0.1ms'), millisOf('2')]).toEqual(['1h30m', '1s500ms', 1500, 5_400_000, null, null])
})

test('a finding leads to its field as the form calls it', () => {
  const at = (message: string) => fieldOf({ nodeId: 'n', severity: 'error', message })
  expect(at('config.holdMs: is needed')).toEqual(['hold', 'is needed'])
  expect(at('config.when.threshold.value: is no number: 7')).toEqual(['when.threshold', 'is no number: 7'])
  expect(at('nothing flows into input in')).toEqual(['', 'nothing flows into input in'])
})
