// What an operation is on the command line. words/lines.json has the commands: one entry says which members of the variables a command
// takes as arguments and options. An operation whose variables no entry takes whole is run by weir api as it stands.
import type { Shown } from './showas'
import entries from '../words/lines.json'

export interface Entry {
  area: string
  operation: string
  command: string // without weir; "" where no command does it, and note says what is near
  args?: string[] // paths of variables, or $tenant; a list is as many arguments
  options?: Record<string, string> // path to the option that takes it
  flags?: string[]
  when?: Record<string, (string | number | boolean | null)[]> // what a variable has to be; null is one that is absent
  only?: Record<string, string[]> // a list of one, of these
  single?: string // a list of one
  ignored?: string[] // what makes no difference
  secrets?: string[] // what the command asks for
  empties?: boolean // an empty value of an option removes, as null does
  note?: string
}
export interface Line { text: string; own: boolean; note: string } // own: a command that was made for this

export const table = entries as Entry[]

// word is a text as a shell takes it.
export const word = (text: string) => (/^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : quoted(text))
export const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

// members are the values of an object by their paths; a list is one value.
function members(v: unknown, path = ''): [string, unknown][] {
  if (v === undefined) return []
  if (typeof v !== 'object' || v === null || Array.isArray(v)) return [[path, v]]
  return Object.entries(v).flatMap(([k, x]) => members(x, path ? `${path}.${k}` : k))
}

// commandOf is the line of an entry, null where its command does not do exactly what the variables say.
function commandOf(e: Entry, variables: Record<string, unknown>, tenant: string): string | null {
  const given = new Map<string, unknown>([['$tenant', tenant], ...members(variables)])
  const left = new Set(given.keys())
  left.delete('$tenant')
  const take = (path: string) => {
    left.delete(path)
    return given.get(path) ?? null
  }
  for (const [path, values] of Object.entries(e.when ?? {})) if (!values.includes(take(path) as never)) return null
  for (const path of [...(e.single ? [e.single] : []), ...Object.keys(e.only ?? {})]) if ((given.get(path) as unknown[] | undefined)?.length !== 1) return null
  for (const [path, values] of Object.entries(e.only ?? {})) if (!values.includes(String((given.get(path) as unknown[])[0]))) return null
  const words: string[] = []
  for (const path of e.args ?? []) {
    const v = [take(path)].flat()
    if (v.length === 0 || v.some((x) => x === null || x === '' || String(x).startsWith('-'))) return null
    words.push(...v.map(String))
  }
  for (const [path, option] of Object.entries(e.options ?? {})) {
    if (!given.has(path)) continue
    const v = [take(path)].flat()[0] ?? ''
    if (v === '' && !e.empties) return null
    words.push(option, String(v))
  }
  for (const path of [...(e.ignored ?? []), ...(e.secrets ?? [])]) left.delete(path)
  return left.size > 0 ? null : ['weir', e.command, ...words.map(word), ...(e.flags ?? [])].join(' ')
}

// lineOf is the line that does what a request does, null where none can: for what needs the token of a person.
export function lineOf(s: Shown & { name: string }, tenant: string): Line | null {
  if (s.area === 'user-management' || s.document.startsWith('subscription')) return null
  const mine = table.filter((e) => e.area === s.area && e.operation === s.name)
  for (const e of mine) {
    const text = e.command ? commandOf(e, s.variables, tenant) : null
    if (text) return { text, own: true, note: e.note ?? '' }
  }
  const options = [...(/-(admin|settings)$/.test(s.area) ? [] : [`--tenant ${word(tenant)}`]), ...(Object.keys(s.variables).length > 0 ? [`--variables ${quoted(JSON.stringify(s.variables))}`] : [])]
  return { text: [`weir api ${s.area} ${quoted(s.document)}`, ...options].join(' \\\n  '), own: false, note: mine.find((e) => !e.command)?.note ?? '' }
}
