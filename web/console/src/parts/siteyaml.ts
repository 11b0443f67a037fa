// What a form makes, as the site file says it: weir site apply makes the same. What the file does not name stays as it is.
import type { Kind, Row } from '../kinds'

// Kinds that lie below another in a site file: its list, and the field of the request that names it.
const below: Record<string, [string, string]> = { metricDefinitions: ['deviceProfiles', 'deviceProfileToken'], commandDefinitions: ['deviceProfiles', 'deviceProfileToken'], edges: ['devices', 'deviceToken'] }
// Kinds of the instance stand in the file itself, all others in a tenant.
const ofInstance = new Set(['settings', 'tiers', 'roles', 'oauthClients', 'identities', 'tenants'])
// Kinds whose site file is not what one form makes: secrets, and rows that are named by several things at once.
export const apart = new Set(['credentials', 'settings'])
// Fields that a form asks for and a site file has elsewhere, or not.
export const others: Record<string, string[]> = { oauthClients: ['confidential'] }
// Secrets stand in files: by these names, or by the one that the file has for them.
const secret = /^(secret|password)$/
const renamed: Record<string, string> = { 'httpSecrets.value': 'secret' }

const plain = /^[A-Za-z][A-Za-z0-9_./-]*$/
const words = new Set(['true', 'false', 'null', 'yes', 'no', 'on', 'off', 'y', 'n'])

// scalar is a value in one line: JSON is YAML, but for texts that need no quotes.
function scalar(v: unknown): string {
  if (typeof v === 'string' && plain.test(v) && !words.has(v.toLowerCase())) return v
  return JSON.stringify(v)
}

// valueOf is a member as the file has it: a document that the API takes as text is a document there.
function valueOf(v: unknown): unknown {
  if (typeof v !== 'string' || !/^\s*[{[]/.test(v)) return v
  try {
    return JSON.parse(v)
  } catch {
    return v
  }
}

// siteYaml is what fields make of one of a kind; "" where a site file has no such kind. parent is the record above it, where one is needed.
export function siteYaml(kind: Kind, tenant: string, key: Row, fields: Row, parent = ''): string {
  const list = kind.site
  if (!list || apart.has(list)) return ''
  const [above, field] = below[list] ?? []
  const owner = above ? String(fields[field!] ?? parent) : ''
  if (above && !owner) return ''
  const lines = ['version: 1']
  let indent = ''
  const open = (name: string, id: string) => {
    lines.push(`${indent}${name}:`, `${indent}  - token: ${scalar(id)}`)
    indent += '    '
  }
  if (!ofInstance.has(list)) open('tenants', tenant)
  if (above) open(above, owner)
  lines.push(`${indent}${list}:`)
  const members: [string, string][] = []
  for (const [k, v] of Object.entries({ ...key, ...fields })) {
    if (k === field && above) continue
    if (kind.secrets?.includes(k) || secret.test(k)) members.push([`${renamed[`${list}.${k}`] ?? k}_file`, scalar(`/etc/weir/${list}.${k}`)])
    else if (v !== undefined && !others[list]?.includes(k)) members.push([k, scalar(valueOf(v))])
  }
  members.forEach(([k, v], i) => lines.push(`${indent}  ${i === 0 ? '- ' : '  '}${k}: ${v}`))
  return lines.join('\n') + '\n'
}
