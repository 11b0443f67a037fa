// Package keylimit reads the limits that are declared beside the keys of the configuration, for docs/limits.md. A limit is a comment
// above the field of its key, of lines such as
//
//	//limit:what devices of a tenant
//	//limit:chapter What is kept
//	//limit:bound {}
//	//limit:met weir_registry_refused_changes_total{cause="rows"}
//	//limit:then LIMIT_EXCEEDED, with the key
//
// A line begins with one of these names; one that is repeated goes on with the text.
//
//	what     names what is bounded, and begins a limit: a key may have several
//	chapter  of the page
//	bound    the maximum; {} is the default of the key, {KEY} that of another one
//	keys     further keys that change it, separated by spaces
//	level    metrics of how much there is, separated by spaces
//	met      metrics of how often the bound was met, likewise
//	then     what happens at the bound
//	cost     of one of what is bounded; it may be left out
package keylimit

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/setting"
)

// Limit is a bound on something that grows with input from outside.
type Limit struct {
	Chapter, What, Bound string
	Keys                 []string // that of the field first
	Level, Met           []string // metrics
	Then, Cost           string
}

// Declared returns the limits of all keys of a struct of settings, in the order of the keys. root is the path of the module, in which the
// sources are read. A declaration that is incomplete, or names what there is not, is an error of the test.
func Declared(t testing.TB, root string, settings any) []Limit {
	t.Helper()
	d := declarations{t: t, root: root, packages: map[string]comments{}, defaults: map[string]string{}}
	d.walk(reflect.TypeOf(settings), "", func(_ reflect.Type, sf reflect.StructField, key string) {
		d.defaults[key] = shown(sf)
	})
	var all []Limit
	d.walk(reflect.TypeOf(settings), "", func(owner reflect.Type, sf reflect.StructField, key string) {
		all = append(all, d.limits(key, d.comment(owner, sf.Name))...)
	})
	return all
}

// comments are the lines that declare limits, by type and field.
type comments map[[2]string][]string

type declarations struct {
	t        testing.TB
	root     string
	packages map[string]comments // by import path
	defaults map[string]string   // by key, as the page shows them
}

// walk visits every key of a struct, those of sections and of their lists too, with the type that declares it.
func (d declarations) walk(owner reflect.Type, path string, visit func(owner reflect.Type, sf reflect.StructField, key string)) {
	for sf := range owner.Fields() {
		name := sf.Tag.Get("yaml")
		if name == "" {
			if sf.Anonymous && sf.Type.Kind() == reflect.Struct {
				d.walk(sf.Type, path, visit)
			}
			continue
		}
		key := strings.TrimPrefix(path+"."+name, ".")
		visit(owner, sf, key)
		switch v := reflect.Zero(sf.Type); {
		case setting.IsSection(v):
			d.walk(sf.Type, key, visit)
		case setting.IsSections(v):
			d.walk(sf.Type.Elem(), key+"[]", visit)
		}
	}
}

// comment returns the lines above a field that declare limits.
func (d declarations) comment(owner reflect.Type, field string) []string {
	pkg := owner.PkgPath()
	if _, read := d.packages[pkg]; !read {
		d.packages[pkg] = d.read(pkg)
	}
	return d.packages[pkg][[2]string{owner.Name(), field}]
}

// read parses the sources of a package. A limit that stands anywhere but above a field of a struct is an error: nobody would see it.
func (d declarations) read(pkg string) comments {
	d.t.Helper()
	out := comments{}
	_, dir, _ := strings.Cut(pkg, "/")
	files, err := filepath.Glob(filepath.Join(d.root, dir, "*.go"))
	if err != nil || len(files) == 0 {
		d.t.Fatalf("the sources of %s are not found: %v", pkg, err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			d.t.Fatal(err)
		}
		found := 0
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					lines := limitLines(f.Doc)
					found += len(lines)
					for _, id := range f.Names {
						out[[2]string{spec.Name.Name, id.Name}] = lines
					}
				}
			}
			return true
		})
		for _, group := range file.Comments {
			found -= len(limitLines(group))
		}
		if found != 0 {
			d.t.Errorf("%s: a limit stands above something that is not a field", name)
		}
	}
	return out
}

const prefix = "//limit:"

func limitLines(doc *ast.CommentGroup) (lines []string) {
	if doc == nil {
		return nil
	}
	for _, c := range doc.List {
		if line, ok := strings.CutPrefix(c.Text, prefix); ok {
			lines = append(lines, line)
		}
	}
	return lines
}

// limits reads the declarations of one key.
func (d declarations) limits(key string, lines []string) (all []Limit) {
	d.t.Helper()
	last := ""
	for _, line := range lines {
		name, text, _ := strings.Cut(line, " ")
		if name == "what" && last != "what" {
			all = append(all, Limit{Keys: []string{key}})
		}
		if len(all) == 0 {
			d.t.Errorf("%s: the first line of a limit is %swhat", key, prefix)
			return nil
		}
		l := &all[len(all)-1]
		switch name {
		case "what":
			l.What = joined(l.What, text)
		case "chapter":
			l.Chapter = joined(l.Chapter, text)
		case "bound":
			l.Bound = joined(l.Bound, text)
		case "keys":
			l.Keys = append(l.Keys, strings.Fields(text)...)
		case "level":
			l.Level = append(l.Level, strings.Fields(text)...)
		case "met":
			l.Met = append(l.Met, strings.Fields(text)...)
		case "then":
			l.Then = joined(l.Then, text)
		case "cost":
			l.Cost = joined(l.Cost, text)
		default:
			d.t.Errorf("%s: %s%s has no meaning", key, prefix, name)
		}
		last = name
	}
	for i := range all {
		l := &all[i]
		if l.Chapter == "" || l.Bound == "" || l.Then == "" {
			d.t.Errorf("%s: the limit %q needs chapter, bound and then", key, l.What)
		}
		l.Bound = d.fill(key, l.Bound)
	}
	return all
}

func joined(text, more string) string { return strings.TrimSpace(text + " " + more) }

var placeholder = regexp.MustCompile(`\{([a-z0-9_.\[\]]*)\}`)

// fill replaces the placeholders of a bound.
func (d declarations) fill(key, bound string) string {
	return placeholder.ReplaceAllStringFunc(bound, func(p string) string {
		of := strings.Trim(p, "{}")
		if of == "" {
			of = key
		}
		value, known := d.defaults[of]
		if !known || value == "" {
			d.t.Errorf("%s: the bound shows the default of %s, which has none", key, of)
		}
		return value
	})
}

// shown is the default of a key as the page has it: 10,000, 64 MiB, 30 days.
func shown(sf reflect.StructField) string {
	def, ok := setting.OfTag(sf, "default")
	if !ok {
		return ""
	}
	switch v := def.Interface().(type) {
	case setting.Size:
		return regexp.MustCompile(`^(\d+)([A-Z])`).ReplaceAllString(v.String(), "$1 $2")
	case time.Duration:
		return duration(v)
	}
	switch {
	case def.CanInt():
		return thousands(def.Int())
	case def.CanFloat() && def.Float() == math.Trunc(def.Float()):
		return thousands(int64(def.Float()))
	}
	return fmt.Sprint(def.Interface())
}

func duration(d time.Duration) string {
	switch day := 24 * time.Hour; {
	case d >= 2*day && d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return d.String()
}

// thousands writes a number with a comma after every third digit from the right.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var groups []string
	for ; len(digits) > 3; digits = digits[:len(digits)-3] {
		groups = append(groups, digits[len(digits)-3:])
	}
	groups = append(groups, digits)
	slices.Reverse(groups)
	return strings.Join(groups, ",")
}
