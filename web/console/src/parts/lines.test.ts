// @ts-ignore: Node runs the tests; the page is checked without its types
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import operations from '../../operations.json'
import { documentOf, type Area } from '../api/ask'
import { operationOf, parse, type Field, type Schema } from '../api/schema'
import { lineOf, table, word } from './lines'

const line = (area: string, name: string, variables: Record<string, unknown>) => lineOf({ area: area as Area, name, document: documentOf(area as Area, name) || `mutation ${name} { ${name} }`, variables }, 'acme')

test('an operation is the line of its command, quoted for a shell', () => {
  expect(line('command-delivery', 'createCommand', { request: { token: 'c-1', deviceToken: 'boiler-1', name: 'say', payload: `{"text": "it's $HOME"}` } })?.text)
    .toBe(`weir command send acme boiler-1 say --payload '{"text": "it'\\''s $HOME"}' --token c-1`)
  expect(line('device-management', 'deleteDevices', { tokens: ['a', 'b'] })?.text).toBe('weir device rm acme a b --yes')
  expect(line('user-management-admin', 'setTenantEnabled', { token: 'acme', enabled: false })?.text).toBe('weir tenant disable acme --yes')
  expect(line('user-management-admin', 'updateTenant', { token: 'acme', request: { name: null } })?.text).toBe(`weir tenant set acme --name ''`)
  expect(line('device-management', 'issueAccessToken', { request: { deviceToken: 'd' } })?.text).toBe('weir device rotate acme d --keep --yes')
  expect(line('notification-management', 'createNotificationMute', { request: { token: 'm', until: '2030-01-01T00:00:00Z' } })?.text).toBe('weir notify mute add acme m --until 2030-01-01T00:00:00Z --all')
  expect(line('notification-management', 'createNotificationMute', { request: { token: 'm', deviceToken: 'd', until: '2030-01-01T00:00:00Z' } })?.text).toBe('weir notify mute add acme m --device d --until 2030-01-01T00:00:00Z')
})

test('what a command cannot say whole is run by weir api, and so is what has no command', () => {
  for (const [area, name, variables] of [
    ['command-delivery', 'createCommand', { request: { token: 'c-1', deviceToken: 'd', name: 'n', expiresAt: '2030-01-01T00:00:00Z' } }],
    ['device-management', 'createDevice', { request: { token: 'd', deviceTypeToken: 't', metadata: '{}' } }],
    ['device-management', 'deleteDevice', { token: '-d' }], // which a command would take for an option
    ['user-management-admin', 'setSystemRoles', { email: 'a@example.org', roleTokens: ['operator', 'auditor'] }],
    ['device-management', 'acknowledgeAlarm', { token: "it's" }],
  ] as [string, string, Record<string, unknown>][]) {
    const l = line(area, name, variables)!
    expect(l.own, name).toBe(false)
    expect(l.text).toContain(`weir api ${area} '`)
    expect(l.text.includes('--tenant acme')).toBe(!area.endsWith('admin'))
  }
  expect(line('device-management', 'acknowledgeAlarm', { token: "it's" })?.text).toContain(`--variables '{"token":"it'\\''s"}'`)
  expect(line('device-management', 'publishDeviceProfile', { token: 'p' })?.note).toContain('weir site apply')
  expect(line('user-management', 'changePassword', {})).toBeNull()
})

test('a secret is asked for by the command, and stands in no line', () => {
  const l = line('user-management-admin', 'setPassword', { email: 'a@example.org', password: 'hush-hush' })!
  expect(l.text).toBe('weir admin passwd a@example.org')
  expect(l.note).toContain('asks for the password')
})

test('a word that a shell would read otherwise is quoted', () => {
  for (const w of ['', 'a b', '~x', '$x', '*', 'a;b', '#x', '{a,b}', '!x', 'ä', 'a\nb', '`x`', '\\']) expect(word(w)).toBe(`'${w}'`)
  expect(word('a@example.org')).toBe('a@example.org')
})

// Each path of the table is one of the operation, as the schema has it.
test('the table names operations and variables that there are', { timeout: 0 }, () => {
  const schemas = new Map<string, Schema>()
  const wrong: string[] = []
  for (const e of table) {
    if (!schemas.has(e.area)) schemas.set(e.area, parse(readFileSync(new URL(`../../../../gql/schema/${e.area}.graphql`, import.meta.url), 'utf8')))
    const schema = schemas.get(e.area)!
    const root = (operations as Record<string, Record<string, string>>)[e.area]?.[e.operation]?.match(/\{ (?:\w+: )?(\w+)/)?.[1] ?? e.operation
    const operation = operationOf(schema, root)
    if (!operation) {
      wrong.push(`${e.area}.${e.operation}`)
      continue
    }
    const paths = [...(e.args ?? []), ...Object.keys(e.options ?? {}), ...Object.keys(e.when ?? {}), ...Object.keys(e.only ?? {}), ...(e.single ? [e.single] : []), ...(e.ignored ?? []), ...(e.secrets ?? [])]
    for (const path of paths) {
      if (path === '$tenant') continue
      const [first, second] = path.split('.')
      const arg: Field | undefined = operation.args.find((a) => a.name === first)
      if (!arg || (second !== undefined && !schema.get(arg.type.name)?.fields.has(second))) wrong.push(`${e.operation}: ${path}`)
    }
    // What the API demands is in the line.
    for (const a of operation.args) {
      const input = schema.get(a.type.name)
      const needed = input?.what === 'input' ? [...input.fields.values()].filter((f) => f.type.required).map((f) => `${a.name}.${f.name}`) : a.type.required ? [a.name] : []
      if (e.command) for (const n of needed) if (!paths.includes(n)) wrong.push(`${e.operation} leaves out ${n}`)
    }
    if (!e.command && !e.note) wrong.push(`${e.operation} has neither a command nor a note`)
  }
  expect(wrong).toEqual([])
})
