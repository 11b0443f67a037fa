// What can go wrong with a request, with the words of the API where it has some.

export type Kind = 'api' | 'offline' | 'broken'

export class AskError extends Error {
  constructor(
    public kind: Kind,
    message: string,
    public code = '',
    public requestId = '',
    public hint = '',
    public retryAfter = 0,
  ) {
    super(message)
  }
}

interface GraphQLError {
  message: string
  extensions?: { code?: string; requestId?: string; hint?: string; retryAfterSeconds?: number }
}

// errorOf is the first error of an answer, null for an answer without one. An answer that is no GraphQL is an error of its own: a
// proxy's page, or one that was cut.
export function errorOf(status: number, body: unknown): AskError | null {
  const errors = (body as { errors?: GraphQLError[] } | null)?.errors
  const first = errors?.[0]
  if (first) {
    const x = first.extensions ?? {}
    return new AskError('api', first.message, x.code ?? '', x.requestId ?? '', x.hint ?? '', x.retryAfterSeconds ?? 0)
  }
  if (typeof body !== 'object' || body === null || !('data' in body)) {
    return new AskError('broken', `The answer is not one of Weir (HTTP ${status}). A proxy in between may have answered.`)
  }
  return null
}

// unauthenticated reports whether a token is no longer good.
export const unauthenticated = (err: unknown) => err instanceof AskError && err.code === 'UNAUTHENTICATED'
