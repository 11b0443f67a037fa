import { expect, test } from 'vitest'
import { rateLines, type RatePoint } from './rates'

const at = (s: number) => Date.parse('2026-03-01T12:00:00Z') + s * 1000
const point = (s: number, transport: string, received: number): RatePoint => ({ time: new Date(at(s)).toISOString(), transport, received, stored: received, duplicate: 0, deadLetter: 0, refused: 0, dropped: 0 })

test('rates are per second, 0 where nothing came, without the span that has not ended', () => {
  const lines = rateLines([point(0, 'mqtt', 20), point(20, 'mqtt', 10), point(20, 'http', 5), point(30, 'mqtt', 99), point(-10, 'mqtt', 99)], at(0), at(35))
  expect(lines.map((l) => [l.transport, l.points.map((p) => p.v)])).toEqual([['mqtt', [2, 0, 1]], ['http', [0, 0, 0.5]]])
  expect(rateLines([], at(0), at(35))).toEqual([])
})
