package docs

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"flag"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "make docs.zip again")

// sources are the pages and schemas of this directory by their paths, as they are to be archived.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	here := os.DirFS(".")
	for _, pattern := range []string{"*.md", "*/*.md", "schema/*.json"} {
		names, err := fs.Glob(here, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			b, err := fs.ReadFile(here, name)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(b)
		}
	}
	return all
}

// title is the text of the first heading.
func title(text string) string {
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(line, "# "); ok {
			return strings.TrimSpace(strings.ReplaceAll(heading, "`", ""))
		}
	}
	return ""
}

// archive makes the archive: the files by their names, without times, so that the same sources make the same bytes.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		if isPage(name) {
			h.Comment = title(files[name])
		}
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(w, files[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The comparison is that of the texts: another version of Go may compress them to other bytes.
func TestTheArchiveHasEveryPageAndSchemaAsItIs(t *testing.T) {
	files := sources(t)
	if *update {
		packed = archive(t, files)
		if err := os.WriteFile("docs.zip", packed, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const hint = "make it again: go test ./docs -run Archive -update"
	for _, f := range archived() {
		text, ok := files[f.Name]
		delete(files, f.Name)
		switch {
		case !ok:
			t.Errorf("docs.zip has %s, which is no page or schema any more; %s", f.Name, hint)
		case unpacked(f) != text:
			t.Errorf("docs.zip has another text of %s; %s", f.Name, hint)
		case isPage(f.Name) && f.Comment != title(text):
			t.Errorf("docs.zip has the title %q for %s; %s", f.Comment, f.Name, hint)
		}
	}
	for name := range files {
		t.Errorf("docs.zip lacks %s; %s", name, hint)
	}
}

func TestTheArchiveIsTheSameForTheSameSources(t *testing.T) {
	files := sources(t)
	if !bytes.Equal(archive(t, files), archive(t, files)) {
		t.Error("two archives of the same files differ")
	}
}

func TestPagesAreFoundByPathAndSchemasByFile(t *testing.T) {
	for _, p := range Pages() {
		if text, ok := Read(p.Path); !ok || !Has(p.Path) || title(text) != p.Title || p.Title == "" {
			t.Errorf("%s: read %v, has %v, title %q", p.Path, ok, Has(p.Path), p.Title)
		}
	}
	for name := range Schemas() {
		if Has(path.Join("schema", name)) {
			t.Errorf("the schema %s is told to be a page", name)
		}
	}
	if Pages()[0].Path != First || len(Schemas()) == 0 || Has("no-such.md") {
		t.Error("the first page, the schemas or a page that is missing")
	}
}

// The pictures that the pages and README show are there, and no other, since each clone carries them.
func TestThePicturesOfThePagesAreThere(t *testing.T) {
	shown := map[string]bool{}
	texts := sources(t)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	texts["../README.md"] = string(readme)
	for _, text := range texts {
		for _, m := range regexp.MustCompile(`!\[[^\]]+\]\((?:docs/)?pictures/([a-zA-Z0-9-]+\.png)\)`).FindAllStringSubmatch(text, -1) {
			shown[m[1]] = true
		}
	}
	files, err := os.ReadDir("pictures")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, f := range files {
		if !shown[f.Name()] {
			t.Errorf("pictures/%s is shown by no page", f.Name())
		}
		delete(shown, f.Name())
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	for name := range shown {
		t.Errorf("pictures/%s is missing: make console-shots makes it", name)
	}
	if total > 3<<20 || total == 0 {
		t.Errorf("the pictures have %d bytes", total)
	}
}
