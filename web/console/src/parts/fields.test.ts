import { expect, test } from 'vitest'
import { parse } from '../api/schema'
import { askOf, labelOf, made, offered, startOf, timeOf } from './fields'

const s = parse(`input Request { token: String! name: String "static or dynamic." mode: String! limit: Int ratio: Float enabled: Boolean! open: Boolean "A JSON object as text." config: String secret: String rules: [Rule!]! groupToken: String hosts: [String!] }
input Rule { channelToken: String! }
type Query { x(request: Request!): Int }`)
const asks = askOf(s, s.get('Query')!.fields.get('x')!.args[0]!).fields
const kindOf = (name: string) => asks.find((a) => a.name === name)?.kind

test('what is asked follows from the type and the description', () => {
  expect(asks.map((a) => a.kind)).toEqual(['text', 'text', 'text', 'whole', 'number', 'boolean', 'boolean', 'json', 'secret', 'objects', 'text', 'list'])
  expect(asks.find((a) => a.name === 'mode')?.choices).toEqual(['static', 'dynamic'])
  expect(kindOf('secret')).toBe('secret')
  expect(offered('CRITICAL, MAJOR or MINOR, or * for each.')).toEqual(['CRITICAL', 'MAJOR', 'MINOR', '*'])
  expect(offered('Must not be empty.')).toEqual([])
  expect(labelOf('autoRegisterTypeToken')).toBe('Auto register type token')
})

test('a new one sends what is filled in, and tells what is missing or no number', () => {
  const v = startOf(asks, null)
  expect(v.enabled).toBe(true)
  Object.assign(v, { token: 't', mode: 'static', ratio: '1,5', hosts: 'a\n b\n', rules: [{ channelToken: 'mail' }] })
  expect(made(asks, v)).toEqual({ values: { token: 't', mode: 'static', ratio: 1.5, enabled: true, hosts: ['a', 'b'], rules: [{ channelToken: 'mail' }] }, wrong: {} })
  Object.assign(v, { token: '', limit: '1.5', config: '{', rules: [{ channelToken: '' }] })
  expect(Object.keys(made(asks, v).wrong)).toEqual(['token', 'limit', 'config', 'rules.0.channelToken'])
})

test('a change sends what differs, and null for what was emptied', () => {
  const record = { token: 't', name: 'n', mode: 'static', limit: 5, enabled: true, open: null, rules: [{ id: 1, channel: { token: 'mail' } }], group: { token: 'g' } }
  const before = startOf(asks, record)
  expect(before.groupToken).toBe('g')
  expect(before.rules).toEqual([{ channelToken: 'mail' }])
  expect(made(asks, before, before).values).toEqual({})
  expect(made(asks, { ...before, name: '', limit: '6', groupToken: '' }, before).values).toEqual({ name: null, limit: 6, groupToken: null })
})

test('a time may be a span from now', () => {
  expect(timeOf('2h', 0)).toBe('1970-01-01T02:00:00.000Z')
  expect(timeOf('2026-01-01T00:00:00Z')).toBe('2026-01-01T00:00:00.000Z')
  expect(timeOf('soon')).toBe('soon')
})
