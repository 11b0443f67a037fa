// The entries of the console, and the place that is shown.
import { untrack } from 'svelte'
import { addressOf, placeOf } from './address'

export interface Entry { id: string; name: string; needs: string; key: string }

export const entries: Entry[] = [
  { id: 'overview', name: 'Overview', needs: '', key: 'o' },
  { id: 'alarms', name: 'Alarms', needs: 'alarm:read', key: 'a' },
  { id: 'devices', name: 'Devices', needs: 'device:read', key: 'd' },
  { id: 'messages', name: 'Messages', needs: 'event:read', key: 'm' },
  { id: 'rules', name: 'Rules', needs: 'device:read', key: 'r' },
]

class Nav {
  place = $state.raw(placeOf(location.hash))

  constructor() {
    addEventListener('hashchange', () => { this.place = placeOf(location.hash) })
  }

  go(entry: string, rest: string[] = [], filters: Record<string, string> = {}) {
    location.hash = this.to(entry, rest, filters)
  }

  // to is the address within the tenant that is shown.
  to(entry: string, rest: string[] = [], filters: Record<string, string> = {}) { return addressOf(this.place.tenant, entry, rest, filters) }

  // filter changes the filters of the place without a step in the history.
  filter(filters: Record<string, string>) {
    const p = untrack(() => this.place) // an effect that sets filters does not depend on the place
    history.replaceState(null, '', addressOf(p.tenant, p.entry, p.rest, filters))
    this.place = placeOf(location.hash)
  }
}

export const nav = new Nav()
