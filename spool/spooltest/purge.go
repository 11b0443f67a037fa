package spooltest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"weir/model"
	"weir/spool"
)

// testPurge: what is purged and trimmed is in no file any more, and what is newer stays, with a restart at any step in between, and
// with readers that hold the old file.
func testPurge(t *testing.T, open Opener) {
	for _, restart := range []string{"", "before the purge", "after the purge", "after the append", "after the trim"} {
		t.Run("restart "+restart, func(t *testing.T) {
			opt := Options{Place: t.TempDir(), SpanBytes: 1 << 20, TailBytes: 1}
			l := opened(t, open, opt)
			var r spool.Reader
			after := func(step string) {
				t.Helper()
				if step == restart {
					r.Close() // it holds a file
					must(t, l.Close())
					l = opened(t, open, opt)
				}
			}
			last := put(t, l, numbered("purged", 100)...)
			var err error
			r, err = l.Reader(1)
			must(t, err)
			defer r.Close()
			if b, err := r.TryNext(); b == nil || err != nil {
				t.Fatalf("%v, %v", b, err)
			}
			after("before the purge")
			for range 2 { // the second asks for what is asked for already
				if kept := purge(t, l, last); kept > last {
					t.Fatalf("purged to %d before a trim: kept from %d", last, kept)
				}
			}
			if after("after the purge"); restart == "after the purge" {
				purge(t, l, last) // a request ends with the process
			}
			want := map[model.Offset]string{}
			for i, data := range numbered("newer", 20) {
				want[last+1+model.Offset(i)] = data
			}
			put(t, l, numbered("newer", 20)...)
			after("after the append")
			must(t, l.Trim(last))
			after("after the trim")
			must(t, l.Trim(last)) // as an instance does
			if kept := purge(t, l, last); kept != last+1 {
				t.Fatalf("purged to %d: kept from %d", last, kept)
			}
			if files := filesWith(t, opt.Place, "purged"); len(files) > 0 {
				t.Errorf("%v hold purged records", files)
			}
			if files := filesWith(t, opt.Place, "newer"); len(files) == 0 {
				t.Error("no file holds the newer records: the test shows nothing")
			}
			same(t, readAll(t, l, last+1), want)
			must(t, l.Close())
			l = opened(t, open, opt)
			same(t, readAll(t, l, last+1), want)
			if f, _ := l.Bounds(); f != last+1 {
				t.Errorf("the first offset is %d after opening again, want %d", f, last+1)
			}
		})
	}
}

// testPurgeNeedsAnAppend: the file that is written stays until there is another one, and what is asked for beyond the newest record
// does not reach records that come later.
func testPurgeNeedsAnAppend(t *testing.T, open Opener) {
	opt := Options{Place: t.TempDir(), SpanBytes: 1 << 20}
	l := opened(t, open, opt)
	last := put(t, l, numbered("purged", 3)...)
	must(t, l.Trim(last))
	if kept := purge(t, l, last+1000); kept > last || len(filesWith(t, opt.Place, "purged")) == 0 {
		t.Fatalf("kept from %d, the files that hold the records: %v", kept, filesWith(t, opt.Place, "purged"))
	}
	put(t, l, "newer-0")
	put(t, l, "newer-1")
	first := last + 1
	must(t, l.Trim(first)) // up to the append
	if kept := purge(t, l, last); kept != first || len(filesWith(t, opt.Place, "purged")) > 0 {
		t.Fatalf("kept from %d, the files that hold the records: %v", kept, filesWith(t, opt.Place, "purged"))
	}
	put(t, l, "newer-2") // into the same file: nothing asks for another one
	must(t, l.Trim(first+1))
	if kept := purge(t, l, last); kept != first {
		t.Errorf("kept from %d, want %d", kept, first)
	}
	must(t, l.Close())
	_, err := l.Purge(last)
	wantError(t, err, spool.ErrClosed)
}

// testPurgeHeld: while a backup holds the log its records stay in the files, and go after that without another trim.
func testPurgeHeld(t *testing.T, open Opener) {
	opt := Options{Place: t.TempDir(), SpanBytes: 1 << 20}
	l := opened(t, open, opt)
	last := put(t, l, numbered("purged", 10)...)
	one, two := l.HoldTrim(), l.HoldTrim()
	purge(t, l, last)
	put(t, l, "newer")
	must(t, l.Trim(last))
	for _, release := range []func(){one, two} {
		if kept := purge(t, l, last); kept != 1 || len(readAll(t, l, 1)) != 11 || len(filesWith(t, opt.Place, "purged")) == 0 {
			t.Fatalf("kept from %d while the log is held", kept)
		}
		release()
	}
	if kept := purge(t, l, last); kept != last+1 || len(filesWith(t, opt.Place, "purged")) > 0 {
		t.Fatalf("kept from %d after the hold, the files that hold the records: %v", kept, filesWith(t, opt.Place, "purged"))
	}
	same(t, readAll(t, l, last+1), map[model.Offset]string{last + 1: "newer"})
}

func purge(t *testing.T, l spool.Log, to model.Offset) (kept model.Offset) {
	t.Helper()
	kept, err := l.Purge(to)
	must(t, err)
	return kept
}

// filesWith returns the files at a place that hold a text.
func filesWith(t *testing.T, place, text string) (files []string) {
	t.Helper()
	must(t, filepath.WalkDir(place, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if n := bytes.Count(b, []byte(text)); n > 0 {
			files = append(files, fmt.Sprintf("%s (%d)", d.Name(), n))
		}
		return err
	}))
	return files
}
