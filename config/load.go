package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/setting"
	"weir/internal/similar"
	"weir/internal/yamldoc"
)

// Problem is one thing that is wrong with a configuration.
type Problem = yamldoc.Problem

// Problems is every mistake of a configuration, in the order of the file.
type Problems yamldoc.Problems

func (ps Problems) Error() string {
	return "the configuration is not valid:\n" + yamldoc.Problems(ps).Lines()
}

// AsProblems returns the mistakes that err holds.
func AsProblems(err error) (Problems, bool) { return errors.AsType[Problems](err) }

// Load reads defaults, files, environment and flags, in this order, and checks the whole. The error is Problems: all
// there are.
func Load(src Source) (*Config, error) {
	r := Read(src)
	if r.Problems != nil {
		return nil, r.Problems
	}
	return r.Config, nil
}

// Reading is what one look at everything that makes a configuration has found.
type Reading struct {
	Config   *Config  // nil when there are problems
	Problems Problems // nil when there are none
	// DataDir is where the data would be, problems or not.
	DataDir string
	// Fingerprint changes when one of the files does, those of secrets among them, whether they can be read or not.
	Fingerprint Fingerprint
}

// Fingerprint stands for the content of all files that were read.
type Fingerprint [sha256.Size]byte

// Read is Load for callers that read again later.
func Read(src Source) Reading {
	src = src.withDefaults()
	c := Default()
	l := newLoader(src, ofConfig(&c))
	l.config = &c
	l.layers()
	l.siteFiles()
	l.validate()
	l.siteFilesExist()
	l.conceal()
	r := Reading{DataDir: c.DataDir, Fingerprint: Fingerprint(l.seen.Sum(nil))}
	if len(l.problems) > 0 {
		l.problems.Sort()
		r.Problems = Problems(l.problems)
		return r
	}
	c.from = &provenance{given: l.given, warnings: l.warnings, fingerprint: r.Fingerprint}
	r.Config = &c
	return r
}

// Check looks at a configuration that was put together from others, as Load looks at what it has read.
func (c *Config) Check() Problems {
	l := newLoader(Source{}, ofConfig(c))
	l.config = c
	if l.validate(); len(l.problems) == 0 {
		return nil
	}
	l.problems.Sort()
	return Problems(l.problems)
}

func newLoader(src Source, root reflect.Value) *loader {
	return &loader{src: src, root: root, parsed: reflect.New(root.Type()).Elem(), precedence: newPrecedence(root), given: map[string][]given{}, waiting: map[string]reference{}, bad: map[string]bool{},
		retired: retired, seen: sha256.New()}
}

func (l *loader) layers() {
	l.files()
	l.environment()
	l.flags()
	l.secrets()
	l.fill(l.root)
}

// loader reads one layer after the other: each file, the environment, the flags. It knows where each key was given and what
// is wrong with it; the effective values are those of precedence.
type loader struct {
	src    Source
	config *Config       // for validate
	root   reflect.Value // the struct that is filled, with the defaults before
	parsed reflect.Value // a struct of the same type, into which values are parsed
	precedence
	given    map[string][]given   // where each key was given, the one that counts last
	layer    map[string]spelling  // of each key that the present layer gives
	fresh    map[string]any       // defaults of the members that the present layer adds to lists of sections
	waiting  map[string]reference // of each secret that stands elsewhere
	bad      map[string]bool      // keys with a problem: nothing more is said of them
	retired  map[string]string
	seen     hash.Hash // of all that was read
	size     int       // of all that was read
	problems yamldoc.Problems
	warnings []Warning
}

// given is a place at which a key was given: in a file, or by a variable or a flag.
type given struct {
	at   yamldoc.Position // of the key in the file
	name string           // of the variable or the flag, "" in a file
	file bool
}

// problem is what is wrong with a value that was given there.
func (g given) problem(path string, secret bool, hint, reason string) Problem {
	if g.name != "" {
		path = g.name
	}
	return g.at.Problem(path, secret, hint, "%s", reason)
}

// spelling is how a layer gives a key, and with which value.
type spelling struct {
	path  string
	value any
	set   bool // whether the value could be parsed
}

// reference is where a secret stands.
type reference struct {
	field field
	path  string // of the key that names the place
	text  string
	by    given
}

func (l *loader) problem(path string, at yamldoc.Position, secret bool, hint, format string, args ...any) {
	l.problems = append(l.problems, at.Problem(path, secret, hint, format, args...))
}

// begin begins a layer.
func (l *loader) begin() { l.layer, l.fresh = map[string]spelling{}, map[string]any{} }

// end hands the values of the layer over.
func (l *loader) end(to func(map[string]any)) {
	values := maps.Clone(l.fresh)
	for key, s := range l.layer {
		if s.set {
			values[key] = s.value
		}
	}
	to(values)
}

// give notes that a key is given here and sets it. path is the key as it is spelled; place is where its value stands.
func (l *loader) give(path string, f field, by given, place yamldoc.Position, hint string, set func() string) {
	key := f.path(path)
	l.given[key] = append(l.given[key], by)
	why := set()
	if why != "" {
		l.bad[key] = true
		l.problems = append(l.problems, given{at: place, name: by.name}.problem(path, f.secret(), hint, why))
	}
	l.once(key, path, f, by, why == "")
}

// inHours suggests the duration in hours for one in days, "" for another text.
func inHours(f field, text string) string {
	days, ok := strings.CutSuffix(text, "d")
	n, err := strconv.ParseUint(days, 10, 16)
	if !ok || err != nil || f.value.Type() != reflect.TypeFor[time.Duration]() {
		return ""
	}
	return fmt.Sprintf("write %dh", n*24)
}

// once holds that a layer gives a key in one way: a secret in one of its forms, and no two spellings with different values.
func (l *loader) once(key, path string, f field, by given, set bool) {
	before, again := l.layer[key]
	l.layer[key] = spelling{path, f.value.Interface(), set}
	switch {
	case !again || before.path == path:
	case f.secret():
		l.bad[key] = true
		l.problems = append(l.problems, by.problem(path, true, "give one of them", "and "+before.path+" both give this secret"))
	case !reflect.DeepEqual(before.value, f.value.Interface()):
		l.problems = append(l.problems, by.problem(path, false, "give one of them", "and "+before.path+" have different values"))
	}
}

// text sets a key from a string. quoted distinguishes a string from a number or a word.
func (l *loader) text(path string, f field, by given, place yamldoc.Position, text string) {
	l.give(path, f, by, place, inHours(f, text), func() string {
		switch {
		case f.reference():
			return l.refer(path, f, given{at: place, name: by.name}, text)
		case f.secret():
			delete(l.waiting, f.path(path))
			if text == shownSecret {
				return "is what weir config show writes in place of a secret, not the secret"
			}
		}
		return f.set(text)
	})
}

// siteFiles makes the site files that a file names relative to that file. Those of a variable or a flag are relative to where
// weir was started.
func (l *loader) siteFiles() {
	at := l.given["site"]
	if len(at) == 0 || !at[len(at)-1].file {
		return
	}
	for i, name := range l.config.Site {
		if !filepath.IsAbs(name) {
			l.config.Site[i] = filepath.Join(filepath.Dir(at[len(at)-1].at.File.Name), name)
		}
	}
}

// environment lays WEIR_* variables over what the files said.
func (l *loader) environment() {
	l.begin()
	defer l.end(l.merge)
	l.growByVariables(l.parsed, "")
	vars := map[string]string{}
	leaves(l.parsed, "", func(path string, _ field) { vars[Variable(path)] = path })
	for _, kv := range l.src.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "WEIR_") || otherVariable(name) {
			continue
		}
		path, ok := vars[name]
		if !ok && orchestrated(name, value) {
			continue
		}
		if !ok {
			l.strangeVariable(name, vars)
			continue
		}
		f, _ := fieldAt(l.parsed, path)
		l.text(path, f, given{name: name}, yamldoc.Position{}, value)
	}
}

func (l *loader) strangeVariable(name string, vars map[string]string) {
	for old, instead := range l.retired {
		if Variable(old) == name {
			l.warnings = append(l.warnings, Warning{Path: name, Reason: "is retired and does nothing", Hint: instead})
			return
		}
	}
	known := make([]string, 0, len(vars))
	for n := range vars {
		known = append(known, n)
	}
	// One that is misspelt is meant as what it resembles. The others belong to somebody else: a script, a wrapper, another program.
	p := Problem{Path: name, Reason: "is not a variable that this Weir knows"}
	if meant := similar.Within(name, known, 2); meant != "" {
		p.Hint = "did you mean " + meant + "?"
		l.problems = append(l.problems, p)
		return
	}
	p.Reason += " and does nothing"
	l.warnings = append(l.warnings, p)
}

// Variables that Kubernetes and the links of Docker put into the containers beside a service called weir, or weir and more words.
var (
	injected     = regexp.MustCompile(`^WEIR(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR|START|END))?|ENV_\w+)$`)
	injectedPort = regexp.MustCompile(`^WEIR(_[A-Z0-9]+)*_PORT$`) // tcp://10.0.0.11:8080
	injectedName = regexp.MustCompile(`^WEIR(_[A-Z0-9]+)*_NAME$`) // /app/weir
)

// orchestrated reports whether a variable that is no key comes from what runs the container.
func orchestrated(name, value string) bool {
	return injected.MatchString(name) || injectedPort.MatchString(name) && strings.Contains(value, "://") || injectedName.MatchString(name) && strings.HasPrefix(value, "/")
}

var variableOf = strings.NewReplacer(".", "_", "[]", "_N", "[", "_", "]", "")

// Variable is the name of the variable that sets a key.
func Variable(path string) string {
	return "WEIR_" + strings.ToUpper(variableOf.Replace(path))
}

// flags lays what the command line says over everything. A command line can be read by every user of the machine, so no
// secret stands there.
func (l *loader) flags() {
	l.begin()
	for _, s := range l.src.Set {
		path, text, _ := strings.Cut(s, "=")
		by := given{name: "--set " + path}
		l.growByPath(path)
		f, found := fieldAt(l.parsed, path)
		switch {
		case !found:
			l.strangeKey(path, path, by, paths(l.root))
		case f.kind == fieldSections:
			l.problems = append(l.problems, by.problem(path, false, "name a key of a member, such as "+memberPath(path, 0)+"."+names(setting.Member(f.value))[0], "is a list of sections"))
		case f.kind == fieldSection:
			l.problems = append(l.problems, by.problem(path, false, "name one of its keys, such as "+path+"."+names(f.value)[0], "is a section"))
		case f.secret() && !f.reference():
			l.problems = append(l.problems, by.problem(path, true, fmt.Sprintf("set %s_file, %[1]s_env or %[1]s_credential", path),
				"is a secret, and others on this machine can read a command line"))
		default:
			l.text(path, f, by, yamldoc.Position{}, text)
		}
	}
	l.end(l.override)
	if l.src.DataDir != "" {
		f, _ := fieldAt(l.parsed, "data_dir")
		l.begin() // it is shorter for --set data_dir and comes later
		defer l.end(l.override)
		l.text("data_dir", f, given{name: "--data"}, yamldoc.Position{}, l.src.DataDir)
	}
}

// strangeKey says that a key is not known, or that it is not known any more. near are the keys that may be meant.
func (l *loader) strangeKey(path, key string, by given, near []string) {
	if instead, was := l.retired[path]; was {
		l.warnings = append(l.warnings, by.problem(path, false, instead, "is retired and does nothing"))
		return
	}
	hint := yamldoc.Suggest(key, near)
	if f, found := fieldAt(l.root, path); by.file && found && f.kind != fieldSection {
		section, name, _ := strings.Cut(key, ".")
		hint = "keys nest: write " + section + ": and below it, indented, " + name
	}
	l.problems = append(l.problems, by.problem(path, false, hint, "is not a key that this Weir knows"))
}

func paths(in reflect.Value) []string {
	var out []string
	leaves(in, "", func(path string, _ field) { out = append(out, path) })
	return out
}

// retired are keys of the past and what to write instead: they warn and do nothing.
var retired = map[string]string{
	"broker.fast_path": "leave it out: there is one path",
}

// Variables that are no keys.
func otherVariable(name string) bool {
	return slices.ContainsFunc(OtherVariables(), func(v EnvVar) bool { return v.Name == name }) || slices.Contains(silentVariables, name)
}

// silentVariables are read by what builds Weir, not by Weir.
var silentVariables = []string{"WEIR_CONFORMANCE_LOG"}
