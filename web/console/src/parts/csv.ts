// Devices from CSV: the text is read and each mistake found, with its line, before anything is asked of Weir.

export interface Line { line: number; cells: string[] }
export interface Mistake { line: number; text: string }
export interface NewDevice { line: number; token: string; type: string; name: string; description: string; externalId: string }

export const most = 10_000 // devices of one file

// linesOf reads CSV: commas, semicolons or tabs, whichever the first line has most of; cells in quotes hold them, and line ends.
export function linesOf(text: string): { lines: Line[]; mistakes: Mistake[] } {
  const source = text.replace(/^\ufeff/, '')
  const head = source.split(/\r?\n/, 1)[0] ?? ''
  const separator = [',', ';', '\t'].sort((a, b) => head.split(b).length - head.split(a).length)[0]!
  const lines: Line[] = []
  const mistakes: Mistake[] = []
  let cells: string[] = []
  let cell = ''
  let quoted = false
  let was = false // the cell was in quotes
  let line = 1
  let from = 1
  const endCell = () => {
    cells.push(was ? cell : cell.trim())
    cell = ''
    was = false
  }
  const endLine = () => {
    endCell()
    if (cells.some((c) => c !== '')) lines.push({ line: from, cells })
    cells = []
    from = line
  }
  for (let i = 0; i < source.length; i++) {
    const c = source[i]!
    if (c === '\n') line++
    if (quoted) {
      if (c !== '"') cell += c
      else if (source[i + 1] === '"') {
        cell += '"'
        i++
      } else quoted = false
    } else if (c === '"' && cell.trim() === '') {
      cell = ''
      quoted = was = true
    } else if (c === separator) endCell()
    else if (c === '\n') endLine()
    else if (c !== '\r' && !(was && c === ' ')) cell += c
  }
  if (quoted) mistakes.push({ line: from, text: 'A quote is opened and not closed.' })
  endLine()
  return { lines, mistakes }
}

// The columns by the names that they may have.
const columns: Record<string, keyof Omit<NewDevice, 'line'>> = { token: 'token', device: 'token', type: 'type', devicetype: 'type', devicetypetoken: 'type', name: 'name', description: 'description', externalid: 'externalId' }
const token = /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/

// devicesOf reads the devices of a CSV, and everything that is wrong with them by themselves.
export function devicesOf(text: string): { devices: NewDevice[]; mistakes: Mistake[] } {
  const { lines, mistakes } = linesOf(text)
  const devices: NewDevice[] = []
  const head = lines.shift()
  if (!head) return { devices, mistakes: [{ line: 1, text: 'Nothing is here.' }] }
  const names = head.cells.map((c) => columns[c.toLowerCase().replace(/[\s_-]/g, '')])
  head.cells.forEach((c, i) => {
    if (!names[i]) mistakes.push({ line: head.line, text: `“${c}” is no column: token, type, name, description and externalId are.` })
    else if (names.indexOf(names[i]) < i) mistakes.push({ line: head.line, text: `“${c}” is there twice.` })
  })
  for (const needed of ['token', 'type'] as const) if (!names.includes(needed)) mistakes.push({ line: head.line, text: `The column ${needed} is missing.` })
  if (mistakes.length > 0) return { devices, mistakes }
  if (lines.length === 0) mistakes.push({ line: head.line, text: 'There is no line below the names of the columns.' })
  if (lines.length > most) return { devices, mistakes: [{ line: lines[most]!.line, text: `There are more than ${most} devices: take several files.` }] }
  const tokens = new Map<string, number>()
  const ids = new Map<string, number>()
  for (const l of lines) {
    const d: NewDevice = { line: l.line, token: '', type: '', name: '', description: '', externalId: '' }
    if (l.cells.length > names.length && l.cells.slice(names.length).some((c) => c !== '')) mistakes.push({ line: l.line, text: `There are ${l.cells.length} cells, and ${names.length} columns.` })
    names.forEach((n, i) => { if (n) d[n] = l.cells[i] ?? '' })
    if (!d.token) mistakes.push({ line: l.line, text: 'The token is missing.' })
    else if (!token.test(d.token)) mistakes.push({ line: l.line, text: `“${d.token}” is no token: letters, digits, - and _, at most 128.` })
    else if (tokens.has(d.token)) mistakes.push({ line: l.line, text: `The token ${d.token} is that of line ${tokens.get(d.token)}, too.` })
    else tokens.set(d.token, l.line)
    if (!d.type) mistakes.push({ line: l.line, text: 'The type is missing.' })
    if (d.externalId && ids.has(d.externalId)) mistakes.push({ line: l.line, text: `The externalId ${d.externalId} is that of line ${ids.get(d.externalId)}, too.` })
    else if (d.externalId) ids.set(d.externalId, l.line)
    devices.push(d)
  }
  return { devices, mistakes }
}

// against compares devices with what there is: types that exist, tokens and external ids that are taken.
export function against(devices: NewDevice[], types: Set<string>, taken: Set<string>, external: Set<string>): Mistake[] {
  const out: Mistake[] = []
  for (const d of devices) {
    if (!types.has(d.type)) out.push({ line: d.line, text: `There is no device type ${d.type}.` })
    if (taken.has(d.token)) out.push({ line: d.line, text: `There is a device ${d.token} already.` })
    if (d.externalId && external.has(d.externalId)) out.push({ line: d.line, text: `A device has the externalId ${d.externalId} already.` })
  }
  return out
}

export const chunks = <T>(all: T[], size: number): T[][] => Array.from({ length: Math.ceil(all.length / size) }, (_, i) => all.slice(i * size, (i + 1) * size))

// making is one request that makes devices, one after the other; the first that is refused ends it.
export function making(devices: NewDevice[]): { document: string; variables: Record<string, unknown> } {
  const variables: Record<string, unknown> = {}
  const parts = devices.map((d, i) => {
    variables[`d${i}`] = { token: d.token, deviceTypeToken: d.type, ...(d.name && { name: d.name }), ...(d.description && { description: d.description }), ...(d.externalId && { externalId: d.externalId }) }
    return `d${i}: createDevice(request: $d${i}) { token }`
  })
  return { document: `mutation createDevice(${devices.map((_, i) => `$d${i}: DeviceCreateRequest`).join(', ')}) { ${parts.join(' ')} }`, variables }
}

// sequence is what a template makes of a number: {n}, or {n:04d} with leading zeros.
export const sequence = (template: string, n: number) => template.replace(/\{n(?::0(\d+)d)?\}/g, (_, width: string | undefined) => String(n).padStart(Number(width ?? 0), '0'))
