// Who is signed in, and in which tenant. The access token is in memory; the refresh token survives a reload in sessionStorage, in
// localStorage only where the user wants to stay signed in.
import { post, sent } from './ask'
import { dropDrafts } from '../parts/drafts'
import { AskError, unauthenticated } from './error'

export type Phase = 'starting' | 'out' | 'choose' | 'in'
export interface TenantChoice { token: string; name: string; roles: string[] }
interface Pair { accessToken: string; refreshToken: string; expiresAt: string }
interface Kept { refreshToken: string; tenant: string }

const store = 'weir.session'
// passing are refusals that say nothing about a token.
const passing = new Set(['THROTTLED', 'UNAVAILABLE', 'LIMIT_EXCEEDED'])

class Session {
  phase = $state<Phase>('starting')
  email = $state('')
  tenant = $state('')
  superuser = $state(false)
  tenants = $state<TenantChoice[]>([])
  authorities = $state<string[]>([])
  notice = $state('') // why one is at the sign-in

  // What streams do when there is a new token, and when the session ends.
  onRenewed: (token: string) => void = () => undefined
  onEnded: () => void = () => undefined

  private identity = $state('')
  private identityUntil = $state(0)
  private pair: Pair | null = null
  private stay = false
  private renewing: Promise<string> | null = null
  private timer: ReturnType<typeof setTimeout> | undefined
  private tabs: BroadcastChannel | null = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel(store)

  constructor() {
    if (!this.tabs) return
    this.tabs.onmessage = ({ data }) => {
      if (data?.ask === this.tenant && this.pair) this.tabs?.postMessage({ pair: this.pair, tenant: this.tenant })
      if (data?.pair && this.pair && data.tenant === this.tenant && data.pair.expiresAt > this.pair.expiresAt) this.take(data.pair, this.tenant)
      if (data?.out) this.end('Another tab has signed out.', false)
    }
  }

  // start goes on with the session of before a reload.
  async start() {
    const kept = this.kept()
    if (!kept) {
      this.phase = 'out'
      return
    }
    try {
      const fromTab = await this.askTabs(kept.tenant)
      this.take(fromTab ?? (await post<{ refresh: Pair }>('user-management', 'refresh', { refreshToken: kept.refreshToken })).refresh, kept.tenant)
      this.notice = ''
    } catch (err) {
      if (err instanceof AskError && (err.kind !== 'api' || passing.has(err.code))) {
        this.notice = err.message // and what was kept stays: it is tried again
        setTimeout(() => void this.start(), 2000)
        return
      }
      this.forget()
      this.phase = 'out'
    }
  }

  async login(email: string, password: string, stay: boolean) {
    type In = { login: { identityToken: string; expiresAt: string; superuser: boolean; memberships: { tenant: string; roles: string[] }[] } }
    const { login } = await post<In>('user-management', 'login', { email, password })
    this.email = email
    this.stay = stay
    this.administer(login)
    this.superuser = login.superuser
    this.tenants = login.memberships.map((m) => ({ token: m.tenant, name: '', roles: m.roles }))
    if (login.superuser) await this.allTenants()
    this.notice = ''
    const only = this.tenants[0]
    if (this.tenants.length === 1 && only) await this.enter(only.token)
    else this.phase = 'choose'
  }

  private administer(login: { identityToken: string; expiresAt: string }) {
    this.identity = login.identityToken
    this.identityUntil = Date.parse(login.expiresAt)
  }

  // The administration lasts as long as an identity token, which cannot be renewed: then the password is asked for again.
  get administrationUntil() { return this.identity ? this.identityUntil : 0 }
  async confirm(password: string) {
    const { login } = await post<{ login: { identityToken: string; expiresAt: string; superuser: boolean } }>('user-management', 'login', { email: this.email, password })
    this.administer(login)
    this.superuser = login.superuser // a reload has forgotten it
  }
  administration(): string {
    if (this.administrationUntil - Date.now() < 5000) throw new AskError('api', 'The administration has ended.', 'ADMINISTRATION')
    return this.identity
  }
  endAdministration() { this.identity = '' }

  // allTenants are those that an administrator may enter, besides memberships.
  private async allTenants() {
    const { tenants } = await post<{ tenants: { token: string; name: string | null; enabled: boolean }[] }>('user-management-admin', 'tenants', {}, this.identity)
    const roles = new Map(this.tenants.map((t) => [t.token, t.roles]))
    this.tenants = tenants.filter((t) => t.enabled).map((t) => ({ token: t.token, name: t.name ?? '', roles: roles.get(t.token) ?? ['administrator'] }))
      .sort((a, b) => a.token.localeCompare(b.token))
  }

  async enter(tenant: string) {
    const { selectTenant } = await post<{ selectTenant: Pair }>('user-management', 'selectTenant', { identityToken: this.identity, tenant })
    this.take(selectTenant, tenant)
  }

  // token is an access token that is good for a while.
  async token(): Promise<string> {
    if (!this.pair) throw new AskError('api', 'You are signed out.', 'UNAUTHENTICATED')
    return this.left() > 10_000 ? this.pair.accessToken : this.renew()
  }

  // renew makes a new pair, one at a time.
  renew(): Promise<string> {
    this.renewing ??= this.renewed().finally(() => { this.renewing = null })
    return this.renewing
  }

  private async renewed(): Promise<string> {
    const refreshToken = this.pair?.refreshToken ?? ''
    try {
      const { refresh } = await post<{ refresh: Pair }>('user-management', 'refresh', { refreshToken })
      this.take(refresh, this.tenant)
      this.tabs?.postMessage({ pair: refresh, tenant: this.tenant })
      return refresh.accessToken
    } catch (err) {
      if (err instanceof AskError && err.kind === 'api' && !passing.has(err.code)) {
        this.end(unauthenticated(err) ? 'Your session has ended. A rule or a device that you were writing is kept.' : err.message, false)
      }
      throw err
    }
  }

  has(authority: string) { return this.authorities.includes('*') || this.authorities.includes(authority) }

  signOut() {
    const refreshToken = this.pair?.refreshToken
    if (refreshToken) void post('user-management', 'signOut', { refreshToken, ...(this.identity ? { identityToken: this.identity } : {}) }).catch(() => undefined) // it expires by itself
    this.tabs?.postMessage({ out: true })
    this.end('', true)
  }

  private end(notice: string, all: boolean) {
    clearTimeout(this.timer)
    this.forget()
    this.pair = null
    this.onEnded()
    this.notice = notice
    if (all) {
      this.identity = ''
      dropDrafts()
    }
    this.phase = 'out'
  }

  private take(pair: Pair, tenant: string) {
    const claims = claimsOf(pair.accessToken)
    const other = this.pair === null || this.tenant !== tenant
    this.pair = pair
    this.tenant = tenant
    if (other) {
      this.onEnded()
      sent.length = 0 // what was sent in another tenant is not shown as of this one
    } else this.onRenewed(pair.accessToken)
    this.authorities = claims.authorities ?? []
    this.email = claims.email || claims.username || this.email
    this.keep({ refreshToken: pair.refreshToken, tenant })
    clearTimeout(this.timer)
    this.timer = setTimeout(() => void this.renew().catch(() => undefined), Math.min(Math.max(this.left() * 0.8, 5000), 2 ** 31 - 1))
    this.phase = 'in'
  }

  private left() { return this.pair ? Date.parse(this.pair.expiresAt) - Date.now() : 0 }

  // askTabs takes over the pair of another tab, so that a duplicated tab does not use up its refresh token.
  private askTabs(tenant: string): Promise<Pair | null> {
    const tabs = this.tabs
    if (!tabs) return Promise.resolve(null)
    return new Promise((done) => {
      const other = new BroadcastChannel(store)
      const end = (pair: Pair | null) => {
        other.close()
        done(pair)
      }
      other.onmessage = ({ data }) => {
        if (data?.pair && data.tenant === tenant) end(data.pair)
      }
      other.postMessage({ ask: tenant })
      setTimeout(end, 150, null)
    })
  }

  private kept(): Kept | null {
    try {
      this.stay = localStorage.getItem(store) !== null
      return JSON.parse(sessionStorage.getItem(store) ?? localStorage.getItem(store) ?? 'null')
    } catch {
      return null
    }
  }

  private keep(k: Kept) {
    try {
      sessionStorage.setItem(store, JSON.stringify(k))
      if (this.stay) localStorage.setItem(store, JSON.stringify(k))
    } catch { /* the session lasts as long as the page */ }
  }

  private forget() {
    try {
      sessionStorage.removeItem(store)
      localStorage.removeItem(store)
    } catch { /* nothing was kept */ }
  }
}

interface Claims { authorities?: string[]; email?: string; username?: string }

// claimsOf reads a token for display only: the server decides.
export function claimsOf(token: string): Claims {
  try {
    const part = token.split('.')[1] ?? ''
    const bytes = Uint8Array.from(atob(part.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0))
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return {}
  }
}

export const session = new Session()

// identityPlane are the areas of the instance, which take an identity token.
export const identityPlane = (area: string) => /-(admin|settings)$/.test(area)

// ask sends an operation as the person who is signed in, once more with a new token when the old one has ended.
export async function ask<T>(area: Parameters<typeof post>[0], name: string, variables: Record<string, unknown> = {}, signal?: AbortSignal, document?: string): Promise<T> {
  if (identityPlane(area)) {
    try {
      return await post<T>(area, name, variables, session.administration(), signal, document)
    } catch (err) {
      if (unauthenticated(err)) session.endAdministration()
      throw err
    }
  }
  try {
    return await post<T>(area, name, variables, await session.token(), signal, document)
  } catch (err) {
    if (!unauthenticated(err) || session.phase !== 'in') throw err
    return post<T>(area, name, variables, await session.renew(), signal, document)
  }
}
