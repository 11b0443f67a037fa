import { expect, test } from 'vitest'
import { below, boardOf, emptyBoard, moved, packed, placed, plotsOf, type Wanted, type Widget } from './dashboard'

const w = (col: number, colSpan: number, row = 0, rowSpan = 4): Widget => ({ id: 'a', type: 'label', layout: { base: { col, colSpan, row, rowSpan } } })

test('a widget stays within the columns, also when it is moved and sized', () => {
  expect(placed(w(30, 8))).toEqual({ col: 16, colSpan: 8, row: 0, rowSpan: 4 })
  expect(placed(moved(w(16, 8), 'ArrowRight', false)!)).toMatchObject({ col: 16 })
  expect(placed(moved(w(0, 8), 'ArrowRight', true)!)).toMatchObject({ colSpan: 9 })
  expect(placed(moved(w(0, 8), 'ArrowUp', false)!)).toMatchObject({ row: 0 })
  expect(moved(w(0, 8), 'Enter', false)).toBeNull()
})

test('a definition keeps what is not known of it', () => {
  expect(boardOf('{"schemaVersion":1,"slots":{"x":1},"widgets":[{"id":"g","type":"gauge"}]}')).toMatchObject({ slots: { x: 1 }, widgets: [{ type: 'gauge' }] })
  expect(boardOf('{}')).toEqual(emptyBoard())
  expect(boardOf('[')).toBeNull()
  expect(boardOf('{"widgets":1}')).toBeNull()
  expect(below({ ...emptyBoard(), widgets: [w(0, 8, 2, 3)] })).toBe(5)
})

test('plots are those with a device and metrics, each metric once and eight at most', () => {
  const plot = (id: string, deviceToken: string, measurements?: string[], span?: string): Widget => ({ ...w(0, 8), id, type: 'time-series', datasource: { deviceToken, measurements }, options: { span } })
  const many = 'abcdefghij'.split('')
  expect(plotsOf({ ...emptyBoard(), widgets: [plot('1', 'd', ['a', 'b', 'a'], '30d'), plot('2', '', ['a']), plot('3', 'd'), plot('4', 'd', many), { ...plot('5', 'd', ['a']), type: 'table' }] })).toEqual([
    { id: '1', device: 'd', names: ['a', 'b'], seconds: 2_592_000 }, { id: '4', device: 'd', names: many.slice(0, 8), seconds: 21_600 }])
})

test('plots go into as few requests as hold their series, none in two', () => {
  const of = (...sizes: number[]): Wanted[] => sizes.map((n, i) => ({ id: String(i), device: 'd', names: Array.from({ length: n }, (_, j) => `m${j}`), seconds: 1 }))
  const sizes = (groups: Wanted[][]) => groups.map((g) => g.map((x) => x.names.length))
  expect(packed([])).toEqual([])
  expect(sizes(packed(of(8, 8, 4, 1)))).toEqual([[8, 8, 4], [1]])
  expect(sizes(packed(of(8, 8, 8)))).toEqual([[8, 8], [8]])
  expect(sizes(packed(of(30, 1)))).toEqual([[30], [1]])
})
