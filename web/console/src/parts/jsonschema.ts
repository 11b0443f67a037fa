// A JSON Schema as a form: the parameters of a command, the definition of a rule. A member that no field can show is left as it is.
import { labelOf, made, type Ask, type Asked, type Values } from './fields'

export interface Schema { type?: string; properties?: Record<string, Schema>; items?: Schema; required?: string[]; enum?: unknown[]; description?: string; title?: string; minimum?: number; maximum?: number }

export function asksOfSchema(text: string | null): Ask[] | null {
  if (!text) return null
  try {
    const s = JSON.parse(text) as Schema
    const asks = asksOf(s)
    return asks.length === Object.keys(s.properties ?? {}).length ? asks : null // else the payload is written as JSON
  } catch {
    return null
  }
}

// asksOf are the fields of the members that a form can ask for.
export function asksOf(s: Schema, depth = 0): Ask[] {
  const out: Ask[] = []
  for (const [name, p] of Object.entries(s.properties ?? {})) {
    const kinds: Record<string, Asked> = { integer: 'whole', number: 'number', boolean: 'boolean', string: 'text' }
    const nested = p.type === 'array' ? p.items : p
    const object = nested?.type === 'object' && nested.properties !== undefined && depth < 3
    const kind: Asked | undefined = object ? (p.type === 'array' ? 'objects' : 'object') : p.enum?.every((x) => typeof x === 'string') ? 'choice' : kinds[p.type ?? '']
    if (!kind) continue
    const range = p.minimum !== undefined || p.maximum !== undefined ? `${p.minimum ?? '…'} to ${p.maximum ?? '…'}.` : ''
    out.push({ name, label: p.title ?? labelOf(name), help: [p.description, range].filter(Boolean).join(' '), kind, required: s.required?.includes(name) ?? false,
      choices: (p.enum ?? []).map(String).filter(Boolean), fields: object && nested ? asksOf(nested, depth + 1) : [], ref: '', example: '' })
  }
  return out
}

// applied is a document with what a form says of it: what the form does not ask stays, in its place.
export function applied(asks: Ask[], old: Values, values: Values, wrong: Record<string, string>, path = ''): Values {
  const out: Values = { ...old }
  const type = asks.find((a) => a.name === 'type' && a.kind === 'choice')
  for (const a of asks) {
    const v = values[a.name]
    const had = old[a.name]
    const tagged = a.kind === 'object' && (type?.choices.includes(a.name) ?? false) // one of several objects, which the type chooses
    if (tagged && values.type !== a.name) delete out[a.name]
    else if (a.kind === 'object') {
      const inner = applied(a.fields, (had ?? {}) as Values, (v ?? {}) as Values, wrong, `${path}${a.name}.`)
      if (Object.keys(inner).length > 0 || had !== undefined || tagged) out[a.name] = inner
    } else if (a.kind === 'objects') {
      const list = ((v ?? []) as Values[]).map((one, i) => applied(a.fields, ((had ?? []) as Values[])[i] ?? {}, one, wrong, `${path}${a.name}.${i}.`))
      if (list.length > 0 || had !== undefined) out[a.name] = list
    } else {
      const one = made([{ ...a, required: false }], values, null, path)
      Object.assign(wrong, one.wrong)
      const given = one.values[a.name]
      if (given === undefined || (given === false && had === undefined)) {
        if (!(path + a.name in one.wrong)) delete out[a.name]
      } else out[a.name] = given
    }
  }
  return out
}
