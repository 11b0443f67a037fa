package config

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"weir/internal/yamldoc"
)

// altered is what operators get wrong: one mistake each, where the report must point to, and what it must say there.
var altered = []struct{ name, yaml, place, says string }{
	// Keys.
	{"misspelt section", "listenrs: {api: \":8080\"}\n", "1:1: listenrs", "did you mean listeners?"},
	{"misspelt key", "listeners: {ingst: \":8081\"}\n", "1:13: listeners.ingst", "did you mean ingest?"},
	{"key in another case", "listeners: {API: \":8080\"}\n", "1:13: listeners.API", "is not a key"},
	{"key in camel case", "dataDir: /srv\n", "1:1: dataDir", "did you mean data_dir?"},
	{"dotted key", "broker.enabled: true\n", "1:1: broker.enabled", "keys nest: write broker: and below it, indented, enabled"},
	{"dotted key inside of a section", "auth:\n  device_auth_mode.x: required\n", "2:3: auth.device_auth_mode.x", "is not a key"},
	{"key of another section", "broker: {memory: auto}\n", "1:10: broker.memory", "is not a key"},
	{"key twice", "data_dir: a\ndata_dir: b\n", "2:1: data_dir", "is given twice"},
	{"section twice", "broker: {enabled: true}\nbroker: {enabled: false}\n", "2:1: broker", "is given twice"},
	{"key of a later version", "notify: {mail: a}\n", "1:1: notify", "is not a key"},
	// Form.
	{"tab", "broker:\n\tenabled: true\n", "2:1", "use blanks: YAML is not indented with tabs"},
	{"second document", "data_dir: a\n---\ndata_dir: b\n", "2:1", "a second document"},
	{"second document after a longer one", "data_dir: a\nbroker:\n  enabled: true\n---\nx: 1\n", "4:1", "a second document"},
	{"open bracket", "site: [a\n", "1:", "not YAML"},
	{"open quote", "data_dir: \"a\n", "1:", "not YAML"},
	{"UTF-16", "\xff\xfed\x00:\x00", "1:1", "this is UTF-16, not UTF-8 (save it as UTF-8)"},
	{"UTF-16, the other way", "\xfe\xff\x00d\x00:", "1:1", "this is UTF-16"},
	{"tag", "data_dir: !!str a\n", "1:11: data_dir", "the tag !!str is not understood"},
	{"alias of nothing", "data_dir: *a\n", "1:11: data_dir", "names no anchor"},
	{"list for the whole", "- data_dir: a\n", "1:1", "must be a mapping of keys"},
	{"text for a section", "listeners: all\n", "1:12: listeners", "must be a mapping of keys"},
	{"list for a section", "broker: [enabled]\n", "1:9: broker", "must be a mapping of keys"},
	{"section for a value", "data_dir: {path: a}\n", "1:1: data_dir", "must be a single value"},
	{"text for a list", "site: site.yaml\n", "1:1: site", "must be a list"},
	{"list in a list", "site: [[a]]\n", "1:8: site[0]", "must be a single value"},
	// Values.
	{"yes for true", "broker: {enabled: yes}\n", "1:19: broker.enabled", "must be true or false"},
	{"duration in days", "history: {dead_letter_retention: 14d}\n", "1:34: history.dead_letter_retention", "(write 336h)"},
	{"duration in days, another key", "auth: {access_token_ttl: 1d}\n", "1:26: auth.access_token_ttl", "(write 24h)"},
	{"duration without a unit", "presence: {restart_grace: 150}\n", "1:27: presence.restart_grace", "must be a duration such as 30s"},
	{"duration in words", "presence: {restart_grace: 5 minutes}\n", "1:27: presence.restart_grace", "must be a duration"},
	{"negative duration", "presence: {inactivity_timeout: -5m}\n", "1:12: presence.inactivity_timeout", "must be longer than 0s"},
	{"size in MB", "ingest: {max_body: 1MB}\n", "1:20: ingest.max_body", "must be a size such as"},
	{"size below zero", "ingest: {max_body: -1}\n", "1:20: ingest.max_body", "must be a size"},
	{"an origin with a path", "console: {frame_ancestors: [https://portal.example.org/x]}\n", "1:11: console.frame_ancestors", "must be origins such as"},
	{"an origin that ends the policy", "console: {frame_ancestors: [\"https://a.example;script-src\"]}\n", "1:11: console.frame_ancestors", "must be origins such as"},
	{"octal", "broker: {max_connections: 010}\n", "1:27: broker.max_connections", "must be a whole number"},
	{"number with a point", "broker: {max_connections: 1.5}\n", "1:27: broker.max_connections", "must be a whole number"},
	{"number in words", "governance: {ingest_messages_per_second: many}\n", "1:42: governance.ingest_messages_per_second", "must be a number"},
	{"infinite number", "governance: {ingest_messages_per_second: +Inf}\n", "1:", "must be"},
	{"level that is not there", "logging: {level: verbose}\n", "1:11: logging.level", "must be one of debug, info, warn, error"},
	{"level of another product", "logging: {level: warning}\n", "1:11: logging.level", "(did you mean warn?)"},
	{"mode that is not there", "auth: {device_auth_mode: on}\n", "1:8: auth.device_auth_mode", "must be one of required, optional, disabled"},
	{"format that is not there", "logging: {format: xml}\n", "1:11: logging.format", "must be one of auto, text, json"},
	{"little memory", "limits: {memory: 16MiB}\n", "1:18: limits.memory", "at least 64MiB"},
	{"days out of range", "history: {event_retention_days: 40000}\n", "1:11: history.event_retention_days", "must lie in 0..36500"},
	{"days below zero", "history: {location_retention_days: -1}\n", "1:11: history.location_retention_days", "must lie in 0..36500"},
	{"instance that is no token", "instance: {id: my gateway}\n", "1:12: instance.id", "must be an entity token"},
	{"empty data directory", "data_dir: \"\"\n", "1:1: data_dir", "must not be empty"},
	{"URL without a scheme", "base_url: weir.example.org\n", "1:1: base_url", "must be an http or https URL"},
	{"key that lives shorter than a session", "auth: {access_token_ttl: 48h, refresh_token_ttl: 1h}\n", "1:31: auth.refresh_token_ttl", "must lie between auth.access_token_ttl"},
	{"a network that is allowed", "egress: {allowed_destinations: [10.0.0.0/8]}\n", "1:10: egress.allowed_destinations", `"10.0.0.0/8" must be a single address, written 10.0.0.0/32`},
	{"a metadata service that is allowed", "egress: {allowed_destinations: [169.254.169.254/32]}\n", "1:10: egress.allowed_destinations", "is the address of a cloud's metadata service, which cannot be allowed"},
	// Addresses.
	{"port alone", "listeners: {api: 8080}\n", "1:13: listeners.api", "must be host:port"},
	{"port that is none", "listeners: {api: \":80800\"}\n", "1:13: listeners.api", "must be host:port"},
	{"named port", "listeners: {api: \":http\"}\n", "1:13: listeners.api", "must be host:port"},
	{"two listeners on one port", "listeners: {api: \":9000\", ingest: \":9000\"}\n", "1:27: listeners.ingest", "has the port of listeners.api, :9000 (give each listener a port of its own)"},
	{"a listener on the port of a default", "listeners: {api: \":8081\"}\n", "1:13: listeners.api", "has the port of listeners.ingest, :8081"},
	{"one port on all and on one interface", "listeners: {api: \"127.0.0.1:9000\", mqtt: \":9000\"}\n", "1:36: listeners.mqtt", "has the port of listeners.api"},
	{"one port of one machine by two names", "listeners: {api: \"localhost:9000\", mqtt: \"127.0.0.1:9000\"}\n", "1:36: listeners.mqtt", "has the port of listeners.api"},
	{"metrics on the port of the API", "listeners: {metrics: \":8080\"}\n", "1:13: listeners.metrics", "has the port of listeners.api"},
	{"open topics on the port of the broker", "broker: {open_topics: \"127.0.0.1:1883\"}\n", "1:10: broker.open_topics", "has the port of listeners.mqtt"},
	{"TLS without a certificate", "listeners: {api_tls: \":8443\"}\n", "1:13: listeners.api_tls", "needs a certificate"},
	// Paths and files.
	{"home directory", "data_dir: ~/weir\n", "1:1: data_dir", "~/weir is not expanded: ~ and variables are for a shell (write the whole path, such as /var/lib/weir)"},
	{"home variable", "data_dir: ${HOME}/weir\n", "1:1: data_dir", "is not expanded"},
	{"variable without braces", "data_dir: $HOME/weir\n", "1:1: data_dir", "is not expanded"},
	{"root key at home", "secrets: {root_key_file: ~/root.key}\n", "1:11: secrets.root_key_file", "is not expanded"},
	{"site file at home", "site: [~/site.yaml]\n", "1:1: site", "is not expanded"},
	{"site file that is not there", "site: [none.yaml]\n", "1:1: site", "none.yaml: file does not exist"},
	{"key without its certificate", "tls:\n  key_file: gw.key\n", "2:3: tls.cert_file", "must be given with tls.key_file"},
	{"certificate without its key", "tls:\n  cert_file: gw.pem\n", "2:3: tls.key_file", "must be given with tls.cert_file"},
	{"CA alone", "tls:\n  client_ca_file: ca.pem\n", "2:3: tls.cert_file", "must be given with tls.client_ca_file"},
	{"certificate that is not there", "tls: {cert_file: gw.pem, key_file: gw.key}\n", "1:7: tls.cert_file", ""},
	// Secrets and what goes together.
	{"short secret", "auth: {service_secret: short}\n", "1:8: auth.service_secret", "must have at least 32 bytes"},
	{"secret that is not there", "auth: {service_secret_file: none.txt}\n", "1:29: auth.service_secret_file", "cannot be read"},
	{"secret given twice", "auth:\n  service_secret_file: secret.txt\n  service_secret_env: X\n", "3:3: auth.service_secret_env", "both give this secret"},
	{"account without a password", "auth: {superuser_email: a@b}\n", "1:8: auth.superuser_email", "needs auth.superuser_password"},
	{"replay longer than the log", "spool: {replay_bytes: 1GiB}\n", "1:9: spool.replay_bytes", "must be at most half of ingest.spool_max_bytes"},
	{"open topics for every machine", "broker: {open_topics: \":1884\", open_topics_anonymous: true}\n", "1:32: broker.open_topics_anonymous", "needs a loopback address"},
}

func thorough(yaml string) Reading {
	return Read(Source{File: "weir.yaml", Thorough: true, ReadFile: func(name string) ([]byte, error) {
		switch name {
		case "weir.yaml":
			return []byte(yaml), nil
		case "secret.txt":
			return []byte("from-a-file-of-at-least-32-bytes-\n"), nil
		}
		return nil, fs.ErrNotExist
	}})
}

func TestEachAlteredConfigurationIsRefusedAtItsPlace(t *testing.T) {
	t.Parallel()
	if len(altered) < 63 {
		t.Errorf("%d alterations", len(altered))
	}
	if r := thorough("data_dir: /srv/weir\nlisteners: {api: \":9000\", ingest: \"127.0.0.1:9001\", mqtt: \"127.0.0.2:9001\", metrics: \"127.0.0.1:0\"}\n"); r.Problems != nil {
		t.Error(r.Problems)
	}
	for _, a := range altered {
		r := thorough(a.yaml)
		found := false
		for _, p := range r.Problems {
			at := fmt.Sprintf("%d:%d", p.Line, p.Column)
			if p.Path != "" {
				at += ": " + p.Path
			}
			found = found || (at == a.place || strings.HasSuffix(a.place, ":") && strings.HasPrefix(at, a.place)) && strings.Contains(p.String(), a.says)
			if p.Line == 0 {
				t.Errorf("%s: no line: %v", a.name, p)
			}
		}
		if !found {
			t.Errorf("%s: want %s: … %s\ngot %s", a.name, a.place, a.says, yamldoc.Problems(r.Problems).Lines())
		}
	}
}

// What is not opened takes no port.
func TestAListenerThatIsNotOpenedTakesNoPort(t *testing.T) {
	t.Parallel()
	for _, yaml := range []string{
		"listeners: {api: \":9090\"}\nmetrics: {enabled: false}\n",
		"listeners: {api: \":1883\"}\nbroker: {enabled: false}\n",
		"listeners: {api: \":8883\"}\n",
		"listeners: {api: \"127.0.0.1:0\", ingest: \"127.0.0.1:0\"}\n",
		"listeners: {api: \":8081\", ingest: \"\"}\n",
		"listeners: {api: \"127.0.0.1:9000\", ingest: \"127.0.0.2:9000\"}\n",
	} {
		if r := thorough(yaml); r.Problems != nil {
			t.Errorf("%q: %v", yaml, r.Problems)
		}
	}
}

// A client that looks for an instance need not see its site files.
func TestOnlyAThoroughReadingLooksForSiteFiles(t *testing.T) {
	t.Parallel()
	if _, err := load("site: [none.yaml]\n"); err != nil {
		t.Error(err)
	}
}

// Mistakes are reported together.
func TestAlteredKeysAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	r := thorough("broker.enabled: true\ndata_dir: ~/weir\nsite: [none.yaml]\nlisteners: {api: \":9000\", ingest: \":9000\"}\nhistory: {dead_letter_retention: 14d}\ntls: {key_file: gw.key}\nlogging: {level: loud}\n")
	if len(r.Problems) != 7 {
		t.Errorf("%d problems:\n%s", len(r.Problems), yamldoc.Problems(r.Problems).Lines())
	}
}
