package follow

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer/html"
)

// Step is a block of a page that is done, with what a reader of the rendered page sees around it.
type Step struct {
	Line     int    // of its first line in the source of the page, for messages
	Language string // sh: commands to run; console: commands only to read; else the language of the file
	Section  string // the heading above it
	Above    string // the text between the step before and this one
	Terminal int    // 0 is the first one of the page
	File     string // the block is the content of this file
	Body     string
	Prints   []string // lines, in their order; … stands for anything
}

// Read renders a page and takes its steps out of the HTML, so that only what a reader sees counts: what stands behind an
// opening fence is on no screen, except for the language, which colors the block.
//
//   - A block of sh is a step; a block of text that follows is what it prints. A block of console is shown and not run.
//   - A block below a paragraph that is nothing but a name, bold and as code, is the content of that file.
//   - "A second terminal", "a new terminal", "the first terminal" in the text above say where a step is done.
func Read(t testing.TB, page string) []Step {
	t.Helper()
	source, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := read(source)
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	return steps
}

func read(source []byte) ([]Step, error) {
	var page bytes.Buffer
	page.WriteString("<page>")
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(html.WithXHTML()))
	if err := md.Convert(source, &page); err != nil {
		return nil, err
	}
	page.WriteString("</page>")
	r := reader{source: string(source)}
	in := xml.NewDecoder(&page)
	in.Entity = xml.HTMLEntity
	for {
		token, err := in.Token()
		if err == io.EOF {
			return r.steps, nil
		}
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			r.begin(token)
		case xml.CharData:
			r.text(string(token))
		case xml.EndElement:
			r.end(token.Name.Local)
		}
	}
}

// reader goes through a rendered page.
type reader struct {
	source string
	done   int // bytes of source up to the block before
	steps  []Step

	open      []string // elements
	paragraph strings.Builder
	bold      strings.Builder // what is bold and code in the paragraph
	language  string
	body      strings.Builder

	section   string
	above     strings.Builder
	caption   string // the name that the last paragraph consists of
	terminal  int
	terminals int
	prints    bool // a block of text now is what the last step prints
}

func (r *reader) within(names ...string) bool {
	return strings.HasSuffix(" "+strings.Join(r.open, " "), " "+strings.Join(names, " "))
}

func (r *reader) begin(e xml.StartElement) {
	r.open = append(r.open, e.Name.Local)
	switch e.Name.Local {
	case "p", "li", "h1", "h2", "h3", "h4", "th", "td":
		r.paragraph.Reset()
		r.bold.Reset()
		r.above.WriteByte('\n')
	case "pre":
		r.language = ""
		r.body.Reset()
	case "code":
		for _, a := range e.Attr {
			if a.Name.Local == "class" {
				r.language = strings.TrimPrefix(a.Value, "language-")
			}
		}
	}
}

func (r *reader) text(s string) {
	switch {
	case r.within("pre", "code"):
		r.body.WriteString(s)
		return
	case r.within("strong", "code"):
		r.bold.WriteString(s)
	}
	r.paragraph.WriteString(s)
	r.above.WriteString(s)
}

func (r *reader) end(name string) {
	r.open = r.open[:len(r.open)-1]
	switch name {
	case "p":
		r.caption = ""
		if all := strings.TrimSpace(r.paragraph.String()); all == r.bold.String() {
			r.caption = all
		}
	case "h1", "h2", "h3", "h4":
		r.section, r.caption = r.paragraph.String(), ""
	case "pre":
		r.block()
	}
}

// terminals are the ways to say where a step is done.
var terminals = regexp.MustCompile(`(?i)\b(first|second|third|new|another)\s+(?:terminal|shell)\b`)

func (r *reader) block() {
	s := Step{Line: r.line(), Language: r.language, Section: r.section, File: r.caption, Body: r.body.String()}
	r.caption = ""
	switch {
	case s.File != "", s.Language == "sh", s.Language == "console":
	case s.Language == "text" && r.prints:
		r.steps[len(r.steps)-1].Prints = strings.Split(strings.TrimSpace(s.Body), "\n")
		r.prints = false
		return
	default:
		return
	}
	s.Above = r.above.String()
	r.above.Reset()
	for _, m := range terminals.FindAllStringSubmatch(s.Above, -1) {
		r.terminal = map[string]int{"first": 0, "second": 1, "third": 2}[strings.ToLower(m[1])]
		if m[1] == "new" || m[1] == "another" {
			r.terminal = r.terminals + 1
		}
		r.terminals = max(r.terminals, r.terminal)
	}
	s.Terminal = r.terminal
	r.steps = append(r.steps, s)
	r.prints = s.File == ""
}

// line is where the present block begins in the source.
func (r *reader) line() int {
	first, _, _ := strings.Cut(r.body.String(), "\n")
	if at := regexp.MustCompile(`(?m)^\s*?` + regexp.QuoteMeta(first) + `$`).FindStringIndex(r.source[r.done:]); at != nil {
		r.done += at[1]
	}
	return strings.Count(r.source[:r.done], "\n") + 1
}
