// @ts-ignore: Node runs the tests; the page is checked without its types
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import all from '../kinds.json'
import type { Kind } from '../kinds'
import { apart, others, siteYaml } from './siteyaml'

const kinds = all as unknown as Kind[]
const of = (id: string) => kinds.find((k) => k.id === id)!

test('a kind of a tenant stands in its tenant', () => {
  expect(siteYaml(of('types'), 'acme', {}, { token: 'boiler', name: 'Boiler: big', profileToken: 'p-1', metadata: '{"a": [1, true]}', model: 'no', icon: null })).toBe(
    'version: 1\ntenants:\n  - token: acme\n    deviceTypes:\n      - token: boiler\n        name: "Boiler: big"\n        profileToken: p-1\n        metadata: {"a":[1,true]}\n        model: "no"\n        icon: null\n')
})

test('a kind below another stands below it', () => {
  expect(siteYaml(of('metrics'), 'acme', {}, { token: 't', deviceProfileToken: 'boiler', metricKey: '/3303/0', minValue: 0 })).toBe(
    'version: 1\ntenants:\n  - token: acme\n    deviceProfiles:\n      - token: boiler\n        metricDefinitions:\n          - token: t\n            metricKey: "/3303/0"\n            minValue: 0\n')
  expect(siteYaml(of('metrics'), 'acme', { token: 't' }, { name: 'T' })).toBe('')
  expect(siteYaml(of('metrics'), 'acme', { token: 't' }, { name: 'T' }, 'boiler')).toContain('boiler')
})

test('a kind of the instance stands in the file, and a secret in a file of its own', () => {
  expect(siteYaml(of('people'), 'acme', {}, { email: 'a@example.org', password: 'hush-hush', enabled: true, systemRoles: ['operator'] })).toBe(
    'version: 1\nidentities:\n  - email: "a@example.org"\n    password_file: "/etc/weir/identities.password"\n    enabled: true\n    systemRoles: ["operator"]\n')
  expect(siteYaml(of('credentials'), 'acme', {}, { token: 'x' })).toBe('')
  expect(siteYaml(of('batches'), 'acme', {}, { token: 'x' })).toBe('')
})

// Each field of a form is one of the site file: the table of docs/site-files.md has those of every kind.
test('the fields of the forms are those of a site file', () => {
  const page = readFileSync(new URL('../../../../docs/site-files.md', import.meta.url), 'utf8')
  const table = page.slice(page.indexOf('## What can be declared'))
  const fields = new Map<string, Set<string>>()
  for (const row of table.matchAll(/^\| `(\w+)` \| (`.*) \|$/gm)) {
    const names = [...row[2]!.matchAll(/`(\w+)`/g)].map((m) => m[1]!)
    const before = fields.get(row[1]!) ?? new Set<string>()
    names.forEach((n) => before.add(n.replace(/_(file|env)$/, '')))
    fields.set(row[1]!, before)
  }
  const wrong: string[] = []
  for (const k of kinds) {
    if (!k.site || apart.has(k.site) || !k.create) continue
    const known = fields.get(k.site)
    if (!known) {
      wrong.push(`${k.site} is in no table`)
      continue
    }
    const sdl = readFileSync(new URL(`../../../../gql/schema/${k.area}.graphql`, import.meta.url), 'utf8')
    const operation = sdl.match(new RegExp(`^  ${k.create}\\(([^)]*)\\)`, 'm'))?.[1] ?? ''
    const input = operation.match(/request: (\w+)/)?.[1]
    const body = input ? (sdl.match(new RegExp(`^input ${input} \\{\\n([\\s\\S]*?)^\\}`, 'm'))?.[1] ?? '') : operation.replaceAll(', ', '\n  ')
    const names = [...body.matchAll(/^ {0,2}(\w+): /gm)].map((m) => m[1]!)
    if (names.length === 0) wrong.push(`${k.create} asks for nothing`)
    for (const n of names) {
      if (!known.has(n === 'value' && k.secrets?.includes(n) ? 'secret' : n) && !['token', 'email', 'clientId', 'deviceProfileToken', 'deviceToken', 'expectedUpdatedAt'].includes(n) && !others[k.site]?.includes(n)) wrong.push(`${k.site}.${n}`)
    }
  }
  expect(wrong).toEqual([])
})
