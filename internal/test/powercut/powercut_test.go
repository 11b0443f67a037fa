//go:build linux && amd64

package powercut

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// victimVariable makes the test's binary write into the folder that it names.
const victimVariable = "POWERCUT_VICTIM"

func TestMain(m *testing.M) {
	Child()
	if dir := os.Getenv(victimVariable); dir != "" {
		if err := victim(dir); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// victim does what a log does: it syncs some of what it writes.
func victim(dir string) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	kept, err := os.Create(in("kept"))
	if err != nil {
		return err
	}
	put := func(b byte, at int64) error {
		_, err := kept.WriteAt(bytes.Repeat([]byte{b}, page), at)
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(put('a', 0), put('b', page), kept.Sync(), os.WriteFile(in("old"), []byte("old"), 0o600), os.WriteFile(in("gone"), []byte("gone"), 0o600),
		folder.Sync()); err != nil {
		return err
	}
	last, err := os.Create(in("last"))
	if err != nil {
		return err
	}
	return errors.Join(put('c', page), put('d', 2*page), os.Rename(in("old"), in("new")), os.Remove(in("gone")), last.Sync(),
		errors.New("it was not stopped"))
}

// What was synced is there after every cut, and of what was not each thing in some and not in others.
func TestACutTakesOnlyWhatWasNotSynced(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	const cuts = 40
	for i := range uint64(cuts) {
		dir := t.TempDir()
		m, err := New(dir)
		if err != nil {
			t.Fatal(err)
		}
		m.Plan(&Stop{Of: func(p string) bool { return strings.HasSuffix(p, "last") }})
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), victimVariable+"="+dir)
		var told strings.Builder
		cmd.Stderr = &told
		if err := m.Wrap(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Run(); err == nil || told.Len() > 0 {
			t.Fatalf("%v, %s", err, told.String())
		}
		if synced, at, err := m.Off(); synced != 3 || at != "./last" || err != nil {
			t.Fatalf("%d syncs, at %q, %v", synced, at, err)
		}
		if _, err := m.Mix(rand.New(rand.NewPCG(1, i))); err != nil {
			t.Fatal(err)
		}
		look(t, dir, seen)
	}
	for _, what := range []string{"page 1 b", "page 1 c", "page 1 mixed", "two pages", "three pages", "old", "new", "gone", "no gone", "last", "no last"} {
		if seen[what] == 0 || seen[what] == cuts {
			t.Errorf("%q in %d of %d cuts", what, seen[what], cuts)
		}
	}
}

// look counts what a cut has left, and checks what it must not take.
func look(t *testing.T, dir string, seen map[string]int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < 2*page || !bytes.Equal(b[:page], bytes.Repeat([]byte{'a'}, page)) {
		t.Errorf("%d bytes are left of what was synced", len(b))
	}
	second := b[page : 2*page]
	switch old, fresh := bytes.Count(second, []byte{'b'}), bytes.Count(second, []byte{'c'}); {
	case old == page:
		seen["page 1 b"]++
	case fresh == page:
		seen["page 1 c"]++
	case old+fresh == page && old%sector == 0:
		seen["page 1 mixed"]++
	default:
		t.Errorf("a page of %d b and %d c", old, fresh)
	}
	seen[map[int]string{2 * page: "two pages", 3 * page: "three pages"}[len(b)]]++
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	if there("old") == there("new") {
		t.Error("a rename is done by half")
	}
	for _, name := range []string{"old", "new", "gone", "last"} {
		if there(name) {
			seen[name]++
		} else {
			seen["no "+name]++
		}
	}
}
