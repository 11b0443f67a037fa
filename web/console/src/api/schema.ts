// What the API says of itself: the schema of an area as it is served, with the descriptions of its operations and fields. Lists, details
// and forms are made of it, so that a field that the API gains is shown without a change here.
import { AskError } from './error'

export interface Ref { name: string; list: boolean; required: boolean; text: string }
export interface Field { name: string; help: string; type: Ref; args: Field[] }
export interface Type { name: string; what: string; help: string; fields: Map<string, Field>; values: string[] }
export type Schema = Map<string, Type>

const kinds = new Set(['type', 'input', 'interface', 'enum'])

// parse reads a schema. It knows what Weir publishes: descriptions, types, inputs, interfaces and enums.
export function parse(sdl: string): Schema {
  const marks = sdl.match(/"""[^]*?"""|"(?:[^"\\\n]|\\.)*"|#[^\n]*|[A-Za-z_]\w*|-?\d[\w.]*|\.\.\.|[!-/:-@[-`{-~]/g) ?? []
  const all = marks.filter((m) => !m.startsWith('#') && m !== ',')
  const schema: Schema = new Map()
  let at = 0
  const text = (m: string) => m.startsWith('"""') ? m.slice(3, -3).trim().replace(/\s*\n\s*/g, ' ') : JSON.parse(m) as string
  const help = () => (all[at]?.startsWith('"') ? text(all[at++]!) : '')
  const ref = (): Ref => {
    if (all[at] === '[') {
      at++
      const of = ref()
      at++ // ]
      const required = all[at] === '!'
      if (required) at++
      return { name: of.name, list: true, required, text: `[${of.text}]${required ? '!' : ''}` }
    }
    const name = all[at++] ?? ''
    const required = all[at] === '!'
    if (required) at++
    return { name, list: false, required, text: name + (required ? '!' : '') }
  }
  const skip = (open: string, close: string) => { // a balanced group
    for (let depth = 0; at < all.length; at++) {
      if (all[at] === open) depth++
      else if (all[at] === close && --depth === 0) {
        at++
        return
      }
    }
  }
  const after = () => { // a default, and directives
    if (all[at] === '=') {
      at++
      if (all[at] === '[') skip('[', ']')
      else if (all[at] === '{') skip('{', '}')
      else at++
    }
    while (all[at] === '@') {
      at += 2
      if (all[at] === '(') skip('(', ')')
    }
  }
  const fields = (close: string): Field[] => {
    const out: Field[] = []
    while (at < all.length && all[at] !== close) {
      const said = help()
      const name = all[at++] ?? ''
      let args: Field[] = []
      if (all[at] === '(') {
        at++
        args = fields(')')
      }
      at++ // :
      out.push({ name, help: said, args, type: ref() })
      after()
    }
    at++
    return out
  }
  while (at < all.length) {
    const said = help()
    const what = all[at++] ?? ''
    if (!kinds.has(what)) continue
    const name = all[at++] ?? ''
    while (at < all.length && all[at] !== '{') at++
    at++
    const type: Type = { name, what, help: said, fields: new Map(), values: [] }
    if (what === 'enum') {
      while (at < all.length && all[at] !== '}') {
        help()
        type.values.push(all[at++] ?? '')
        after()
      }
      at++
    } else for (const f of fields('}')) type.fields.set(f.name, f)
    schema.set(name, type)
  }
  return schema
}

const known = new Map<string, Promise<Schema>>()

// schemaOf is the schema of an area, asked for once.
export function schemaOf(area: string): Promise<Schema> {
  let one = known.get(area)
  if (!one) {
    one = fetch(`schema/${area}.graphql`, { credentials: 'omit' }).then(async (r) => {
      if (r.status === 404) throw new AskError('broken', `${area} is not served: the configuration has it switched off.`)
      if (!r.ok) throw new AskError('broken', `The description of ${area} was not answered (HTTP ${r.status}).`)
      return parse(await r.text())
    }, () => { throw new AskError('offline', 'Weir cannot be reached.') })
    one.catch(() => known.delete(area))
    known.set(area, one)
  }
  return one
}

export const operationOf = (s: Schema, name: string) => s.get('Query')?.fields.get(name) ?? s.get('Mutation')?.fields.get(name) ?? null

// authorityOf is what an operation needs, as its description begins; empty where it names none.
export const authorityOf = (f: Field | null) => f?.help.match(/^[a-z]+(?:-[a-z]+)?:[a-z]+/)?.[0] ?? ''

// saysOf is what the description of an operation says besides the authority.
export const saysOf = (f: Field | null) => f?.help.replace(/^[a-z]+(?:-[a-z]+)?:[a-z]+(?: and [a-z]+:[a-z]+)?(?:\. )?/, '') ?? ''

// selection are the fields of a type to a depth: those of its objects too, without what asks for arguments and without pages.
export function selection(s: Schema, type: string, depth = 2, only?: string[]): string {
  const t = s.get(type)
  if (!t || t.what === 'enum') return ''
  const names: string[] = []
  for (const f of t.fields.values()) {
    if (only && !only.includes(f.name)) continue
    if (f.args.some((a) => a.type.required) || f.type.name.endsWith('SearchResults')) continue
    const of = s.get(f.type.name)
    if (!of || of.what === 'enum') names.push(f.name)
    else if (depth > 1) {
      const inner = selection(s, f.type.name, only ? 1 : depth - 1)
      if (inner) names.push(f.name + inner)
    }
  }
  return names.length > 0 ? ` { ${names.join(' ')} }` : ''
}

// documentFor is the text of an operation with all of its arguments as variables, without those that are left out.
export function documentFor(s: Schema, name: string, given: string[], select: string): string {
  const f = operationOf(s, name)
  if (!f) return ''
  const args = f.args.filter((a) => given.includes(a.name))
  const declared = args.map((a) => `$${a.name}: ${a.type.text}`).join(', ')
  const passed = args.map((a) => `${a.name}: $${a.name}`).join(', ')
  const word = s.get('Mutation')?.fields.has(name) ? 'mutation' : 'query'
  return `${word} ${name}${declared && `(${declared})`} { ${name}${passed && `(${passed})`}${select} }`
}
