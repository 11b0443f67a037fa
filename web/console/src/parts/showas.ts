// What was sent, as others can send it: never with a token, of which the shell's variable stands in its place.
import { endpoint, type Sent } from '../api/ask'
import { quoted } from './lines'

export type Shown = Pick<Sent, 'area' | 'document' | 'variables'>

export const graphql = (s: Shown) => `# ${endpoint(s.area)}\n${s.document}\n\n# variables\n${JSON.stringify(s.variables, null, 2)}`

export function curl(s: Shown, base: string): string {
  const body = JSON.stringify({ query: s.document, variables: s.variables })
  return `curl -sS ${quoted(new URL(endpoint(s.area), base).href)} \\\n  -H "Authorization: Bearer $WEIR_TOKEN" -H 'Content-Type: application/json' \\\n  -d ${quoted(body)}`
}
