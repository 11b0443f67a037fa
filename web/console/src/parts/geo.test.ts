import { expect, test } from 'vitest'
import { around, fitted, gathered, ringsOf, scale, zoomed } from './geo'

test('the rings of a fence are those of its polygon, whatever it is wrapped in', () => {
  const ring = [[8, 47], [9, 47], [9, 48], [8, 47]]
  expect(ringsOf(JSON.stringify({ kind: 'POLYGON_2D', geometry: { type: 'Polygon', coordinates: [ring] } }))).toEqual([ring])
  expect(ringsOf(JSON.stringify({ type: 'MultiPolygon', coordinates: [[ring]] }))).toEqual([ring])
  expect(ringsOf('{')).toEqual([])
})

test('a picture has the proportions of the ground', () => {
  const b = fitted(around([[8, 60], [8.2, 60.2]]), 600, 400)
  const k = Math.cos((60.1 * Math.PI) / 180)
  expect(((b.east - b.west) * k) / (b.north - b.south)).toBeCloseTo(1.5, 3)
  expect(b.west).toBeLessThan(8)
  expect(around([[8, 60]]).north).toBeGreaterThan(60)
  expect((zoomed(b, 0.5).east - zoomed(b, 0.5).west) * 2).toBeCloseTo(b.east - b.west)
  const s = scale(b, 600)
  expect(s.pixels).toBeGreaterThan(30)
  expect(s.pixels).toBeLessThan(240)
})

test('devices of one cell are one mark, and those outside are none', () => {
  const b = { west: 0, east: 1, south: 0, north: 1 }
  const spots = [{ device: 'a', lat: 0.51, lon: 0.51 }, { device: 'b', lat: 0.5101, lon: 0.5101 }, { device: 'c', lat: 0.9, lon: 0.1 }, { device: 'd', lat: 5, lon: 5 }]
  expect(gathered(spots, b, 560, 560).map((g) => g.devices)).toEqual([['a', 'b'], ['c']])
})
