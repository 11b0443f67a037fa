// Follows a GraphQL subscription with graphql-ws: node stream.mjs URL TOKEN QUERY VARIABLES. Writes one line of JSON per
// event until it is stopped; what ends the subscription is the last line.
import { createClient } from 'graphql-ws'
import WebSocket from 'ws'

const [url, token, query, variables = '{}'] = process.argv.slice(2)
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n')

const client = createClient({
  url,
  webSocketImpl: WebSocket,
  connectionParams: token ? { Authorization: `Bearer ${token}` } : {},
  retryAttempts: 0,
  lazy: true,
})

client.subscribe(
  { query, variables: JSON.parse(variables) },
  {
    next: (result) => say(result),
    error: (err) => {
      say(Array.isArray(err) ? { errors: err } : { closed: { code: err.code, reason: err.reason ?? err.message } })
      process.exit(0)
    },
    complete: () => {
      say({ complete: true })
      process.exit(0)
    },
  },
)
