// A client as a user of the API writes one: the documents are typed by what codegen.mjs made of the published schemas.
import type { TypedDocumentNode } from '@graphql-typed-document-node/core'
import { print } from 'graphql'
import { createClient } from 'graphql-ws'
import WebSocket from 'ws'

export class Refused extends Error {
  constructor(readonly code: string | undefined, message: string) {
    super(message)
  }
}

interface Answer<Result> {
  data?: Result | null
  errors?: { message: string; extensions?: { code?: string } }[]
}

export class Client {
  token = ''

  constructor(private readonly api: string) {}

  private authorization(): Record<string, string> {
    return this.token === '' ? {} : { Authorization: `Bearer ${this.token}` }
  }

  async ask<Result, Variables>(area: string, document: TypedDocumentNode<Result, Variables>, variables: Variables): Promise<Result> {
    const response = await fetch(`${this.api}/api/${area}/graphql`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Accept: 'application/graphql-response+json', ...this.authorization() },
      body: JSON.stringify({ query: print(document), variables }),
    })
    const { data, errors } = (await response.json()) as Answer<Result>
    const first = errors?.[0]
    if (first !== undefined) throw new Refused(first.extensions?.code, first.message)
    if (data == null) throw new Error(`${response.status} without data`)
    return data
  }

  // subscribe resolves once the server has acknowledged the connection.
  async subscribe<Result, Variables extends Record<string, unknown>>(
    area: string, document: TypedDocumentNode<Result, Variables>, variables: Variables): Promise<AsyncIterableIterator<Result>> {
    const client = createClient({ url: `${this.api.replace('http', 'ws')}/api/${area}/graphql`, webSocketImpl: WebSocket, connectionParams: this.authorization(), lazy: false, retryAttempts: 0 })
    await new Promise<void>((resolve) => client.on('connected', () => resolve()))
    const results = client.iterate<Result>({ query: print(document), variables })
    const values = async function* (): AsyncIterableIterator<Result> {
      for await (const { data, errors } of results) {
        if (errors?.[0] !== undefined) throw new Error(errors[0].message)
        if (data != null) yield data
      }
    }
    return values()
  }
}
