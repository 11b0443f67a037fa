package web

import (
	"bytes"
	"fmt"
	"html"
	"net/http"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"weir/docs"
)

// docs serves a page of the documentation at its own path, so that the links between pages hold as they are written.
func (s *front) docs(w http.ResponseWriter, r *http.Request) {
	at := r.PathValue("page")
	if at == "" {
		at = docs.First
	}
	source, ok := docs.Read(at)
	if !ok {
		s.otherPage(w, r, at)
		return
	}
	body, err := renderPage(at, source)
	if err != nil {
		s.Log.Error("a page of the documentation cannot be shown", "page", at, "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	depth := strings.Count(at, "/")
	title := ""
	for _, page := range docs.Pages() {
		if page.Path == at {
			title = page.Title
		}
	}
	s.show(w, http.StatusOK, docsPage(s.Version, title, strings.Repeat("../", depth+1), g.Raw(body), at, // escaped by the renderer
		func(p docs.Page) string { return strings.Repeat("../", depth) + p.Path }))
}

// otherPage answers for an address that is no page: the page that was meant, or 404 with the way to the list.
func (s *front) otherPage(w http.ResponseWriter, r *http.Request, at string) {
	up := strings.Repeat("../", strings.Count(at, "/"))
	if p, found, _ := docs.Find(at); found {
		leadsTo(up+p.Path).ServeHTTP(w, r)
		return
	}
	s.show(w, http.StatusNotFound, docsPage(s.Version, "There is no such page", up+"../", g.Group{
		h.H1(g.Text("There is no such page")),
		h.P(g.Text(at+" is not part of this documentation. "), h.A(h.Href(up+docs.First), g.Text("All pages"))),
	}, "", nil))
}

// renderPage makes HTML of a page. Raw HTML in it is left out.
func renderPage(at, source string) (string, error) {
	md := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(docsRenderer{}, 1))))
	from := []byte(source)
	tree := md.Parser().Parse(text.NewReader(from))
	identify(tree, from)
	unlink(tree, at)
	var b bytes.Buffer
	err := md.Renderer().Render(&b, from, tree)
	return b.String(), err
}

// nodesOf returns the nodes of a kind.
func nodesOf[N ast.Node](tree ast.Node) (found []N) {
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the walker returns no error
		if one, ok := n.(N); ok && entering {
			found = append(found, one)
		}
		return ast.WalkContinue, nil
	})
	return found
}

// identify gives each heading the id that links to it use, made as on the usual hosts of Markdown: lower case, letters,
// digits, - and _ kept, a blank as -, a number after an id that is taken.
func identify(tree ast.Node, source []byte) {
	used := map[string]int{}
	for _, h := range nodesOf[*ast.Heading](tree) {
		id := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, plainText(h, source))
		used[id]++
		if n := used[id]; n > 1 {
			id = fmt.Sprintf("%s-%d", id, n-1)
		}
		h.SetAttributeString("id", []byte(id))
	}
}

func plainText(n ast.Node, source []byte) string {
	var b strings.Builder
	for _, t := range nodesOf[*ast.Text](n) {
		b.Write(t.Segment.Value(source))
	}
	return b.String()
}

// unlink turns links to files that are not pages of the documentation, such as ../README.md, into their text, and pictures into what they show.
func unlink(tree ast.Node, at string) {
	for _, l := range nodesOf[*ast.Link](tree) {
		to, _, _ := strings.Cut(string(l.Destination), "#")
		if to == "" || strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
			continue
		}
		if docs.Has(path.Join(path.Dir(at), to)) {
			continue
		}
		leaveText(l)
	}
	for _, i := range nodesOf[*ast.Image](tree) { // the program has no pictures
		leaveText(i)
	}
}

// leaveText puts what a node holds into its place.
func leaveText(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = n.FirstChild() {
		n.Parent().InsertBefore(n.Parent(), n, c)
	}
	n.Parent().RemoveChild(n.Parent(), n)
}

// docsRenderer writes what may be wider than the page otherwise than the standard renderer: it scrolls by itself, with the
// keyboard, too.
type docsRenderer struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (d docsRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, d.code)
	r.Register(tables.KindTable, d.table)
}

func (docsRenderer) code(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := n.(*ast.FencedCodeBlock)
	_, _ = w.WriteString(`<pre tabindex="0"><code>`)
	for i := range block.Lines().Len() {
		line := block.Lines().At(i)
		_, _ = w.WriteString(html.EscapeString(string(line.Value(source))))
	}
	_, err := w.WriteString("</code></pre>\n")
	return ast.WalkContinue, err
}

func (docsRenderer) table(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	out := "</table></div>\n"
	if entering {
		out = `<div class="wide" tabindex="0"><table>` + "\n"
	}
	_, err := w.WriteString(out)
	return ast.WalkContinue, err
}
