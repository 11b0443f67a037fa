package site

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"weir/auth"
	"weir/govern"
	"weir/internal/yamldoc"
	"weir/registry"
)

// maxProblems is how many mistakes are reported at once.
const maxProblems = 200

// The most bytes of a file, and of all that are read for one document: it is held in memory whole.
const (
	maxFile  = 64 << 20
	maxFiles = 64 << 20
)

// Read reads files of the default format, see Format.Read.
func Read(src Source, files ...string) (d *Document, warnings []string, err error) {
	return DefaultFormat().Read(src, files...)
}

// Read reads the files of a site into one document, with what their _file and _env name. The error is Problems, every
// mistake at once. Warnings are for people.
func (f *Format) Read(src Source, files ...string) (d *Document, warnings []string, err error) {
	r := &reader{src: src.withDefaults(), format: f, doc: &Document{Lists: map[string][]*Entity{}, format: f}, warned: map[string]bool{},
		index: map[string]*Entity{}, sources: map[string]*yamldoc.File{}, documents: map[*Entity]*yamldoc.Node{}}
	for _, name := range files {
		r.file(name)
	}
	r.references()
	if r.src.Checked || r.src.Complete {
		r.check()
	}
	if len(r.problems) > 0 {
		r.sort(files)
		r.conceal()
		if more := len(r.problems) - maxProblems; more > 0 {
			r.problems = append(r.problems[:maxProblems], yamldoc.Problem{Reason: fmt.Sprintf("and %d more", more)})
		}
		return nil, r.warnings, Problems(r.problems)
	}
	return r.doc, r.warnings, nil
}

// reader builds a document.
type reader struct {
	src      Source
	format   *Format
	doc      *Document
	problems yamldoc.Problems
	warnings []string
	warned   map[string]bool
	bytes    int                      // of the files so far
	index    map[string]*Entity       // by scope, list and name: each is declared once
	sources  map[string]*yamldoc.File // with their lines, by name

	// What check looks at.
	items     []item
	inside    *Entity                   // of the list that is being read
	documents map[*Entity]*yamldoc.Node // the definitions of rules as they stand in the file
}

// sort puts the problems into the order of the files that were named, what they include after them.
func (r *reader) sort(files []string) {
	r.problems.Sort()
	place := func(p yamldoc.Problem) int {
		if i := slices.Index(files, p.File); i >= 0 {
			return i
		}
		return len(files)
	}
	slices.SortStableFunc(r.problems, func(a, b yamldoc.Problem) int { return place(a) - place(b) })
}

// inTheOpen is a key, right or mistyped, whose value may be a secret that does not belong there.
var inTheOpen = regexp.MustCompile(`(?i)((?:pass|pasw|pwd|secr|credential_?id|credential_?val|access_?tok)\w*)["']?\s*:`)

// conceal leaves out of the lines that are shown what may be a secret, whatever is wrong with them.
func (r *reader) conceal() {
	for i := range r.problems {
		p := &r.problems[i]
		for _, at := range inTheOpen.FindAllStringSubmatchIndex(p.Source, -1) {
			if key := p.Source[at[2]:at[3]]; strings.HasSuffix(key, "_file") || strings.HasSuffix(key, "_env") {
				continue
			}
			p.Source = p.Source[:at[1]] + " …"
			break
		}
	}
}

func (r *reader) problem(at yamldoc.Position, path, hint, format string, args ...any) {
	r.problems = append(r.problems, at.Problem(path, false, hint, format, args...))
}

// file reads one file.
func (r *reader) file(name string) {
	text, ok := r.text(name, yamldoc.Position{File: yamldoc.NewFile(name)}, "")
	if !ok {
		return
	}
	root, problems := yamldoc.Parse(name, text)
	r.problems = append(r.problems, problems...)
	if root.Kind != yamldoc.Map {
		if len(problems) == 0 {
			r.problem(root.Place, "", "", "must be a mapping of keys, with version: %d", Version)
		}
		return
	}
	r.sources[name] = root.Place.File
	known := append(r.format.root.keys(), keyVersion)
	for _, e := range root.Entries {
		switch k := r.format.root.nested(e.Key); {
		case e.Key == keyVersion:
			if e.Value.Kind != yamldoc.Scalar || e.Value.Text != "1" {
				r.problem(e.Value.Place, keyVersion, "", "must be %d: this Weir reads no other", Version)
			}
		case k == nil:
			r.problem(e.Place, e.Key, suggestOr(e.Key, known), "is not a key of a site file")
		default:
			r.list(k, e.Value, e.Key, "", r.doc.Lists)
		}
	}
	if root.Get(keyVersion) == nil {
		r.problem(yamldoc.Position{File: root.Place.File}, keyVersion, "write version: 1 at the top", "is missing")
	}
}

const divide = "divide it into sites that are applied one after the other"

// text reads a file and notes it.
func (r *reader) text(name string, at yamldoc.Position, path string) ([]byte, bool) {
	text, err := r.src.ReadFile(name)
	switch {
	case err != nil:
		r.problem(at, path, "", "cannot be read: %s", strings.TrimPrefix(reason(err), name+": "))
		return nil, false
	case len(text) > maxFile:
		r.problem(at, path, divide, "is larger than %d MiB", maxFile>>20)
		return nil, false
	case len(text) > maxFiles-r.bytes:
		r.problem(at, path, divide, "has %d KiB, and the files before it %d KiB: a site has at most %d MiB", len(text)>>10, r.bytes>>10, maxFiles>>20)
		return nil, false
	}
	r.bytes += len(text)
	sum := sha256.Sum256(normal(text))
	r.doc.Files = append(r.doc.Files, File{Name: name, SHA256: hex.EncodeToString(sum[:])})
	return text, true
}

// normal is a text as its digest sees it: without a byte order mark, and with the line breaks of Unix.
func normal(text []byte) []byte {
	return bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
}

// declare adds an entity to a list, or says that it is there already. A tenant may be declared in several files: its
// fields in one of them, its lists joined.
func (r *reader) declare(k *kind, scope string, e *Entity, lists map[string][]*Entity) (into *Entity, fresh bool) {
	key := scope + "/" + k.list + "/" + e.Name
	if k == r.format.identity {
		key = strings.ToLower(key)
	}
	have := r.index[key]
	switch {
	case have == nil:
		r.index[key] = e
		lists[k.list] = append(lists[k.list], e)
		return e, true
	case k == r.format.tenant && have.At.File != e.At.File:
		return have, false
	}
	r.problem(r.place(e.At), yamldoc.Join(e.At.Path, k.ids[0]), "", "the %s %q is declared at %s already", k.name, e.Name, have.At)
	return e, false
}

// place is a place as yamldoc knows it, with the line where the file is one of YAML.
func (r *reader) place(p Position) yamldoc.Position {
	f := r.sources[p.File]
	if f == nil {
		f = yamldoc.NewFile(p.File)
	}
	return yamldoc.Position{File: f, Line: p.Line, Column: p.Column}
}

// seeded are what a first start makes, or the first use: they need no declaration to be referred to.
var seeded = map[string][]string{
	"tiers": {"gold", govern.DefaultTier, "bronze"},
	"roles": {auth.RoleSuperuser, auth.RoleOperator, auth.RoleTenantAdmin},

	"entityRelationshipTypes": registry.BuiltInRelationshipTypes(),
}

// references holds what refers to a list that the files have against it. A list that they do not have may be in the
// instance: then the API says.
func (r *reader) references() {
	root := scope{lists: map[string]map[string]bool{}}
	root.add(r.doc.Lists)
	r.referBelow(r.format.root, r.doc.Lists, &root)
	for _, t := range r.doc.Lists[r.format.tenant.list] {
		inside := scope{outer: &root, lists: map[string]map[string]bool{}}
		inside.add(t.Lists)
		r.referBelow(r.format.tenant, t.Lists, &inside)
	}
	for _, p := range r.doc.Lists["identities"] {
		for _, m := range p.Lists["memberships"] {
			r.resolve("tenants", m.Name, m, "tenant", &root)
		}
	}
}

// referBelow looks at what is declared inside of one of a kind, but for tenants, whose names are their own.
func (r *reader) referBelow(outer *kind, lists map[string][]*Entity, s *scope) {
	for _, k := range outer.lists {
		for _, e := range lists[k.list] {
			r.refer(k, e, s)
			if k != r.format.tenant {
				r.referBelow(k, e.Lists, s)
			}
		}
	}
}

// scope knows the names that are declared.
type scope struct {
	outer *scope
	lists map[string]map[string]bool
}

func (s *scope) add(lists map[string][]*Entity) {
	for key, list := range lists {
		s.lists[key] = map[string]bool{}
		for _, e := range list {
			s.lists[key][e.Name] = true
		}
	}
}

func (s *scope) list(key string) map[string]bool {
	for ; s != nil; s = s.outer {
		if l := s.lists[key]; l != nil {
			return l
		}
	}
	return nil
}

// refer looks at every field of an entity that names another one.
func (r *reader) refer(k *kind, e *Entity, s *scope) {
	if k.is(tableRelationships) {
		r.referEnds(e, s)
	}
	if k.mentions != nil {
		for _, m := range k.mentions(e) {
			r.resolve(m.list, m.name, e, m.path, s)
		}
	}
	for i := range k.fields {
		f := &k.fields[i]
		if f.ref == "" {
			continue
		}
		switch v := e.Fields[f.name].(type) {
		case string:
			if v != "" {
				r.resolve(f.ref, v, e, f.name, s)
			}
		case []any:
			for _, name := range v {
				r.resolve(f.ref, name.(string), e, f.name, s)
			}
		}
	}
}

// referEnds looks at both ends of a relationship, each of which names its type in another field.
func (r *reader) referEnds(e *Entity, s *scope) {
	for _, end := range []string{"source", "target"} {
		entityType, _ := e.Fields[end+"Type"].(string)
		token, _ := e.Fields[end].(string)
		if k := r.format.of(registry.EntityTypes()[entityType]); k != nil && token != "" {
			r.resolve(k.list, token, e, end, s)
		}
	}
}

func (r *reader) resolve(list, name string, e *Entity, field string, s *scope) {
	declared := s.list(list)
	if declared == nil || declared[name] || slices.Contains(seeded[list], name) {
		return
	}
	known := slices.Clone(seeded[list])
	for n := range declared {
		known = append(known, n)
	}
	hint := suggest(name, known)
	if hint == "" {
		hint = "declare it, if only by its name"
	}
	at := e.field(field)
	r.problem(r.place(at), at.Path, hint, "%q is not declared under %s", name, list)
}
