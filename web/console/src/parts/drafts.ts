// What is being written, by its place: kept over a reload and over the end of a session until it is saved, dropped, or signed out of.
const prefix = 'weir.draft.'

export function draftOf(tenant: string, place: string): string | null {
  try {
    return sessionStorage.getItem(prefix + tenant + '.' + place)
  } catch {
    return null
  }
}

export function keepDraft(tenant: string, place: string, text: string | null) {
  try {
    if (text === null) sessionStorage.removeItem(prefix + tenant + '.' + place)
    else sessionStorage.setItem(prefix + tenant + '.' + place, text)
  } catch { /* kept as long as the page */ }
}

export function dropDrafts() {
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix)) sessionStorage.removeItem(key)
  } catch { /* there are none */ }
}
