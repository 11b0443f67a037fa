package spooltest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/model"
	"weir/spool"
)

// testModel runs random operations, one after another, on a log and on a map. rapid shrinks what goes wrong.
func testModel(t *testing.T, open Opener) {
	root := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		place, err := os.MkdirTemp(root, "log")
		if err != nil {
			rt.Fatal(err)
		}
		m := &plain{t: t, rt: rt, open: open, gate: newGate(), want: map[model.Offset]string{}, first: 1, next: 1}
		m.opt = Options{Place: place, SpanBytes: 16 << 10, TailBytes: rapid.Int64Range(1, 8<<10).Draw(rt, "tail"), Sync: m.gate.sync}
		m.log = open(t, m.opt)
		defer m.end()
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			m.step()
		}
		m.check()
	})
}

// plain is the model: what is kept, by offset.
type plain struct {
	t    *testing.T
	rt   *rapid.T
	open Opener
	opt  Options
	gate *gate
	log  spool.Log

	want        map[model.Offset]string
	first, next model.Offset
	reader      spool.Reader
	at          model.Offset // the position of reader
	serial      int
}

func (m *plain) end() {
	m.dropReader()
	if err := m.log.Close(); err != nil {
		m.rt.Errorf("closing: %v", err)
	}
	if err := os.RemoveAll(m.opt.Place); err != nil {
		m.rt.Error(err)
	}
}

func (m *plain) step() {
	steps := []struct {
		name string
		run  func()
	}{
		{"append", m.append}, {"append", m.append}, {"read", m.read}, {"trim", m.trim},
		{"purge", m.purge},
		{"reopen", m.reopen}, {"fail before", m.failBefore}, {"fail after", m.failAfter},
	}
	s := steps[rapid.IntRange(0, len(steps)-1).Draw(m.rt, "step")]
	m.rt.Log(s.name)
	s.run()
}

// offer appends some entries and returns their answers, in order.
func (m *plain) offer() ([]string, []answer) {
	a := newAnswers()
	data := make([]string, rapid.IntRange(1, 8).Draw(m.rt, "entries"))
	for i := range data {
		m.serial++
		data[i] = fmt.Sprint(m.serial) + strings.Repeat("x", rapid.SampledFrom([]int{0, 10, 300, 3000, 9000}).Draw(m.rt, "size"))
		if err := m.log.Append(deadline(m.t), spool.Entry{Data: []byte(data[i]), Value: data[i], Done: a.done}); err != nil {
			m.rt.Fatal(err)
		}
	}
	return data, a.wait(m.t, len(data))
}

func (m *plain) append() {
	data, got := m.offer()
	for i, g := range got {
		if g.err != nil || g.offset != m.next {
			m.rt.Fatalf("answered %+v, want offset %d", g, m.next)
		}
		m.want[m.next] = data[i]
		m.next++
	}
}

func (m *plain) failBefore() { m.fail(errors.New("no"), nil) }
func (m *plain) failAfter()  { m.fail(nil, errors.New("no")) }

func (m *plain) fail(before, after error) {
	m.gate.fail(before, after)
	_, got := m.offer()
	m.gate.fail(nil, nil)
	for _, g := range got {
		if g.err == nil || g.offset != 0 {
			m.rt.Fatalf("a failed batch was answered %+v", g)
		}
	}
}

// read goes on with the reader there is, or begins with one somewhere.
func (m *plain) read() {
	if m.reader == nil {
		m.at = model.Offset(rapid.Uint64Range(uint64(m.first), uint64(m.next)).Draw(m.rt, "from"))
		var err error
		if m.reader, err = m.log.Reader(m.at); err != nil {
			m.rt.Fatal(err)
		}
	}
	b, err := m.reader.TryNext()
	switch {
	case m.at < m.first:
		if !errors.Is(err, spool.ErrTrimmed) {
			m.rt.Fatalf("reading %d after a trim to %d: %v", m.at, m.first, err)
		}
		m.dropReader()
	case err != nil:
		m.rt.Fatal(err)
	case b == nil:
		if m.at != m.next {
			m.rt.Fatalf("nothing to read at %d, next is %d", m.at, m.next)
		}
	default:
		if b.First > m.at || b.Last() < m.at {
			m.rt.Fatalf("read %d..%d at %d", b.First, b.Last(), m.at)
		}
		m.compare(b)
		m.at = b.Last() + 1
	}
}

func (m *plain) compare(b *spool.Batch) {
	for i, rec := range b.Records {
		o := b.First + model.Offset(i)
		if o >= m.first && m.want[o] != string(rec.Data) {
			m.rt.Fatalf("offset %d holds %.20q, want %.20q", o, rec.Data, m.want[o])
		}
		if rec.Value != nil && rec.Value != string(rec.Data) {
			m.rt.Fatalf("offset %d holds the value %.20q, data %.20q", o, rec.Value, rec.Data)
		}
	}
}

func (m *plain) trim() {
	to := model.Offset(rapid.Uint64Range(0, uint64(m.next)+2).Draw(m.rt, "to"))
	if err := m.log.Trim(to); err != nil {
		m.rt.Fatal(err)
	}
	m.trimmedTo(min(to+1, m.next))
	m.bounds()
}

// purge lets records leave the disk, in the steps that an erase takes.
func (m *plain) purge() {
	to := model.Offset(rapid.Uint64Range(0, uint64(m.next)+2).Draw(m.rt, "to"))
	kept := func(to model.Offset) model.Offset {
		kept, err := m.log.Purge(to)
		if err != nil {
			m.rt.Fatal(err)
		}
		return kept
	}
	if k := kept(to); k > m.first {
		m.rt.Fatalf("kept from %d, the first record is %d", k, m.first)
	}
	purged := min(to, m.next-1)
	m.append()
	if err := m.log.Trim(m.next - 1); err != nil {
		m.rt.Fatal(err)
	}
	m.trimmedTo(m.next)
	m.bounds()
	if k := kept(purged); k <= purged || k > m.first {
		m.rt.Fatalf("kept from %d after a purge to %d, the first record is %d", k, purged, m.first)
	}
}

func (m *plain) trimmedTo(first model.Offset) {
	for ; m.first < first; m.first++ {
		delete(m.want, m.first)
	}
}

// reopen closes and opens again, and trims to where the log was trimmed to, as an instance does.
func (m *plain) reopen() {
	m.dropReader()
	before := m.log.Stats().Bytes
	if err := m.log.Close(); err != nil {
		m.rt.Fatal(err)
	}
	m.log = m.open(m.t, m.opt)
	if err := m.log.Trim(m.first - 1); err != nil {
		m.rt.Fatal(err)
	}
	m.bounds()
	if after := m.log.Stats().Bytes; after != before {
		m.rt.Fatalf("%d bytes after opening again, %d before", after, before)
	}
}

func (m *plain) dropReader() {
	if m.reader != nil {
		m.reader.Close()
		m.reader = nil
	}
}

func (m *plain) bounds() {
	if f, last := m.log.Bounds(); f != m.first || last != m.next-1 {
		m.rt.Fatalf("bounds %d, %d, want %d, %d", f, last, m.first, m.next-1)
	}
}

// check reads all there is.
func (m *plain) check() {
	m.bounds()
	m.dropReader()
	m.at = m.first
	r, err := m.log.Reader(m.first)
	if err != nil {
		m.rt.Fatal(err)
	}
	m.reader = r
	for m.at < m.next {
		m.read()
	}
	m.read() // caught up
}
