// Where things are: #/<tenant>/<entry>/…?<filters>. Only the fragment changes, so that a path prefix holds and no proxy learns it.

export interface Place { tenant: string; entry: string; rest: string[]; filters: URLSearchParams }

export function placeOf(hash: string): Place {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2)
  const [tenant = '', entry = 'overview', ...rest] = path.split('/').filter(Boolean).map(decoded)
  return { tenant, entry, rest, filters: new URLSearchParams(query) }
}

function decoded(part: string) {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

export function addressOf(tenant: string, entry: string, rest: string[] = [], filters: Record<string, string> = {}): string {
  const query = new URLSearchParams(Object.entries(filters).filter(([, v]) => v !== '')).toString()
  return '#/' + [tenant, entry, ...rest].map(encodeURIComponent).join('/') + (query && `?${query}`)
}
