// A live view of messages: a ring of the newest, drawn four times a second, with the count of what could not be shown.
import type { AskError } from '../api/error'
import { stream, type LiveState } from '../api/live'
import type { Seen } from '../words/outcomes'

export const ring = 500
const draw = 250 // ms

interface Batch { messageStream: { messages: Seen[]; leftOut: number } }
export interface Row extends Seen { n: number }

export class Watch {
  rows = $state.raw<Row[]>([]) // newest first
  leftOut = $state(0)
  state = $state<LiveState>('opening')
  error = $state.raw<AskError | null>(null)
  paused = $state(false)
  waiting = $state(0) // that came while it is paused
  rate = $state(0) // per second
  gaps = $state(0) // how often the stream was lost and is there again

  private all: Row[] = []
  private n = 0
  private left = 0
  private counted = 0
  private fresh = 0
  private end: (() => void) | null = null
  private timer: ReturnType<typeof setInterval> | undefined
  private rated = Date.now()
  private variables: Record<string, unknown> = {}

  start(variables: Record<string, unknown>) {
    this.stop()
    this.all = []
    this.rows = []
    this.leftOut = this.left = this.waiting = this.fresh = 0
    this.error = null
    this.variables = variables
    this.open()
    this.timer = setInterval(() => this.draw(), draw)
  }

  stop() {
    this.close()
    clearInterval(this.timer)
  }

  toggle() {
    this.paused = !this.paused
    if (!this.paused) this.show()
  }

  again() {
    this.close()
    this.error = null
    this.open()
  }

  private open() {
    let was: LiveState = 'opening'
    this.end = stream<Batch>('event-management', 'messageStream', this.variables, {
      next: ({ messageStream: b }) => {
        for (const m of b.messages) this.all.push({ ...m, n: this.n++ })
        if (this.all.length > ring) this.all.splice(0, this.all.length - ring)
        this.left += b.leftOut
        this.counted += b.messages.length + b.leftOut
        this.fresh += b.messages.length
      },
      state: (now, err) => {
        if (now === 'live' && was === 'lost') this.gaps++
        if (now !== 'opening') was = now
        this.state = now
        this.error = err ?? null
      },
    })
  }

  private close() {
    this.end?.()
    this.end = null
  }

  private draw() {
    const at = Date.now()
    if (at - this.rated >= 1000) {
      this.rate = this.counted / ((at - this.rated) / 1000)
      this.counted = 0
      this.rated = at
    }
    if (this.paused) this.waiting = this.fresh
    else if (this.fresh > 0 || this.left !== this.leftOut) this.show()
  }

  private show() {
    this.rows = this.all.toReversed()
    this.leftOut = this.left
    this.fresh = 0
    this.waiting = 0
  }
}
