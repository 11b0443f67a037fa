// The public suite of GraphQL over HTTP (npm graphql-http) on every area: node audit.mjs API TOKEN. TOKEN is an identity token, for
// the areas that answer to no other. What the suite calls MUST and SHOULD has to hold; what is only a MAY is listed.
import { serverAudits } from 'graphql-http'

const [api, token] = process.argv.slice(2)
const index = await (await fetch(`${api}/schema/index.json`)).json()
const areas = index.areas.filter((a) => a.endpoint || a.area === 'event-sources')

for (const { area, plane, endpoint = `${api}/api/${area}/graphql` } of areas) {
  const headers = plane === 'identity' ? { Authorization: `Bearer ${token}` } : {}
  const audits = serverAudits({ url: endpoint, fetchFn: (url, init) => fetch(url, { ...init, headers: { ...headers, ...init?.headers } }) })
  const results = await Promise.all(audits.map((a) => a.fn()))
  const of = (...statuses) => results.filter((r) => statuses.includes(r.status))
  const failed = of('error', 'warn')
  if (failed.length > 0 || of('ok').length < 30) {
    process.stdout.write([`FAIL ${new URL(endpoint).pathname}: ${of('ok').length} of ${results.length} hold`,
      ...failed.map((r) => `${r.id} ${r.name}: ${r.reason}`)].join('\n      ') + '\n')
    process.exit(1)
  }
  const optional = of('notice').map((r) => r.id)
  process.stdout.write(`${new URL(endpoint).pathname}: all that GraphQL over HTTP asks for, ${of('ok').length} audits; not done of what it allows: ${optional.join(' ') || 'nothing'}\n`)
}
