package config

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"

	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// disk is what lies in the directory of a configuration.
type disk map[string]entry

type entry struct {
	text string
	mode fs.FileMode
	err  error
}

// source reads from the disk weir.yaml and what lies next to it, with one flag and one variable.
func (d disk) source(set, environ string) Source {
	files := fstest.MapFS{}
	for name, f := range d {
		files[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(f.text), Mode: cmp.Or(f.mode, 0o600)}
	}
	src := Source{File: "weir.yaml", ReadDir: files.ReadDir}
	src.Stat = func(name string) (fs.FileInfo, error) { return files.Stat(strings.TrimPrefix(name, "/")) }
	src.ReadFile = func(name string) ([]byte, error) {
		if err := d[name].err; err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return files.ReadFile(strings.TrimPrefix(name, "/"))
	}
	if set != "" {
		src.Set = []string{set}
	}
	if environ != "" {
		src.Environ = strings.Fields(environ)
	}
	return src
}

func TestTheLaterLayerWins(t *testing.T) {
	t.Parallel()
	d := disk{"weir.yaml": {text: "instance: {id: file, node: file}\nlogging: {level: warn}\ndata_dir: file\n"},
		"conf.d/10-a.yaml":  {text: "instance:\n  id: ten\n  node: ten\n"},
		"conf.d/20-b.yaml":  {text: "instance:\n  id: twenty\n"},
		"conf.d/.#20.yaml":  {text: "an editor's leftover"},
		"conf.d/README":     {text: "no YAML at all: ["},
		"conf.d/sub/x.yaml": {text: "instance: {id: deep}"}}
	delete(d, "conf.d/sub/x.yaml")
	src := d.source("logging.level=debug", "WEIR_LOGGING_LEVEL=error WEIR_INSTANCE_NODE=variable")
	src.DataDir = "flag"
	c, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	if c.Instance.ID != "twenty" || c.Instance.Node != "variable" || c.Logging.Level != "debug" || c.DataDir != "flag" {
		t.Errorf("got %+v %+v %s", c.Instance, c.Logging, c.DataDir)
	}
	for key, want := range map[string]string{
		"instance.id":    "conf.d/20-b.yaml:2 conf.d/10-a.yaml:2 weir.yaml:1",
		"instance.node":  "WEIR_INSTANCE_NODE conf.d/10-a.yaml:3 weir.yaml:1",
		"logging.level":  "--set logging.level WEIR_LOGGING_LEVEL weir.yaml:2",
		"data_dir":       "--data weir.yaml:3",
		"broker.enabled": "default",
	} {
		var got []string
		for _, o := range c.Origins(key) {
			got = append(got, o.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s comes from %q, not %q", key, got, want)
		}
	}
	for _, want := range []string{"  id: \"twenty\"                                   # conf.d/20-b.yaml:2, over conf.d/10-a.yaml:2 and weir.yaml:1\n",
		"  enabled: true                                  # default\n"} {
		if !strings.Contains(c.OriginYAML(), want) {
			t.Errorf("%q is not in\n%s", want, c.OriginYAML())
		}
	}
}

func TestADirectoryIsAConfiguration(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]disk{
		"whole":         {"etc/weir.yaml": {text: "instance: {id: a}\n"}, "etc/conf.d/1.yaml": {text: "instance: {id: x}\n"}},
		"overlays only": {"etc/conf.d/1.yaml": {text: "instance: {id: x}\n"}},
		"file only":     {"etc/weir.yaml": {text: "instance: {id: x}\n"}},
	} {
		src := d.source("", "")
		src.File = "etc"
		if c, err := Load(src); err != nil || c.Instance.ID != "x" {
			t.Errorf("%s: got %v, %v", name, c, err)
		}
	}
	src := disk{"etc/other": {}}.source("", "")
	src.File = "etc"
	if _, err := Load(src); err == nil || !strings.Contains(err.Error(), "etc/weir.yaml: ") {
		t.Errorf("an empty directory: got %v", err)
	}
}

func TestEveryMistakeOfEveryLayerIsToldAtOnce(t *testing.T) {
	t.Parallel()
	d := disk{"weir.yaml": {text: "logging: {level: loud}\nbroker: {enabled: maybe}\n"},
		"conf.d/10.yaml": {text: "instance: [\n"},
		"conf.d/20.yaml": {text: "metrics:\n  enabled: 7\n"},
		"conf.d/30.yaml": {err: fs.ErrPermission}}
	_, err := Load(d.source("broker.max_connection=7", "WEIR_BROKER_FAIL_CLOSED=perhaps"))
	got := strings.TrimPrefix(err.Error(), "the configuration is not valid:\n")
	want := `--set broker.max_connection: is not a key that this Weir knows (did you mean broker.max_connections?)
WEIR_BROKER_FAIL_CLOSED: must be true or false
conf.d/10.yaml:1:11: this is not YAML: sequence end token ']' not found
    instance: [
              ^
conf.d/20.yaml:2:12: metrics.enabled: must be true or false
      enabled: 7
               ^
conf.d/30.yaml: permission denied
weir.yaml:1:11: logging.level: must be one of debug, info, warn, error
    logging: {level: loud}
              ^
weir.yaml:2:19: broker.enabled: must be true or false
    broker: {enabled: maybe}
                      ^`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// others is what is reported of variables and flags, word for word.
var others = []struct{ set, env, want string }{
	{env: "WEIR_LOGGING_LEVEL=loud", want: "WEIR_LOGGING_LEVEL: must be one of debug, info, warn, error"},
	{env: "WEIR_LOGGING_LEVEL=warning", want: "WEIR_LOGGING_LEVEL: must be one of debug, info, warn, error (did you mean warn?)"},
	{set: "logging.level=warning", want: "--set logging.level: must be one of debug, info, warn, error (did you mean warn?)"},
	{set: "data_dir=", want: "--set data_dir: must not be empty"},
	{set: "broker=true", want: "--set broker: is a section (name one of its keys, such as broker.enabled)"},
	{set: "broker.enabled.x=true", want: "--set broker.enabled.x: is not a key that this Weir knows (did you mean broker.enabled?)"},
	{set: "auth.service_secret=0123456789012345678901234567890123", want: "--set auth.service_secret: is a secret, and others on this machine can read a command line " +
		"(set auth.service_secret_file, auth.service_secret_env or auth.service_secret_credential)"},
	{set: "auth.service_secret_env=NO_SUCH", want: "--set auth.service_secret_env: the variable NO_SUCH is not set"},
	{env: "WEIR_AUTH_SERVICE_SECRET_FILE=none.txt", want: "WEIR_AUTH_SERVICE_SECRET_FILE: the file of the secret cannot be read: open none.txt: file does not exist"},
	{env: "WEIR_AUTH_SERVICE_SECRET_FILE=", want: "WEIR_AUTH_SERVICE_SECRET_FILE: names nothing: leave the key out, or say where the secret is"},
	{env: "WEIR_AUTH_SERVICE_SECRET_ENV=A WEIR_AUTH_SERVICE_SECRET_FILE=b", want: "WEIR_AUTH_SERVICE_SECRET_FILE: and auth.service_secret_env both give this secret (give one of them)"},
	{env: "WEIR_AUTH_SERVICE_SECRET_CREDENTIAL=svc CREDENTIALS_DIRECTORY=creds", want: "WEIR_AUTH_SERVICE_SECRET_CREDENTIAL: the credential svc cannot be read: file does not exist; the unit must have LoadCredential=svc:FILE"},
	{env: "WEIR_INSTANCE_IDD=x", want: "WEIR_INSTANCE_IDD: is not a variable that this Weir knows (did you mean WEIR_INSTANCE_ID?)"},
	{set: "governance.ingest_messages_per_second=+Inf", want: "--set governance.ingest_messages_per_second: must be a finite number"},
	{set: "auth.access_token_ttl=5s", want: "--set auth.access_token_ttl: must be at least 1m"},
}

func TestWhatIsWrongWithVariablesAndFlagsIsToldByTheirNames(t *testing.T) {
	t.Parallel()
	for _, c := range others {
		_, err := Load(disk{"weir.yaml": {}}.source(c.set, c.env))
		if err == nil || strings.TrimPrefix(err.Error(), "the configuration is not valid:\n") != c.want {
			t.Errorf("%s%s: got %v\nwant %s", c.set, c.env, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "0123") {
			t.Errorf("%s%s: the secret shows", c.set, c.env)
		}
	}
}

func TestASecretComesFromWhereItIsKept(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-more-than-thirty-two-bytes"
	d := disk{"weir.yaml": {}, "key": {text: secret + "\n"}, "creds/svc": {text: secret + "\r\n"}}
	for name, src := range map[string]Source{
		"variable":              d.source("", "WEIR_AUTH_SERVICE_SECRET="+secret),
		"file by variable":      d.source("", "WEIR_AUTH_SERVICE_SECRET_FILE=key"),
		"file by flag":          d.source("auth.service_secret_file=key", ""),
		"variable by flag":      d.source("auth.service_secret_env=OTHER", "OTHER="+secret),
		"the last of variables": d.source("auth.service_secret_env=OTHER", "OTHER=x OTHER="+secret),
		"credential by flag":    d.source("auth.service_secret_credential=svc", "CREDENTIALS_DIRECTORY=creds"),
	} {
		c, err := Load(src)
		if err != nil || c.Auth.ServiceSecret.Reveal() != secret {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestWhatALaterLayerReplacesNeedNotExist(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-more-than-thirty-two-bytes"
	d := disk{"weir.yaml": {text: "auth: {service_secret_file: nowhere}\n"}, "conf.d/1.yaml": {text: "auth: {service_secret_env: THE_SECRET}\n"}}
	if c, err := Load(d.source("", "THE_SECRET="+secret)); err != nil || c.Auth.ServiceSecret.Reveal() != secret {
		t.Errorf("got %v", err)
	}
	if c, err := Load(d.source("", "THE_SECRET=x WEIR_AUTH_SERVICE_SECRET="+secret)); err != nil || c.Auth.ServiceSecret.Reveal() != secret {
		t.Errorf("a value over a reference: got %v", err)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	secret := "auth: {service_secret: a-secret-of-more-than-thirty-two-bytes}\n"
	for _, c := range []struct {
		name string
		disk disk
		want []string
	}{
		{"defaults", disk{"weir.yaml": {}}, nil},
		{"open without a credential", disk{"weir.yaml": {text: "auth:\n  device_auth_mode: optional\n"}}, []string{
			"listeners.ingest: is open on every interface, without TLS, and auth.device_auth_mode is optional: any client that reaches it can send as any device (set auth.device_auth_mode to required, or name an address such as 127.0.0.1:8081)"}},
		{"open on both kinds of address", disk{"weir.yaml": {text: "auth: {device_auth_mode: disabled}\nlisteners:\n  ingest: '[::]:8081'\n  metrics: 0.0.0.0:9090\n"}}, []string{
			"weir.yaml:3:3: listeners.ingest: is open on every interface, without TLS, and auth.device_auth_mode is disabled: any client that reaches it can send as any device (set auth.device_auth_mode to required, or name an address such as 127.0.0.1:8081)",
			"weir.yaml:4:3: listeners.metrics: is open on every interface: any client that reaches it can read the metrics (name an address such as 127.0.0.1:9090)"}},
		{"closed", disk{"weir.yaml": {text: "auth: {device_auth_mode: disabled}\nlisteners: {ingest: '', metrics: ':9090'}\nmetrics: {enabled: false}\n"}}, nil},
		{"in /tmp", disk{"weir.yaml": {text: "data_dir: /tmp/x/../weir\n"}}, []string{
			"weir.yaml:1:1: data_dir: lies in /tmp, which may be emptied at a restart: what was acknowledged would be lost (name a directory on a disk, such as /var/lib/weir)"}},
		{"nearly in /tmp", disk{"weir.yaml": {text: "data_dir: /tmpfiles\n"}}, nil},
		{"a secret for all to read", disk{"weir.yaml": {text: secret, mode: 0o644}}, []string{
			"weir.yaml:1:8: auth.service_secret: the file holds this secret and is readable by others (-rw-r--r--) (chmod 600 weir.yaml, or keep the secret elsewhere: auth.service_secret_file)"}},
		{"a secret for the group to read", disk{"weir.yaml": {mode: 0o644}, "conf.d/x.yaml": {text: secret, mode: 0o640}}, []string{
			"conf.d/x.yaml:1:8: auth.service_secret: the file holds this secret and is readable by others (-rw-r-----) (chmod 600 conf.d/x.yaml, or keep the secret elsewhere: auth.service_secret_file)"}},
		{"its own secret", disk{"weir.yaml": {text: secret, mode: 0o600}}, nil},
		{"a secret's file for all to read", disk{"weir.yaml": {text: "auth: {service_secret_file: key}\n", mode: 0o644}, "key": {text: "a-secret-of-more-than-thirty-two-bytes", mode: 0o444}}, []string{
			"weir.yaml:1:29: auth.service_secret_file: the file of the secret is readable by others (-r--r--r--) (chmod 600 key)"}},
		{"a file by another name", disk{"weir.yaml": {}, "conf.d/x.yml": {text: "instance: [\n"}}, []string{"conf.d/x.yml: is not read (name it .yaml)"}},
	} {
		cfg, err := Load(c.disk.source("", ""))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, w := range cfg.Warnings() {
			w.Source = ""
			got = append(got, w.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestARetiredKeyWarnsAndDoesNothing(t *testing.T) {
	t.Parallel()
	c := Default()
	src := disk{"weir.yaml": {text: "broker:\n  threads: 4\nold: {style: 1}\n"}}.source("broker.threads=5", "WEIR_BROKER_THREADS=6")
	l := newLoader(src.withDefaults(), ofConfig(&c))
	l.config, l.retired = &c, map[string]string{"broker.threads": "it follows the machine", "old": "leave it out"}
	l.layers()
	l.validate()
	if len(l.problems) > 0 || !isDefault(&c) {
		t.Errorf("got %v", l.problems)
	}
	var got []string
	for _, w := range l.warnings {
		w.Source = ""
		got = append(got, w.String())
	}
	slices.Sort(got)
	want := []string{"--set broker.threads: is retired and does nothing (it follows the machine)",
		"WEIR_BROKER_THREADS: is retired and does nothing (it follows the machine)",
		"weir.yaml:2:3: broker.threads: is retired and does nothing (it follows the machine)",
		"weir.yaml:3:1: old: is retired and does nothing (leave it out)"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestEveryKeyHasItsVariable(t *testing.T) {
	t.Parallel()
	c := Default()
	vars := map[string]EnvVar{}
	for _, v := range append(Variables(), OtherVariables()...) {
		if v.Doc == "" || vars[v.Name].Name != "" {
			t.Errorf("%s is said twice or not at all", v.Name)
		}
		vars[v.Name] = v
	}
	for _, k := range described(ofConfig(&c)) {
		if _, ok := vars[Variable(k.path)]; !ok && k.kind != fieldSections {
			t.Errorf("%s has no variable", k.path)
		}
	}
	leaves(ofConfig(&c), "", func(path string, f field) {
		if f.kind == fieldSections {
			return
		}
		if _, ok := vars[Variable(path)]; !ok {
			t.Errorf("%s has no variable", path)
		}
		if f.reference() || f.secret() {
			return
		}
		if _, err := load("", Variable(path)+"="+text(f.value)); err != nil && !isEmptyText(f) {
			t.Errorf("the default of %s cannot be set: %v", path, err)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if strings.HasPrefix(name, "WEIR_GRAPHQL") {
			if _, err := load("", name+"=1"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func isEmptyText(f field) bool { return text(f.value) == "" && f.kind == fieldScalar }

func TestTheFingerprintKnowsEveryFile(t *testing.T) {
	t.Parallel()
	base := func() disk {
		return disk{"weir.yaml": {text: "auth: {service_secret_file: key}\n"}, "conf.d/1.yaml": {text: "data_dir: x\n"}, "key": {text: "a-secret-of-more-than-thirty-two-bytes"}}
	}
	before := Read(base().source("", ""))
	if again := Read(base().source("", "")); again.Fingerprint != before.Fingerprint || before.Config.Fingerprint() != before.Fingerprint {
		t.Error("it differs where nothing has changed")
	}
	seen := map[Fingerprint]string{before.Fingerprint: "nothing"}
	for name, change := range map[string]func(disk){
		"the file":         func(d disk) { d["weir.yaml"] = entry{text: "auth: {service_secret_file: key}\n\n"} },
		"an overlay":       func(d disk) { d["conf.d/1.yaml"] = entry{text: "data_dir: y\n"} },
		"another overlay":  func(d disk) { d["conf.d/2.yaml"] = entry{text: ""} },
		"none":             func(d disk) { delete(d, "conf.d/1.yaml") },
		"the secret":       func(d disk) { d["key"] = entry{text: "another-secret-of-more-than-thirty-two-bytes"} },
		"no secret":        func(d disk) { delete(d, "key") },
		"an unreadable":    func(d disk) { d["weir.yaml"] = entry{err: errors.New("I/O error")} },
		"something broken": func(d disk) { d["weir.yaml"] = entry{text: "auth: ["} },
	} {
		d := base()
		change(d)
		now := Read(d.source("", "")).Fingerprint
		if other, taken := seen[now]; taken {
			t.Errorf("%s looks as %s", name, other)
		}
		seen[now] = name
	}
}

func TestTakeObeysWhatCanBeReloadedAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	from, err := load("logging: {level: warn}\nlisteners: {api: ':1'}\n")
	if err != nil {
		t.Fatal(err)
	}
	to, err := load("logging: {level: debug}\nlisteners: {api: ':2'}\nspool: {head_age: 2h}\n")
	if err != nil {
		t.Fatal(err)
	}
	taken := Take(from, to)
	if taken.Logging.Level != "debug" || taken.Listeners.API != ":1" || taken.Spool.HeadAge != from.Spool.HeadAge || from.Logging.Level != "warn" {
		t.Errorf("got %+v", taken)
	}
	var reload, wait []string
	for _, c := range Diff(from, to) {
		if c.Reload {
			reload = append(reload, c.Path)
		} else {
			wait = append(wait, c.Path)
		}
	}
	if !slices.Equal(reload, []string{"logging.level"}) || !slices.Equal(wait, []string{"listeners.api", "spool.head_age"}) {
		t.Errorf("got %v and %v", reload, wait)
	}
	if left := Diff(taken, to); len(left) != 2 {
		t.Errorf("after a reload %v waits", left)
	}
}

func TestASecretThatChangesIsADifferenceThatDoesNotShow(t *testing.T) {
	t.Parallel()
	const one, other = "one-secret-of-more-than-thirty-two-bytes", "two-secret-of-more-than-thirty-two-bytes"
	a, errA := load("", "WEIR_AUTH_SERVICE_SECRET="+one)
	b, errB := load("", "WEIR_AUTH_SERVICE_SECRET="+other)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	d := Diff(a, b)
	if len(d) != 1 || d[0].From != "(set)" || d[0].To != "(another)" || d[0].Origin.String() != "WEIR_AUTH_SERVICE_SECRET" {
		t.Errorf("got %+v", d)
	}
	if strings.Contains(a.YAML()+a.OriginYAML(), one) {
		t.Error("the secret shows")
	}
}
