// Package docs is the documentation as a part of the program, so that a machine without the Internet has it: weir docs prints
// a page, and the API listener serves them all at /docs/.
package docs

import (
	"archive/zip"
	"bytes"
	_ "embed" // the archive
	"io"
	"path"
	"slices"
	"strings"
)

// packed has every page and every schema of this directory, compressed, a third of their size. It is made from them by
// go test ./docs -run Archive -update, and a test holds it against them. The comment of a page is its title.
//
//go:embed docs.zip
var packed []byte

// First is the page that lists the others.
const First = "README.md"

// Page is a page of the documentation.
type Page struct {
	Path  string `json:"path"` // below docs/: transports/mqtt.md
	Title string `json:"title"`
}

// Name is the path without its ending.
func (p Page) Name() string { return strings.TrimSuffix(p.Path, ".md") }

// archived are the files of the archive.
func archived() []*zip.File {
	z, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil { // never: it was built with the program
		panic(err)
	}
	return z.File
}

// Pages lists all pages, the first one first, those of a directory after those above it.
func Pages() []Page {
	pages := []Page{}
	for _, f := range archived() {
		if isPage(f.Name) {
			pages = append(pages, Page{f.Name, f.Comment})
		}
	}
	slices.SortStableFunc(pages, func(a, b Page) int { return strings.Compare(order(a.Path), order(b.Path)) })
	return pages
}

func isPage(name string) bool { return path.Ext(name) == ".md" }

// order sorts pages by directory, the first page of each before the others.
func order(at string) string {
	dir, name := path.Split(at)
	if name == First {
		name = ""
	}
	return dir + "\x00" + name
}

// Has tells whether there is a page of that path.
func Has(at string) bool {
	return isPage(at) && slices.ContainsFunc(archived(), func(f *zip.File) bool { return f.Name == at })
}

// Read returns the text of a page in Markdown.
func Read(at string) (text string, ok bool) {
	if !isPage(at) {
		return "", false
	}
	for _, f := range archived() {
		if f.Name == at {
			return unpacked(f), true
		}
	}
	return "", false
}

// unpacked is the text of a file of the archive.
func unpacked(f *zip.File) string {
	r, err := f.Open()
	if err == nil {
		var b []byte
		if b, err = io.ReadAll(r); err == nil {
			return string(b)
		}
	}
	panic(err) // never: it was built with the program
}

// Schemas returns the JSON Schemas (2020-12) of what devices send and receive, by the name of their file. A reference from one to
// another is relative to where they are published.
func Schemas() map[string]string {
	all := map[string]string{}
	for _, f := range archived() {
		if dir, name := path.Split(f.Name); dir == "schema/" {
			all[name] = unpacked(f)
		}
	}
	return all
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
