// The editor of JSON: CodeMirror in a shadow root, the only place where the policy of the page lets it have its styles. It is loaded on demand.
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands'
import { json } from '@codemirror/lang-json'
import { bracketMatching, ensureSyntaxTree, HighlightStyle, indentOnInput, syntaxHighlighting } from '@codemirror/language'
import { diagnosticCount, forEachDiagnostic, lintGutter, lintKeymap, nextDiagnostic, setDiagnostics, type Diagnostic } from '@codemirror/lint'
import { Compartment, EditorState } from '@codemirror/state'
import { EditorView, keymap, lineNumbers } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import type { Mark } from './marks'

export interface Editor {
  set(text: string): void
  mark(marks: Mark[]): void
  lock(readonly: boolean): void
  select(from: number, to: number): void
  close(): void
}

// The colours are those of the page, whose custom properties reach into a shadow root.
const look = EditorView.theme({
  '&': { color: 'var(--text)', backgroundColor: 'var(--ground)', border: '1px solid var(--control)', borderRadius: '6px', fontSize: '13px', overflow: 'hidden' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '1px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '18px', minHeight: '252px', maxHeight: '70vh' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-gutters': { backgroundColor: 'var(--sunken)', color: 'var(--soft)', borderRight: '1px solid var(--line)' },
  '&.cm-focused .cm-matchingBracket': { backgroundColor: 'var(--accent-ground)', outline: '1px solid var(--accent)' },
  '&.cm-focused .cm-nonmatchingBracket': { backgroundColor: 'var(--bad-ground)', outline: '1px solid var(--bad)' },
  '.cm-lintRange-error': { backgroundImage: 'none', textDecoration: 'underline wavy var(--bad)', textUnderlineOffset: '3px' },
  '.cm-tooltip, .cm-panels': { backgroundColor: 'var(--ground)', color: 'var(--text)', border: '1px solid var(--control)' },
  '.cm-tooltip': { maxWidth: 'min(480px, 90vw)' },
  '.cm-panel.cm-panel-lint ul [aria-selected]': { backgroundColor: 'var(--accent-ground)', color: 'var(--text)' },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--bad)' },
  '@media (pointer: coarse)': { '&': { fontSize: '16px' }, '.cm-scroller': { lineHeight: '22px' } },
})
const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: 'var(--accent)' },
  { tag: tags.string, color: 'var(--good)' },
  { tag: tags.number, color: 'var(--warn)' },
  { tag: [tags.bool, tags.null], color: 'var(--critical)' },
])

// Tab indents; after Escape it leads on, until something else is pressed.
const leave = EditorView.domEventHandlers({
  keydown(e, view) {
    if (e.key === 'Escape') view.setTabFocusMode(true)
    else if (e.key !== 'Tab' && e.key !== 'Shift') view.setTabFocusMode(false)
  },
  blur: (_, view) => view.setTabFocusMode(false),
})

// next goes to the next mistake, and tells it.
function next(view: EditorView): boolean {
  if (!nextDiagnostic(view)) return false
  const told: string[] = []
  forEachDiagnostic(view.state, (d, from) => { if (from === view.state.selection.main.from) told.push(d.message) })
  view.dispatch({ effects: EditorView.announce.of(told.join('. ')) })
  return true
}

// noJSON is where the text is none.
function noJSON(state: EditorState): [number, number] | null {
  let at: [number, number] | null = null
  ensureSyntaxTree(state, state.doc.length, 100)?.iterate({
    enter(n) {
      if (n.type.isError && !at) at = [n.from, n.to]
    },
  })
  return at
}

// open makes an editor in a host. Its help is read with its label; change is called with each text that is written in it.
export function open(host: HTMLElement, o: { text: string; label: string; help: string; readonly: boolean; change(text: string): void }): Editor {
  const root = host.attachShadow({ mode: 'open' })
  const help = document.createElement('p')
  help.id = 'help'
  help.hidden = true
  help.textContent = o.help
  root.append(help)
  // The page has keys of its own, and does not see that a person writes here.
  host.addEventListener('keydown', (e) => e.stopPropagation())
  const locked = new Compartment()
  let ours = false // the text comes from the page
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: o.text,
      extensions: [
        leave, lineNumbers(), lintGutter(), history(), json(), bracketMatching(), indentOnInput(), EditorView.lineWrapping, look, syntaxHighlighting(colours),
        keymap.of([{ key: 'F8', run: next }, ...lintKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
        locked.of(EditorState.readOnly.of(o.readonly)),
        EditorView.contentAttributes.of({ 'aria-label': o.label, 'aria-describedby': help.id }),
        EditorView.contentAttributes.of((v) => (diagnosticCount(v.state) > 0 ? { 'aria-invalid': 'true' } : null)),
        EditorView.updateListener.of((u) => { if (u.docChanged && !ours) o.change(u.state.doc.toString()) }),
      ],
    }),
  })
  const within = (at: number) => Math.max(0, Math.min(at, view.state.doc.length))
  return {
    set(text) {
      if (text === view.state.doc.toString()) return
      ours = true
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } })
      ours = false
    },
    mark(marks) {
      const found = marks.flatMap(({ at, message }): Diagnostic[] => {
        const place = at ?? noJSON(view.state)
        return place ? [{ from: within(place[0]), to: within(place[1]), severity: 'error', message }] : []
      })
      view.dispatch(setDiagnostics(view.state, found))
    },
    lock: (readonly) => view.dispatch({ effects: locked.reconfigure(EditorState.readOnly.of(readonly)) }),
    select(from, to) {
      view.focus()
      view.dispatch({ selection: { anchor: within(from), head: within(to) }, scrollIntoView: true })
    },
    close: () => view.destroy(),
  }
}
