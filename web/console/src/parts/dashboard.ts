// The document of a dashboard. What a widget is not known of stays in it, and is shown as a box that names it.
export interface Widget {
  id: string
  type: string
  layout: { base: { col: number; colSpan: number; row: number; rowSpan: number } } & Record<string, unknown>
  datasource?: { kind?: string; deviceToken?: string; measurements?: string[] } & Record<string, unknown>
  options?: { title?: string; text?: string; span?: string; severity?: string } & Record<string, unknown>
}
export interface Board { schemaVersion: number; title?: string; canvas?: Record<string, unknown>; slots?: Record<string, unknown>; widgets: Widget[] }

export const columns = 24
export const most = { widgets: 50, devices: 200, series: 8 } // series: of one plot
export const spans: [string, string, number][] = [['1h', '1 hour', 3600], ['6h', '6 hours', 21_600], ['1d', '1 day', 86_400], ['7d', '7 days', 604_800], ['30d', '30 days', 2_592_000]]
export const widgetTypes: [string, string][] = [['latest-value', 'Value'], ['time-series', 'Plot'], ['table', 'Table'], ['alarm-table', 'Alarms'], ['label', 'Text']]

export const emptyBoard = (): Board => ({ schemaVersion: 1, canvas: { grid: { columns, gap: 8, rowHeight: 40 } }, widgets: [] })

// boardOf reads a definition; null where it is none of this kind.
export function boardOf(text: string): Board | null {
  try {
    const b = JSON.parse(text) as Board
    if (typeof b !== 'object' || b === null) return null
    if (b.widgets === undefined) return { ...emptyBoard(), ...b }
    return Array.isArray(b.widgets) ? b : null
  } catch {
    return null
  }
}

// placed is a widget within the columns.
export function placed(w: Widget): { col: number; colSpan: number; row: number; rowSpan: number } {
  const l = w.layout?.base ?? { col: 0, colSpan: 8, row: 0, rowSpan: 4 }
  const colSpan = Math.min(Math.max(Math.round(l.colSpan) || 8, 2), columns)
  return { colSpan, col: Math.min(Math.max(Math.round(l.col) || 0, 0), columns - colSpan), row: Math.max(Math.round(l.row) || 0, 0), rowSpan: Math.max(Math.round(l.rowSpan) || 4, 1) }
}

// moved is a widget a step further, or larger by a step.
export function moved(w: Widget, key: string, size: boolean): Widget | null {
  const d = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key]
  if (!d) return null
  const p = placed(w)
  const next = size ? { ...p, colSpan: p.colSpan + d[0]!, rowSpan: p.rowSpan + d[1]! } : { ...p, col: p.col + d[0]!, row: p.row + d[1]! }
  return { ...w, layout: { ...w.layout, base: placed({ ...w, layout: { base: next } }) } }
}

// below is the first free row.
export const below = (b: Board) => b.widgets.reduce((n, w) => Math.max(n, placed(w).row + placed(w).rowSpan), 0)

// Wanted are the series of a plot, and over how many seconds.
export interface Wanted { id: string; device: string; names: string[]; seconds: number }
export const plotsOf = (b: Board): Wanted[] => b.widgets.slice(0, most.widgets).flatMap((w) => {
  const { deviceToken: device, measurements: names } = w.datasource ?? {}
  if (w.type !== 'time-series' || !device || !names?.length) return []
  return [{ id: w.id, device, names: [...new Set(names)].slice(0, most.series), seconds: spans.find((s) => s[0] === w.options?.span)?.[2] ?? 21_600 }]
})

// packed are plots in groups, each of at most so many series and at least of one plot.
export function packed(all: Wanted[], series = 20): Wanted[][] {
  const out: Wanted[][] = []
  let left = 0
  for (const w of all) {
    if (w.names.length > left) {
      out.push([])
      left = series
    }
    out.at(-1)!.push(w)
    left -= w.names.length
  }
  return out
}

// devicesOf are those that widgets show, in turn of the widgets.
export const devicesOf = (b: Board) => [...new Set(b.widgets.flatMap((w) => (w.datasource?.deviceToken && w.type !== 'time-series' ? [w.datasource.deviceToken] : [])))].slice(0, most.devices)
