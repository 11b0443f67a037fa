import { expect, test } from 'vitest'
import { documentOf } from '../api/ask'
import { curl, graphql } from './showas'

const sent = { area: 'device-management' as const, document: documentOf('device-management', 'acknowledgeAlarm'), variables: { token: "it's" } }

test('a request is shown as curl, quoted for a shell, without a token', () => {
  const line = curl(sent, 'http://gateway.lan:8080/iot/')
  expect(line).toContain(`curl -sS 'http://gateway.lan:8080/iot/api/device-management/graphql'`)
  expect(line).toContain('Bearer $WEIR_TOKEN')
  expect(line).toContain(`it'\\''s`)
})

test('and as GraphQL with its variables', () => {
  expect(graphql(sent)).toContain('mutation acknowledgeAlarm($token: String!)')
  expect(graphql(sent)).toContain('"token": "it\'s"')
})
