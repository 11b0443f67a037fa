// Where the mistakes of a definition stand in its text.
import { rangeOf, type Path } from './canvas'

// Mark is a mistake at a part of a text; without a part it is where the text is no JSON.
export interface Mark { at: [number, number] | null; message: string }

// pathOf is the member that the message of a compiler names, and what it says of it: "actions[0].type: required".
export function pathOf(message: string): { path: Path; text: string } | null {
  const m = message.match(/^([A-Za-z][\w.[\]]*): ([\s\S]+)$/)
  if (!m) return null
  const path = m[1]!.split(/[.[\]]+/).filter(Boolean).map((p) => (/^\d+$/.test(p) ? Number(p) : p))
  return { path, text: m[2]! }
}

// marksOf places each message at the member that it names. One that is not there is marked at what should have it, on the first line of that.
export function marksOf(text: string, messages: string[]): Mark[] {
  return messages.map((message) => {
    const named = pathOf(message)
    for (let path = named?.path ?? []; ; path = path.slice(0, -1)) {
      const range = rangeOf(text, path)
      if (range === null && path.length > 0) continue
      if (range === null) return { at: null, message }
      const line = text.indexOf('\n', range[0])
      return { at: [range[0], line < 0 ? range[1] : Math.min(range[1], line)], message: path.length === named?.path.length && path.length > 0 ? named.text : message }
    }
  })
}
