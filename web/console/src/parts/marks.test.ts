import { expect, test } from 'vitest'
import { marksOf, pathOf } from './marks'

const text = `{
  "type": "threshold",
  "when": {"metric": "temp", "op": "above"},
  "actions": [
    {"type": "raiseAlarm"},
    {
      "kind": 1
    }
  ]
}`
const marked = (message: string) => {
  const { at, message: said } = marksOf(text, [message])[0]!
  return [at && text.slice(...at), said]
}

test('a message names its member', () => {
  expect(pathOf('actions[1].sendCommand.name: required')).toEqual({ path: ['actions', 1, 'sendCommand', 'name'], text: 'required' })
  expect(pathOf('the rule: no')).toBeNull()
})

test('a mistake is marked at its member', () => {
  expect(marked('when.op: unknown')).toEqual(['"op": "above"', 'unknown'])
  expect(marked('actions[0].type: not here')).toEqual(['"type": "raiseAlarm"', 'not here'])
})

test('what is missing is marked at the first line of what should have it, with its name', () => {
  expect(marked('actions[1].type: required')).toEqual(['{', 'actions[1].type: required'])
  expect(marked('when.threshold.value: required')).toEqual(['"when": {"metric": "temp", "op": "above"}', 'when.threshold.value: required'])
  expect(marked('severity: required')).toEqual(['{', 'severity: required'])
  expect(marked('nothing fits')).toEqual(['{', 'nothing fits'])
})

test('a text that is no JSON has no members', () => {
  expect(marksOf('{"a": ', ['a: required', 'unexpected end'])).toEqual([{ at: null, message: 'a: required' }, { at: null, message: 'unexpected end' }])
})
