// Whether the instance can be reached. While it cannot, it is asked again after 1, 2, 4 … 30 s, and on a click.

class Link {
  since = $state(0) // when it was lost; 0: it is there
  skew = $state(0) // s by which the clock of the instance is ahead of the browser's
  backs = $state(0) // how often it has come back: screens ask again
  private delay = 1000
  private timer: ReturnType<typeof setTimeout> | undefined

  get offline() { return this.since !== 0 }

  lost() {
    if (this.since === 0) this.since = Date.now()
    this.again(this.delay)
  }

  found(date: string | null) {
    if (date) this.skew = Math.round((Date.parse(date) - Date.now()) / 1000)
    clearTimeout(this.timer)
    this.timer = undefined
    this.delay = 1000
    if (this.since === 0) return
    this.since = 0
    this.backs++
  }

  retry = async () => {
    clearTimeout(this.timer)
    this.timer = undefined
    try {
      const answer = await fetch('readyz', { cache: 'no-store', credentials: 'omit', signal: AbortSignal.timeout(5000) })
      if (answer.ok) return this.found(answer.headers.get('Date'))
    } catch { /* still away */ }
    this.delay = Math.min(this.delay * 2, 30_000)
    this.again(this.delay)
  }

  private again(after: number) {
    this.timer ??= setTimeout(this.retry, after)
  }
}

export const link = new Link()
