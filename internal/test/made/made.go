// Package made compares files, and parts of pages, with what a test makes from the sources, or writes them with -update.
package made

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files that the tests make from the sources")

// Update reports whether the files are written rather than compared.
func Update() bool { return *update }

// Part compares what stands in a page between two markers with text; how says what writes it again. A marker is the line
//
//	<!-- begin NAME: made from … -->
//
// with the line <!-- end NAME --> after the part; of a page with a single part both go without a name.
func Part(t testing.TB, page, name, text, how string) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	whole := string(b)
	first, last, ok := within(whole, name)
	switch {
	case !ok:
		t.Fatalf("%s has lost the lines between which %s is made", page, name)
	case whole[first:last] == text:
	case *update:
		Write(t, page, []byte(whole[:first]+text+whole[last:]))
	default:
		t.Errorf("%s: the part %q is not what the sources say; %s writes it. %s", page, name, how, differs(whole[first:last], text))
	}
}

// within returns where a part of a page begins and ends.
func within(page, name string) (first, last int, ok bool) {
	begin, end := "<!-- begin: made from ", "<!-- end -->"
	if name != "" {
		begin, end = "<!-- begin "+name+": made from ", "<!-- end "+name+" -->"
	}
	at := strings.Index(page, begin)
	if at < 0 {
		return 0, 0, false
	}
	line := strings.IndexByte(page[at:], '\n')
	if line < 0 {
		return 0, 0, false
	}
	first = at + line + 1
	size := strings.Index(page[first:], end)
	return first, first + size, size >= 0
}

// File compares a file with its bytes; how says what writes it again.
func File(t testing.TB, path string, want []byte, how string) {
	t.Helper()
	got, err := os.ReadFile(path)
	switch {
	case err == nil && string(got) == string(want):
	case *update:
		Write(t, path, want)
	case err != nil:
		t.Fatal(err)
	default:
		t.Errorf("%s is not what the sources say; %s writes it. %s", path, how, differs(string(got), string(want)))
	}
}

// differs shows the first line that two texts do not share.
func differs(is, want string) string {
	a, b := strings.Split(is, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("Line %d is\n\t%s\nnot\n\t%s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("It has %d lines, not %d", len(a), len(b))
}

// Write replaces a file in one step, since other tests may read it meanwhile.
func Write(t testing.TB, path string, b []byte) {
	t.Helper()
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		t.Fatal(err)
	}
}
