// @ts-ignore: Node runs the tests; the page is checked without its types
import { readFileSync, readdirSync } from 'node:fs'
import { expect, test } from 'vitest'
import { authorityOf, documentFor, operationOf, parse, selection } from './schema'

const sdl = `# Area
"A thing."
type Thing implements Model & Token { id: ID! "Its token." token: String! kind: ThingKind! parent: Thing pages(pagination: PageInput!): [Thing!]! of: [Part!] }
enum ThingKind { "one" A B @deprecated(reason: "old") }
type Part { name: String = "x" thing: Thing }
input PageInput { number: Int! = 1 "At most 1000, \\"or\\" fewer." size: Int! }
type Query { """
device:read. Two
lines. """ things(criteria: PageInput!, names: [String!]): [Thing!]! }
type Mutation { "user:write" make(request: PageInput!, expectedUpdatedAt: String): Thing! }`

test('a schema is read with its descriptions', () => {
  const s = parse(sdl)
  expect(s.get('Thing')?.help).toBe('A thing.')
  expect([...s.get('Thing')!.fields.keys()]).toEqual(['id', 'token', 'kind', 'parent', 'pages', 'of'])
  expect(s.get('ThingKind')?.values).toEqual(['A', 'B'])
  expect(s.get('PageInput')?.fields.get('size')).toMatchObject({ help: 'At most 1000, "or" fewer.', type: { name: 'Int', required: true, list: false } })
  expect(operationOf(s, 'things')?.help).toBe('device:read. Two lines.')
  expect(authorityOf(operationOf(s, 'make'))).toBe('user:write')
})

test('a document asks for what has no arguments, to a depth', () => {
  const s = parse(sdl)
  expect(selection(s, 'Thing', 2)).toBe(' { id token kind parent { id token kind } of { name } }')
  expect(documentFor(s, 'make', ['request'], selection(s, 'Thing', 1))).toBe('mutation make($request: PageInput!) { make(request: $request) { id token kind } }')
  expect(documentFor(s, 'things', [], ' { id }')).toBe('query things { things { id } }')
})

test('every schema that is served is read whole', () => {
  const dir = new URL('../../../../gql/schema/', import.meta.url)
  for (const file of readdirSync(dir)) {
    const text = readFileSync(new URL(file, dir), 'utf8') as string
    const s = parse(text)
    const declared = [...text.matchAll(/^(?:type|input|interface|enum) (\w+)/gm)].map((m) => m[1])
    expect([...s.keys()].sort()).toEqual([...new Set(declared)].sort())
    for (const t of s.values()) for (const f of t.fields.values()) expect(f.type.name, `${file} ${t.name}.${f.name}`).toMatch(/^[A-Z]\w*$/)
  }
})
