// What a field that takes a token offers: the first 200 of its kind. Where they cannot be had, nothing is offered.
import { documentFor, operationOf, schemaOf } from '../api/schema'
import { ask } from '../api/session.svelte'
import { keyOf, type Kind, type Row } from '../kinds'

export async function tokensOf(k: Kind): Promise<string[]> {
  try {
    const { rows } = await listOf(k, { pageNumber: 1, pageSize: 200 })
    return rows.map((r) => (k.id === 'roles' ? String(r.token) : keyOf(k, r)))
  } catch {
    return []
  }
}

export interface Listed { rows: Row[]; total: number; start: number; end: number; paged: boolean }

// listOf asks for a page of a kind, or for all where it has no pages; only its columns and what names one.
export async function listOf(k: Kind, criteria: Row, signal?: AbortSignal, all = false): Promise<Listed> {
  const s = await schemaOf(k.area)
  const op = operationOf(s, k.list)
  if (!op) throw new Error(`${k.list} is no operation of ${k.area}`)
  const paged = op.args.some((a) => a.name === 'criteria')
  const columns = [...new Set([...(k.key ?? ['token']), ...k.columns, ...(s.get(k.type)?.fields.has('id') ? ['id'] : [])])]
  const fields = columnsText(s, k, columns, all)
  const select = paged ? ` { results${fields} pagination { pageStart pageEnd totalRecords } }` : fields
  const answer = await ask<Record<string, unknown>>(k.area, k.list, paged ? { criteria } : {}, signal, documentFor(s, k.list, paged ? ['criteria'] : [], select))
  if (!paged) {
    const rows = answer[k.list] as Row[]
    return { rows, total: rows.length, start: Math.min(1, rows.length), end: rows.length, paged }
  }
  const page = answer[k.list] as { results: Row[]; pagination: { pageStart: number; pageEnd: number; totalRecords: number } }
  return { rows: page.results, total: page.pagination.totalRecords, start: page.pagination.pageStart, end: page.pagination.pageEnd, paged }
}

// columnsText are the fields of the columns; of an object what names it.
function columnsText(s: Awaited<ReturnType<typeof schemaOf>>, k: Kind, columns: string[], all: boolean): string {
  const type = s.get(k.type)
  const names: string[] = []
  for (const f of type?.fields.values() ?? []) {
    if (!all && !columns.includes(f.name)) continue
    if (f.args.some((a) => a.type.required) || f.type.name.endsWith('SearchResults') || k.without?.includes(f.name)) continue
    const of = s.get(f.type.name)
    if (!of || of.what === 'enum') names.push(f.name)
    else {
      const naming = ['token', 'name', 'tenant', 'email', 'roles', 'enabled', 'key'].filter((n) => of.fields.has(n) && !s.has(of.fields.get(n)!.type.name))
      if (naming.length > 0) names.push(`${f.name} { ${naming.join(' ')} }`)
    }
  }
  return ` { ${names.join(' ')} }`
}
