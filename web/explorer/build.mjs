// Builds the explorer into a directory: node build.mjs OUT. The program serves what stands there compressed. The names of the
// packages that are in it, with their licences, are in NOTICE.txt.
import * as esbuild from 'esbuild'
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'

const here = dirname(fileURLToPath(import.meta.url))
const out = resolve(process.argv[2])

// changed returns a plugin that replaces texts in a package's file; one that is not there fails the build.
const changed = (file, from, to) => ({
  name: file,
  setup: (build) => build.onLoad({ filter: new RegExp(`node_modules/${file.replaceAll('.', '\\.')}$`) }, ({ path }) => {
    const text = readFileSync(path, 'utf8')
    if (!text.match(from)) throw new Error(`${file} does not contain ${from}`)
    return { contents: text.replaceAll(from, to), loader: file.endsWith('.css') ? 'css' : 'js' }
  }),
})

const built = await esbuild.build({
  absWorkingDir: here,
  entryPoints: ['explorer.jsx'],
  outdir: out,
  bundle: true,
  write: false,
  metafile: true,
  minify: true,
  charset: 'utf8',
  legalComments: 'none', // NOTICE.txt has them
  target: 'es2022',
  jsx: 'automatic',
  define: { 'process.env.NODE_ENV': '"production"' },
  alias: { 'framer-motion': './tabs.jsx', 'react-style-singleton': './unstyled.js' },
  plugins: [
    changed('graphiql/dist/style.css', /@font-face \{[^}]*\}/g, ''), // half of the size; the fonts of the system do
    // Addresses that the policy forbids; what is clicked has a handler.
    changed('codemirror-graphql/esm/info.js', /javascript:void 0/g, '#'),
    changed('@graphiql/react/dist/editor/completion.js', /javascript:void 0/g, '#'),
  ],
  logLevel: 'warning',
})

// owner is the directory of the package that a file belongs to.
const owner = (file) => file.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//)?.[1]

function notice(directory) {
  const { name, version, license } = JSON.parse(readFileSync(join(here, directory, 'package.json')))
  const texts = readdirSync(join(here, directory)).filter((f) => /^(licen[cs]e|copying|notice)/i.test(f)).sort()
  if (!license) throw new Error(`${name} names no licence`)
  return `${name} ${version}: ${license}\n\n${texts.map((f) => readFileSync(join(here, directory, f), 'utf8').trim() + '\n').join('\n')}`
}

const packages = [...new Set(Object.keys(built.metafile.inputs).map(owner).filter(Boolean))].sort()
const head = 'explorer.js and explorer.css are made of these packages, each under its licence.\n'
mkdirSync(out, { recursive: true })
writeFileSync(join(out, 'NOTICE.txt'), [head, ...packages.map(notice)].join('\n' + '-'.repeat(80) + '\n\n'))
for (const { path, contents } of built.outputFiles) writeFileSync(path + '.gz', gzipSync(contents, { level: 9 }))
