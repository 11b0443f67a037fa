import { expect, test } from 'vitest'
import { startOf } from './fields'
import { applied, asksOf, asksOfSchema, type Schema } from './jsonschema'

const schema: Schema = { type: 'object', required: ['name'], properties: {
  name: { type: 'string' }, op: { enum: ['', 'gt', 'lt'] }, threshold: { type: 'number' }, rate: { type: 'boolean' }, when: { type: 'object', properties: { metric: { type: 'string' }, threshold: { type: 'number' } } },
  actions: { type: 'array', items: { type: 'object', properties: { type: { enum: ['raiseAlarm', 'publish'] }, raiseAlarm: { type: 'object', properties: { alarmKey: { type: 'string' } } },
    publish: { type: 'object', properties: { connectorRef: { type: 'string' }, headers: { type: 'object' } } } } } } } }
const asks = asksOf(schema)

test('a form that nobody touches changes no byte', () => {
  for (const text of ['{"name":"n","when":{"metric":"t","threshold":0},"actions":[{"type":"raiseAlarm","raiseAlarm":{}}],"other":{"kept":1}}',
    '{"rate":false,"actions":[],"name":"n","op":"gt","threshold":1.5}', '{"name":"n","actions":[{"publish":{"headers":{"a":"b"},"connectorRef":"c"},"type":"publish","guard":"x"}]}']) {
    const def = JSON.parse(text)
    const wrong = {}
    expect(JSON.stringify(applied(asks, def, startOf(asks, def), wrong))).toBe(text)
    expect(wrong).toEqual({})
  }
})

test('a member that is called like a type is no object of that type', () => {
  const kinds = asksOf({ type: 'object', properties: { type: { enum: ['threshold', 'deltaRate'] }, threshold: { type: 'number' }, metric: { type: 'string' } } })
  const def = { type: 'deltaRate', metric: 't', threshold: 10 }
  expect(applied(kinds, def, startOf(kinds, def), {})).toEqual(def)
})

test('what is changed is changed, and the type of an action chooses its members', () => {
  const def = { name: 'n', threshold: 1, actions: [{ type: 'raiseAlarm', raiseAlarm: { alarmKey: 'k' } }] }
  const values = startOf(asks, def)
  Object.assign(values, { threshold: '2,5', op: 'gt' })
  ;(values.actions as Record<string, unknown>[])[0]!.type = 'publish'
  expect(applied(asks, def, values, {})).toEqual({ name: 'n', threshold: 2.5, op: 'gt', actions: [{ type: 'publish', publish: {} }] })
  values.threshold = 'hot'
  const wrong: Record<string, string> = {}
  expect(applied(asks, def, values, wrong).threshold).toBe(1)
  expect(Object.keys(wrong)).toEqual(['threshold'])
})

test('the parameters of a command are a form where every one of them can be asked', () => {
  expect(asksOfSchema('{"type":"object","properties":{"level":{"type":"integer","minimum":0,"maximum":5}}}')?.[0]).toMatchObject({ kind: 'whole', help: '0 to 5.' })
  expect(asksOfSchema('{"type":"object","properties":{"any":{}}}')).toBeNull()
  expect(asksOfSchema('no JSON')).toBeNull()
})
