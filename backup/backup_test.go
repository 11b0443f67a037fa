package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/rootkey"
	"weir/model"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store"
	"weir/store/sqlite"
)

var someKey = rootkey.Key(bytes.Repeat([]byte{0xa7}, rootkey.Size))

// source is a small instance: a database that holds the log up to record 3, and a log of 5 records.
func source(t *testing.T) Source {
	t.Helper()
	dir := t.TempDir()
	log, err := bolt.Open(filepath.Join(dir, "spool"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := log.Append(t.Context(), spool.Entry{Data: fmt.Appendf(nil, "record %d", i+1)}); err != nil {
			t.Fatal(err)
		}
		if err := log.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(db.Close(), log.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		return errors.Join(store.SetPairID(tx, log.PairID()), store.SetRootKeyID(tx, someKey.ID()), store.SetCheckpointState(tx, 3, 1))
	}); err != nil {
		t.Fatal(err)
	}
	return Source{Instance: "weir", Version: "1", Store: db, Log: log, Now: time.Now}
}

func written(t *testing.T, src Source) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := Write(t.Context(), &out, src, 0); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func giveKey(Header) (*rootkey.Key, error) { return &someKey, nil }

func TestACopyIsProvedAndRestored(t *testing.T) {
	t.Parallel()
	b := written(t, source(t))
	r, err := Verify(t.Context(), files{}, bytes.NewReader(b), t.TempDir())
	if err != nil || len(r.Findings) > 0 || r.StoreOffset != 3 || r.Log != (Log{Epoch: 1, First: 1, Last: 5}) || r.Counts.Records != 2 || r.Counts.Batches != 5 {
		t.Fatalf("%+v %+v, %v", r, r.Manifest, err)
	}
	dir := t.TempDir()
	if _, err := Restore(t.Context(), files{}, bytes.NewReader(b), dir, giveKey); err != nil {
		t.Fatal(err)
	}
	if key, err := rootkey.Load(rootkey.Options{File: filepath.Join(dir, keyName), SealedUnder: someKey.ID()}); err != nil || key.Key != someKey {
		t.Error(err)
	}
	note, err := ReadRestored(dir)
	if err != nil || note == nil || note.Epoch < 2 || !note.Created.Equal(r.Created) {
		t.Errorf("%+v, %v", note, err)
	}
	if err := errors.Join(Unfinished(dir), TakenUp(dir)); err != nil {
		t.Error(err)
	}
	if err := Empty(dir); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a second restore: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if len(entries) != 3 || err != nil { // root.key, spool, weir.db
		t.Errorf("%v, %v", entries, err)
	}
}

func TestACompressedCopyIsReadAsItIs(t *testing.T) {
	t.Parallel()
	b := compressed(t, written(t, source(t)))
	if r, err := Verify(t.Context(), files{}, bytes.NewReader(b), t.TempDir()); err != nil || len(r.Findings) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, damaged := range [][]byte{b[:len(b)-4], b[:len(b)/2], append(bytes.Clone(b), "more"...)} {
		if r, err := Verify(t.Context(), files{}, bytes.NewReader(damaged), t.TempDir()); err != nil || len(r.Findings) == 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

func compressed(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// ignored takes an archive and keeps nothing but the files' bytes.
type ignored struct{ got bytes.Buffer }

func (g *ignored) Head(Header) error { return nil }

func (g *ignored) File(name string, _ int64, r io.Reader) error {
	g.got.WriteString(name)
	_, err := g.got.ReadFrom(r)
	return err
}

// TestABitThatFlipsIsFoundOrChangesNothing: what stands between the files to fill a block up is the only thing that may
// change unseen.
func TestABitThatFlipsIsFoundOrChangesNothing(t *testing.T) {
	t.Parallel()
	b := written(t, source(t))
	var want ignored
	if _, err := Read(bytes.NewReader(b), &want); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	found := 0
	for i := range 400 {
		at := r.IntN(len(b))
		if i < 100 {
			at = r.IntN(2048) // head, and where the database begins
		}
		spoilt := bytes.Clone(b)
		spoilt[at] ^= 1 << r.IntN(8)
		var got ignored
		_, err := Read(bytes.NewReader(spoilt), &got)
		switch {
		case err == nil && !bytes.Equal(got.got.Bytes(), want.got.Bytes()):
			t.Fatalf("byte %d: something else was read", at)
		case err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) && !errors.Is(err, ErrVersion):
			t.Fatalf("byte %d: %v", at, err)
		case err != nil:
			found++
		}
	}
	if found < 200 {
		t.Errorf("only %d of 400 were found", found)
	}
}

// TestVerifyFindsDamageAtTheHead: a script that verifies copies has one exit code for what cannot be restored.
func TestVerifyFindsDamageAtTheHead(t *testing.T) {
	t.Parallel()
	b := written(t, source(t))
	check := func(name string, spoilt []byte) {
		t.Helper()
		r, err := Verify(t.Context(), files{}, bytes.NewReader(spoilt), t.TempDir())
		if err != nil || len(r.Findings) != 1 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	check("an empty file", nil)
	for at := range 200 {
		if at >= 148 && at < 156 {
			continue // the sum of the tar's header: its blanks count for nothing
		}
		spoilt := bytes.Clone(b)
		spoilt[at] ^= 1 << (at % 8)
		check(fmt.Sprintf("byte %d", at), spoilt)
	}
	if _, err := Verify(t.Context(), files{}, bytes.NewReader(bytes.Repeat([]byte("weir "), 500)), t.TempDir()); !errors.Is(err, ErrForeign) {
		t.Errorf("a text: %v", err)
	}
}

func TestACopyThatIsCutOffIsNeverWhole(t *testing.T) {
	t.Parallel()
	b := written(t, source(t))
	end := bytes.Index(b, []byte(manifestName)) + 512
	for at := 0; at < end; at += 1 + at/7 {
		dir := t.TempDir()
		r, err := Restore(t.Context(), files{}, bytes.NewReader(b[:at]), dir, giveKey)
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) {
			t.Fatalf("cut off at %d: %+v, %v", at, r, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Fatalf("left behind: %v, %v", entries, err)
		}
	}
}

// rebuilt is an archive with other files; change returns what takes a file's place, nil to leave it out.
func rebuilt(t *testing.T, b []byte, change func(name string, text []byte) []byte, more ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, r := tar.NewWriter(&out), tar.NewReader(bytes.NewReader(b))
	put := func(name string, text []byte) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if text = change(h.Name, text); text != nil {
			put(h.Name, text)
		}
		for i := 0; h.Name == headName && i < len(more); i++ {
			put(more[i], []byte("x"))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestWhatDoesNotBelongIntoACopyIsRefused(t *testing.T) {
	t.Parallel()
	b := written(t, source(t))
	same := func(_ string, text []byte) []byte { return text }
	replaced := func(old, text string) []byte {
		return rebuilt(t, b, func(name string, body []byte) []byte {
			if strings.HasSuffix(name, ".json") {
				return bytes.Replace(body, []byte(old), []byte(text), 1)
			}
			return body
		})
	}
	for name, c := range map[string]struct {
		archive []byte
		want    error
	}{
		"a path that leads out":        {rebuilt(t, b, same, "../weir.db"), ErrDamaged},
		"an absolute path":             {rebuilt(t, b, same, "/etc/weir.db"), ErrDamaged},
		"a root key that was not said": {rebuilt(t, b, same, keyName), ErrDamaged},
		"another file":                 {rebuilt(t, b, same, "spool/readme"), ErrDamaged},
		"a file twice":                 {rebuilt(t, b, same, storeName), ErrDamaged},
		"a newer format":               {replaced(`"format": 1`, `"format": 2`), ErrVersion},
		"an unknown word":              {replaced(`"instance"`, `"instances"`), ErrDamaged},
		"another size":                 {replaced(`"bytes": `, `"bytes": 1`), ErrDamaged},
		"no head":                      {rebuilt(t, b, func(name string, text []byte) []byte { return map[bool][]byte{false: text}[name == headName] }), ErrForeign},
		"a tar of something else":      {rebuilt(t, nil, same), ErrForeign},
		"a text":                       {bytes.Repeat([]byte("weir "), 500), ErrForeign},
		"nothing":                      {nil, ErrForeign},
	} {
		if _, err := Read(bytes.NewReader(c.archive), &ignored{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLogAndDatabaseThatDoNotBelongTogetherAreFound: the sums are right, and yet a part would be missing.
func TestLogAndDatabaseThatDoNotBelongTogetherAreFound(t *testing.T) {
	t.Parallel()
	src := source(t)
	other := source(t)
	for name, spoil := range map[string]func(*Source){
		"the log ends before the database": func(s *Source) {
			if err := s.Store.(store.Store).Write(t.Context(), store.Durable, func(tx store.Tx) error { return store.SetCheckpointState(tx, 9, 2) }); err != nil {
				t.Fatal(err)
			}
		},
		"the log is another's":           func(s *Source) { s.Log = foreign{s.Log, other.Log} },
		"a part of the log is not there": func(s *Source) { s.Log = hidden{s.Log} },
	} {
		s := src
		spoil(&s)
		var out bytes.Buffer
		if _, err := Write(t.Context(), &out, s, 0); err != nil {
			t.Fatal(err)
		}
		r, err := Verify(t.Context(), files{}, bytes.NewReader(out.Bytes()), t.TempDir())
		if err != nil || len(r.Findings) == 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if _, err := Restore(t.Context(), files{}, &out, t.TempDir(), giveKey); err == nil {
			t.Errorf("%s: it was restored", name)
		} else if _, ok := errors.AsType[*ProofError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// foreign says that it is one log and copies another.
type foreign struct {
	LogSource
	other LogSource
}

func (f foreign) Copy(ctx context.Context, each func(spool.File) error) error {
	return f.other.Copy(ctx, each)
}

// hidden copies nothing.
type hidden struct{ LogSource }

func (hidden) Copy(context.Context, func(spool.File) error) error { return nil }

func TestTheRootKeyIsInACopyOnlyWhenItWasAskedFor(t *testing.T) {
	t.Parallel()
	src := source(t)
	forms := [][]byte{someKey[:], bytes.TrimSpace(keyText(someKey))}
	holds := func(b []byte) bool { return bytes.Contains(b, forms[0]) || bytes.Contains(b, forms[1]) }
	if holds(written(t, src)) {
		t.Error("it is there unasked")
	}
	src.RootKey = &someKey
	b := written(t, src)
	if !holds(b) {
		t.Fatal("it is not there; would this test see it?")
	}
	dir := t.TempDir()
	if _, err := Restore(t.Context(), files{}, bytes.NewReader(b), dir, nil); err != nil {
		t.Fatal(err)
	}
	if k, err := rootkey.Look(rootkey.Options{File: filepath.Join(dir, keyName)}); err != nil || k.Key != someKey {
		t.Error(err)
	}
	src.RootKey = new(rootkey.Key)
	if _, err := Write(t.Context(), io.Discard, src, 0); err == nil {
		t.Error("a key that opens nothing was taken along")
	}
}

func TestARestoreWithoutTheKeyPutsNothingInPlace(t *testing.T) {
	t.Parallel()
	dir, missing := t.TempDir(), errors.New("no key")
	if _, err := Restore(t.Context(), files{}, bytes.NewReader(written(t, source(t))), dir, func(Header) (*rootkey.Key, error) { return nil, missing }); !errors.Is(err, missing) {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestARestoreThatWasCutShortIsDoneAgain(t *testing.T) {
	t.Parallel()
	b := written(t, source(t))
	dir := t.TempDir()
	for _, name := range []string{unfinished, "spool"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{filepath.Join(unfinished, storeName), "spool/0000000000000001.span", restoredName} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Unfinished(dir); !errors.Is(err, ErrUnfinished) {
		t.Errorf("got %v", err)
	}
	if err := Empty(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), files{}, bytes.NewReader(b), dir, giveKey); err != nil || Unfinished(dir) != nil {
		t.Fatal(err, Unfinished(dir))
	}
	if inv, err := bolt.Inspect(t.Context(), filepath.Join(dir, "spool")); err != nil || inv.Last != model.Offset(5) {
		t.Errorf("%+v, %v", inv, err)
	}
}

// fullAfter is a disk with room for so many bytes.
type fullAfter struct{ room int }

func (f *fullAfter) Write(b []byte) (int, error) {
	n := min(len(b), f.room)
	if f.room -= n; n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func TestAFullDiskEndsACopyAndLetsTheLogGo(t *testing.T) {
	t.Parallel()
	src := source(t)
	whole := len(written(t, src))
	log := &heldLog{LogSource: src.Log}
	src.Log = log
	for room := 0; room < whole; room += whole / 40 {
		if _, err := Write(t.Context(), &fullAfter{room}, src, 0); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("room for %d: %v", room, err)
		}
	}
	if log.held != 0 {
		t.Errorf("the log is still held %d times", log.held)
	}
}

type heldLog struct {
	LogSource
	held int
}

func (l *heldLog) HoldTrim() func() {
	l.held++
	release := l.LogSource.HoldTrim()
	return func() { l.held--; release() }
}

func TestAnInstanceThatIsStrainedGivesTheCopyUp(t *testing.T) {
	t.Parallel()
	src, strain, n := source(t), errors.New("the log is filling up"), 0
	src.Strained = func() error {
		if n++; n > 5 {
			return strain
		}
		return nil
	}
	if _, err := Write(t.Context(), io.Discard, src, 0); !errors.Is(err, strain) {
		t.Errorf("got %v", err)
	}
}

func TestARateIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &paced{ctx: t.Context(), w: io.Discard, rate: 1 << 20}
		began := time.Now()
		if n, err := p.Write(make([]byte, 10<<20)); n != 10<<20 || err != nil {
			t.Error(n, err)
		}
		if took := time.Since(began); took < 9900*time.Millisecond || took > 10*time.Second {
			t.Errorf("10 MiB at 1 MiB a second took %s", took)
		}
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		p = &paced{ctx: ctx, w: io.Discard, rate: 1}
		if _, err := p.Write(make([]byte, 1<<20)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestADraftIsThereWhenItIsKept(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "weir.backup")
		begin := func() *Draft {
			t.Helper()
			d, err := NewDraft(path)
			if err != nil {
				t.Fatal(err)
			}
			if named { // as where the system knows no file without a name
				if err := d.Drop(); err != nil {
					t.Fatal(err)
				}
				f, err := os.CreateTemp(dir, ".weir-backup-*.part")
				if err != nil {
					t.Fatal(err)
				}
				d = &Draft{File: f, path: path, named: true}
			}
			if _, err := d.WriteString("whole"); err != nil {
				t.Fatal(err)
			}
			return d
		}
		files := func() int {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			return len(entries)
		}
		if err := begin().Drop(); err != nil || files() != 0 {
			t.Errorf("dropped: %v, %d files", err, files())
		}
		first, second := begin(), begin()
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Error("it is there before it is kept")
		}
		if err := first.Keep(); err != nil || files() != map[bool]int{false: 1, true: 2}[named] {
			t.Errorf("kept: %v, %d files", err, files())
		}
		if err := second.Keep(); !errors.Is(err, fs.ErrExist) || files() != 1 {
			t.Errorf("kept over another one: %v, %d files", err, files())
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 5 {
			t.Errorf("%v, %v", info, err)
		}
		if _, err := NewDraft(path); !errors.Is(err, fs.ErrExist) {
			t.Errorf("got %v", err)
		}
	}
}

// FuzzManifest: whatever stands in head and table of contents, they are read or refused, and what is read is within bounds.
func FuzzManifest(f *testing.F) {
	const head = `{"format":1,"instance":"weir","version":"1","created":"2026-11-20T10:00:00Z","pairId":"000102030405060708090a0b0c0d0e0f","rootKey":{"id":"ab","included":true}}`
	f.Add([]byte(head))
	f.Add([]byte(head[:len(head)-1] + `,"storeOffset":3,"log":{"epoch":1,"first":1,"last":5},"files":[{"name":"weir.db","bytes":4096,"sha256":"` + strings.Repeat("ab", 32) + `"}]}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1}{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := parseHead(text)
		if err == nil && (h.Format != Format || h.Created.IsZero()) {
			t.Errorf("%+v", h)
		}
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) && !errors.Is(err, ErrVersion) {
			t.Error(err)
		}
		m, err := parseManifest(text)
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
		if err == nil && m.Log.First > m.Log.Last+1 {
			t.Errorf("%+v", m)
		}
		if _, err := Read(bytes.NewReader(text), &ignored{}); err == nil {
			t.Error("that was no archive")
		}
	})
}

// files opens what lies in files.
type files struct{}

type inspector struct{ *sqlite.Inspector }

func (i inspector) Pending() int { return i.Inspector.Pending }

func (files) InspectStore(ctx context.Context, path string) (Inspector, error) {
	i, err := sqlite.Inspect(ctx, path)
	if err != nil {
		return nil, err
	}
	return inspector{i}, nil
}

func (files) InspectLog(ctx context.Context, dir string) (*LogInventory, error) {
	inv, err := bolt.Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	return new(LogInventory(*inv)), nil
}
