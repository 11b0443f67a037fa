import { expect, test } from 'vitest'
import { sentence } from './rulewords'

test('a definition is told as a sentence', () => {
  expect(sentence('{"name":"n","type":"duration","severity":"major","when":{"metric":"boilerTemp","op":"gt","threshold":90},"hold":"2m","actions":[{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"boiler-hot"}},{"type":"sendCommand","sendCommand":{"command":"setValve"}}]}', 'boiler'))
    .toBe('When boilerTemp is above 90 for 2m without a break on a device of profile boiler, raise the alarm boiler-hot, and send the command setValve (major).')
  expect(sentence('{"type":"aggregate","windowMode":"sliding","window":"10m","agg":"avg","metric":"p","op":"lt","threshold":1}')).toContain('the avg of p over the last 10m is below 1')
  expect(sentence('{"type":"threshold","when":{"cel":"m.a > 1.0","clear":2}}')).toContain('“m.a > 1.0” holds')
  expect(sentence('[]')).toBeNull()
  expect(sentence('{')).toBeNull()
  expect(sentence('{"type":"new"}')).toContain('Rule of the kind new')
})
