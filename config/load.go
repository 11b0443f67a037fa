package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"` // 0 when it is not in the file
	Column int    `json:"column,omitempty"`
	Path   string `json:"path,omitempty"` // the key, its parents before it, joined by dots
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
	Source string `json:"source,omitempty"` // the line itself, without the value of a secret
}

func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	case p.File != "":
		fmt.Fprintf(&b, "%s: ", p.File)
	}
	if p.Path != "" {
		fmt.Fprintf(&b, "%s: ", p.Path)
	}
	b.WriteString(p.Reason)
	if p.Hint != "" {
		fmt.Fprintf(&b, " (%s)", p.Hint)
	}
	if p.Source != "" {
		fmt.Fprintf(&b, "\n    %s\n    %s^", p.Source, strings.Repeat(" ", max(p.Column-1, 0)))
	}
	return b.String()
}

// Problems is every mistake of a configuration, in the order of the file.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return "the configuration is not valid:\n" + strings.Join(lines, "\n")
}

// Source is where a configuration comes from.
type Source struct {
	File     string   // "" for none
	Environ  []string // as of os.Environ; WEIR_* counts
	ReadFile func(string) ([]byte, error)
}

// Environment variables that are not keys of the file.
var otherVariables = []string{"WEIR_CONFIG", "WEIR_ROOT_KEY", "WEIR_CONFORMANCE_LOG"}

// otherPrefixes begin the names of variables that are read elsewhere.
var otherPrefixes = []string{"WEIR_GRAPHQL_"}

// Load reads defaults, file and environment, in this order, and checks the whole. The error is Problems, or why the file
// cannot be read.
func Load(src Source) (*Config, error) {
	if src.ReadFile == nil {
		src.ReadFile = os.ReadFile
	}
	c := Default()
	l := &loader{src: src, config: &c, at: map[string]place{}}
	if src.File != "" {
		b, err := src.ReadFile(src.File)
		if err != nil {
			return nil, fmt.Errorf("the configuration cannot be read: %w", err)
		}
		l.file(string(b))
	}
	l.environment()
	l.validate()
	if len(l.problems) > 0 {
		slices.SortStableFunc(l.problems, func(a, b Problem) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path))
		})
		return nil, l.problems
	}
	return &c, nil
}

type place struct{ line, column int }

type loader struct {
	src      Source
	config   *Config
	lines    []string
	at       map[string]place // of each key that the file sets
	problems Problems
}

func (l *loader) problem(path string, at place, secret bool, hint, format string, args ...any) {
	p := Problem{File: l.src.File, Line: at.line, Column: at.column, Path: path, Reason: fmt.Sprintf(format, args...), Hint: hint}
	if at.line > 0 && at.line <= len(l.lines) {
		p.Source = strings.TrimRight(l.lines[at.line-1], " \r")
		if name, _, ok := strings.Cut(p.Source, ":"); ok && secret {
			p.Source = name + ": …"
		}
	}
	l.problems = append(l.problems, p)
}

// aliases are keys of the client's documents and what they are called here.
var aliases = map[string]string{"infrastructure.messaging.mqttFailClosed": "broker.fail_closed"}

func (l *loader) file(text string) {
	l.lines = strings.Split(text, "\n")
	f, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		l.syntax(err)
		return
	}
	for _, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		if doc != f.Docs[0] {
			l.problem("", placeOf(doc.Body.GetToken()), false, "put everything into the first one", "a second document")
			return
		}
		l.mapping("", doc.Body, ofConfig(l.config))
	}
}

// syntax turns the parser's error into a problem; its text carries the place in brackets.
func (l *loader) syntax(err error) {
	var at place
	text := err.Error()
	if _, scanErr := fmt.Sscanf(text, "[%d:%d]", &at.line, &at.column); scanErr == nil {
		_, text, _ = strings.Cut(text, "] ")
	}
	text, _, _ = strings.Cut(text, "\n")
	l.problem("", at, false, "", "this is not YAML: %s", text)
}

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, t.Position.Column}
}

// mapping sets the fields of a struct from a mapping node.
func (l *loader) mapping(path string, node ast.Node, into reflect.Value) {
	if n, ok := node.(*ast.NullNode); ok && n != nil {
		return // a section whose keys are all commented out
	}
	values, ok := mappingValues(node)
	if !ok {
		l.problem(path, placeOf(node.GetToken()), false, "", "must be a mapping of keys")
		return
	}
	seen := map[string]bool{}
	for _, v := range values {
		key, at := v.Key.GetToken().Value, placeOf(v.Key.GetToken())
		full := join(path, key)
		if seen[key] {
			l.problem(full, at, false, "", "is given twice")
			continue
		}
		seen[key] = true
		if l.alias(full, v.Value, at) {
			continue
		}
		field, found := fieldOf(into, key)
		switch {
		case !found:
			l.unknown(full, key, at, into)
		case field.kind == fieldSection:
			l.mapping(full, v.Value, field.value)
		default:
			l.scalar(full, v.Value, at, field)
		}
	}
}

func mappingValues(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (l *loader) unknown(path, key string, at place, in reflect.Value) {
	hint := ""
	if s := nearest(key, names(in)); s != "" {
		hint = "did you mean " + s + "?"
	}
	l.problem(path, at, false, hint, "is not a key that this Weir knows")
}

// alias sets what an aliased key stands for. A mapping on the way to one is walked; both spellings with different
// values are a mistake.
func (l *loader) alias(path string, node ast.Node, at place) bool {
	for from, to := range aliases {
		if from == path {
			l.aliased(from, to, node, at)
			return true
		}
		if strings.HasPrefix(from, path+".") {
			values, _ := mappingValues(node)
			for _, v := range values {
				full, at := join(path, v.Key.GetToken().Value), placeOf(v.Key.GetToken())
				if !l.alias(full, v.Value, at) {
					l.problem(full, at, false, "", "is not a key that this Weir knows")
				}
			}
			return true
		}
	}
	return false
}

func (l *loader) aliased(from, to string, node ast.Node, at place) {
	field, _ := fieldAt(ofConfig(l.config), to)
	before := field.value.Interface()
	_, both := l.at[to]
	l.scalar(to, node, at, field)
	if both && !reflect.DeepEqual(before, field.value.Interface()) {
		l.problem(from, at, false, "give one of them", "and %s have different values", to)
	}
}

// scalar sets one key.
func (l *loader) scalar(path string, node ast.Node, at place, f field) {
	t := node.GetToken()
	if _, isNull := node.(*ast.NullNode); isNull {
		return // a key without a value keeps its default
	}
	if _, ok := node.(ast.ScalarNode); !ok {
		l.problem(path, at, f.secret(), "", "must be a single value")
		return
	}
	l.at[f.path(path)] = at
	if why := f.set(t.Value, quoted(t), l.src); why != "" {
		l.problem(path, placeOf(t), f.secret(), "", "%s", why)
	}
}

func quoted(t *token.Token) bool {
	return t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType
}

// environment lays WEIR_* variables over what the file said.
func (l *loader) environment() {
	vars := map[string]field{}
	leaves(ofConfig(l.config), "", func(path string, f field) {
		vars["WEIR_"+strings.ToUpper(strings.ReplaceAll(path, ".", "_"))] = f
	})
	for _, kv := range l.src.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "WEIR_") || slices.Contains(otherVariables, name) ||
			slices.ContainsFunc(otherPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		f, ok := vars[name]
		if !ok {
			known := make([]string, 0, len(vars))
			for n := range vars {
				known = append(known, n)
			}
			hint := ""
			if s := nearest(name, known); s != "" {
				hint = "did you mean " + s + "?"
			}
			l.problems = append(l.problems, Problem{Path: name, Reason: "is not a variable that this Weir knows", Hint: hint})
			continue
		}
		if why := f.set(value, true, l.src); why != "" {
			l.problems = append(l.problems, Problem{Path: name, Reason: why})
		}
	}
}

// AsProblems returns the mistakes that err holds.
func AsProblems(err error) (Problems, bool) { return errors.AsType[Problems](err) }
