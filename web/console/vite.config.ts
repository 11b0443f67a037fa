// Builds the console into dist/, which is committed: the program is built without Node. Names are stable, since the program serves the
// files below a digest of all of them; NOTICE.txt has the licences of the packages that are in them.
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { readdirSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { defineConfig, type Plugin } from 'vite'

// notice writes the licences of the packages that have gone into the pieces.
function notice(): Plugin {
  return {
    name: 'notice',
    generateBundle(_, bundle) {
      const found = new Set<string>()
      for (const piece of Object.values(bundle)) {
        if (piece.type !== 'chunk') continue
        for (const id of piece.moduleIds) {
          const at = id.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//)?.[1]
          if (at && !id.startsWith('\0')) found.add(at)
        }
      }
      const texts = [...found].sort().map((directory) => {
        const { name, version, license } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'))
        if (!license) throw new Error(`${name} names no licence`)
        const files = readdirSync(directory).filter((f) => /^(licen[cs]e|copying|notice)/i.test(f)).sort()
        return `${name} ${version}: ${license}\n\n${files.map((f) => readFileSync(join(directory, f), 'utf8').trim() + '\n').join('\n')}`
      })
      const head = 'The console is made of these packages, each under its licence.\n'
      this.emitFile({ type: 'asset', fileName: 'NOTICE.txt', source: [head, ...texts].join('\n' + '-'.repeat(80) + '\n\n') })
    },
  }
}

// packed leaves each piece compressed, as the program has and serves it.
function packed(): Plugin {
  return {
    name: 'packed',
    writeBundle({ dir }, bundle) {
      for (const name of Object.keys(bundle)) {
        if (!/\.(js|css|svg)$/.test(name)) continue
        const file = join(dir ?? '', name)
        writeFileSync(file + '.gz', gzipSync(readFileSync(file), { level: 9 }))
        unlinkSync(file)
      }
    },
  }
}

// hostless takes the addresses of the canvas library's own site out of it, with the mark that would lead there: no piece names another host.
function hostless(): Plugin {
  return {
    name: 'hostless',
    enforce: 'pre',
    transform(code, id) {
      if (!/node_modules\/@xyflow\//.test(id)) return null
      if (/\/Attribution\.svelte$/.test(id)) return '<script lang="ts">let _: Record<string, unknown> = $props()</script>'
      return code.replace(/https?:\/\/(svelteflow\.dev|reactflow\.dev|github\.com|stackoverflow\.com)[^\s'"`)]*/g, '')
    },
  }
}

export default defineConfig({
  base: './',
  plugins: [hostless(), svelte({ configFile: false }), notice(), packed()],
  build: {
    target: 'es2022',
    outDir: 'dist',
    emptyOutDir: true,
    cssCodeSplit: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: 'svelte', test: /node_modules\/(svelte|clsx|esm-env)\// }] }, entryFileNames: 'console.js', chunkFileNames: '[name].js', assetFileNames: '[name][extname]' } },
  },
})
