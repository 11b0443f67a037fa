import { expect, test } from 'vitest'
import { against, chunks, devicesOf, linesOf, making, sequence } from './csv'

test('cells are separated by commas, semicolons or tabs, and may be in quotes', () => {
  expect(linesOf('a,b\n"x, ""y""",2\r\n\n  c  ,\n').lines).toEqual([{ line: 1, cells: ['a', 'b'] }, { line: 2, cells: ['x, "y"', '2'] }, { line: 4, cells: ['c', ''] }])
  expect(linesOf('\ufeffa;b,c;d\n1;2;3').lines[0]?.cells).toEqual(['a', 'b,c', 'd'])
  expect(linesOf('a\tb').lines[0]?.cells).toEqual(['a', 'b'])
  expect(linesOf('a,b\n"two\nlines",2\n3,4').lines.map((l) => l.line)).toEqual([1, 2, 4])
  expect(linesOf('a,b\n"open,2').mistakes).toEqual([{ line: 2, text: 'A quote is opened and not closed.' }])
})

test('each mistake of a file has its line', () => {
  expect(devicesOf('').mistakes).toHaveLength(1)
  expect(devicesOf('token,colour\n').mistakes.map((m) => m.line)).toEqual([1, 1])
  const { devices, mistakes } = devicesOf('Token,Type,External ID\nb-1,boiler,x\nb 2,boiler,\nb-1,boiler,x\n,boiler,\nb-5,,\nb-6,boiler,z,more')
  expect(devices).toHaveLength(6)
  expect(mistakes.map((m) => [m.line, m.text.slice(0, 22)])).toEqual([
    [3, '“b 2” is no token: let'], [4, 'The token b-1 is that '], [4, 'The externalId x is th'], [5, 'The token is missing.'], [6, 'The type is missing.'], [7, 'There are 4 cells, and'],
  ])
  expect(devicesOf('token,type').mistakes[0]?.text).toContain('no line below')
})

test('what there is already is a mistake of the line that names it', () => {
  const { devices } = devicesOf('token,type,externalId\na,boiler,\nb,pump,\nc,boiler,sn1')
  expect(against(devices, new Set(['boiler']), new Set(['a']), new Set(['sn1'])).map((m) => m.line)).toEqual([2, 3, 4])
  expect(against(devices, new Set(['boiler', 'pump']), new Set(), new Set())).toEqual([])
})

test('devices are made by one request, in their order', () => {
  const { devices } = devicesOf('token,type,name\na,boiler,Boiler A\nb,boiler,')
  const { document, variables } = making(devices)
  expect(document).toBe('mutation createDevice($d0: DeviceCreateRequest, $d1: DeviceCreateRequest) { d0: createDevice(request: $d0) { token } d1: createDevice(request: $d1) { token } }')
  expect(variables).toEqual({ d0: { token: 'a', deviceTypeToken: 'boiler', name: 'Boiler A' }, d1: { token: 'b', deviceTypeToken: 'boiler' } })
  expect(chunks([1, 2, 3], 2)).toEqual([[1, 2], [3]])
})

test('a template takes the number, with leading zeros where it says so', () => {
  expect(sequence('b-{n}', 7)).toBe('b-7')
  expect(sequence('b-{n:04d}', 7)).toBe('b-0007')
})
