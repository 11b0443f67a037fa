// Package yamldoc reads a YAML document into a plain tree in which every node knows where it stands, and describes mistakes by
// file, line and column, with the line itself. It decides nothing about keys: the reader of the tree does.
package yamldoc

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// File is a document as it was read; places point into it.
type File struct {
	Name  string
	lines []string
}

// NewFile returns a file without content, for mistakes that have no place in it.
func NewFile(name string) *File { return &File{Name: name} }

// FileOf returns a file that is not YAML, for mistakes in its lines.
func FileOf(name string, text []byte) *File {
	return &File{Name: name, lines: strings.Split(string(bytes.TrimPrefix(text, []byte("\ufeff"))), "\n")}
}

// Line returns a line, 1 is the first; "" for one that is not there.
func (f *File) Line(n int) string {
	if n < 1 || n > len(f.lines) {
		return ""
	}
	return f.lines[n-1]
}

// Position is a line and column of a file. The zero Position is unknown.
type Position struct {
	File   *File
	Line   int // 1 is the first; 0: no line
	Column int // in characters, 1 is the first
}

// Problem is what is wrong at this place. path is the key, its parents before it, joined by dots; secret leaves the value
// out of the line that is shown.
func (p Position) Problem(path string, secret bool, hint, format string, args ...any) Problem {
	r := Problem{Line: p.Line, Column: p.Column, Path: path, Reason: fmt.Sprintf(format, args...), Hint: hint}
	if p.File == nil {
		return r
	}
	r.File = p.File.Name
	if p.Line > 0 && p.Line <= len(p.File.lines) {
		r.Source = strings.TrimRight(p.File.lines[p.Line-1], " \r")
		if name, _, ok := strings.Cut(r.Source, ":"); ok && secret {
			r.Source = name + ": …"
		}
		r.Source = shortened(r.Source)
	}
	return r
}

// maxShown bounds a line that is shown, in characters.
const maxShown = 400

// shortened bounds a line.
func shortened(line string) string {
	if runes := []rune(line); len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return line
}

// Kind says what a node is.
type Kind uint8

// The kinds of node.
const (
	Null Kind = iota
	Scalar
	List
	Map
)

// Node is one value of the document.
type Node struct {
	Kind    Kind
	Place   Position
	Text    string  // of a Scalar, without its quotes
	Quoted  bool    // the Scalar is a text, whatever it looks like: in quotes or a block
	Items   []*Node // of a List
	Entries []Entry // of a Map, in their order, each key once
}

// Entry is a key of a Map with its value.
type Entry struct {
	Key   string
	Place Position // of the key
	Value *Node
}

// Get returns the value of a key of a Map, nil when it is not there.
func (n *Node) Get(key string) *Node {
	for i := range n.Entries {
		if n.Entries[i].Key == key {
			return n.Entries[i].Value
		}
	}
	return nil
}

// Bounds of a document. An alias shares the node that its anchor names.
const (
	maxNodes = 2_000_000
	maxDepth = 64
	maxKeys  = 4096 // of one mapping: the time that the parser takes for one grows with their square
)

// Parse reads the one document of a file. An empty one is a Null. Keys that are given twice and second documents are problems;
// the readable part of the tree is returned with them, so that the caller can find more mistakes in it.
func Parse(name string, text []byte) (*Node, Problems) {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		at := Position{File: NewFile(name), Line: 1, Column: 1}
		return &Node{Place: at}, Problems{at.Problem("", false, "save it as UTF-8", "this is UTF-16, not UTF-8")}
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // some editors begin with a byte order mark
	if at := invalid(text); at >= 0 {
		begun := bytes.LastIndexByte(text[:at], '\n') + 1
		place := Position{File: NewFile(name), Line: 1 + bytes.Count(text[:at], []byte("\n")), Column: 1 + utf8.RuneCount(text[begun:at])}
		return &Node{Place: place}, Problems{place.Problem("", false, "save it as UTF-8", "the byte 0x%02x is no text in UTF-8", text[at])}
	}
	b := &builder{file: &File{Name: name, lines: strings.Split(string(text), "\n")}, anchors: map[string]*Node{}}
	root := &Node{Place: Position{File: b.file}}
	tokens := lexer.Tokenize(string(text))
	if at := tooDeep(tokens); at != nil {
		b.problem("", b.place(at), "", "the document is too deep: at most %d", maxDepth)
		return root, b.problems
	}
	if at := tooWide(tokens); at != nil {
		b.problem("", b.place(at), "what there are many of is a list", "a mapping has too many keys: at most %d", maxKeys)
		return root, b.problems
	}
	f, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		b.syntax(err)
		return root, b.problems
	}
	for i, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		if i > 0 {
			at := doc.Start
			if at == nil {
				at = doc.Body.GetToken()
			}
			b.problem("", b.place(at), "put everything into the first one", "a second document")
			break
		}
		root = b.node("", doc.Body, 0)
	}
	return root, b.problems
}

// tooDeep returns the token with which a document becomes deeper than the parser should be let into: it calls itself for
// each level, and a few KiB that hold nothing but opening brackets would take gigabytes. What opens a level without a
// line of its own is counted; levels by indentation pay for themselves with their length.
func tooDeep(tokens token.Tokens) *token.Token {
	flow, run, line := 0, 0, 0
	for _, t := range tokens {
		if at := t.Position; at != nil && at.Line != line {
			line, run = at.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow = max(flow-1, 0)
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			run++
		default:
			if named := t.Prev != nil && t.Prev.Type == token.AnchorType; flow > 0 && !named { // the next item of a long line
				run = 0
			}
		}
		if flow > maxDepth || run > maxDepth {
			return t
		}
	}
	return nil
}

// tooWide returns the first key of a mapping that has more than maxKeys before it, nil for none.
func tooWide(tokens token.Tokens) *token.Token {
	type mapping struct{ column, keys int } // column 0: in braces
	var open []mapping
	leave := func(column int) { // mappings that begin behind a column have ended
		for len(open) > 0 && open[len(open)-1].column > column {
			open = open[:len(open)-1]
		}
	}
	flow := 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType:
			open, flow = append(open, mapping{}), flow+1
		case token.SequenceStartType: // its mappings without braces have one key
			open, flow = append(open, mapping{keys: -len(tokens)}), flow+1
		case token.MappingEndType, token.SequenceEndType:
			if flow > 0 {
				open, flow = open[:len(open)-1], flow-1
			}
		case token.DocumentHeaderType, token.DocumentEndType:
			open, flow = open[:0], 0
		case token.SequenceEntryType:
			if flow == 0 {
				leave(t.Position.Column)
			}
		case token.MappingValueType:
			key := t.Prev
			if key == nil {
				continue
			}
			if flow == 0 {
				column := key.Position.Column
				if leave(column); len(open) == 0 || open[len(open)-1].column < column {
					open = append(open, mapping{column: column})
				}
			}
			if in := &open[len(open)-1]; in.keys < maxKeys {
				in.keys++
			} else {
				return key
			}
		}
	}
	return nil
}

type builder struct {
	file     *File
	anchors  map[string]*Node
	nodes    int
	problems Problems
}

func (b *builder) problem(path string, at Position, hint, format string, args ...any) {
	b.problems = append(b.problems, at.Problem(path, false, hint, format, args...))
}

// syntax turns the parser's error into a problem; its text carries the place in brackets.
func (b *builder) syntax(err error) {
	at := Position{File: b.file}
	text := err.Error()
	if _, scanErr := fmt.Sscanf(text, "[%d:%d]", &at.Line, &at.Column); scanErr == nil {
		_, text, _ = strings.Cut(text, "] ")
	}
	text, _, _ = strings.Cut(text, "\n")
	b.problem("", at, b.tabs(at.Line), "this is not YAML: %s", text)
}

// tabs is the hint for a line that a tab indents, "" for another one.
func (b *builder) tabs(line int) string {
	if line < 1 || line > len(b.file.lines) {
		return ""
	}
	text := b.file.lines[line-1]
	if indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]; !strings.Contains(indent, "\t") {
		return ""
	}
	return "use blanks: YAML is not indented with tabs"
}

func (b *builder) place(t *token.Token) Position {
	p := Position{File: b.file}
	if t != nil && t.Position != nil {
		p.Line, p.Column = t.Position.Line, t.Position.Column
	}
	return p
}

// node builds the tree. path is for messages.
func (b *builder) node(path string, n ast.Node, depth int) *Node {
	at := b.place(n.GetToken())
	if b.nodes++; b.nodes > maxNodes || depth > maxDepth {
		if b.nodes != maxNodes+2 { // reported once
			b.problem(path, at, "", "the document is too large or too deep: at most %d values, %d deep", maxNodes, maxDepth)
		}
		b.nodes = maxNodes + 1
		return &Node{Place: at}
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return &Node{Place: at}
	case *ast.MappingNode:
		return b.mapping(path, at, n.Values, depth)
	case *ast.MappingValueNode:
		return b.mapping(path, at, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		list := &Node{Kind: List, Place: at}
		for i, v := range n.Values {
			list.Items = append(list.Items, b.node(fmt.Sprintf("%s[%d]", path, i), v, depth+1))
		}
		return list
	case *ast.LiteralNode:
		return &Node{Kind: Scalar, Place: at, Text: n.Value.Value, Quoted: true}
	case *ast.AnchorNode:
		v := b.node(path, n.Value, depth+1)
		b.anchors[n.Name.GetToken().Value] = v
		return v
	case *ast.AliasNode:
		if v := b.anchors[n.Value.GetToken().Value]; v != nil {
			return v
		}
		b.problem(path, at, "", "the alias *%s names no anchor before it", n.Value.GetToken().Value)
		return &Node{Place: at}
	case *ast.TagNode:
		b.problem(path, at, "leave it out", "the tag %s is not understood", n.Start.Value)
		return &Node{Place: at}
	case ast.ScalarNode:
		t := n.GetToken()
		return &Node{Kind: Scalar, Place: at, Text: t.Value, Quoted: t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType}
	}
	b.problem(path, at, "", "this kind of YAML is not understood")
	return &Node{Place: at}
}

func (b *builder) mapping(path string, at Position, values []*ast.MappingValueNode, depth int) *Node {
	m := &Node{Kind: Map, Place: at}
	have := map[string]bool{}
	var merged []*Node
	for _, v := range values {
		key, where := v.Key.GetToken().Value, b.place(v.Key.GetToken())
		if _, ok := v.Key.(*ast.MergeKeyNode); ok {
			merged = append(merged, b.node(path, v.Value, depth+1))
			continue
		}
		full := Join(path, key)
		if have[key] {
			b.problem(full, where, "", "is given twice")
			continue
		}
		have[key] = true
		m.Entries = append(m.Entries, Entry{Key: key, Place: where, Value: b.node(full, v.Value, depth+1)})
	}
	for _, from := range merged {
		b.merge(path, m, from, have)
	}
	return m
}

// merge adds what a merge key (<<) brings: what the map says itself wins, then the earlier of several maps.
func (b *builder) merge(path string, into, from *Node, have map[string]bool) {
	switch from.Kind {
	case Map:
		for _, e := range from.Entries {
			if !have[e.Key] {
				have[e.Key] = true
				into.Entries = append(into.Entries, e)
			}
		}
	case List:
		for _, item := range from.Items {
			b.merge(path, into, item, have)
		}
	default:
		b.problem(path, from.Place, "", "only a mapping can be merged with <<")
	}
}

// Join appends a key to a path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// invalid is the place of the first byte that is no UTF-8, -1 for none.
func invalid(text []byte) int {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}
