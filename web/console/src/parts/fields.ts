// What a form asks: made of an input of the API, or of the description of a type of connectors or channels.
import type { Field, Schema } from '../api/schema'

export type Asked = 'text' | 'long' | 'json' | 'number' | 'whole' | 'boolean' | 'choice' | 'list' | 'object' | 'objects' | 'secret' | 'time'
export interface Ask {
  name: string
  label: string
  help: string
  kind: Asked
  required: boolean
  choices: string[] // of a choice all, of a text those that are offered
  fields: Ask[]
  ref: string // the kind whose tokens it takes
  example: string
}
export type Values = Record<string, unknown>

// refs are the kinds whose tokens a field takes, by its name.
const refs: Record<string, string> = {
  profileToken: 'profiles', deviceTypeToken: 'types', autoRegisterTypeToken: 'types', assetTypeToken: 'asset-types', areaTypeToken: 'area-types', customerTypeToken: 'customer-types',
  deviceToken: 'devices', deviceTokens: 'devices', groupToken: 'groups', entityGroupToken: 'groups', channelToken: 'channels', tierToken: 'tiers', roleTokens: 'roles', systemRoles: 'roles', tenant: 'tenants',
  deviceProfileToken: 'profiles', parentAreaToken: 'areas', parentToken: 'areas', parentCustomerToken: 'customers', relationshipType: 'relationship-types', relationshipTypeToken: 'relationship-types', deviceType: 'types', provider: 'ai', tier: 'tiers',
}
const abbreviations: Record<string, string> = { url: 'URL', uris: 'URIs', id: 'id', qos: 'QoS', tls: 'TLS', ai: 'AI', http: 'HTTP' }

export function labelOf(name: string): string {
  const words = name.replace(/([a-z\d])([A-Z])/g, '$1 $2').replace(/_/g, ' ').toLowerCase().split(' ').map((w) => abbreviations[w] ?? w).join(' ')
  return words.charAt(0).toUpperCase() + words.slice(1)
}

// offered are the values that a description lists: "static or dynamic", "CRITICAL, MAJOR or MINOR, or * for each".
export function offered(help: string): string[] {
  const said = help.match(/^[A-Za-z][\w-]*(?:(?:, or |, | or )(?:[A-Za-z][\w-]*|\*))+(?=[.:]| for each|$)/)?.[0]
  return said ? said.split(/, or |, | or /) : []
}

const base = (name: string, help: string, required: boolean): Ask => ({ name, label: labelOf(name), help, kind: 'text', required, choices: [], fields: [], ref: refs[name] ?? '', example: '' })

// askOf is what a form asks for an argument or a member of an input.
export function askOf(s: Schema, f: Field, depth = 0): Ask {
  const a = base(f.name, f.help, f.type.required)
  const of = s.get(f.type.name)
  if (of?.what === 'input') {
    a.kind = f.type.list ? 'objects' : 'object'
    a.help ||= of.help
    if (depth < 3) a.fields = [...of.fields.values()].map((x) => askOf(s, x, depth + 1))
  } else if (f.type.list) a.kind = 'list'
  else if (of?.what === 'enum') {
    a.kind = 'choice'
    a.choices = of.values
  } else if (f.type.name === 'Boolean') a.kind = 'boolean'
  else if (f.type.name === 'Int') a.kind = 'whole'
  else if (f.type.name === 'Float') a.kind = 'number'
  else if (/^(secret|password|newPassword|clientSecret)$/.test(f.name)) a.kind = 'secret'
  else if (/\bJSON\b/.test(f.help) || /^(metadata|config|definition)$/.test(f.name)) a.kind = 'json'
  else if (/RFC 3339/.test(f.help) || f.name === 'until' || f.name === 'expiresAt') a.kind = 'time'
  else if (f.name === 'description' || f.name === 'selector') a.kind = 'long'
  else a.choices = offered(f.help)
  return a
}

// Described is a member of a config, as connectorTypeDescriptions and notificationChannelTypes tell it.
export interface Described { name: string; kind: string; description: string; required: boolean; default: string | null; values: string[]; fields?: Described[] }

export function askOfDescribed(d: Described): Ask {
  const kinds: Record<string, Asked> = { list: 'list', number: 'number', boolean: 'boolean', object: 'object' }
  const was = d.default === null ? '' : ` ${d.default} unless it is given.`
  return { ...base(d.name, d.description + was, d.required), ref: '', kind: d.values.length > 0 ? 'choice' : (kinds[d.kind] ?? 'text'), choices: d.values, fields: (d.fields ?? []).map(askOfDescribed) }
}

// startOf are the values that a form begins with, of a record: a token stands for what the record shows whole.
export function startOf(asks: Ask[], record: Values | null): Values {
  const out: Values = {}
  for (const a of asks) {
    let v = record?.[a.name]
    if (v === undefined && a.name.endsWith('Token')) v = (record?.[a.name.slice(0, -5)] as Values | null | undefined)?.token
    if (a.kind === 'object') out[a.name] = startOf(a.fields, (v as Values | null | undefined) ?? null)
    else if (a.kind === 'objects') out[a.name] = ((v as Values[] | null | undefined) ?? []).map((one) => startOf(a.fields, one))
    else if (a.kind === 'list') out[a.name] = ((v as unknown[] | null | undefined) ?? []).join('\n')
    else if (a.kind === 'boolean') out[a.name] = v === undefined || v === null ? (a.required ? record === null : '') : v
    else out[a.name] = v === undefined || v === null ? '' : a.kind === 'json' ? pretty(String(v)) : String(v)
  }
  return out
}

export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return text
  }
}

export interface Made { values: Values; wrong: Record<string, string> }

// made are the values as the API takes them, and what is wrong with those that cannot be: by the path of the field. What is empty is left
// out; of a record that is changed, only what differs from before is sent, and what was emptied is null.
export function made(asks: Ask[], values: Values, before: Values | null = null, path = ''): Made {
  const out: Made = { values: {}, wrong: {} }
  for (const a of asks) {
    const at = path + a.name
    const v = values[a.name]
    if (before && JSON.stringify(v) === JSON.stringify(before[a.name])) continue
    const empty = v === '' || v === undefined || v === null
    if (a.kind === 'object') {
      const inner = made(a.fields, (v ?? {}) as Values, null, at + '.')
      if (Object.keys(inner.values).length > 0 || a.required) {
        out.values[a.name] = inner.values
        Object.assign(out.wrong, inner.wrong)
      }
    } else if (a.kind === 'objects') {
      const list = (v ?? []) as Values[]
      out.values[a.name] = list.map((one, i) => {
        const inner = made(a.fields, one, null, `${at}.${i}.`)
        Object.assign(out.wrong, inner.wrong)
        return inner.values
      })
      if (list.length === 0 && !a.required && !before) delete out.values[a.name]
    } else if (a.kind === 'list') {
      const list = String(v ?? '').split('\n').map((x) => x.trim()).filter(Boolean)
      if (list.length > 0 || a.required || before) out.values[a.name] = list
    } else if (empty) {
      if (a.required) out.wrong[at] = 'This is needed.'
      else if (before) out.values[a.name] = null
    } else if (a.kind === 'whole' || a.kind === 'number') {
      const n = Number(String(v).trim().replace(',', '.'))
      if (!Number.isFinite(n) || (a.kind === 'whole' && !Number.isInteger(n))) out.wrong[at] = a.kind === 'whole' ? 'A whole number is needed.' : 'A number is needed.'
      else out.values[a.name] = n
    } else if (a.kind === 'json') {
      try {
        JSON.parse(String(v))
        out.values[a.name] = String(v)
      } catch (err) {
        out.wrong[at] = `This is no JSON: ${(err as Error).message}`
      }
    } else if (a.kind === 'boolean') out.values[a.name] = v === true || v === 'true'
    else out.values[a.name] = a.kind === 'time' ? timeOf(String(v)) : v
  }
  return out
}

// timeOf takes a time as RFC 3339, as a browser's field gives it (of its zone), or a span from now, such as 2h.
export function timeOf(text: string, now = Date.now()): string {
  const span = text.trim().match(/^(\d+)\s*(min|h|d)$/)
  if (span) return new Date(now + Number(span[1]) * { min: 60_000, h: 3_600_000, d: 86_400_000 }[span[2] as 'min' | 'h' | 'd']).toISOString()
  const t = new Date(text)
  return Number.isNaN(t.getTime()) ? text : t.toISOString()
}
