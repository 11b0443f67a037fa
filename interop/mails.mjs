// Reads mails with postal-mime and compares: node mails.mjs GALLERY DIRECTORY. Each line that it writes is a check that holds.
import { readFileSync, readdirSync } from 'node:fs'
import PostalMime from 'postal-mime'

const [gallery, directory] = process.argv.slice(2)
const samples = JSON.parse(readFileSync(gallery, 'utf8'))
const files = readdirSync(directory).filter((f) => f.endsWith('.eml')).sort()

function same(name, what, got, want) {
  got = JSON.stringify(got)
  want = JSON.stringify(want)
  if (got === want) return
  process.stdout.write(`FAIL ${name}: ${what}\n${got.slice(0, 400)}\n${want.slice(0, 400)}\n`)
  process.exit(1)
}

same('the gallery', 'number of mails', files.length, samples.length)
for (const [i, { Name, Subject, Text }] of samples.entries()) {
  const path = `${directory}/${files[i]}`
  const mail = await PostalMime.parse(readFileSync(path))
  same(Name, 'subject', mail.subject, Subject)
  same(Name, 'text', mail.text.replaceAll('\r\n', '\n').replace(/\n+$/, '\n'), Text.replace(/\n+$/, '\n'))
  same(Name, 'from', mail.from, { address: 'weir@example.com', name: 'Wärme' })
  same(Name, 'recipients', mail.to.map((a) => a.address).join(' '), readFileSync(path + '.to', 'utf8'))
  same(Name, 'blind copies', mail.bcc, undefined)
  same(Name, 'attachments', mail.attachments, [])
  if (Name === 'names of recipients') same(Name, 'names', mail.to.map((a) => a.name), ['Größe', 'Ops, "night"', 'café', ''])
}
process.stdout.write(`postal-mime: subject, text and addresses of ${files.length} mails are those that were sent\n`)
