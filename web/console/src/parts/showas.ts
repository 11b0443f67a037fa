// What was sent, as others can send it: never with a token, of which the shell's variable stands in its place.
import { documentOf, endpoint, type Sent } from '../api/ask'

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

export const graphql = (s: Sent) => `# ${endpoint(s.area)}\n${documentOf(s.area, s.name)}\n\n# variables\n${JSON.stringify(s.variables, null, 2)}`

export function curl(s: Sent, base: string): string {
  const body = JSON.stringify({ query: documentOf(s.area, s.name), variables: s.variables })
  return `curl -sS ${quoted(new URL(endpoint(s.area), base).href)} \\\n  -H "Authorization: Bearer $WEIR_TOKEN" -H 'Content-Type: application/json' \\\n  -d ${quoted(body)}`
}
