// The geometry of a plot: from buckets to a line and a band, with holes where nothing came.
export interface Bucket { bucketStart: string; avg: number | null; min: number | null; max: number | null; count: number }
export interface Point { t: number; avg: number; min: number; max: number; count: number }

// intervals are those that buckets may have, in seconds.
const intervals = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400]

// intervalFor is the finest interval that makes no more than so many buckets of a span.
export const intervalFor = (spanSeconds: number, most = 300) => intervals.find((i) => spanSeconds / i <= most) ?? 86_400

export function pointsOf(buckets: Bucket[]): Point[] {
  const points: Point[] = []
  for (const b of buckets) {
    if (b.avg !== null && b.min !== null && b.max !== null) points.push({ t: Date.parse(b.bucketStart), avg: b.avg, min: b.min, max: b.max, count: b.count })
  }
  return points.sort((a, b) => a.t - b.t)
}

// runs cuts points where a hole is longer than three of their usual distances.
export function runs(points: Point[], interval: number): Point[][] {
  const gaps = points.slice(1).map((p, i) => p.t - points[i]!.t).sort((a, b) => a - b)
  const usual = Math.max(gaps[Math.floor(gaps.length / 2)] ?? 0, interval * 1000)
  const out: Point[][] = []
  let run: Point[] = []
  for (const p of points) {
    const before = run.at(-1)
    if (before && p.t - before.t > usual * 3) {
      out.push(run)
      run = []
    }
    run.push(p)
  }
  if (run.length > 0) out.push(run)
  return out
}

// columns are points as the plot takes them: times, means, least, greatest; a hole is a time without a value.
export function columns(points: Point[], interval: number): [number[], (number | null)[], (number | null)[], (number | null)[]] {
  const out: [number[], (number | null)[], (number | null)[], (number | null)[]] = [[], [], [], []]
  for (const [i, run] of runs(points, interval).entries()) {
    if (i > 0) [run[0]!.t - 1, null, null, null].forEach((v, c) => (out[c] as (number | null)[]).push(v))
    for (const p of run) [p.t, p.avg, p.min, p.max].forEach((v, c) => out[c]!.push(v))
  }
  return out
}

// zoomed is a span that is so many times as long around a time within it, no shorter than 10 s and no longer than ten years. What is to be kept,
// if it is given, lies within it, as far as it is that long.
export function zoomed(from: number, to: number, factor: number, around = (from + to) / 2, keep?: [number, number]): [number, number] {
  const length = Math.min(Math.max((to - from) * factor, 10_000), 10 * 365 * 86_400_000)
  const at = (around - from) / (to - from || 1)
  let start = around - at * length
  if (keep) start = Math.min(Math.max(start, keep[1] - length), keep[0])
  return [Math.round(start), Math.round(start + length)]
}

// ticks are round values within a range, at most about so many.
export function ticks(min: number, max: number, about = 4): number[] {
  const span = max - min || Math.abs(max) || 1
  const raw = span / about
  const power = 10 ** Math.floor(Math.log10(raw))
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) ?? 10 * power
  const out: number[] = []
  for (let v = Math.ceil(min / step) * step; v <= max + step / 1e6; v += step) out.push(Math.round(v / step) * step)
  return out
}
