package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// house is a small tree in which every import is allowed.
var house = map[string]string{
	"main.go":                          `import ("os"; "weir/cli")`,
	"cli/cli.go":                       `import ("github.com/spf13/cobra"; "weir/app"; "weir/config"; "weir/model")`,
	"app/app.go":                       `import ("weir/broker"; "weir/gql"; "weir/spool/bolt"; "weir/store/sqlite"; "weir/internal/hub")`,
	"app/app_test.go":                  `import ("weir/internal/test/testweir"; "weir/internal/test/conformance"; "github.com/rogpeppe/go-internal/testscript")`,
	"gql/gql.go":                       `import ("weir/gql/engine"; "github.com/vektah/gqlparser/v2/ast"; "weir/registry"; "weir/ingest")`,
	"gql/engine/engine.go":             `import ("github.com/graphql-go/graphql"; "weir/model"; "weir/internal/hub")`,
	"gql/gql_test.go":                  `import ("weir/gql"; "weir/store/sqlite"; "testing")`,
	"broker/broker_test.go":            `import ("github.com/eclipse/paho.golang/paho"; "weir/broker")`,
	"rules/rule.go":                    `import ("net/url"; "cel.dev/cel-go/cel"; "weir/model")`,
	"rules/canvas/canvas.go":           `import "weir/rules"`,
	"rules/golden_test.go":             `import "os"`,
	"spool/bolt/bolt.go":               `import ("go.etcd.io/bbolt"; "go.etcd.io/bbolt/errors"; "weir/spool")`,
	"spool/bolt/bolt_test.go":          `import "weir/spool/spooltest"`,
	"spool/spooltest/suite.go":         `import ("testing"; "pgregory.net/rapid"; "weir/spool")`,
	"store/sqlite/sqlite.go":           `import ("modernc.org/sqlite"; "modernc.org/sqlite/lib"; "weir/store")`,
	"internal/hub/hub.go":              `import "weir/internal/wire"`,
	"internal/test/conformance/x/x.go": `import "weir/internal/test/conformance"`,
	"internal/test/fixture/store.go":   `import ("weir/model"; "weir/store/sqlite")`,
	"model/model.go":                   `import "weir/internal/wire"`,
	"internal/wire/wire.go":            `import "weir/internal/deep"`,
	"presence/track.go":                `import "time"; var now = time.Now`,
	"operate/operate.go":               `import ("weir/ingest"; "weir/config"; "net/http")`,
	"internal/yamldoc/yamldoc.go":      `import "github.com/goccy/go-yaml/parser"`,
}

func build(extra map[string]string) map[string]string {
	files := map[string]string{}
	for name, source := range house {
		files[name] = "package p\n" + source
	}
	for name, source := range extra {
		files[name] = "package p\n" + source
	}
	return files
}

func TestASoundTreeHasNoViolation(t *testing.T) {
	t.Parallel()
	if vs := violations(build(nil)); len(vs) > 0 {
		t.Errorf("got %v", vs)
	}
}

// TestEachSortOfBadArrowIsNamed adds one bad import to the sound tree: it, and nothing else, must be named.
func TestEachSortOfBadArrowIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, imported, why string }{
		{"up", "store/bad.go", "weir/registry", "runs up, from floor 1 to floor 2"},
		{"up to main", "app/bad.go", "weir", "runs up, from floor 8 to floor 10"},
		{"up in a test", "registry/bad_test.go", "weir/ingest", "runs up, from floor 2 to floor 3"},
		{"sideways", "broker/bad.go", "weir/gql", "runs sideways on floor 5"},
		{"sideways between engines", "rules/bad.go", "weir/store", "runs sideways on floor 1"},
		{"sideways in a test", "spool/bolt/bad_test.go", "weir/store/sqlite", "runs sideways on floor 1"},
		{"out of internal", "internal/hub/bad.go", "weir/model", "runs up, from floor -1 to floor 0"},
		{"out of internal into a room, in a test", "internal/hub/bad_test.go", "weir/model", "runs up, from floor -1 to floor 0"},
		{"a parent and its part", "spool/bad.go", "weir/spool/bolt", "a package no part of its own"},
		{"a part and its sibling", "rules/canvas/bad.go", "weir/rules/preview", "imports its parent only"},
		{"a name that only begins like the parent", "rules/canvas/bad.go", "weir/rules/can", "imports its parent only"},
		{"a room without a floor", "attic/bad.go", "fmt", "attic, which has no floor"},
		{"an import of a room without a floor", "app/bad.go", "weir/attic", "attic has no floor"},
		{"the program and a test helper", "cli/bad.go", "weir/internal/test/testweir", "only tests may"},
		{"the program and a conformance suite", "app/bad.go", "weir/store/storetest", "only tests may"},
		{"the program and package testing", "model/bad.go", "testing", "a test library belongs in"},
		{"an SQL driver in a domain", "registry/bad.go", "modernc.org/sqlite", "an SQL driver belongs in store/sqlite only"},
		{"an SQL driver in a test", "app/bad_test.go", "modernc.org/sqlite", "an SQL driver belongs in store/sqlite only"},
		{"bbolt outside the spool", "ingest/bad.go", "go.etcd.io/bbolt", "a log engine belongs in spool/bolt only"},
		{"bbolt in the store", "store/bad.go", "go.etcd.io/bbolt", "a log engine belongs in spool/bolt only"},
		{"the broker library in another door", "httpingest/bad.go", "github.com/mochi-mqtt/server/v2/packets", "the MQTT broker library belongs in broker only"},
		{"the broker library in a test", "app/bad_test.go", "github.com/mochi-mqtt/server/v2", "the MQTT broker library belongs in broker only"},
		{"an MQTT client in a door", "broker/bad.go", "github.com/eclipse/paho.golang/autopaho", "an MQTT client belongs in internal/test/mqttpeer only"},
		{"GraphQL execution outside its engine", "gql/bad.go", "github.com/graphql-go/graphql/language/ast", "a GraphQL library belongs in gql/engine only"},
		{"a foundation and its parent", "gql/engine/bad.go", "weir/gql", "a foundation imports model and internal only"},
		{"a foundation and the domain", "gql/engine/bad.go", "weir/registry", "a foundation imports model and internal only"},
		{"the GraphQL parser outside gql", "auth/bad.go", "github.com/vektah/gqlparser/v2", "a GraphQL library belongs in gql only"},
		{"DTLS outside lwm2m", "broker/bad.go", "github.com/pion/dtls/v3", "CoAP or DTLS belongs in lwm2m, internal/test/lwm2mpeer only"},
		{"expressions outside rules", "registry/bad.go", "cel.dev/cel-go/cel", "the expression engine belongs in rules, registry/selector only"},
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
			wantOne(t, vs, c.file, c.why)
		})
	}
}

func wantOne(t *testing.T, vs []violation, file, why string) {
	t.Helper()
	if len(vs) != 1 || vs[0].file != file || !strings.Contains(vs[0].why, why) {
		t.Errorf("got %v, want one that names %s: %s", vs, file, why)
	}
}

func TestAFileThatDoesNotParseIsNamed(t *testing.T) {
	t.Parallel()
	if vs := violations(map[string]string{"model/bad.go": "package"}); len(vs) != 1 || vs[0].file != "model/bad.go" {
		t.Errorf("got %v", vs)
	}
}

// TestEachRuleReportsItsProbe adds one file to the sound tree: it, and nothing else, must be named.
func TestEachRuleReportsItsProbe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, source, rule, why string }{
		{"the SQL driver in a domain", "registry/bad.go", `import "weir/store/sqlite"`, ruleDriver, "only app chooses a driver"},
		{"the SQL driver in ingest", "ingest/bad.go", `import "weir/store/sqlite"`, ruleDriver, "only app chooses a driver"},
		{"the SQL driver in a transport", "broker/bad.go", `import "weir/store/sqlite"`, ruleDriver, "only app chooses a driver"},
		{"the log driver in ingest", "ingest/bad.go", `import "weir/spool/bolt"`, ruleDriver, "only app chooses a driver"},
		{"the log driver in a backup", "backup/bad.go", `import "weir/spool/bolt"`, ruleDriver, "only app chooses a driver"},
		{"the log driver in what an operator asks", "operate/bad.go", `import "weir/spool/bolt"`, ruleDriver, "only app chooses a driver"},
		{"a transport in the command line", "cli/bad.go", `import "weir/broker"`, ruleCLI, "the command line knows"},
		{"ingest in the command line", "cli/bad.go", `import "weir/ingest"`, ruleCLI, "the command line knows"},
		{"the log in the command line", "cli/bad.go", `import "weir/spool"`, ruleCLI, "the command line knows"},
		{"the database in a domain", "auth/bad.go", `import "database/sql"`, ruleStandard, "an SQL database belongs in store, "},
		{"a query in a domain", "auth/bad.go", "const q = `\n\tSELECT id FROM t`", ruleSQL, "holds SQL"},
		{"an insert in a domain", "govern/bad.go", `const q = "INSERT INTO t (a) VALUES (?)"`, ruleSQL, "holds SQL"},
		{"an update in ingest", "ingest/bad.go", `func f(x string) string { return "UPDATE " + x + " SET a = 1" }`, ruleSQL, "holds SQL"},
		{"a statement in a transport", "httpingest/bad.go", `const q = "DELETE FROM t"`, ruleSQL, "holds SQL"},
		{"a table in what an operator asks", "operate/bad.go", `const q = "CREATE TABLE t (a)"`, ruleSQL, "holds SQL"},
		{"HTTP in a domain", "registry/bad.go", `import "net/http"`, ruleDomain, "neither files nor the network"},
		{"files in a domain", "govern/bad.go", `import "os"`, ruleDomain, "neither files nor the network"},
		{"HTTP in ingest", "ingest/bad.go", `import "net/http"`, ruleDomain, "neither files nor the network"},
		{"the network in Apply", "ingest/bad.go", `import "net"`, ruleDomain, "neither files nor the network"},
		{"tokens in another domain", "registry/bad.go", `import "github.com/golang-jwt/jwt/v5"`, ruleLibrary, "tokens belongs in auth only"},
		{"WebSocket in a domain", "series/bad.go", `import "github.com/coder/websocket"`, ruleLibrary, "WebSocket belongs in"},
		{"a module of no table", "connectors/bad.go", `import "github.com/segmentio/kafka-go"`, ruleLibrary, "the module is in no table"},
		{"a module of no table in a test", "model/bad_test.go", `import "github.com/stretchr/testify/require"`, ruleLibrary, "the module is in no table"},
		{"Kafka outside the connectors", "ingest/bad.go", `import "github.com/twmb/franz-go/pkg/kgo"`, ruleLibrary, "a Kafka client belongs in connectors, bench only"},
		{"AWS outside the connectors", "app/bad.go", `import "github.com/aws/aws-sdk-go-v2/service/sns"`, ruleLibrary, "the module is in no table"},
		{"credentials of the machine", "connectors/bad.go", `import "github.com/aws/aws-sdk-go-v2/config"; var c, err = config.LoadDefaultConfig(nil)`, ruleLibrary, "the module is in no table"},
		{"viper outside config", "cli/bad.go", `import "github.com/spf13/viper"`, ruleLibrary, "the configuration library belongs in config only"},
		{"the page of metrics in rules", "rules/bad.go", `import "github.com/prometheus/client_golang/prometheus/promhttp"`, ruleLibrary, "the page of metrics belongs in web only"},
		{"metrics in model", "model/bad.go", `import "github.com/prometheus/client_golang/prometheus"`, ruleLibrary, "metrics belongs in"},
		{"the clock in rules", "rules/bad.go", `import "time"; func f() time.Time { return time.Now() }`, rulePure, "uses time.Now: rules knows no clock"},
		{"the clock under another name", "rules/bad.go", `import clock "time"; var now = clock.Now`, rulePure, "uses time.Now: rules knows no clock"},
		{"a timer in model", "model/bad.go", `import "time"; var t = time.NewTimer`, rulePure, "uses time.NewTimer: model knows no clock"},
		{"randomness in rules", "rules/bad.go", `import "math/rand/v2"`, rulePure, "rules does no I/O and knows no randomness"},
		{"keys in model", "model/bad.go", `import "crypto/rand"`, rulePure, "model does no I/O and knows no randomness"},
		{"a goroutine in a part of rules", "rules/canvas/bad.go", `func f() { go f() }`, rulePure, "starts a goroutine"},
		{"the clock in presence", "presence/presence.go", `import "time"; var now = time.Now`, rulePure, "presence/presence.go knows no clock"},
		{"a helper of model reads files", "internal/wire/bad.go", `import "os"`, rulePure, "model does no I/O"},
		{"a helper of a helper of model reads the clock", "internal/deep/bad.go", `import "time"; var now = time.Now`, rulePure, "model knows no clock"},
		{"the clock in Apply", "ingest/bad.go", `import "time"; func f() time.Time { return time.Now() }`, ruleClock, "uses time.Now"},
		{"the time that passed in series", "series/bad.go", `import "time"; func f(t time.Time) time.Duration { return time.Since(t) }`, ruleClock, "uses time.Since"},
		{"randomness in Apply", "ingest/bad.go", `import "math/rand/v2"`, ruleClock, "a replay would not repeat it"},
		{"open collaborators", "ingest/bad.go", `type IntakeDeps struct{}; type Intake struct { IntakeDeps }`, ruleDeps, "embeds IntakeDeps in Intake"},
		{"an IoT word in a helper", "internal/hub/bad.go", `import "weir/spool"`, ruleFloor, "runs up, from floor -1"},
		{"a test's package in the program", "app/bad.go", `import "weir/internal/test/world"`, ruleFloor, "only tests may"},
		{"a suite in the program", "app/bad.go", `import "weir/ingest/transporttest"`, ruleFloor, "only tests may"},
		{"a connection that is not judged", "connectors/bad.go", `import n "net"; var d n.Dialer`, ruleDial, "uses net.Dialer"},
		{"a client of one's own", "inference/bad.go", `import "net/http"; var c = http.DefaultClient`, ruleDial, "uses net/http.DefaultClient"},
		{"a name looked up", "notify/bad.go", `import "net"; var a, err = net.LookupHost("x")`, ruleDial, "uses net.LookupHost"},
		{"a client that dials by itself", "notify/bad.go", `import "net/smtp"`, ruleDial, "imports net/smtp"},
		{"a client of Kafka that dials by itself", "connectors/bad.go", `import "github.com/twmb/franz-go/pkg/kgo"; var c, err = kgo.NewClient(kgo.ClientID("c"))`, ruleDial, "without Dialer"},
		{"a client of Kafka over TLS of its own", "connectors/bad.go", `import "github.com/twmb/franz-go/pkg/kgo"; var o = kgo.DialTLS()`, ruleDial, "uses github.com/twmb/franz-go/pkg/kgo.DialTLS"},
		{"an error read from its text", "web/bad.go", `import "strings"; func f(err error) bool { return strings.Contains(err.Error(), "unique") }`, ruleText, "strings.Contains"},
		{"a message cut in two", "site/bad.go", `import "strings"; func f(e *E) { strings.Cut(e.Message, ": ") }`, ruleText, "strings.Cut"},
		{"a message compared", "gql/bad.go", `func f(err error) bool { return err.Error() == "gone" }`, ruleText, "compares the text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			vs := violations(build(map[string]string{c.file: c.source}))
			wantOne(t, vs, c.file, c.why)
			if len(vs) == 1 && vs[0].rule != c.rule {
				t.Errorf("rule %q, want %q", vs[0].rule, c.rule)
			}
		})
	}
}

// TestWhatOnlyLooksLikeAViolationPasses keeps the rules from growing into nuisances.
func TestWhatOnlyLooksLikeAViolationPasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, source string }{
		{"a driver in a test", "registry/good_test.go", `import "weir/store/sqlite"`},
		{"SQL in a test", "registry/good_test.go", "const q = `SELECT 1`"},
		{"SQL in the store", "store/good.go", "const q = `SELECT 1`"},
		{"a sentence that begins like SQL", "cli/good.go", `const s = "Select a tenant"; const t = "UPDATE"; const u = "Updates run"`},
		{"the clock in a test of rules", "rules/good_test.go", `import "time"; var now = time.Now`},
		{"durations in rules", "rules/good.go", `import "time"; const d = time.Second; func f(t time.Time) bool { return t.Before(t) }`},
		{"a method with the name of a clock", "rules/good.go", `func f(c interface{ Now() int }) int { return c.Now() }`},
		{"a timer in ingest", "ingest/good.go", `import "time"; var t = time.NewTimer`},
		{"a goroutine in ingest", "ingest/good.go", `func f() { go f() }`},
		{"addresses in a domain", "auth/good.go", `import ("net/netip"; "net/url")`},
		{"an error compared with the last one", "app/good.go", `func f(err error, last string) bool { return err.Error() == last }`},
		{"the text of an error in a message", "app/good.go", `import "strings"; func f(err error) string { return "a " + strings.ToUpper(err.Error()) + err.Error() }`},
		{"files and the clock in a suite", "ingest/transporttest/good.go", `import ("os"; "time"); var now = time.Now`},
		{"hidden collaborators", "ingest/good.go", `type IntakeDeps struct{}; type Intake struct { deps IntakeDeps }`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if vs := violations(build(map[string]string{c.file: c.source})); len(vs) > 0 {
				t.Errorf("got %v", vs)
			}
		})
	}
}

func TestAnExceptionThatNoFileNeedsIsNamed(t *testing.T) {
	t.Parallel()
	var all []violation
	for _, e := range slices.Concat(allowed, pending) {
		all = append(all, violation{e.rule, e.file, "does"})
	}
	if got := excused(all); len(got) > 0 {
		t.Errorf("with every exception in use: %q", got)
	}
	if got := excused(all[1:]); len(got) != 1 || !strings.Contains(got[0], all[0].file+" does not break the rule about "+all[0].rule) {
		t.Errorf("with one that is not needed: %q", got)
	}
	other := violation{ruleSQL, all[0].file, "holds SQL"}
	if got := excused(append(all, other)); len(got) != 1 || got[0] != other.String() {
		t.Errorf("with another rule broken by the same file: %q", got)
	}
}

func TestANameThatIsLeftBehindIsNamed(t *testing.T) {
	t.Parallel()
	files := sources(t, ".")
	modules := map[string]bool{}
	for _, l := range libraries {
		modules[l.path] = true
	}
	for _, c := range []struct {
		name string
		edit func(have, modules map[string]bool)
		want string
	}{
		{"nothing", func(_, _ map[string]bool) {}, ""},
		{"a floor", func(have, _ map[string]bool) { delete(have, "health") }, "floors names health, which does not exist"},
		{"a place of a library", func(have, _ map[string]bool) { delete(have, "spool/bolt") }, "go.etcd.io/bbolt names spool/bolt, which does not exist"},
		{"a suite", func(have, _ map[string]bool) { delete(have, "store/storetest") }, "testOnly names store/storetest, which does not exist"},
		{"a module that is gone", func(_, m map[string]bool) { delete(m, "go.etcd.io/bbolt") }, "libraries names go.etcd.io/bbolt, which does not exist"},
		{"a module that is only indirect", func(_, m map[string]bool) { m["go.etcd.io/bbolt"] = false }, "libraries names go.etcd.io/bbolt, which does not exist"},
		{"a new module", func(_, m map[string]bool) { m["github.com/stretchr/testify"] = true }, "go.mod requires github.com/stretchr/testify: the module is in no table"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			have, m := packageNames(files), maps.Clone(modules)
			c.edit(have, m)
			got := strings.Join(stale(have, m), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
