import { expect, test } from 'vitest'
import { below, boardOf, emptyBoard, moved, placed, type Widget } from './dashboard'

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
