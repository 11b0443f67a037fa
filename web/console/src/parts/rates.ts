// What came in by 10 s, as a line for each transport.
export interface RatePoint { time: string; transport: string; received: number; stored: number; duplicate: number; deadLetter: number; refused: number; dropped: number }
export interface RateLine { transport: string; points: { t: number; v: number }[] }

export const slot = 10_000 // ms

// rateLines are messages per second by transport, busiest first, with 0 where nothing came. The last slot has not ended: it is left out.
export function rateLines(points: RatePoint[], from: number, to: number): RateLine[] {
  const first = Math.ceil(from / slot)
  const end = Math.floor(to / slot)
  const by = new Map<string, Map<number, number>>()
  for (const p of points) {
    const n = Date.parse(p.time) / slot
    if (n < first || n >= end) continue
    const line = by.get(p.transport) ?? new Map<number, number>()
    line.set(n, (line.get(n) ?? 0) + p.received)
    by.set(p.transport, line)
  }
  const total = (line: Map<number, number>) => [...line.values()].reduce((a, b) => a + b, 0)
  return [...by].sort((a, b) => total(b[1]) - total(a[1]) || a[0].localeCompare(b[0])).map(([transport, line]) => ({
    transport,
    points: Array.from({ length: Math.max(0, end - first) }, (_, i) => ({ t: (first + i) * slot, v: (line.get(first + i) ?? 0) / (slot / 1000) })),
  }))
}
