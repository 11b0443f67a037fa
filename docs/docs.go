// Package docs is the documentation as a part of the program, so that a machine without the Internet has it: weir docs prints
// a page, and the API listener serves them all at /docs/.
package docs

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed *.md */*.md
var files embed.FS

// First is the page that lists the others.
const First = "README.md"

// Page is a page of the documentation.
type Page struct {
	Path  string `json:"path"` // below docs/: transports/mqtt.md
	Title string `json:"title"`
}

// Name is the path without its ending.
func (p Page) Name() string { return strings.TrimSuffix(p.Path, ".md") }

// Pages lists all pages, the first one first, those of a directory after those above it.
func Pages() []Page {
	pages := []Page{}
	_ = fs.WalkDir(files, ".", func(at string, d fs.DirEntry, err error) error { // an embedded tree can be read
		if err == nil && !d.IsDir() {
			text, _ := Read(at)
			pages = append(pages, Page{at, title(text)})
		}
		return err
	})
	slices.SortStableFunc(pages, func(a, b Page) int { return strings.Compare(order(a.Path), order(b.Path)) })
	return pages
}

// order sorts pages by directory, the first page of each before the others.
func order(at string) string {
	dir, name := path.Split(at)
	if name == First {
		name = ""
	}
	return dir + "\x00" + name
}

// Read returns the text of a page in Markdown.
func Read(at string) (text string, ok bool) {
	b, err := files.ReadFile(at)
	return string(b), err == nil
}

// Find returns the page that a person means: by its path, by its name, or by the last part of it where only one page has
// that. Without such a page near lists those whose name contains the word.
func Find(word string) (page Page, ok bool, near []string) {
	word = strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(strings.Trim(word, "/")), "docs/"), ".md")
	var ending []Page
	for _, p := range Pages() {
		name := strings.ToLower(p.Name())
		switch {
		case name == word || name == path.Join(word, "readme"):
			return p, true, nil
		case path.Base(name) == word:
			ending = append(ending, p)
		}
		if word != "" && strings.Contains(name, word) {
			near = append(near, p.Name())
		}
	}
	if len(ending) == 1 {
		return ending[0], true, nil
	}
	return Page{}, false, near
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
