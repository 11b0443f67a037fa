// The entries of the console, and the place that is shown.
import { untrack } from 'svelte'
import { addressOf, placeOf, type Place } from './address'

export interface Entry { id: string; name: string; needs: string[]; key: string } // one of needs suffices

export const entries: Entry[] = [
  { id: 'overview', name: 'Overview', needs: [], key: 'o' },
  { id: 'alarms', name: 'Alarms', needs: ['alarm:read'], key: 'a' },
  { id: 'devices', name: 'Devices', needs: ['device:read'], key: 'd' },
  { id: 'messages', name: 'Messages', needs: ['event:read'], key: 'm' },
  { id: 'rules', name: 'Rules', needs: ['device:read'], key: 'r' },
  { id: 'actions', name: 'Actions', needs: ['command:read', 'connector:read', 'notification:read'], key: 'c' },
  { id: 'dashboards', name: 'Dashboards', needs: ['dashboard:read'], key: 'b' },
  { id: 'instance', name: 'Instance', needs: [], key: 'i' },
]

// tabOf is the tab of a place and what lies below it. Below Devices tabs come after a hyphen, with which no token begins.
export function tabOf(p: Place): { tab: string; below: string[] } {
  if (p.entry !== 'devices') return { tab: p.rest[0] ?? '', below: p.rest.slice(1) }
  return p.rest[0] === '-' ? { tab: p.rest[1] ?? '', below: p.rest.slice(2) } : { tab: '', below: p.rest }
}
export const restOf = (entry: string, tab: string, below: string[] = []) => (tab === '' ? below : entry === 'devices' ? ['-', tab, ...below] : [tab, ...below])

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

  // tab is the address of what lies below a tab.
  tab(entry: string, tab: string, below: string[] = [], filters: Record<string, string> = {}) { return this.to(entry, restOf(entry, tab, below), filters) }

  // filter changes the filters of the place without a step in the history.
  filter(filters: Record<string, string>) {
    const p = untrack(() => this.place) // an effect that sets filters does not depend on the place
    // Where the address leads elsewhere already, and its event is on its way, the filters are those of a screen that is being left.
    const now = placeOf(location.hash)
    if (now.entry !== p.entry || now.tenant !== p.tenant || now.rest.join('/') !== p.rest.join('/')) return
    history.replaceState(null, '', addressOf(p.tenant, p.entry, p.rest, filters))
    this.place = placeOf(location.hash)
  }
}

export const nav = new Nav()
