package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors says on which floor each room stands; a room imports only rooms of lower floors. internal is below all.
var floors = map[string]int{
	"internal": -1,
	"model":    0,
	"store":    1, "spool": 1, "rules": 1,
	"registry": 2, "series": 2, "auth": 2, "govern": 2, "presence": 2, "command": 2, "alarm": 2, "notify": 2, "connectors": 2, "inference": 2,
	"ingest": 3, "actions": 3, "site": 3, "backup": 3, "health": 3,
	"broker": 4, "httpingest": 4, "mqttsource": 4, "sparkplug": 4, "lwm2m": 4, "edge": 4, "gql": 4, "web": 4,
	"config":  5,
	"operate": 6,
	"app":     7,
	"cli":     8,
	"":        9,                 // main
	"bench":   10, "interop": 10, // they measure and try the program from outside
}

// fence keeps imports inside the places that may know them.
type fence struct {
	what    string
	paths   []string // import paths; each covers what lies under it
	within  []string // places that may import them
	inTests bool     // whether tests anywhere may
}

var fences = []fence{
	{what: "an SQL driver", within: []string{"store"}, paths: []string{"modernc.org/sqlite", "github.com/jackc/pgx", "github.com/lib/pq",
		"github.com/mattn/go-sqlite3", "github.com/ncruces/go-sqlite3"}},
	{what: "a log engine", within: []string{"spool"}, paths: []string{"go.etcd.io/bbolt", "github.com/nats-io"}},
	{what: "the MQTT broker library", within: []string{"broker"}, paths: []string{"github.com/mochi-mqtt"}},
	{what: "an MQTT client", within: []string{"cli"}, inTests: true, paths: []string{"github.com/eclipse/paho.golang", "github.com/eclipse/paho.mqtt.golang"}},
	{what: "a GraphQL library", within: []string{"gql"}, paths: []string{"github.com/graphql-go/graphql", "github.com/vektah/gqlparser"}},
	{what: "CoAP or DTLS", within: []string{"lwm2m"}, paths: []string{"github.com/plgd-dev/go-coap", "github.com/pion/dtls"}},
	{what: "the expression engine", within: []string{"rules"}, paths: []string{"cel.dev/cel-go", "github.com/google/cel-go"}},
	{what: "the YAML parser", within: []string{"internal/yamldoc"}, paths: []string{"github.com/goccy/go-yaml"}},
	{what: "the command line library", within: []string{"cli"}, paths: []string{"github.com/spf13"}},
	{what: "a test library", within: testOnly, inTests: true, paths: []string{"testing", "pgregory.net/rapid", "go.uber.org/goleak",
		"github.com/rogpeppe/go-internal", "github.com/prometheus/client_golang/prometheus/testutil"}},
}

// pure rooms do no I/O: what they return follows from what they are given. Their tests may read files.
var pure = []string{"model", "rules"}

var impure = []string{"os", "io/fs", "io/ioutil", "net", "database", "syscall", "log", "embed", "plugin", "crypto/tls", "golang.org/x/sys", "golang.org/x/net"}

// harmless lies under a name of impure and yet does no I/O.
var harmless = []string{"net/url", "net/netip", "net/mail", "net/textproto"}

// testOnly are packages for tests: nothing of the program may import them.
var testOnly = []string{"internal/testweir", "internal/testcerts", "internal/follow", "internal/need", "internal/powercut", "internal/conformance", "spool/spooltest", "store/storetest", "bench", "interop"}

// TestImportsRunDownwards reads the sources itself instead of asking go list, because the test cache would not notice a
// new import.
func TestImportsRunDownwards(t *testing.T) {
	t.Parallel()
	for _, v := range violations(sources(t, ".")) {
		t.Error(v)
	}
}

// sources returns the Go files of the module by their path.
func sources(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root {
			if n := d.Name(); n[0] == '.' || n[0] == '_' || n == "testdata" || n == "node_modules" {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
				return filepath.SkipDir // another module
			}
		}
		if d.IsDir() || filepath.Ext(p) != ".go" {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 100 {
		t.Fatalf("only %d Go files found", len(out))
	}
	return out
}

// violations names every import of the files (path → source) that the house does not allow.
func violations(files map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := parser.ParseFile(token.NewFileSet(), name, files[name], parser.ImportsOnly)
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		dir := strings.TrimPrefix(path.Dir(name), ".")
		if _, known := floors[room(dir)]; !known {
			out = append(out, fmt.Sprintf("%s: %s has no floor", name, room(dir)))
			continue
		}
		test := strings.HasSuffix(name, "_test.go")
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				out = append(out, fmt.Sprintf("%s: %v", name, err))
				continue
			}
			if why := refused(dir, imported, test); why != "" {
				out = append(out, fmt.Sprintf("%s imports %s: %s", name, imported, why))
			}
		}
	}
	return out
}

// refused says why the package in dir may not import what it imports, "" if it may.
func refused(dir, imported string, test bool) string {
	if imported == "weir" || strings.HasPrefix(imported, "weir/") {
		return refusedRoom(dir, strings.TrimPrefix(strings.TrimPrefix(imported, "weir"), "/"), test)
	}
	for _, f := range fences {
		if under(imported, f.paths) && !under(dir, f.within) && !(test && f.inTests) {
			return fmt.Sprintf("%s belongs in %s only", f.what, strings.Join(f.within, ", "))
		}
	}
	if under(dir, pure) && !test && under(imported, impure) && !under(imported, harmless) {
		return room(dir) + " does no I/O"
	}
	return ""
}

func refusedRoom(dir, imported string, test bool) string {
	from, to := room(dir), room(imported)
	floor, known := floors[to]
	switch {
	case !known:
		return to + " has no floor"
	case under(imported, testOnly) && !test && !under(dir, testOnly):
		return "only tests may"
	case from == to && (test || from == "internal" || under(dir, []string{imported})):
		return "" // a test of the room, a helper, or a part of its parent
	case from == to:
		return "a part of a room imports its parent only, and a room no part of its own"
	case floor > floors[from]:
		return fmt.Sprintf("the arrow runs up, from floor %d to floor %d", floors[from], floor)
	case floor == floors[from]:
		return fmt.Sprintf("the arrow runs sideways on floor %d", floor)
	}
	return ""
}

// room is the top directory of a package.
func room(dir string) string {
	r, _, _ := strings.Cut(dir, "/")
	return r
}

// under reports whether p is one of these paths or lies under one.
func under(p string, paths []string) bool {
	return slices.ContainsFunc(paths, func(q string) bool { return p == q || strings.HasPrefix(p, q+"/") })
}

// house is a small tree in which every import is allowed.
var house = map[string]string{
	"main.go":                     `import ("os"; "weir/cli")`,
	"cli/cli.go":                  `import ("github.com/spf13/cobra"; "weir/app"; "weir/config"; "weir/model"; "weir/operate"; "github.com/eclipse/paho.golang/paho")`,
	"app/app.go":                  `import ("weir/broker"; "weir/gql"; "weir/spool/bolt"; "weir/store/sqlite"; "weir/internal/hub")`,
	"app/app_test.go":             `import ("weir/internal/testweir"; "weir/internal/conformance"; "github.com/rogpeppe/go-internal/testscript")`,
	"gql/gql.go":                  `import ("github.com/graphql-go/graphql"; "weir/registry"; "weir/ingest")`,
	"gql/gql_test.go":             `import ("weir/gql"; "weir/store/sqlite"; "testing")`,
	"broker/broker_test.go":       `import ("github.com/eclipse/paho.golang/paho"; "weir/broker")`,
	"rules/rule.go":               `import ("net/url"; "cel.dev/cel-go/cel"; "weir/model")`,
	"rules/canvas/canvas.go":      `import "weir/rules"`,
	"rules/golden_test.go":        `import "os"`,
	"spool/bolt/bolt.go":          `import ("go.etcd.io/bbolt"; "go.etcd.io/bbolt/errors"; "weir/spool")`,
	"spool/bolt/bolt_test.go":     `import "weir/spool/spooltest"`,
	"spool/spooltest/suite.go":    `import ("testing"; "pgregory.net/rapid"; "weir/spool")`,
	"store/sqlite/sqlite.go":      `import ("modernc.org/sqlite"; "modernc.org/sqlite/lib"; "weir/store")`,
	"internal/hub/hub.go":         `import "weir/internal/wire"`,
	"internal/conformance/x/x.go": `import "weir/internal/conformance"`,
	"model/model.go":              `import "weir/internal/wire"`,
	"internal/yamldoc/yamldoc.go": `import "github.com/goccy/go-yaml/parser"`,
}

func build(extra map[string]string) map[string]string {
	files := map[string]string{}
	for name, imports := range house {
		files[name] = "package p\n" + imports
	}
	for name, imports := range extra {
		files[name] = "package p\n" + imports
	}
	return files
}

func TestASoundTreeHasNoViolation(t *testing.T) {
	t.Parallel()
	if vs := violations(build(nil)); len(vs) > 0 {
		t.Errorf("got %q", vs)
	}
}

// TestEachSortOfBadArrowIsNamed adds one bad import to the sound tree: it, and nothing else, must be named.
func TestEachSortOfBadArrowIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, imported, why string }{
		{"up", "store/bad.go", "weir/registry", "runs up, from floor 1 to floor 2"},
		{"up to main", "app/bad.go", "weir", "runs up, from floor 7 to floor 9"},
		{"up in a test", "registry/bad_test.go", "weir/ingest", "runs up, from floor 2 to floor 3"},
		{"sideways", "broker/bad.go", "weir/gql", "runs sideways on floor 4"},
		{"sideways between engines", "rules/bad.go", "weir/store", "runs sideways on floor 1"},
		{"sideways in a test", "spool/bolt/bad_test.go", "weir/store/sqlite", "runs sideways on floor 1"},
		{"out of internal", "internal/hub/bad.go", "weir/model", "runs up, from floor -1 to floor 0"},
		{"out of internal into a room, in a test", "internal/hub/bad_test.go", "weir/model", "runs up, from floor -1 to floor 0"},
		{"a parent and its part", "spool/bad.go", "weir/spool/bolt", "a room no part of its own"},
		{"a part and its sibling", "rules/canvas/bad.go", "weir/rules/preview", "imports its parent only"},
		{"a name that only begins like the parent", "rules/canvas/bad.go", "weir/rules/can", "imports its parent only"},
		{"a room without a floor", "attic/bad.go", "fmt", "attic has no floor"},
		{"an import of a room without a floor", "app/bad.go", "weir/attic", "attic has no floor"},
		{"the program and a test helper", "cli/bad.go", "weir/internal/testweir", "only tests may"},
		{"the program and a conformance suite", "app/bad.go", "weir/store/storetest", "only tests may"},
		{"the program and package testing", "model/bad.go", "testing", "a test library belongs in"},
		{"an SQL driver in a domain", "registry/bad.go", "modernc.org/sqlite", "an SQL driver belongs in store only"},
		{"an SQL driver in a test", "app/bad_test.go", "github.com/jackc/pgx/v5", "an SQL driver belongs in store only"},
		{"bbolt outside the spool", "ingest/bad.go", "go.etcd.io/bbolt", "a log engine belongs in spool only"},
		{"bbolt in the store", "store/bad.go", "go.etcd.io/bbolt", "a log engine belongs in spool only"},
		{"the broker library in another door", "httpingest/bad.go", "github.com/mochi-mqtt/server/v2/packets", "the MQTT broker library belongs in broker only"},
		{"the broker library in a test", "app/bad_test.go", "github.com/mochi-mqtt/server/v2", "the MQTT broker library belongs in broker only"},
		{"an MQTT client in a door", "broker/bad.go", "github.com/eclipse/paho.golang/autopaho", "an MQTT client belongs in cli only"},
		{"GraphQL execution outside gql", "web/bad.go", "github.com/graphql-go/graphql/language/ast", "a GraphQL library belongs in gql only"},
		{"the GraphQL parser outside gql", "auth/bad.go", "github.com/vektah/gqlparser/v2", "a GraphQL library belongs in gql only"},
		{"DTLS outside lwm2m", "broker/bad.go", "github.com/pion/dtls/v3", "CoAP or DTLS belongs in lwm2m only"},
		{"expressions outside rules", "registry/bad.go", "cel.dev/cel-go/cel", "the expression engine belongs in rules only"},
		{"YAML outside yamldoc", "rules/bad.go", "github.com/goccy/go-yaml", "the YAML parser belongs in internal/yamldoc only"},
		{"cobra outside cli", "app/bad.go", "github.com/spf13/cobra", "the command line library belongs in cli only"},
		{"files in rules", "rules/bad.go", "os", "rules does no I/O"},
		{"a process in rules", "rules/canvas/bad.go", "os/exec", "rules does no I/O"},
		{"the network in rules", "rules/bad.go", "net/http", "rules does no I/O"},
		{"a database in model", "model/bad.go", "database/sql", "model does no I/O"},
		{"the global log in model", "model/bad.go", "log/slog", "model does no I/O"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			vs := violations(build(map[string]string{c.file: fmt.Sprintf("import %q", c.imported)}))
			if len(vs) != 1 || !strings.Contains(vs[0], c.file) || !strings.Contains(vs[0], c.why) {
				t.Errorf("got %q, want one that names %s: %s", vs, c.file, c.why)
			}
		})
	}
}

func TestAFileThatDoesNotParseIsNamed(t *testing.T) {
	t.Parallel()
	if vs := violations(map[string]string{"model/bad.go": "package"}); len(vs) != 1 || !strings.Contains(vs[0], "model/bad.go") {
		t.Errorf("got %q", vs)
	}
}
