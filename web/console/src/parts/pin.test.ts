import { expect, test } from 'vitest'
import { pinLines } from './pin'

test('the definition goes into a file as it is, and the span into the command', () => {
  expect(pinLines('acme', 'boiler', 'too-hot', '{"a": "$x"}', '2026-03-01T00:00:00.000Z', '2026-03-01T06:00:00.000Z')).toBe(
    "cat >too-hot.yaml <<'RULE'\n{\"a\": \"$x\"}\nRULE\nweir rule pin too-hot.yaml --tenant acme --profile boiler --since 2026-03-01T00:00:00.000Z --until 2026-03-01T06:00:00.000Z -o too-hot.ruletest")
})
