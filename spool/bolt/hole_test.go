package bolt

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"weir/model"
	"weir/spool"
)

// A newest file behind a hole that holds no record of the log, whatever is wrong with it: the log goes on above it, and says
// which records no file holds. What is before the hole is read.
func TestAHoleBeforeANewestFileWithoutRecordsIsNamed(t *testing.T) {
	t.Parallel()
	const records, begin = 40, model.Offset(60)
	name := (&span{begin: begin}).name()
	for what, spoiled := range map[string]func(t *testing.T, dir string){
		"empty":   func(t *testing.T, dir string) { write(t, filepath.Join(dir, name), nil) },
		"garbage": func(t *testing.T, dir string) { write(t, filepath.Join(dir, name), make([]byte, 40_000)) },
		"a copy of another file": func(t *testing.T, dir string) {
			b, err := os.ReadFile(spanFiles(t, dir)[0])
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name), b)
		},
		"a file that was made and not written": func(t *testing.T, dir string) {
			made := t.TempDir()
			l := open(t, made, Options{unsafe: true, PairID: identityIn(t, dir)})
			shut(t, l)
			b, err := os.ReadFile(spanFiles(t, made)[0])
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name), b)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filled(t, records)
			spoiled(t, dir)
			opt := small
			opt.Mend = true
			l := open(t, dir, opt)
			began := l.Began()
			if began == nil || began.Last != records || began.Next != begin || !errors.Is(began.Err, spool.ErrDamaged) {
				t.Fatalf("began %+v", began)
			}
			if read, err := drain(t, l, 1); read != records || err != nil {
				t.Errorf("read %d records, %v", read, err)
			}
			if o := mustStore(t, l, record(int(begin))); o != begin {
				t.Errorf("the next record is at %d, want %d", o, begin)
			}
			shut(t, l)
			again := open(t, dir, opt)
			if began := again.Began(); began != nil {
				t.Errorf("the next start: %+v", began)
			}
			if read, err := drain(t, again, begin); read != 1 || err != nil {
				t.Errorf("after the hole: %d records, %v", read, err)
			}
		})
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func identityIn(t *testing.T, dir string) [16]byte {
	t.Helper()
	l := open(t, dir, small)
	defer shut(t, l)
	return l.PairID()
}

// An empty file of the name of one that is missing lets the others be read.
func TestAnEmptyFileStandsForOneThatIsMissing(t *testing.T) {
	t.Parallel()
	dir := filled(t, 40)
	files := spanFiles(t, dir)
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	next, ok := spanBegin(filepath.Base(files[1]))
	if !ok || next < 5 {
		t.Fatalf("the second file is %s", files[1])
	}
	write(t, filepath.Join(dir, FileName(4)), nil) // the results have the three before
	opt := small
	opt.Mend = true
	l := open(t, dir, opt)
	if first, _ := l.Bounds(); first != 4 {
		t.Errorf("the log begins with %d", first)
	}
	_, err := drain(t, l, 4)
	damage, ok := errors.AsType[*spool.DamageError](err)
	if !ok || damage.Offset != 4 || damage.Next != next {
		t.Fatalf("%v", err)
	}
	if read, err := drain(t, l, next); err != nil || read != 40-int(next)+1 {
		t.Errorf("%d records behind it, %v", read, err)
	}
}
