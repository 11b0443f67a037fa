import { expect, test } from 'vitest'
import { columns, intervalFor, runs, ticks, zoomed, type Point } from './plot'

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

test('a hole has a time without a value', () => {
  expect(columns(at(0, 10, 20, 100), 10)).toEqual([[0, 10_000, 20_000, 99_999, 100_000], [1, 1, 1, null, 1], [1, 1, 1, null, 1], [1, 1, 1, null, 1]])
  expect(columns([], 10)).toEqual([[], [], [], []])
})

test('a zoom keeps the place of the time around which it is', () => {
  expect(zoomed(0, 100_000, 0.5)).toEqual([25_000, 75_000])
  expect(zoomed(0, 100_000, 0.5, 20_000)).toEqual([10_000, 60_000])
  expect(zoomed(0, 10_000, 0.5)).toEqual([0, 10_000])
  // A reading at the end of the step under the cursor: the span would have ended before it.
  expect(zoomed(0, 100_000, 0.5, 97_500, [95_000, 100_000])).toEqual([50_000, 100_000])
  expect(zoomed(0, 100_000, 0.5, 2_500, [0, 5_000])).toEqual([0, 50_000])
})
