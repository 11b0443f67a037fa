import { expect, test } from 'vitest'
import { addressOf, placeOf } from '../address'
import { duration, explain } from './outcomes'

const message = { connection: false, outcome: 'stored' as const, reason: null, detail: null, values: ['temp=21.5'], delayMs: 3.2, outOfRange: 0 }

test('a stored message says so, with its values and its time', () => {
  expect(explain(message)).toMatchObject({ title: 'stored: temp=21.5', good: true, todo: '' })
})

test('what was not kept says why and what to do', () => {
  const x = explain({ ...message, outcome: 'refused', connection: true, reason: 'not-authorized' })
  expect(x.title).toBe('connection refused: not-authorized')
  expect(x.todo).toContain('TENANT:ACCESS-TOKEN')
  const y = explain({ ...message, outcome: 'dead-letter', reason: 'invalid-value', detail: 'temp is outside 0 to 150' })
  expect(y.title).toBe('dead letter: invalid-value')
  expect(y.what).toContain('Temp is outside 0 to 150.')
})

test('a reason that is not known is shown as it is', () => {
  expect(explain({ ...message, outcome: 'dead-letter', reason: 'new-reason' })).toMatchObject({ title: 'dead letter: new-reason', good: false })
  expect(explain({ ...message, outcome: 'refused', connection: true, reason: 'new-word' }).what).toContain('refused')
})

test('durations have a unit', () => {
  expect([duration(3.24), duration(120.4), duration(1500)]).toEqual(['3.2 ms', '120 ms', '1.5 s'])
})

test('an address comes back as it went', () => {
  const p = placeOf(addressOf('acme', 'devices', ['b/1 ü'], { search: 'a&b', page: '' }))
  expect([p.tenant, p.entry, p.rest, p.filters.get('search'), p.filters.has('page')]).toEqual(['acme', 'devices', ['b/1 ü'], 'a&b', false])
  expect(placeOf('')).toMatchObject({ tenant: '', entry: 'overview', rest: [] })
  expect(placeOf('#/acme/devices/%zz').rest).toEqual(['%zz'])
})
