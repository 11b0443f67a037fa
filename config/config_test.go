package config

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/conformance"
)

func load(yaml string, environ ...string) (*Config, error) {
	return Load(Source{File: "weir.yaml", Environ: environ, ReadFile: func(name string) ([]byte, error) {
		switch name {
		case "weir.yaml":
			return []byte(yaml), nil
		case "secret.txt":
			return []byte("from-a-file-of-at-least-32-bytes-\n"), nil
		case "empty.txt":
			return nil, nil
		}
		return nil, fs.ErrNotExist
	}})
}

func TestAnEmptyFileIsTheDefaults(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "instance:\n  # id: x\n", "---\n"} {
		c, err := load(text)
		if err != nil || !isDefault(c) {
			t.Errorf("%q: got %+v, %v", text, c, err)
		}
	}
	if Default().Broker.FailClosed {
		t.Error("fail-closed is on by default")
	}
	conformance.Shown(t, "S2-036")
}

func TestKeysReachTheirFields(t *testing.T) {
	t.Parallel()
	c, err := load(`
instance: {id: plant-7}
data_dir: /var/lib/weir
ingest: {spool_max_bytes: 2GiB, max_future_skew: 1m30s}
spool: {commit_interval: 5ms, replay_bytes: 262144, head_age: 5s}
broker: {fail_closed: true}
limits: {memory: 256MiB, series_per_device: 0}
governance: {ingest_messages_per_second: 12.5}
auth: {service_secret_file: secret.txt}
`, "WEIR_INSTANCE_ID=other", "WEIR_GRAPHQL_MAX_DEPTH=3", "WEIR_ROOT_KEY=x", "HOME=/")
	if err != nil {
		t.Fatal(err)
	}
	if c.Instance.ID != "other" || c.DataDir != "/var/lib/weir" || c.Ingest.Capacity.MaxBytes != 2<<30 || c.Ingest.MaxFutureSkew != 90*time.Second ||
		time.Duration(c.Spool.CommitInterval) != 5*time.Millisecond || c.Spool.ReplayBytes != 256<<10 || !c.Broker.FailClosed || c.Limits.Memory != 256<<20 ||
		c.Limits.SeriesPerDevice != 256 || c.Governance.IngestMessagesPerSecond != 12.5 || c.Auth.ServiceSecret.Reveal() != "from-a-file-of-at-least-32-bytes-" {
		t.Errorf("got %+v", c)
	}
}

// gallery is what operators get wrong and the messages that they get, word for word.
var gallery = []struct{ name, yaml, want string }{
	{"unknown key", "instance:\n  idd: x\n", `weir.yaml:2:3: instance.idd: is not a key that this Weir knows (did you mean id?)
      idd: x
      ^`},
	{"unknown section", "brokr:\n  enabled: true\n", `weir.yaml:1:1: brokr: is not a key that this Weir knows (did you mean broker?)
    brokr:
    ^`},
	{"several at once", "data_dir: \"\"\nbroker:\n  enabled: maybe\nlogging: {level: loud}\n", `weir.yaml:1:1: data_dir: must not be empty
    data_dir: ""
    ^
weir.yaml:3:12: broker.enabled: must be true or false
      enabled: maybe
               ^
weir.yaml:4:11: logging.level: must be one of debug, info, warn, error
    logging: {level: loud}
              ^`},
	{"cross-field errors, all of them", "data_dir: \"\"\nlogging: {level: warning}\nspool: {replay_bytes: 1GiB}\n", `weir.yaml:1:1: data_dir: must not be empty
    data_dir: ""
    ^
weir.yaml:2:11: logging.level: must be one of debug, info, warn, error (did you mean warn?)
    logging: {level: warning}
              ^
weir.yaml:3:9: spool.replay_bytes: must be at most half of ingest.spool_max_bytes, or the log is full before the head is written
    spool: {replay_bytes: 1GiB}
            ^`},
	{"twice", "data_dir: a\ndata_dir: b\n", `weir.yaml:2:1: data_dir: is given twice
    data_dir: b
    ^`},
	{"duration", "presence:\n  restart_grace: 150\n", `weir.yaml:2:18: presence.restart_grace: must be a duration such as 30s, 5m or 24h
      restart_grace: 150
                     ^`},
	{"size", "ingest:\n  max_body: 1MB\n", `weir.yaml:2:13: ingest.max_body: must be a size such as 512KiB, 64MiB or 1GiB
      max_body: 1MB
                ^`},
	{"octal", "broker: {max_connections: 010}\n", `weir.yaml:1:27: broker.max_connections: must be a whole number
    broker: {max_connections: 010}
                              ^`},
	{"list", "data_dir: [a]\n", `weir.yaml:1:1: data_dir: must be a single value
    data_dir: [a]
    ^`},
	{"scalar for a section", "broker: true\n", `weir.yaml:1:9: broker: must be a mapping of keys
    broker: true
            ^`},
	{"secret is not shown", "auth:\n  service_secret: short\n", `weir.yaml:2:3: auth.service_secret: must have at least 32 bytes
      service_secret: …
      ^`},
	{"empty reference", "auth:\n  service_secret_file: empty.txt\n", `weir.yaml:2:24: auth.service_secret_file: the file of the secret is empty
      service_secret_file: …
                           ^`},
	{"missing variable", "auth:\n  service_secret_env: NO_SUCH\n", `weir.yaml:2:23: auth.service_secret_env: the variable NO_SUCH is not set
      service_secret_env: …
                          ^`},
	{"two spellings", "broker: {fail_closed: false}\ninfrastructure: {messaging: {mqttFailClosed: true}}\n",
		`weir.yaml:2:30: infrastructure.messaging.mqttFailClosed: and broker.fail_closed have different values (give one of them)
    infrastructure: {messaging: {mqttFailClosed: true}}
                                 ^`},
	{"unknown under an alias", "infrastructure: {messaging: {x: 1}}\n", `weir.yaml:1:30: infrastructure.messaging.x: is not a key that this Weir knows
    infrastructure: {messaging: {x: 1}}
                                 ^`},
	{"the same, the other way round", "infrastructure: {messaging: {mqttFailClosed: true}}\nbroker: {fail_closed: false}\n",
		`weir.yaml:2:10: broker.fail_closed: and infrastructure.messaging.mqttFailClosed have different values (give one of them)
    broker: {fail_closed: false}
             ^`},
	{"two forms of a secret", "auth:\n  service_secret_file: secret.txt\n  service_secret_env: THE_SECRET\n",
		`weir.yaml:3:3: auth.service_secret_env: and auth.service_secret_file both give this secret (give one of them)
      service_secret_env: …
      ^`},
	{"a reference to nothing", "auth:\n  service_secret_file:\n", `weir.yaml:2:24: auth.service_secret_file: names nothing: leave the key out, or say where the secret is
      service_secret_file: …
                           ^`},
	{"credentials are not there", "auth:\n  service_secret_credential: svc\n",
		`weir.yaml:2:30: auth.service_secret_credential: no credentials were handed over: $CREDENTIALS_DIRECTORY is not set; systemd sets it for a unit with LoadCredential=svc:FILE
      service_secret_credential: …
                                 ^`},
	{"a credential is a name", "auth:\n  service_secret_credential: ../svc\n",
		`weir.yaml:2:30: auth.service_secret_credential: the credential must be a name, not a path: "../svc"
      service_secret_credential: …
                                 ^`},
	{"what is shown is not the secret", "auth: {service_secret: (set)}\n", `weir.yaml:1:24: auth.service_secret: is what weir config show writes in place of a secret, not the secret
    auth: …
                           ^`},
	{"a password and no account", "auth:\n  superuser_password: correct horse battery\n", `weir.yaml:2:3: auth.superuser_password: needs auth.superuser_email, too
      superuser_password: …
      ^`},
	{"a list where one is meant", "logging:\n  level: [info]\n", `weir.yaml:2:3: logging.level: must be a single value
      level: [info]
      ^`},
	{"second document", "data_dir: a\n---\ndata_dir: b\n", `weir.yaml:2:1: a second document (put everything into the first one)
    ---
    ^`},
}

func TestTheGalleryOfBadConfigurations(t *testing.T) {
	t.Parallel()
	for _, c := range gallery {
		_, err := load(c.yaml)
		ps, ok := AsProblems(err)
		if !ok {
			t.Errorf("%s: got %v", c.name, err)
			continue
		}
		if got := strings.TrimPrefix(err.Error(), "the configuration is not valid:\n"); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
		if len(ps) == 0 || ps[0].Line == 0 {
			t.Errorf("%s: no place", c.name)
		}
	}
}

func TestWhatIsNotYAMLIsToldWithItsPlace(t *testing.T) {
	t.Parallel()
	_, err := load("broker:\n  enabled: [\n")
	if ps, ok := AsProblems(err); !ok || ps[0].Line == 0 || !strings.Contains(ps[0].Reason, "not YAML") {
		t.Errorf("got %v", err)
	}
}

func TestAVariableThatNobodyReadsIsRefused(t *testing.T) {
	t.Parallel()
	_, err := load("", "WEIR_BROKER_FAILCLOSED=true")
	if err == nil || !strings.Contains(err.Error(), "WEIR_BROKER_FAILCLOSED: is not a variable that this Weir knows (did you mean WEIR_BROKER_FAIL_CLOSED?)") {
		t.Errorf("got %v", err)
	}
}

// The prefix WEIR_ belongs to what runs the container and to scripts as well.
func TestVariablesOfOthersStopNothing(t *testing.T) {
	t.Parallel()
	c, err := load("", "WEIR_SERVICE_HOST=10.0.0.11", "WEIR_SERVICE_PORT=8080", "WEIR_SERVICE_PORT_API=8080", "WEIR_PORT=tcp://10.0.0.11:8080",
		"WEIR_PORT_8080_TCP=tcp://10.0.0.11:8080", "WEIR_PORT_8080_TCP_PROTO=tcp", "WEIR_PORT_8080_TCP_PORT=8080", "WEIR_PORT_8080_TCP_ADDR=10.0.0.11",
		"WEIR_MQTT_SERVICE_HOST=10.0.0.12", "WEIR_MQTT_PORT_1883_TCP_ADDR=10.0.0.12", "WEIR_NAME=/app/weir", "WEIR_ENV_PATH=/bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range c.Warnings() {
		if strings.HasPrefix(w.Path, "WEIR_") {
			t.Errorf("a variable of the orchestrator is warned of: %v", w)
		}
	}
	if c, err = load("", "WEIR_TOKEN=x"); err != nil {
		t.Fatalf("the variable of a script: %v", err)
	}
	if !slices.ContainsFunc(c.Warnings(), func(w Warning) bool {
		return w.Path == "WEIR_TOKEN" && w.Reason == "is not a variable that this Weir knows and does nothing"
	}) {
		t.Errorf("no warning names WEIR_TOKEN: %v", c.Warnings())
	}
	if _, err = load("", "WEIR_MQTT_PORT=1883"); err == nil {
		_, err = load("", "WEIR_LISTENERS_MQTTT=x")
	}
	if err == nil {
		t.Error("a variable that resembles a key is let through")
	}
}

func TestTheAliasOfTheClientIsTaken(t *testing.T) {
	t.Parallel()
	c, err := load("infrastructure:\n  messaging:\n    mqttFailClosed: true\n")
	if err != nil || !c.Broker.FailClosed {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestASecretIsNeverShown(t *testing.T) {
	t.Parallel()
	c, err := load("auth: {service_secret: 0123456789012345678901234567890123}\n")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(c)
	if err != nil || strings.Contains(string(b), "0123") || strings.Contains(fmt.Sprintf("%v %+v", c, c.Auth), "0123") {
		t.Errorf("a secret shows: %s, %v", b, err)
	}
}

func TestAMissingFileIsToldWithAWayOn(t *testing.T) {
	t.Parallel()
	_, err := Load(Source{File: "none.yaml", ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist }})
	if ps, ok := AsProblems(err); !ok || ps[0].File != "none.yaml" || ps[0].Hint == "" {
		t.Errorf("got %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	for _, c := range gallery {
		f.Add(c.yaml, "", "")
		f.Add("", c.yaml, "WEIR_BROKER_ENABLED=false")
		f.Add(c.yaml, c.yaml, "x")
	}
	f.Fuzz(func(t *testing.T, yaml, overlay, set string) {
		r := Read(disk{"weir.yaml": {text: yaml}, "conf.d/10.yaml": {text: overlay}}.source(set, set))
		if (r.Config == nil) == (r.Problems == nil) {
			t.Fatalf("got %+v", r)
		}
		if r.Config == nil {
			return
		}
		if again, err := load(r.Config.YAML()); err != nil && !strings.Contains(err.Error(), shownSecret) && !strings.Contains(err.Error(), "config show") {
			t.Errorf("what is shown cannot be read: %v\n%s", err, r.Config.YAML())
		} else if err == nil && len(Diff(r.Config, again)) > 0 {
			t.Errorf("what is shown is another one: %v", Diff(r.Config, again))
		}
	})
}

// isDefault reports whether every key has its default.
func isDefault(c *Config) bool {
	d := Default()
	return c != nil && len(Diff(&d, c)) == 0
}
