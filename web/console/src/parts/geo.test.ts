import { expect, test } from 'vitest'
import land from 'world-atlas/land-110m.json'
import { around, fitted, gathered, ringsOf, ringsOfLand, scale, touching, zoomed, type Topology } from './geo'

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

test('the outline of the land is that of the earth', () => {
  const rings = ringsOfLand(land as unknown as Topology)
  expect(rings.length).toBeGreaterThan(100)
  // inside counts how often a ray to the east crosses an outline.
  const inside = (x: number, y: number) => rings.flatMap((r) => r.map((p, i) => [p, r[(i + 1) % r.length]!] as const))
    .filter(([a, b]) => (a[1] > y) !== (b[1] > y) && x < ((b[0] - a[0]) * (y - a[1])) / (b[1] - a[1]) + a[0]).length % 2 === 1
  for (const [lon, lat] of [[13.4, 52.5], [-58.6, -34.9], [139, 36], [135, -25]] as const) expect(inside(lon, lat), `${lon} ${lat}`).toBe(true)
  for (const [lon, lat] of [[-30, 40], [80, -20], [-150, 0], [3, 56]] as const) expect(inside(lon, lat), `${lon} ${lat}`).toBe(false)
  const near = touching(rings, { west: 12, east: 15, south: 52, north: 53 })
  expect(near.length).toBeGreaterThan(0)
  expect(near.length).toBeLessThan(10)
})

test('an arc is taken either way, and where arcs meet there is one point', () => {
  const t: Topology = { transform: { scale: [2, 3], translate: [10, 20] }, arcs: [[[0, 0], [1, 0], [0, 1]], [[0, 0], [0, 1], [1, 0]]], objects: { land: { geometries: [{ arcs: [[[0, -2]]] }] } } }
  expect(ringsOfLand(t)).toEqual([[[10, 20], [12, 20], [12, 23], [10, 23], [10, 20]]])
})
