import { expect, test } from 'vitest'
import { intervalFor, runs, ticks, type Point } from './plot'

const at = (...times: number[]): Point[] => times.map((t) => ({ t: t * 1000, avg: 1, min: 1, max: 1, count: 1 }))

test('the interval is the finest that makes no more buckets than asked for', () => {
  expect(intervalFor(3600)).toBe(15)
  expect(intervalFor(86_400)).toBe(300)
  expect(intervalFor(10 * 365 * 86_400)).toBe(86_400)
})

test('a hole of more than three usual distances stays a hole', () => {
  expect(runs(at(0, 10, 20, 30, 100, 110), 10).map((r) => r.length)).toEqual([4, 2])
  expect(runs(at(0, 10, 20, 50), 10).map((r) => r.length)).toEqual([4])
  expect(runs([], 10)).toEqual([])
})

test('ticks are round and within the range', () => {
  expect(ticks(0, 100)).toEqual([0, 50, 100])
  expect(ticks(20.5, 23)).toEqual([21, 22, 23])
})
