// The time, once a second while the page is seen.
class Now {
  ms = $state(Date.now())
  constructor() {
    setInterval(() => { if (!document.hidden) this.ms = Date.now() }, 1000)
  }
}
export const now = new Now()
