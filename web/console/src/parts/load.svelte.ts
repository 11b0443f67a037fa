// What a screen has asked for: the data of the last answer stays while it is asked again, with the time that it is of.
import { AskError } from '../api/error'
import { link } from '../api/link.svelte'

export class Loaded<T> {
  data = $state.raw<T | null>(null)
  error = $state.raw<AskError | null>(null)
  at = $state(0) // when the data was answered
  loading = $state(false)
  private running: AbortController | null = null

  constructor(private fetch: (signal: AbortSignal) => Promise<T>) {}

  load = async () => {
    this.running?.abort()
    const mine = new AbortController()
    this.running = mine
    this.loading = true
    try {
      this.data = await this.fetch(mine.signal)
      this.at = Date.now()
      this.error = null
    } catch (err) {
      if (mine.signal.aborted) return
      this.error = err instanceof AskError ? err : new AskError('broken', String(err))
    } finally {
      if (this.running === mine) {
        this.running = null
        this.loading = false
      }
    }
  }

  stop() { this.running?.abort() }
}

// loaded asks when the component begins, when what depends reads has changed, when the instance is back, and every so many ms while the page is seen.
export function loaded<T>(fetch: (signal: AbortSignal) => Promise<T>, options: { every?: number; depends?: () => unknown } = {}): Loaded<T> {
  const l = new Loaded(fetch)
  $effect(() => {
    options.depends?.()
    void link.backs
    void l.load()
    if (!options.every) return () => l.stop()
    const timer = setInterval(() => {
      if (!document.hidden && !l.loading && !link.offline) void l.load()
    }, options.every)
    return () => {
      clearInterval(timer)
      l.stop()
    }
  })
  return l
}
