package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"weir/model"
	"weir/spool"
)

// open opens a log that is closed with the test.
func open(t *testing.T, dir string, opt Options) *Log {
	t.Helper()
	l, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, l) })
	return l
}

func shut(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
}

// store appends one record as a batch of its own.
func store(t *testing.T, l *Log, data string) (model.Offset, error) {
	t.Helper()
	type result struct {
		offset model.Offset
		err    error
	}
	answered := make(chan result, 1)
	done := func(o model.Offset, err error) { answered <- result{o, err} }
	if err := l.Append(t.Context(), spool.Entry{Data: []byte(data), Done: done}); err != nil {
		return 0, err
	}
	r := <-answered
	return r.offset, r.err
}

func mustStore(t *testing.T, l *Log, data string) model.Offset {
	t.Helper()
	o, err := store(t, l, data)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// filled makes a closed log of n records of 2,000 bytes, each a batch, in spans of 32 KiB, and returns its folder.
func filled(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	l := open(t, dir, small)
	for i := range n {
		mustStore(t, l, record(i+1))
	}
	shut(t, l)
	return dir
}

var small = Options{SpanBytes: 32 << 10, TailBytes: 1, unsafe: true}

func record(offset int) string { return fmt.Sprintf("<%d>%s", offset, strings.Repeat(".", 2000)) }

func spanFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+spanSuffix))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// spoil overwrites the first occurrence of old in the log's files and returns the file.
func spoil(t *testing.T, dir, old, by string) string {
	t.Helper()
	for _, file := range spanFiles(t, dir) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(content, []byte(old))
		if at < 0 {
			continue
		}
		copy(content[at:], by)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Fatalf("no file holds %q", old)
	return ""
}

// drain reads until the first error or the end.
func drain(t *testing.T, l *Log, from model.Offset) (read int, err error) {
	t.Helper()
	r, err := l.Reader(from)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		b, err := r.TryNext()
		if b == nil || err != nil {
			return read, err
		}
		read += len(b.Records)
	}
}

func TestDamagedBatchIsNamedAndCanBePassed(t *testing.T) {
	t.Parallel()
	dir := filled(t, 40)
	file := spoil(t, dir, "<10>", "<1o>")
	l := open(t, dir, small)
	read, err := drain(t, l, 1)
	damage, ok := errors.AsType[*spool.DamageError](err)
	if !ok || !errors.Is(err, spool.ErrDamaged) || read != 9 {
		t.Fatalf("read %d records, then %v", read, err)
	}
	if damage.File != filepath.Base(file) || damage.Offset != 10 || damage.Next != 11 {
		t.Fatalf("damage is %+v", damage)
	}
	if read, err := drain(t, l, damage.Next); read != 30 || err != nil {
		t.Fatalf("after the damage: %d records, %v", read, err)
	}
	if err := l.Trim(20); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedNewestBatchStopsTheOpening(t *testing.T) {
	t.Parallel()
	dir := filled(t, 40)
	file := spoil(t, dir, "<40>", "<4o>")
	_, err := Open(dir, small)
	damage, ok := errors.AsType[*spool.DamageError](err)
	if !ok || damage.Offset != 40 || damage.File != filepath.Base(file) {
		t.Fatalf("opened with %v", err)
	}
}

func TestDamagedPagesAreAnErrorAndNotTheEndOfTheProcess(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, file string){
		"pages overwritten": func(t *testing.T, file string) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i := 2 * pageSize; i < len(content); i++ {
				content[i] = 0xa5
			}
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"truncated file": func(t *testing.T, file string) {
			if err := os.Truncate(file, 5*pageSize); err != nil {
				t.Fatal(err)
			}
		},
		"both first pages overwritten": func(t *testing.T, file string) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			clear(content[:2*pageSize])
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"file emptied": func(t *testing.T, file string) {
			if err := os.Truncate(file, 0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for span := range 3 { // the oldest, one between, the newest
				dir := filled(t, 20)
				files := spanFiles(t, dir)
				file := files[[]int{0, 1, len(files) - 1}[span]]
				spoil(t, file)
				l, err := Open(dir, small)
				read := 0
				if err == nil {
					read, err = drain(t, l, 1)
					shut(t, l)
				}
				if err == nil && read == 20 && strings.HasPrefix(name, "both") && span < 2 {
					continue // its batches are found without the pages that lead to them
				}
				if !errors.Is(err, spool.ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(file)) {
					t.Fatalf("span %d: %v", span, err)
				}
			}
		})
	}
}

func TestMissingSpanIsDamageAndNotPassedInSilence(t *testing.T) {
	t.Parallel()
	dir := filled(t, 40)
	files := spanFiles(t, dir)
	if err := os.Remove(files[1]); err != nil {
		t.Fatal(err)
	}
	missing, _ := spanBegin(filepath.Base(files[1]))
	next, _ := spanBegin(filepath.Base(files[2]))
	read, err := drain(t, open(t, dir, small), 1)
	damage, ok := errors.AsType[*spool.DamageError](err)
	if !ok || damage.Offset != missing || damage.Next != next || read != int(missing)-1 {
		t.Fatalf("read %d, then %v; %d to %d are missing", read, err, missing, next-1)
	}
}

// rewrite changes a value inside a span's file.
func rewrite(t *testing.T, file, bucket, key string, change func([]byte)) {
	t.Helper()
	db, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		value := bytes.Clone(b.Get([]byte(key)))
		change(value)
		return b.Put([]byte(key), value)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestAFileThatOnlyHasTheNameOfASpanIsIgnored: a name of the end of the offsets, made by a hand.
func TestAFileThatOnlyHasTheNameOfASpanIsIgnored(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ffffffffffffffff.span", "7fffffffffffffff.span", "8000000000000000.span"} {
		for what, content := range map[string][]byte{"empty": nil, "of another program": bytes.Repeat([]byte("x"), 5000)} {
			dir := t.TempDir()
			l, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			first := mustStore(t, l, "kept")
			shut(t, l)
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, mend := range []bool{false, true} {
				l, err := Open(dir, Options{Mend: mend})
				if err != nil {
					t.Errorf("%s, %s, mend %v: %v", name, what, mend, err)
					continue
				}
				first++
				if o := mustStore(t, l, "more"); o != first {
					t.Errorf("%s, %s: the log goes on at %d, want %d", name, what, o, first)
				}
				shut(t, l)
			}
		}
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ bucket, key string }{
		"of a span":  {spanBucket, spanKey},
		"of a batch": {string(batchName(40)), batchKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filled(t, 40)
			files := spanFiles(t, dir)
			rewrite(t, files[len(files)-1], c.bucket, c.key, func(v []byte) { v[0]++ })
			if _, err := Open(dir, small); !errors.Is(err, spool.ErrVersion) {
				t.Fatalf("opened with %v", err)
			}
		})
	}
}

func TestLogOfAnotherStoreIsRefused(t *testing.T) {
	t.Parallel()
	dir := filled(t, 1)
	_, err := Open(dir, Options{PairID: [16]byte{9}, MinOffset: 1000})
	if !errors.Is(err, spool.ErrForeign) {
		t.Fatalf("opened with %v", err)
	}
	if got := spanFiles(t, dir); len(got) != 1 {
		t.Fatalf("a foreign log was written to: %v", got)
	}
}

func TestLogInUseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, dir, Options{})
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("opened twice with %v", err)
	}
}

func TestANewEpochIsAtLeastTheMinimumRequested(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, Options{MinEpoch: 7})
	if l.Epoch() != 7 {
		t.Fatalf("a new log has epoch %d", l.Epoch())
	}
	shut(t, l)
	l = open(t, dir, Options{MinEpoch: 20}) // nothing begins
	if l.Epoch() != 7 {
		t.Fatalf("an existing log has epoch %d", l.Epoch())
	}
	shut(t, l)
	l = open(t, dir, Options{MinEpoch: 20, MinOffset: 5})
	if l.Epoch() != 20 {
		t.Fatalf("after a jump the epoch is %d", l.Epoch())
	}
}

func TestManyStartsLeaveOneFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 12 {
		l := open(t, dir, Options{})
		if o := mustStore(t, l, "x"); o != model.Offset(i+1) {
			t.Fatalf("start %d got offset %d", i, o)
		}
		shut(t, l)
	}
	if files := spanFiles(t, dir); len(files) != 1 {
		t.Fatalf("%d files: %v", len(files), files)
	}
}

func TestSpanMadeAheadIsTakenOrRemoved(t *testing.T) {
	t.Parallel()
	dir := filled(t, 5)
	leftover := filepath.Join(dir, aheadName)
	if err := os.WriteFile(leftover, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir, small)
	for i := range 40 {
		mustStore(t, l, record(i))
	}
	shut(t, l)
	if _, err := os.Stat(leftover); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a span made ahead was left behind: %v", err)
	}
}

func TestOpeningReadsOnlyTheEnds(t *testing.T) {
	t.Parallel()
	dir := filled(t, 60)
	files := spanFiles(t, dir)
	for _, f := range files[1 : len(files)-1] {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, dir, small)
	if first, last := l.Bounds(); first != 1 || last != 60 {
		t.Fatalf("bounds %d, %d", first, last)
	}
}

func TestReaderReleasesTrimmedSpans(t *testing.T) {
	t.Parallel()
	l := open(t, filled(t, 40), small)
	r, err := l.Reader(1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Trim(35); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(context.Background()); !errors.Is(err, spool.ErrTrimmed) {
		t.Fatalf("read on after a trim: %v", err)
	}
}

func TestReaderThatCaughtUpHoldsNoFile(t *testing.T) {
	t.Parallel()
	l := open(t, filled(t, 20), small)
	r, err := l.Reader(20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(t.Context()); err != nil { // from disk
		t.Fatal(err)
	}
	mustStore(t, l, "x")
	if _, err := r.Next(t.Context()); err != nil { // from memory
		t.Fatal(err)
	}
	if held := r.(*reader).held; held != nil {
		t.Fatalf("still holds %s", held.name())
	}
}

// TestUnreadableBatchGoesOnCounting: what cannot be weighed is not taken off the budget, and never put on it again.
func TestUnreadableBatchGoesOnCounting(t *testing.T) {
	t.Parallel()
	dir := filled(t, 40)
	for _, file := range spanFiles(t, dir) {
		if begin, _ := spanBegin(filepath.Base(file)); begin <= 20 && begin+4 > 20 {
			rewrite(t, file, string(batchName(20)), batchKey, func(v []byte) { v[0] = 99 })
		}
	}
	l := open(t, dir, small)
	var kept []int64
	for _, to := range []model.Offset{10, 20, 30} {
		if err := l.Trim(to); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, l.Stats().Bytes)
	}
	if kept[1] != kept[0] || kept[2] >= kept[1] || kept[2] <= 0 {
		t.Fatalf("kept after each trim: %v", kept)
	}
}

// TestNothingAfterAJumpIsReadableBeforeItsSync: the reader is at an offset without a record, the next one is on disk already.
func TestNothingAfterAJumpIsReadableBeforeItsSync(t *testing.T) {
	t.Parallel()
	inside, hold := make(chan struct{}, 1), make(chan struct{})
	opt := small
	opt.MinOffset = 1000
	opt.Sync = func(sync func() error) error {
		err := sync()
		inside <- struct{}{}
		<-hold
		return err
	}
	l := open(t, filled(t, 5), opt)
	if err := l.Append(t.Context(), spool.Entry{Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	<-inside
	if read, err := drain(t, l, 6); read != 0 || err != nil {
		t.Fatalf("read %d records, %v", read, err)
	}
	close(hold)
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if read, err := drain(t, l, 6); read != 1 || err != nil {
		t.Fatalf("read %d records, %v", read, err)
	}
}

func TestSpanEndsWhereTheNextBegins(t *testing.T) {
	t.Parallel()
	dir := filled(t, 4)
	s := &span{dir: dir, begin: 1}
	if err := s.acquire(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.release(); err != nil {
			t.Error(err)
		}
	}()
	for limit, want := range map[model.Offset]bool{3: false, 4: true} {
		if st, err := s.find(3, limit); err != nil || (st != nil) != want {
			t.Fatalf("offset 3 of a span that ends before %d: %v, %v", limit, st, err)
		}
	}
}
