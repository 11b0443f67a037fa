// @ts-ignore: Node runs the tests; the page is checked without its types
import { readdirSync, readFileSync } from 'node:fs'
import ts from 'typescript'
import { expect, test } from 'vitest'

// members are the names that a form element has by itself, as the library of the language declares them.
function members(): Set<string> {
  const file = 'form.ts'
  const options = { noResolve: false, lib: ['lib.es2022.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'], types: [] }
  const host = ts.createCompilerHost(options)
  const read = host.getSourceFile
  host.getSourceFile = (name, ...rest) => (name === file ? ts.createSourceFile(name, 'declare const form: HTMLFormElement', ts.ScriptTarget.ES2022) : read(name, ...rest))
  const program = ts.createProgram([file], options, host)
  const checker = program.getTypeChecker()
  const declared = (program.getSourceFile(file)!.statements[0] as ts.VariableStatement).declarationList.declarations[0]!
  return new Set(checker.getPropertiesOfType(checker.getTypeAtLocation(declared)).map((p) => p.name))
}

// found are the ids and names of what forms list, in the text of a component: the fixed ones, and how the others are made.
function found(text: string): { fixed: string[]; made: string[] } {
  const out = { fixed: [] as string[], made: [] as string[] }
  const markup = text.replace(/<script[^]*?<\/script>/g, '').replace(/<!--[^]*?-->/g, '')
  for (const [tag] of markup.matchAll(/<(?:input|select|textarea|button|fieldset|output|object|img)\b(?:\{[^}]*\}|"[^"]*"|[^>{"])*/g)) {
    for (const [, fixed, made] of tag.matchAll(/\s(?:id|name)=(?:"([^"]*)"|\{((?:`[^`]*`|[^}])*)\})/g)) {
      if (fixed !== undefined) out.fixed.push(fixed)
      else if (/^\w+$/.test(made!)) out.made.push(text.match(new RegExp(`\\bconst ${made} = (.*?)\\}?$`, 'm'))?.[1] ?? made!)
      else out.made.push(made!)
    }
  }
  return out
}

// A field whose id or name is that of a member hides it: with a field "contains" in it, form.contains is the field, and a script that asks fails.
test('no field of a form is named like a member of a form element', { timeout: 0 }, () => {
  const taken = members()
  for (const name of ['contains', 'submit', 'action', 'method', 'id', 'name', 'elements', 'length', 'reset', 'target', 'title', 'closest', 'addEventListener']) expect(taken.has(name), name).toBe(true)
  const root = new URL('../', import.meta.url)
  const files = (readdirSync(root, { recursive: true }) as string[]).filter((f) => f.endsWith('.svelte'))
  const wrong: string[] = []
  let n = 0
  for (const file of files) {
    const { fixed, made } = found(readFileSync(new URL(file, root), 'utf8'))
    n += fixed.length + made.length
    for (const name of fixed) if (taken.has(name)) wrong.push(`${file}: ${name}`)
    // A name that is put together has a hyphen of its own, which no member has.
    for (const how of made) if (!/^`(?:[^$`]|\$\{[^}]*\})*-/.test(how)) wrong.push(`${file}: ${how} may be any name`)
  }
  expect(wrong).toEqual([])
  expect(n).toBeGreaterThan(60)
})

test('the check sees fields as they are written', () => {
  expect(found('<form id="x"><input id="contains" /><select name="a" bind:value={b}></select><button id={`w-${k}`} onclick={() => { name = 1 }}>x</button></form>')).toEqual({ fixed: ['contains', 'a'], made: ['`w-${k}`'] })
  expect(found('{@const at = `${id}-${a.name}`}\n<textarea rows={a ? 1 : 2} id={at}></textarea>').made).toEqual(['`${id}-${a.name}`'])
})
