// Makes a typed client of the published schemas: node codegen.mjs API OUT. Each area gets the types of its whole schema, and those of
// its documents that stand here.
import { codegen } from '@graphql-codegen/core'
import * as typedDocuments from '@graphql-codegen/typed-document-node'
import * as types from '@graphql-codegen/typescript'
import * as operations from '@graphql-codegen/typescript-operations'
import { parse } from 'graphql'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'

const [api, out] = process.argv.slice(2)
const { areas } = await (await fetch(`${api}/schema/index.json`)).json()
mkdirSync(out, { recursive: true })
for (const { schema } of areas.filter((a) => a.schema)) {
  const name = new URL(schema).pathname.replace(/^.*\/(.*)\.graphql$/, '$1')
  const sdl = parse(await (await fetch(schema)).text())
  const file = new URL(`${name}.graphql`, import.meta.url)
  const documents = existsSync(file) ? [{ location: file.pathname, document: parse(readFileSync(file, 'utf8')) }] : []
  const config = { strictScalars: true, useTypeImports: true, enumsAsTypes: true }
  const code = await codegen({
    schema: sdl, documents, config, filename: `${name}.ts`,
    pluginMap: { types, operations, typedDocuments },
    plugins: [{ types: {} }, ...(documents.length > 0 ? [{ operations: {} }, { typedDocuments: {} }] : [])],
  })
  writeFileSync(`${out}/${name}.ts`, code)
}
