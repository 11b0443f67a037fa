package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The tables below are the house: which package may know what. layers_check_test.go reads the sources and compares,
// layers_probe_test.go shows that each rule is enforced.

// floors says on which floor each top directory stands; a package imports only packages of lower floors. internal is below
// all.
var floors = map[string]int{
	"internal": -1,
	"model":    0,
	"docs":     0, // the documentation as a part of the program
	"store":    1, "spool": 1, "rules": 1,
	"registry": 2, "series": 2, "auth": 2, "govern": 2, "presence": 2, "command": 2, "artifact": 2, "alarm": 2, "dashboard": 2, "notify": 2, "connectors": 2, "inference": 2,
	"ingest": 3, "provision": 3, "actions": 3, "backup": 3, "health": 3,
	"site":   4,
	"broker": 5, "httpingest": 5, "mqttsource": 5, "sparkplug": 5, "lwm2m": 5, "edge": 5, "gql": 5, "web": 5,
	"config":  6,
	"operate": 7,
	"app":     8,
	"cli":     9,
	"":        10,                // main
	"bench":   11, "interop": 11, // they measure and try the program from outside
}

// library is a module, or a part of one, and the packages that may import it. The longest path decides. A module that is
// not here may not be imported at all: adding one is a decision, see docs/dependencies.md.
type library struct {
	path   string
	what   string   // in a violation
	within []string // these packages and their parts
	tests  []string // their tests may, too; "" stands for all
}

var everyTest = []string{""}

var libraries = []library{
	{path: "modernc.org/sqlite", what: "an SQL driver", within: []string{"store/sqlite"}},
	{path: "go.etcd.io/bbolt", what: "a log engine", within: []string{"spool/bolt"}},
	{path: "github.com/mochi-mqtt/server/v2", what: "the MQTT broker library", within: []string{"broker"}},
	{path: "github.com/eclipse/paho.golang", what: "an MQTT client", within: []string{"internal/test/mqttpeer"}, tests: everyTest},
	{path: "github.com/coder/websocket", what: "WebSocket", within: []string{"gql", "cli", "internal/mqttclient", "internal/test/mqttpeer", "internal/test/testweir"}, tests: everyTest},
	{path: "github.com/graphql-go/graphql", what: "a GraphQL library", within: []string{"gql/engine"}},
	{path: "github.com/vektah/gqlparser/v2", what: "a GraphQL library", within: []string{"gql"}},
	{path: "github.com/pion/dtls", what: "CoAP or DTLS", within: []string{"lwm2m", "internal/test/lwm2mpeer"}, tests: everyTest},
	{path: "google.golang.org/protobuf", what: "Protocol Buffers", within: []string{"sparkplug"}},
	{path: "github.com/twmb/franz-go", what: "a Kafka client", within: []string{"connectors", "bench"}},
	{path: "github.com/twmb/franz-go/pkg/kfake", what: "a test library", within: testOnly, tests: []string{"connectors"}},
	{path: "cel.dev/cel-go", what: "the expression engine", within: []string{"rules", "registry/selector"}},
	{path: "github.com/goccy/go-yaml", what: "the YAML parser", within: []string{"internal/yamldoc"}},
	{path: "github.com/spf13/viper", what: "the configuration library", within: []string{"config"}},
	{path: "github.com/spf13/cobra", what: "the command line library", within: []string{"cli"}},
	{path: "github.com/spf13/pflag", what: "the command line library", within: []string{"cli"}},
	{path: "github.com/golang-jwt/jwt/v5", what: "tokens", within: []string{"auth"}},
	{path: "golang.org/x/crypto", what: "password hashing", within: []string{"auth"}},
	{path: "golang.org/x/term", what: "the terminal", within: []string{"cli"}},
	{path: "golang.org/x/sync", what: "semaphores and groups", within: []string{"app", "operate", "cli", "gql", "bench"}, tests: everyTest},
	{path: "golang.org/x/sys", what: "the system", within: []string{"app", "operate", "backup", "health", "bench", "internal"}, tests: everyTest},
	{path: "github.com/yuin/goldmark", what: "the Markdown renderer", within: []string{"web", "internal/test/follow"}},
	{path: "maragu.dev/gomponents", what: "HTML", within: []string{"web"}},
	{path: "github.com/prometheus/client_golang/prometheus", what: "metrics", tests: everyTest, within: []string{"internal/hub", "internal/memory", "internal/connlimit", "internal/guard",
		"store/sqlite", "spool/bolt", "rules", "registry", "series", "auth", "govern", "presence", "command", "artifact", "alarm", "dashboard", "notify", "connectors", "inference", "ingest", "provision",
		"actions", "health", "broker", "httpingest", "mqttsource", "sparkplug", "lwm2m", "edge", "gql", "web", "operate", "app"}},
	{path: "github.com/prometheus/client_golang/prometheus/promhttp", what: "the page of metrics", within: []string{"web"}},
	{path: "github.com/prometheus/client_golang/prometheus/collectors", what: "metrics of the runtime", within: []string{"app"}},
	{path: "github.com/prometheus/client_golang/prometheus/testutil", what: "a test library", within: testOnly, tests: everyTest},
	{path: "pgregory.net/rapid", what: "a test library", within: testOnly, tests: everyTest},
	{path: "go.uber.org/goleak", what: "a test library", within: testOnly, tests: everyTest},
	{path: "github.com/rogpeppe/go-internal", what: "a test library", within: testOnly, tests: everyTest},
	{path: "github.com/santhosh-tekuri/jsonschema/v6", what: "a test library", within: testOnly, tests: everyTest},
}

// standard fences packages of the standard library, likewise.
var standard = []library{
	{path: "testing", what: "a test library", within: testOnly, tests: everyTest},
	{path: "database/sql", what: "an SQL database", within: []string{"store", "internal/test/fixture"}, tests: everyTest},
}

// foundations are parts that their parent stands on: the parent imports them, and they import model, internal and
// those of them that are pure only.
var foundations = []string{"gql/engine", "ingest/links", "ingest/report", "ingest/response", "ingest/view", "lwm2m/coap", "lwm2m/content", "notify/channel", "registry/geometry", "registry/parameter", "registry/selector", "registry/shared", "rules/celmap", "rules/facts", "rules/page", "rules/strict", "rules/trace", "rules/vocabulary", "rules/window"}

// drivers are the implementations of the seams: app chooses one, all else knows the seam alone.
var drivers = []string{"store/sqlite", "spool/bolt"}

// driverUsers may import a driver besides the driver itself. Tests may.
var driverUsers = []string{"app"}

// sqlWithin holds all SQL.
var sqlWithin = []string{"store"}

// cliMay are the packages that the command line knows: it parses, asks and shows.
var cliMay = []string{"operate", "app", "config", "model", "health", "docs", "internal"}

// pure packages and files return what follows from their arguments: no I/O, no clock, no randomness, no goroutine, neither in
// them nor in what they import. Their tests may.
var pure = []string{"model", "lwm2m/coap", "lwm2m/content", "rules", "rules/canvas", "rules/celmap", "rules/facts", "rules/page", "rules/ruletest", "rules/strict", "rules/trace", "rules/vocabulary", "rules/window", "registry/geometry", "registry/parameter", "registry/selector", "registry/shared", "presence/presence.go"}

var impure = []string{"os", "io/fs", "io/ioutil", "net", "database", "syscall", "log", "embed", "plugin", "crypto/tls", "crypto/rand", "math/rand",
	"runtime/debug", "golang.org/x"}

// harmless lies under a name of impure and yet does no I/O.
var harmless = []string{"net/url", "net/netip", "net/mail", "net/textproto"}

// clocks are functions that read the clock or wait for it.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// replayed packages give the same results whenever the log is read again: they read no clock of the machine and no
// randomness. Timers and goroutines decide when they work, not what comes of it.
var replayed = []string{"ingest", "series"}

// domain packages know neither files nor the network: what they need of these is handed in.
var domain = []string{"registry", "series", "auth", "govern", "presence", "command", "artifact", "alarm", "dashboard", "ingest", "provision"}

var outside = []string{"os", "io/fs", "path/filepath", "net", "net/http", "syscall"}

// dialling is what makes connections or looks up names, by package; nil: all of the package. Whoever needs a connection takes the
// guard's: a destination that a user can name must be judged, and a name must not be looked up twice.
var dialling = map[string][]string{
	"net": {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialIP", "DialUnix", "Dialer", "Resolver", "DefaultResolver", "LookupAddr", "LookupCNAME", "LookupHost",
		"LookupIP", "LookupMX", "LookupNS", "LookupPort", "LookupSRV", "LookupTXT", "ResolveIPAddr", "ResolveTCPAddr", "ResolveUDPAddr"},
	"net/http":                   {"Client", "DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm", "Transport"},
	"net/http/httputil":          {"ReverseProxy", "NewSingleHostReverseProxy", "NewClientConn", "NewProxyClientConn"},
	"crypto/tls":                 {"Dial", "DialWithDialer", "Dialer"},
	"net/rpc":                    nil,
	"net/smtp":                   nil,
	"log/syslog":                 nil,
	"github.com/coder/websocket": {"Dial", "DialOptions"},
	"github.com/eclipse/paho.golang/autopaho": nil,
	"github.com/twmb/franz-go/pkg/kgo":        {"DialTLS", "DialTLSConfig", "DialTimeout"},
}

// handedDialer are the libraries that dial on their own unless they are told what to do it with: a file that makes a client says so.
var handedDialer = map[string]struct{ client, dialer string }{
	"github.com/twmb/franz-go/pkg/kgo": {"NewClient", "Dialer"},
}

// dialsWithin are the packages that may: the guard, and what measures or tries the program from outside.
var dialsWithin = []string{"internal/guard", "bench", "interop"}

// throughGuard is the reason of a violation.
const throughGuard = "connections to destinations that are configured are made by internal/guard"

// testOnly are packages for tests: nothing of the program may import them.
var testOnly = []string{"internal/test",
	"spool/spooltest", "store/storetest", "ingest/transporttest", "bench", "interop"}

// exception lets a file break a rule. One that no file needs any more fails the test.
type exception struct{ rule, file, why string }

// allowed breaks a rule for good.
var allowed = []exception{
	{rulePure, "internal/zone/zone.go", "its table of time zones is a part of the program"},
	{ruleText, "store/sqlite/errors.go", "SQLite names table and columns of a refused row in its text only"},
	{ruleText, "gql/engine/document.go", "the parser's sentences end with a point or without; their meaning is not read"},
	{ruleClock, "series/frozen.go", "measures how long a write took, for a metric"},
	{ruleClock, "ingest/checkpoint.go", "measures how long a slice took, to rest after it; what is written does not depend on it"},
	{ruleDial, "operate/client.go", "the command line asks the instance by its own unix socket"},
	{ruleDial, "operate/health.go", "weir health asks the instance that its user names, on the user's own behalf"},
	{ruleDial, "operate/doctor.go", "weir doctor looks up the names of the operator's configuration"},
	{ruleDial, "health/listeners.go", "weir doctor tries the instance's own listeners"},
	{ruleDial, "inference/inference.go", "has its clients made by the guard"},
	{ruleDial, "app/entities.go", "hands the guard's clients on"},
	{ruleDial, "internal/mqttclient/websocket.go", "connects through the dial function that it is handed"},
	{ruleDial, "app/sources.go", "connects to the brokers that the operator names as event sources"},
	{ruleDial, "cli/notify.go", "tells the service manager by the unix socket that it has named"},
	{ruleDial, "cli/send_transport.go", "weir send sends to the instance that its user names, on the user's own behalf"},
	{ruleDial, "cli/demo_setup.go", "weir demo talks to its own instance"},
	{ruleDial, "cli/demo_stream.go", "weir demo talks to its own instance"},
	{ruleDial, "cli/demo_device.go", "weir demo talks to its own instance"},
}

// pending are violations that are about to go. Nothing may be added here.
var pending = []exception{
	{ruleText, "backup/check.go", "leaves out the name of the sentinel"},
	{ruleDomain, "auth/keys.go", "serves the key set"},
	{ruleDomain, "auth/service.go", "serves service tokens"},
	{ruleClock, "ingest/pressure.go", "forecasts when the disk is full"},
}

// TestImportsRunDownwards reads the sources itself instead of asking go list, because the test cache would not notice a
// new import.
func TestImportsRunDownwards(t *testing.T) {
	t.Parallel()
	for _, v := range excused(violations(sources(t, "."))) {
		t.Error(v)
	}
}

// excused leaves out the violations that have an exception, and adds the exceptions that have no violation.
func excused(found []violation) []string {
	var out []string
	used := map[exception]bool{}
	all := slices.Concat(allowed, pending)
	for _, v := range found {
		i := slices.IndexFunc(all, func(e exception) bool { return e.rule == v.rule && e.file == v.file })
		if i < 0 {
			out = append(out, v.String())
			continue
		}
		used[all[i]] = true
	}
	for _, e := range all {
		if !used[e] {
			out = append(out, e.file+" does not break the rule about "+e.rule+" any more: remove it from the exceptions")
		}
	}
	return out
}

// TestEveryNameOfTheTablesExists: a name that is left behind fences nothing.
func TestEveryNameOfTheTablesExists(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range stale(packageNames(sources(t, ".")), requires(string(mod))) {
		t.Error(v)
	}
}

// requires returns the modules that go.mod requires, and whether directly.
func requires(mod string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(mod) {
		path, rest, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "require ")), " ")
		if ok && strings.HasPrefix(rest, "v") {
			out[path] = !strings.Contains(rest, "// indirect")
		}
	}
	return out
}

// packageNames returns the directories with Go files, the directories above them, and the files.
func packageNames(files map[string]string) map[string]bool {
	names := map[string]bool{"": true}
	for name := range maps.Keys(files) {
		names[name] = true
		for i := range name {
			if name[i] == '/' {
				names[name[:i]] = true
			}
		}
	}
	return names
}
