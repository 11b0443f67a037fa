//go:build linux && amd64

package crash_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/test/powercut"
	"weir/internal/test/seed"
	"weir/internal/test/testweir"
)

func TestMain(m *testing.M) {
	powercut.Child()
	os.Exit(m.Run())
}

// kind is a sort of files before whose sync the power is cut.
type kind struct {
	name   string
	of     func(string) bool
	within int // so many syncs of a run are to be expected
}

// kinds are drawn from; what carries most stands there more than once.
var kinds = []kind{
	{"a file of the log", suffix(".span"), 60}, {"a file of the log", suffix(".span"), 60}, {"a file of the log", suffix(".span"), 10},
	{"the database's log", suffix("weir.db-wal"), 30}, {"the database's log", suffix("weir.db-wal"), 10},
	{"the database", suffix("weir.db"), 1},
	{"the next file of the log", suffix("next.tmp"), 2},
	{"a folder", func(p string) bool { return !strings.Contains(filepath.Base(p), ".") }, 2},
	{"any file", func(string) bool { return true }, 90},
}

func suffix(s string) func(string) bool {
	return func(p string) bool { return strings.HasSuffix(p, s) }
}

// The power fails before some sync, the disk holds any mixture of what was synced and what was written since: everything
// that was acknowledged is there after the start, once.
func TestTornWrites(t *testing.T) {
	t.Parallel()
	r := seed.Rand(t)
	dir := t.TempDir()
	w := furnish(t, testweir.Options{Dir: dir}, r)
	w.passing = newPassing(w.p)
	end, sent := w.load("")
	<-sent
	end()
	if err := w.p.Stop(); err != nil {
		t.Fatal(err)
	}
	m, err := powercut.New(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	w.opt.Wrap = m.Wrap
	began, cuts := time.Now(), map[string]int{}
	var all powercut.Mixture
	for round := 1; round <= *kills; round++ {
		k := kinds[r.IntN(len(kinds))]
		starting := r.IntN(6) == 0
		stop := &powercut.Stop{After: r.IntN(k.within), Of: k.of}
		if starting {
			m.Plan(stop)
		} else {
			m.Plan(nil)
		}
		p, err := testweir.TryStart(t, w.opt)
		switch {
		case err != nil:
		case m.Plan(nil): // what the program does of its own was cut
			p.Kill()
		default:
			w.p = p
			w.check()
			m.Plan(stop)
			end, sent := w.load("")
			select {
			case <-m.Cut():
			case <-sent:
			case <-time.After(3 * time.Second):
			}
			p.Kill()
			end()
		}
		_, at, off := m.Off()
		if off != nil {
			t.Fatal(off)
		}
		if err != nil && at == "" {
			t.Fatalf("round %d: %v", round, err)
		}
		mixed, err := m.Mix(r)
		if err != nil {
			t.Fatal(err)
		}
		if cuts[kindOf(at)]++; round%looks == 0 {
			w.rested(false)
		}
		if *verbose {
			t.Logf("round %d, before the sync of %s (while starting: %v), cut at %q: %+v", round, k.name, starting, at, mixed)
		}
		all.Files += mixed.Files
		all.Before += mixed.Before
		all.After += mixed.After
		all.Names += mixed.Names
		if t.Failed() {
			t.Fatalf("round %d, cut before the sync of %q", round, at)
		}
	}
	m.Plan(nil)
	w.p = testweir.Start(t, w.opt)
	w.checkWhole()
	w.passing.checkErased(w, false)
	t.Logf("%d cuts in %v, before a sync of: %v; %d files were mixed, of %d units as synced and %d as written since, and %d names; %s",
		*kills, time.Since(began).Round(time.Second), cuts, all.Files, all.Before, all.After, all.Names, w.total())
}

// The power fails during the first starts of an instance, when nothing is paired and no key is made: it comes up in the end.
func TestTornFirstStarts(t *testing.T) {
	t.Parallel()
	r := seed.Rand(t)
	for range max(2, *kills/8) {
		opt := testweir.Options{Dir: t.TempDir(), Config: settings}
		data := filepath.Join(opt.Dir, "data")
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		m, err := powercut.New(data)
		if err != nil {
			t.Fatal(err)
		}
		opt.Wrap = m.Wrap
		var cuts []string
		for range 1 + r.IntN(3) {
			m.Plan(&powercut.Stop{After: r.IntN(24)})
			p, err := testweir.TryStart(t, opt)
			if err == nil {
				p.Kill()
			}
			_, at, off := m.Off()
			if off != nil || err != nil && at == "" {
				t.Fatalf("after cuts at %q: %v", cuts, errors.Join(off, err))
			}
			cuts = append(cuts, at)
			if _, err := m.Mix(r); err != nil {
				t.Fatal(err)
			}
		}
		m.Plan(nil)
		p, err := testweir.TryStart(t, opt)
		if err != nil {
			t.Fatalf("after cuts at %q: %v", cuts, err)
		}
		p.Run("", "tenant", "create", "acme")
		p.Kill()
		if _, _, err := m.Off(); err != nil {
			t.Fatal(err)
		}
	}
}

// kindOf is a file's name without what differs from one to the next.
func kindOf(path string) string {
	base := filepath.Base(path)
	switch {
	case path == "":
		return "no sync"
	case strings.HasSuffix(base, ".span"):
		return "*.span"
	}
	return base
}
