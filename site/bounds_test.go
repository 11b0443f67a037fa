package site

import (
	"strings"
	"testing"

	"weir/internal/yamldoc"
)

func TestTheFilesOfASiteAreBoundedTogether(t *testing.T) {
	t.Parallel()
	sizes := map[string]int{"fits.yaml": maxFiles - 1<<20, "over.yaml": 1<<20 + 1, "rest.yaml": 1 << 20, "huge.yaml": maxFile + 1}
	r := &reader{doc: &Document{}, src: Source{ReadFile: func(name string) ([]byte, error) { return make([]byte, sizes[name]), nil }}}
	for _, tc := range []struct{ name, why string }{
		{"fits.yaml", ""},
		{"over.yaml", "over.yaml: has 1024 KiB, and the files before it 64512 KiB: a site has at most 64 MiB"},
		{"rest.yaml", ""},
		{"huge.yaml", "huge.yaml: is larger than 64 MiB"},
	} {
		r.problems = nil
		_, ok := r.text(tc.name, yamldoc.Position{File: yamldoc.NewFile(tc.name)}, "")
		if said := Problems(r.problems).Error(); ok != (tc.why == "") || !strings.Contains(said, tc.why) {
			t.Errorf("%s: %v, %q", tc.name, ok, said)
		}
	}
	if len(r.doc.Files) != 2 {
		t.Errorf("%d files are noted", len(r.doc.Files))
	}
}
