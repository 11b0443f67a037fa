import { expect, test } from 'vitest'
import { lines, near, nodesOf, placesOf, rangeOf } from './canvas'

const definition = JSON.stringify({ name: 'Hot', type: 'threshold', severity: 'major', when: { metric: 'temp', op: 'gt', threshold: 90 },
  actions: [{ type: 'raiseAlarm', raiseAlarm: { alarmKey: 'hot' } }, { type: 'sendCommand', sendCommand: { command: 'stop' }, guard: 'value > 95.0' }] }, null, 2)
// As canvasFromRule draws it.
const graph = JSON.stringify({ schemaVersion: 1, nodes: [
  { id: 'source', type: 'source', config: { scope: { kind: 'profile', profileToken: 'boiler' } }, ui: { x: 0, y: 0 } },
  { id: 'condition', type: 'threshold', config: { name: 'Hot' }, ui: { x: 1, y: 0 } },
  { id: 'action-1', type: 'action', config: { action: 'raiseAlarm' }, ui: { x: 3, y: 0 } },
  { id: 'branch-1', type: 'branch', config: { when: 'value > 95.0' }, ui: { x: 2, y: 1 } },
  { id: 'action-2', type: 'action', config: { action: 'sendCommand' }, ui: { x: 3, y: 1 } }],
edges: [{ from: 'source:out', to: 'condition:in' }, { from: 'condition:signal', to: 'action-1:in' }, { from: 'condition:signal', to: 'branch-1:in' }, { from: 'branch-1:out', to: 'action-2:in' }] })

test('a canvas is nodes in words, with what they lead to', () => {
  const nodes = nodesOf(graph, definition)
  expect(nodes.map((n) => `${n.title}: ${n.detail}`)).toEqual(['Devices: of the profile boiler', 'threshold, major: when temp is above 90', 'Action 1: raise the alarm hot', 'Only where: value > 95.0', 'Action 2: send the command stop'])
  expect(nodes[1]!.to).toEqual(['action-1', 'branch-1'])
  expect(nodes[4]!.from).toEqual(['branch-1'])
})

test('a node leads to its member of the definition', () => {
  const nodes = nodesOf(graph, definition)
  const member = (id: string) => placesOf(nodes.find((n) => n.id === id)!, nodes).map((p) => rangeOf(definition, p)).find((r) => r !== null)!
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

test('a long text is cut into lines, and its end is marked', () => {
  expect(lines('when temp is above 90', 12, 3)).toEqual(['when temp is', 'above 90'])
  expect(lines('one two three four five', 9, 2)).toEqual(['one two', 'three…'])
  expect(lines('abcdefghij', 4, 5)).toEqual(['abcd', 'efgh', 'ij'])
})

test('arrows go along the edges, and up and down in a column', () => {
  const nodes = nodesOf(graph, definition)
  const go = (id: string, key: string) => near(nodes.find((n) => n.id === id)!, key, nodes).id
  expect(go('source', 'ArrowRight')).toBe('condition')
  expect(go('action-2', 'ArrowLeft')).toBe('branch-1')
  expect(go('action-2', 'ArrowUp')).toBe('action-1')
  expect(go('source', 'ArrowLeft')).toBe('source')
})
