// The main flows, typed: node main.js API INGEST METRICS EMAIL PASSWORD TENANT. One line for each check that holds.
import { Client, Refused } from './client.js'
import * as devices from './device-management.js'
import * as events from './event-management.js'
import * as processing from './event-processing.js'
import * as users from './user-management.js'

const [api, ingest, metrics, email, password, tenant] = process.argv.slice(2) as [string, string, string, string, string, string]

function holds(what: string, ok: boolean, got?: unknown): void {
  if (!ok) {
    process.stdout.write(`FAIL ${what}\n      ${JSON.stringify(got)}\n`)
    process.exit(1)
  }
  process.stdout.write(`${what}\n`)
}

const client = new Client(api)

const { login } = await client.ask('user-management', users.LoginDocument, { email, password })
const { selectTenant } = await client.ask('user-management', users.SelectTenantDocument, { identityToken: login.identityToken, tenant })
const { refresh } = await client.ask('user-management', users.RefreshDocument, { refreshToken: selectTenant.refreshToken })
client.token = refresh.accessToken
const me = await client.ask('user-management', users.MeDocument, {})
holds('signs in, selects a tenant, refreshes', me.me.email === email && me.tenant.token === tenant, me)

const profile = 'typed'
const made = await client.ask('device-management', devices.CreateProfileDocument, {
  profile: { token: profile, name: 'Typed', location: {} },
  metric: { token: 'typed-level', deviceProfileToken: profile, metricKey: 'level', dataType: 'DOUBLE', unit: 'm' },
  rule: {
    token: 'typed-high', deviceProfileToken: profile, enabled: true,
    definition: JSON.stringify({ name: 'High', type: 'threshold', severity: 'major', when: { metric: 'level', op: 'gt', threshold: 2 } }),
  },
  type: { token: 'typed-type', profileToken: profile },
})
holds('creates a profile, a metric, a rule and a type; the default of an input is applied', made.createMetricDefinition.outOfRange === 'REFUSE'
  && made.createDeviceProfile.activeVersion == null && made.createDetectionRule.enabled, made)

const { publishDeviceProfile } = await client.ask('device-management', devices.PublishDocument, { token: profile })
const credentialId = 'typed-0123456789abcdef0123456789'
const { createDevice } = await client.ask('device-management', devices.CreateDeviceDocument, {
  device: { token: 'typed-1', deviceTypeToken: 'typed-type', name: 'First' },
  credential: { token: 'typed-1-token', deviceToken: 'typed-1', credentialType: 'ACCESS_TOKEN', credentialId, enabled: true },
})
holds('publishes, and creates a device with its credential', publishDeviceProfile.version === 1 && createDevice.deviceType.token === 'typed-type', createDevice)

const { updateDevice } = await client.ask('device-management', devices.UpdateDeviceDocument, { token: 'typed-1', request: { description: 'by the pump' } })
const cleared = await client.ask('device-management', devices.UpdateDeviceDocument, { token: 'typed-1', request: { name: null } })
holds('updates in three states: absent keeps, null clears, a value sets', updateDevice.name === 'First' && updateDevice.description === 'by the pump'
  && cleared.updateDevice.name === null && cleared.updateDevice.description === 'by the pump', cleared)

const detections = await client.subscribe('event-processing', processing.DetectionsDocument, { profileToken: profile })
const raised = detections.next()
while (!(await (await fetch(`${metrics}/metrics`)).text()).includes('weir_stream_subscribers{stream="detections"} 1')) {
  await new Promise((resolve) => setTimeout(resolve, 20)) // the protocol does not acknowledge a subscription
}
const sent = await fetch(`${ingest}/weir/${tenant}/events`, {
  method: 'POST',
  body: JSON.stringify({ credentialType: 'ACCESS_TOKEN', credentialId, eventType: 'Measurement', payload: { entries: [{ measurements: { level: '2.5' } }] } }),
})
holds('a reading is accepted', sent.status === 202, sent.status)
const first = await raised
holds('the subscription shows what it raised', first.value?.detectionStream.ruleToken === 'typed-high' && first.value.detectionStream.edge === 'raised'
  && first.value.detectionStream.value === 2.5, first)
const { measurementEvents } = await client.ask('event-management', events.MeasurementsDocument, {
  criteria: { pageNumber: 1, pageSize: 10, deviceToken: 'typed-1' }, name: 'level',
})
const { ruleHealth } = await client.ask('event-processing', processing.HealthDocument, { profileToken: profile })
holds('queries the reading and the rule', measurementEvents.results.length === 1 && measurementEvents.results[0]?.value === 2.5
  && measurementEvents.results[0]?.unit === 'm' && ruleHealth[0]?.status === 'ACTIVE' && ruleHealth[0]?.fireCount === 1, measurementEvents)

const page = await client.ask('device-management', devices.DevicesDocument, { criteria: { pageNumber: 1, pageSize: 1, deviceType: 'typed-type' } })
holds('pages', page.devices.results[0]?.token === 'typed-1' && page.devices.pagination.totalRecords === 1, page)
const refusal = await client.ask('device-management', devices.DeleteDeviceTypeDocument, { token: 'typed-type' }).catch((e: unknown) => e)
holds('a refusal has its code', refusal instanceof Refused && refusal.code === 'IN_USE', String(refusal))
process.exit(0)
