// The readings of the plots of a dashboard: those of several widgets in one request, as far as it may have that many.
import { AskError } from '../api/error'
import { ask } from '../api/session.svelte'
import { packed, type Wanted } from './dashboard'
import { intervalFor, type Bucket } from './plot'

export interface Drawn { name: string; buckets: Bucket[]; from: number; to: number; interval: number }

// drawnOf are the plots of widgets by their ids, or why there are none: what one widget asks too much of does not take the others with it.
export async function drawnOf(all: Wanted[], signal: AbortSignal): Promise<Map<string, Drawn[] | AskError>> {
  const out = new Map<string, Drawn[] | AskError>()
  const to = Date.now()
  const into = async (some: Wanted[]): Promise<void> => {
    const series = some.flatMap((w) => w.names.map((name) => ({ id: w.id, name, device: w.device, from: to - w.seconds * 1000, interval: intervalFor(w.seconds, 200) })))
    const document = `query plots(${series.map((_, i) => `$c${i}: MeasurementAggregationCriteria!`).join(', ')}) { ${series.map((_, i) => `s${i}: bucketedMeasurements(criteria: $c${i}) { bucketStart avg min max count }`).join(' ')} }`
    try {
      const r = await ask<Record<string, Bucket[]>>('event-management', 'plots', Object.fromEntries(series.map((s, i) => [`c${i}`,
        { deviceToken: s.device, name: s.name, startTime: new Date(s.from).toISOString(), endTime: new Date(to).toISOString(), intervalSeconds: s.interval }])), signal, document)
      for (const w of some) out.set(w.id, series.flatMap((s, i) => (s.id === w.id ? [{ name: s.name, buckets: r[`s${i}`] ?? [], from: s.from, to, interval: s.interval }] : [])))
    } catch (err) {
      if (!(err instanceof AskError) || err.code !== 'LIMIT_EXCEEDED') throw err
      if (some.length > 1) for (const w of some) await into([w])
      else for (const w of some) out.set(w.id, err)
    }
  }
  for (const some of packed(all)) await into(some)
  return out
}
