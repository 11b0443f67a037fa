package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/test/draws"
	"weir/model"
	"weir/spool"
)

// mixed is a log of batches of all sizes: inside a leaf, a page, several pages, and some with several records.
type mixed struct {
	dir     string
	records []string // by offset, 0 is none
	batches [][2]int // first and last offset
}

func newMixed(t *testing.T) *mixed {
	t.Helper()
	m := &mixed{dir: t.TempDir(), records: []string{""}}
	l := open(t, m.dir, Options{SpanBytes: 48 << 10, TailBytes: 1, unsafe: true, PairID: [16]byte{7}})
	sizes := []int{20, 60, 300, 900, 2000, 5000, 9000}
	for i := range 70 {
		var entries []spool.Entry
		first := len(m.records)
		for range 1 + i%3 {
			data := fmt.Sprintf("<%d>", len(m.records)) + string(bytes.Repeat([]byte{byte('a' + i%20)}, sizes[i%len(sizes)]))
			m.records = append(m.records, data)
			entries = append(entries, spool.Entry{Data: []byte(data)})
		}
		if err := errors.Join(l.Append(t.Context(), entries...), l.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
		m.batches = append(m.batches, [2]int{first, len(m.records) - 1})
	}
	shut(t, l)
	return m
}

func (m *mixed) last() model.Offset { return model.Offset(len(m.records) - 1) }

// files returns what the log's files hold, by name.
func (m *mixed) files(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, path := range spanFiles(t, m.dir) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(path)] = b
	}
	return out
}

// intact are the batches of which one copy lies in pages that no damage has touched.
func (m *mixed) intact(before, after map[string][]byte) map[int]bool {
	out := map[int]bool{}
	for _, b := range m.batches {
		needle := []byte(m.records[b[0]])
		for name, content := range before {
			for from := 0; ; {
				i := bytes.Index(content[from:], needle)
				if i < 0 {
					break
				}
				at := from + i
				first, end := (at-batchHeaderSize-100)/pageSize*pageSize, (from+i+len(needle)+3*10_000)/pageSize*pageSize
				if now := after[name]; len(now) >= min(end, len(content)) && bytes.Equal(content[max(first, 0):min(end, len(content))], now[max(first, 0):min(end, len(content))]) {
					out[b[0]] = true
				}
				from = at + 1
			}
		}
	}
	return out
}

// damages are what may befall a file.
var damages = map[string]func(r *rand.Rand, content []byte) []byte{
	"a bit": func(r *rand.Rand, b []byte) []byte {
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		return b
	},
	"the head of a page": func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b)/pageSize) * pageSize
		b[at+r.IntN(64)] ^= byte(1 + r.IntN(255))
		return b
	},
	"a page of noise": func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b)/pageSize) * pageSize
		for i := range pageSize {
			b[at+i] = byte(r.Uint32())
		}
		return b
	},
	"a page of another position": func(r *rand.Rand, b []byte) []byte {
		n := len(b) / pageSize
		copy(b[r.IntN(n)*pageSize:][:pageSize], bytes.Clone(b[r.IntN(n)*pageSize:][:pageSize]))
		return b
	},
	"sectors of nothing": func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b)/512) * 512
		clear(b[at:min(at+512*(1+r.IntN(40)), len(b))])
		return b
	},
	"the first page":            func(_ *rand.Rand, b []byte) []byte { clear(b[:pageSize]); return b },
	"the second page":           func(_ *rand.Rand, b []byte) []byte { clear(b[pageSize : 2*pageSize]); return b },
	"both first pages":          func(_ *rand.Rand, b []byte) []byte { clear(b[:2*pageSize]); return b },
	"truncated":                 func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] },
	"truncated at a page":       func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b)/pageSize)*pageSize] },
	"emptied":                   func(_ *rand.Rand, b []byte) []byte { return b[:0] },
	"gone":                      func(_ *rand.Rand, _ []byte) []byte { return nil },
	"a file of another program": func(_ *rand.Rand, _ []byte) []byte { return bytes.Repeat([]byte("not a span\n"), 5000) },
}

// TestWhateverIsDamagedTheRestIsReadAndTheLossNamed: no record is wrong, none of an undamaged batch is missing, and every
// one that is missing lies in a span of offsets that was named.
func TestWhateverIsDamagedTheRestIsReadAndTheLossNamed(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	before := m.files(t)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range draws.Seeds(12) {
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					m.suffer(t, before, rand.New(rand.NewPCG(seed, 1)), damage)
				})
			}
		})
	}
}

func (m *mixed) suffer(t *testing.T, before map[string][]byte, r *rand.Rand, damage func(*rand.Rand, []byte) []byte) {
	t.Helper()
	dir, after := t.TempDir(), map[string][]byte{}
	names := spanFiles(t, m.dir)
	hit := filepath.Base(names[r.IntN(len(names))])
	for name, content := range before {
		after[name] = bytes.Clone(content)
		if name == hit {
			if after[name] = damage(r, after[name]); after[name] == nil {
				continue
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), after[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, dir, Options{SpanBytes: 48 << 10, TailBytes: 1, unsafe: true, PairID: [16]byte{7}, Mend: true, MinOffset: m.last()})
	got, lost := m.readPast(t, l)
	if began := l.Began(); began != nil {
		for o := began.Last + 1; o < began.Next; o++ {
			lost[o] = true
		}
	}
	first, _ := l.Bounds()
	for o := model.Offset(1); o < first; o++ { // of an oldest file that is gone nothing is known: it may have been trimmed
		lost[o] = true
	}
	whole := m.intact(before, after)
	for _, b := range m.batches {
		for o := b[0]; o <= b[1]; o++ {
			switch at := model.Offset(o); {
			case got[at] == m.records[o]:
			case got[at] != "":
				t.Fatalf("%s: record %d is wrong: %.20q", hit, o, got[at])
			case whole[b[0]]:
				t.Fatalf("%s: record %d is missing, its batch is whole", hit, o)
			case !lost[at]:
				t.Fatalf("%s: record %d is missing and nothing says so", hit, o)
			}
		}
	}
	if o := mustStore(t, l, "new"); o <= m.last() {
		t.Fatalf("%s: offset %d is given a second time", hit, o)
	}
	shut(t, l)
}

// readPast reads the log to its end, past what is damaged.
func (m *mixed) readPast(t *testing.T, l *Log) (got map[model.Offset]string, lost map[model.Offset]bool) {
	t.Helper()
	got, lost = map[model.Offset]string{}, map[model.Offset]bool{}
	next, last := l.Bounds()
	for next <= last {
		r, err := l.Reader(next)
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.TryNext()
		r.Close()
		damage, damaged := errors.AsType[*spool.DamageError](err)
		switch {
		case damaged && damage.Next > next:
			for o := next; o < damage.Next; o++ {
				lost[o] = true
			}
			next = damage.Next
		case err != nil:
			t.Fatalf("at %d: %v", next, err)
		case b == nil:
			return got, lost
		default:
			for o := next; o < b.First; o++ { // the reader sees that they are missing
				lost[o] = true
			}
			for i, rec := range b.Records {
				got[b.First+model.Offset(i)] = string(rec.Data)
			}
			next = b.Last() + 1
		}
	}
	return got, lost
}

// TestABranchThatLeadsToItselfEndsNothing: bbolt would follow it for ever.
func TestABranchThatLeadsToItselfEndsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, Options{unsafe: true})
	for range 300 { // enough for a branch
		mustStore(t, l, string(bytes.Repeat([]byte("x"), 900)))
	}
	shut(t, l)
	file := spanFiles(t, dir)[0]
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	root, err := newPageFile(bytes.NewReader(content), int64(len(content))).root()
	if err != nil {
		t.Fatal(err)
	}
	p := pageOf(content[root*pageSize:])
	if p.flags != branchFlag {
		t.Fatalf("the root is no branch: %+v", p.flags)
	}
	for i := range int(p.count) {
		copy(content[int(root)*pageSize+pageHead+i*elementSize+8:], content[root*pageSize:][:8])
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{unsafe: true}); !errors.Is(err, spool.ErrDamaged) {
		t.Fatalf("opened with %v", err)
	}
	if read, err := drain(t, open(t, dir, Options{unsafe: true, Mend: true}), 1); read != 300 || err != nil {
		t.Fatalf("read %d, %v", read, err)
	}
}

// TestTheOlderFirstPageDoesNotHideTheNewestBatch: when the page that names it is gone bbolt falls back on the one before.
func TestTheOlderFirstPageDoesNotHideTheNewestBatch(t *testing.T) {
	t.Parallel()
	for head := range 2 {
		dir := t.TempDir()
		l := open(t, dir, Options{unsafe: true})
		for i := range 9 {
			mustStore(t, l, record(i+1))
		}
		shut(t, l)
		file := spanFiles(t, dir)[0]
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		clear(content[head*pageSize:][:pageSize])
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		l = open(t, dir, Options{unsafe: true})
		if read, err := drain(t, l, 1); read != 9 || err != nil {
			t.Fatalf("page %d: read %d, %v", head, read, err)
		}
		if o := mustStore(t, l, "x"); o != 10 {
			t.Fatalf("page %d: the next offset is %d", head, o)
		}
	}
}
