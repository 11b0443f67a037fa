// Numbers and times as people read them.
const digits = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 6 })
const whole = new Intl.NumberFormat()

export const number = (v: number | null | undefined) => (v === null || v === undefined ? '' : digits.format(v))
export const count = (v: number) => whole.format(v)
export const many = (n: number, one: string, more = one + 's') => `${count(n)} ${n === 1 ? one : more}`

const units: Record<string, string> = { Cel: '°C', '[degF]': '°F', '%': '%', 'm/s': 'm/s', 'kW.h': 'kWh', Ohm: 'Ω', 'um': 'µm', 'deg': '°' }
export const unit = (u: string | null | undefined) => (u ? (units[u] ?? u) : '')
export const measured = (v: number | null, u: string | null | undefined) => [number(v), unit(u)].filter(Boolean).join(' ')

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
const clockFormat = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' })
const dayFormat = new Intl.DateTimeFormat(undefined, { year: 'numeric', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })
export const clock = (t: string | number) => clockFormat.format(new Date(t))
export const instant = (t: string | number) => `${dayFormat.format(new Date(t))} (${new Date(t).toISOString()})`

// ago is a time as people say it: relative for a day, then the date.
export function ago(t: string | number, now = Date.now()): string {
  const s = Math.round((now - new Date(t).getTime()) / 1000)
  if (s < -5) return s > -86_400 ? `in ${s > -3600 ? `${Math.ceil(-s / 60)} min` : `${Math.round(-s / 3600)} h`}` : dayFormat.format(new Date(t))
  if (s < 10) return 'just now'
  if (s < 60) return `${s} s ago`
  if (s < 3600) return `${Math.floor(s / 60)} min ago`
  if (s < 86_400) return `${Math.floor(s / 3600)} h ago`
  return dayFormat.format(new Date(t))
}

// midnight is the last one of the browser's zone.
export function midnight(now = new Date()): string {
  const d = new Date(now)
  d.setHours(0, 0, 0, 0)
  return d.toISOString()
}

// slug is a token made of a name.
export const slug = (name: string) => name.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase().replace(/[^a-z0-9_-]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 128)

// copy puts a text into the clipboard, also over plain http, where browsers offer no clipboard. It reports whether that worked.
export async function copy(text: string, from?: HTMLElement): Promise<boolean> {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text)
      return true
    }
  } catch { /* as over plain http */ }
  const selection = getSelection()
  if (!from || !selection) return false
  selection.selectAllChildren(from)
  return document.execCommand('copy')
}

// bytes is a size in binary units.
export function bytes(n: number): string {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let i = 0
  for (; n >= 1024 && i < names.length - 1; i++) n /= 1024
  return `${digits.format(Math.round(n * 10) / 10)} ${names[i]}`
}

// span is a time in the unit that fits.
export function span(seconds: number): string {
  const units: [number, string][] = [[86_400, 'day'], [3600, 'h'], [60, 'min']]
  const [size, name] = units.find(([u]) => seconds >= u && seconds % u === 0) ?? [1, 's']
  return name === 'day' ? many(seconds / size, name) : `${count(seconds / size)} ${name}`
}
