// The kinds of things that the generic screen lists, shows, makes and changes: where they are and which operations they have. What their
// fields are is told by the API itself; a test of the program holds the names against it.
import all from './kinds.json'
import type { Area } from './api/ask'
import { identityPlane } from './api/session.svelte'

export interface Kind {
  id: string
  entry: string
  in?: string // the tab below which it is, where that is another kind
  tab?: string // the name of the tab where it is not the title
  title: string
  one: string
  area: Area
  type: string
  list: string
  get?: string
  key?: string[] // the fields that name one; the token unless it says others
  columns: string[]
  create?: string
  update?: string
  delete?: string
  typed?: boolean // to delete one, its key is typed
  actions: string[]
  bulk?: string[]
  without?: string[] // fields that are shown elsewhere
  secrets?: string[] // arguments that are never shown
  links?: string[][] // other kinds, filtered by this one: its id and the field of the criteria
  configs?: { query: string; id: string; type: string } // where the members of a config are described
  needs?: string
  question: string
  site?: string // the kind as site files and weir get name it
}

export const kinds = all as unknown as Kind[]
export const kindOf = (entry: string, id: string) => kinds.find((k) => k.entry === entry && k.id === id) ?? null
export const administrative = (k: Kind) => identityPlane(k.area)

export type Row = Record<string, unknown>
export const partsOf = (k: Kind, row: Row) => (k.key ?? ['token']).map((f) => textOf(row[f]))
export const keyOf = (k: Kind, row: Row) => partsOf(k, row).join(':')

// textOf is a value in one line.
export function textOf(v: unknown): string {
  if (v === null || v === undefined) return ''
  if (Array.isArray(v)) return v.map(textOf).join(', ')
  if (typeof v === 'object') {
    const o = v as Row
    return String(o.token ?? o.tenant ?? o.email ?? o.name ?? o.key ?? Object.values(o).map(textOf).filter(Boolean).join(' '))
  }
  return String(v)
}
