package site

import (
	"path/filepath"
	"strings"
	"testing"

	"weir/store"
)

// dutyFile declares what people are told by, in every way to write it, and a rule that reaches another system.
const dutyFile = `version: 1
tenants:
  - token: acme
    connectors:
      - token: plant
        type: mqtt
        config: {urls: ["mqtts://broker.example.com:8883"], topic: plant/alerts, username: weir}
        secret_env: BROKER
    httpSecrets:
      - {token: hook, hosts: [hooks.example.com, "A.example.com:8443"], secret_env: HOOK}
    notificationChannels:
      - token: duty
        name: People on duty
        channelType: smtp
        config: {host: mail.example.com, from: "Plant <weir@example.com>", username: weir}
        secret_env: MAIL
      - {token: hook, channelType: webhook, config: {url: "https://hooks.example.com/weir"}, enabled: false}
    notificationPolicies:
      - token: alarms
        throttleSeconds: 3600
        rules:
          - severity: CRITICAL
            channelToken: duty
            recipients: [ann@example.com, "Bob <bob@example.com>"]
          - {severity: "*", channelToken: hook}
    deviceProfiles:
      - token: boiler
        detectionRules:
          - token: too-hot
            definition:
              name: Too hot
              type: threshold
              when: {metric: temp, op: gt, threshold: 80}
              actions: [{type: publish, publish: {connectorRef: plant}}]
`

var dutyEnv = []string{"BROKER=s3cret broker", "MAIL=s3cret mail", "HOOK=s3cret-hook"}

func (w *world) changed(old, new string) *Document {
	w.Helper()
	if strings.Count(dutyFile, old) != 1 {
		w.Fatalf("%q is %d times in the file", old, strings.Count(dutyFile, old))
	}
	return w.read(strings.Replace(dutyFile, old, new, 1), dutyEnv...)
}

func TestConnectorsAndNotificationsAreDeclared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.read(dutyFile, dutyEnv...)
	made := `+ tenant acme
+ device profile acme/boiler
+ detection rule acme/too-hot
+ connector acme/plant
+ HTTP secret acme/hook
+ notification channel acme/duty
+ notification channel acme/hook
+ notification policy acme/alarms
^ publish acme/boiler v1
^ publish acme/plant v1
`
	w.wantPlan(d, Options{}, made)
	if got := lines(w.apply(d, Options{})); got != made {
		t.Errorf("applied\n%s", got)
	}
	w.wantPlan(d, Options{Prune: true}, "")
	exported, err := w.Export(t.Context(), operator, "acme")
	if err != nil {
		t.Fatal(err)
	}
	text := exported.YAML()
	if strings.Contains(text, "s3cret") || !strings.Contains(text, `        rules:
          -
            severity: CRITICAL
            channelToken: duty
            recipients:
              - ann@example.com
              - "Bob <bob@example.com>"
          -
            severity: "*"
            channelToken: hook
`) {
		t.Errorf("exported\n%s", text)
	}
	w.wantPlan(w.export(), Options{Prune: true}, "")
	if faults := faultsOf(t, asSchema(t), text); len(faults) > 0 {
		t.Errorf("the schema says of the export: %v", faults)
	}

	// What means the same changes nothing, and a change is shown where it is.
	w.wantPlan(w.changed(`[ann@example.com, "Bob <bob@example.com>"]`, `'["ann@example.com", "Bob <bob@example.com>"]'`), Options{}, "")
	w.wantPlan(w.changed(`channelToken: hook}`, `channelToken: hook, recipients: []}`), Options{}, "")
	w.wantPlan(w.changed("ann@example.com", "eve@example.com"), Options{},
		"~ notification policy acme/alarms: rules[0].recipients[0] \"ann@example.com\" → \"eve@example.com\"\n")
	w.wantPlan(w.read(dutyFile, "BROKER=s3cret broker", "MAIL=s3cret mail", "HOOK=other"), Options{}, "~ HTTP secret acme/hook: secret (changed)\n")
	w.wantPlan(w.changed("[hooks.example.com,", "[\"hooks.example.com:444\","), Options{}, "~ HTTP secret acme/hook: hosts [\"a.example.com:8443\",\"hooks.example.com:443\"] → [\"hooks.example.com:444\",\"A.example.com:8443\"]\n")
	w.wantPlan(w.read(dutyFile, "BROKER=s3cret broker", "MAIL=other", "HOOK=s3cret-hook"), Options{}, "~ notification channel acme/duty: secret (changed)\n")
	w.wantPlan(w.read(dutyFile, "BROKER=other", "MAIL=s3cret mail", "HOOK=s3cret-hook"), Options{}, "~ connector acme/plant: secret (changed)\n")

	less := w.read("version: 1\ntenants: [{token: acme, notificationPolicies: [], notificationChannels: [{token: hook}]}]")
	w.wantPlan(less, Options{Prune: true}, "- notification policy acme/alarms\n- notification channel acme/duty\n")
	w.apply(less, Options{Prune: true})
	w.wantPlan(less, Options{Prune: true}, "")
	w.wantPlan(w.export(), Options{Prune: true}, "")
}

// Another type loses the secret of the old one: that of the file is set anew, even where it is the same.
func TestASecretOutlivesAnotherType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := func(connector, channel string) *Document {
		return w.read("version: 1\ntenants:\n  - token: acme\n    connectors: [{token: c, secret_env: KEY, "+connector+"}]\n    notificationChannels: [{token: n, secret_env: KEY, "+channel+"}]\n", "KEY=s3cret-key")
	}
	w.apply(file("type: mqtt, config: {urls: [\"mqtts://b.example.com:8883\"], topic: t, username: u}", "channelType: smtp, config: {host: mail.example.com, from: a@example.com, username: u}"), Options{})
	second := file("type: kafka, config: {addresses: [\"k.example.com:9092\"], topic: t, sasl: {mechanism: PLAIN, username: u}}", "channelType: webhook, config: {url: \"https://hooks.example.com/weir\", auth: bearer}")
	w.apply(second, Options{})
	w.wantPlan(second, Options{}, "")
	for _, k := range []string{tableConnectors, tableChannels} {
		live := w.format.of(k).live
		rows, err := live.ByToken(t.Context(), w.by("acme"), []string{"c", "n"})
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		if secret, ok, err := live.Secret(t.Context(), rows[0]); secret != "s3cret-key" || !ok || err != nil {
			t.Errorf("%s: %q %v %v", k, secret, ok, err)
		}
	}
}

// A rule of a policy whose channel was deleted notifies no one, though the tokens still match: a plan says so, and an apply binds it to
// the channel that it makes.
func TestARuleFollowsAChannelThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.read(dutyFile, dutyEnv...)
	w.apply(d, Options{})
	if gone, err := w.notify.Channels.Delete(t.Context(), w.by("acme"), "hook"); !gone || err != nil {
		t.Fatal(gone, err)
	}
	w.wantPlan(w.export(), Options{Prune: true}, "")
	if got := lines(w.plan(d, Options{})); !strings.Contains(got, "+ notification channel acme/hook\n~ notification policy acme/alarms: rules ") {
		t.Errorf("the plan is\n%s", got)
	}
	w.apply(d, Options{})
	w.wantPlan(d, Options{Prune: true}, "")

	// It is refused where nothing makes the channel.
	if gone, err := w.notify.Channels.Delete(t.Context(), w.by("acme"), "hook"); !gone || err != nil {
		t.Fatal(gone, err)
	}
	alone := w.read("version: 1\ntenants:\n  - token: acme\n    notificationPolicies:\n      - token: alarms\n        rules:\n          - {severity: MAJOR, channelToken: duty, recipients: [a@example.com]}\n          - severity: \"*\"\n            channelToken: hook\n")
	_, err := w.Plan(t.Context(), operator, alone, Options{})
	if err == nil || !strings.Contains(err.Error(), `site.yaml:9:13: tenants[0].notificationPolicies[0].rules[1].channelToken: there is no notification channel "hook"`) {
		t.Errorf("the plan says %v", err)
	}
}

// What only the instance knows is refused at its place, too: the type of a channel that the file does not declare.
func TestRecipientsThatTheChannelDoesNotTakeAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(dutyFile, dutyEnv...), Options{})
	for recipients, want := range map[string]string{
		"":                                     `:6:12: tenants[0].notificationPolicies[0].rules[0]: rules[0].recipients: at least one is required`,
		", recipients: []":                     `:6:49: tenants[0].notificationPolicies[0].rules[0].recipients: at least one is required`,
		", recipients: [ann@example.com, bob]": `:6:79: tenants[0].notificationPolicies[0].rules[0].recipients[1]: must be one mail address`,
		", recipients: '[\"ann@example.com\", 1]'": `:6:49: tenants[0].notificationPolicies[0].rules[0].recipients: `,
	} {
		d := w.read("version: 1\ntenants:\n  - token: acme\n    notificationPolicies:\n      - {token: p, rules: [\n          {severity: MAJOR, channelToken: duty" + recipients + "}]}\n")
		if _, err := w.Plan(t.Context(), operator, d, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the plan says %v", recipients, err)
		}
	}
}

// A policy that follows a refused channel is not refused for it.
func TestAPolicyOfARefusedChannelIsNoSecondRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.Apply(t.Context(), operator, w.read(dutyFile, "BROKER=s3cret broker", "MAIL=s3cret\x00", "HOOK=s3cret-hook"), Options{})
	if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), "site.yaml:16:9: tenants[0].notificationChannels[0].secret_env: ") || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("refused with %v", err)
	}
}

// A rule that names a connector which is not there can be published, and a plan warns of it at its position.
func TestARuleThatNamesAMissingConnectorIsWarnedOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if p := w.plan(w.read(dutyFile, dutyEnv...), Options{}); len(p.Warnings) > 0 {
		t.Errorf("a connector that the same file makes: %q", p.Warnings)
	}
	p := w.plan(w.changed("connectorRef: plant", "connectorRef: plnt"), Options{})
	want := filepath.Join(w.dir, "site.yaml") + `:30:13: detection rule boiler/too-hot: actions: there is no connector "plnt" (did you mean plant?)`
	if len(p.Warnings) != 1 || p.Warnings[0] != want {
		t.Errorf("warned of %q, want %q", p.Warnings, want)
	}
}

func TestMistakesInNotificationsAreReportedAtTheirPlace(t *testing.T) {
	t.Parallel()
	const rule, second = "tenants[0].notificationPolicies[0].rules[0]", "tenants[0].notificationPolicies[0].rules[1]"
	src := func(text string) Source {
		s := checked(text, true)
		s.LookupEnv = lookup(append([]string{"NUL=s3cret\x00"}, dutyEnv...))
		return s
	}
	if ps, warnings := problemsOf(t, src(dutyFile)); len(ps)+len(warnings) > 0 {
		t.Fatal(ps, warnings)
	}
	for _, a := range []alteration{
		{"wrong severity", "severity: CRITICAL", "severity: CRITICLA", "22:13: " + rule + ".severity", `"CRITICLA" is none of`},
		{"severity in small letters", "severity: CRITICAL", "severity: critical", "22:13: " + rule + ".severity", "(did you mean CRITICAL?)"},
		{"misspelt recipients", "recipients: [ann", "recipient: [ann", "24:13: " + rule + ".recipient", "unknown field (known are"},
		{"misspelt recipients, with what was meant", "recipients: [ann", "recipient: [ann", "24:13: " + rule + ".recipient", "(did you mean recipients?)"},
		{"no recipients of a mail", `[ann@example.com, "Bob <bob@example.com>"]`, "[]", "24:13: " + rule + ".recipients", "at least one is required"},
		{"recipients left out", `            recipients: [ann@example.com, "Bob <bob@example.com>"]` + "\n", "", "22:13: " + rule + ".recipients", "at least one is required"},
		{"recipient that is no address", "[ann@example.com,", "[ann,", "24:26: " + rule + ".recipients[0]", "must be one mail address"},
		{"recipient that is a number", "[ann@example.com,", "[12,", "24:13: " + rule + ".recipients", "must be a list of texts"},
		{"recipients as a mapping", `[ann@example.com, "Bob <bob@example.com>"]`, "{to: a}", "24:13: " + rule + ".recipients", "must be a list of texts"},
		{"channel that is not declared", "channelToken: duty", "channelToken: dutty", "23:13: " + rule + ".channelToken", `"dutty" is not declared under notificationChannels (did you mean duty?)`},
		{"channel that is not declared, in a row", "channelToken: hook", "channelToken: other", "25:29: " + second + ".channelToken", "(declare it, if only by its name)"},
		{"throttle below its bound", "throttleSeconds: 3600", "throttleSeconds: -1", "20:9: tenants[0].notificationPolicies[0].throttleSeconds", "must be at least 0"},
		{"no rules", "throttleSeconds: 3600\n        rules:", "throttleSeconds: 3600\n        metadata:", "19:9: tenants[0].notificationPolicies[0].rules", "is required"},
		{"rules that are no list", "        rules:\n          - severity: CRITICAL\n            channelToken: duty\n", "        rules:\n          x:\n            channelToken: duty\n", "", "must be"},
		{"secret in the clear", "secret_env: MAIL", "secret: s3cret", "16:9: tenants[0].notificationChannels[0].secret", "a secret does not stand in a site file (name a file with secret_file, or a variable with secret_env)"},
		{"secret in a config", "username: weir}\n        secret_env: MAIL", "password: s3cret}", "15:76: tenants[0].notificationChannels[0].config.password", "unknown field"},
		{"secret that cannot be sent", "secret_env: MAIL", "secret_env: NUL", "16:9: tenants[0].notificationChannels[0].secret", "must not hold a NUL character"},
		{"secret of a connector in the clear", "secret_env: BROKER", "secret: s3cret", "8:9: tenants[0].connectors[0].secret", "a secret does not stand in a site file"},
		{"unknown type of channel", "channelType: smtp", "channelType: smpt", "14:9: tenants[0].notificationChannels[0].channelType", "(did you mean smtp?)"},
		{"misspelt key of a config", "{host: mail", "{hots: mail", "15:18: tenants[0].notificationChannels[0].config.hots", "known are from, host"},
		{"misspelt key of a connector's config", "topic: plant", "topik: plant", "7:61: tenants[0].connectors[0].config.topik", "known are"},
		{"misspelt field of a channel", "channelType: smtp", "chanelType: smtp", "14:9: tenants[0].notificationChannels[0].chanelType", "(did you mean channelType?)"},
		{"a policy for a device type", "throttleSeconds: 3600", "deviceTypeToken: t", "20:9: tenants[0].notificationPolicies[0].deviceTypeToken", "policies are for the whole tenant"},
	} {
		text := alter(t, dutyFile, a)
		if strings.HasPrefix(a.name, "rules that are no list") {
			text = strings.Replace(text, "          - {severity: \"*\", channelToken: hook}\n", "", 1)
		}
		ps, _ := problemsOf(t, src(text))
		if !find(ps, a) {
			t.Errorf("%s: want %s: … %s\ngot %v", a.name, a.place, a.says, ps)
		}
		for _, p := range ps {
			if p.Line == 0 || strings.Contains(p.String(), "s3cret") {
				t.Errorf("%s: %v", a.name, p)
			}
		}
	}
}

func TestTheSchemaKnowsNotifications(t *testing.T) {
	t.Parallel()
	schema := asSchema(t)
	if faults := faultsOf(t, schema, dutyFile); len(faults) > 0 {
		t.Errorf("the schema says %v", faults)
	}
	for _, a := range []alteration{
		{name: "wrong severity", old: "severity: CRITICAL", new: "severity: CRITICLA"},
		{name: "misspelt recipients", old: "recipients: [ann", new: "recipient: [ann"},
		{name: "no channel", old: ", channelToken: hook", new: ""},
		{name: "unknown type", old: "channelType: smtp", new: "channelType: smpt"},
		{name: "a secret in the clear", old: "secret_env: MAIL", new: "secret: s3cret"},
		{name: "a mapping of rules", old: "throttleSeconds: 3600\n        rules:", new: "rules: {}\n        metadata:"},
		{name: "a throttle below its bound", old: "throttleSeconds: 3600", new: "throttleSeconds: -1"},
	} {
		if faults := faultsOf(t, schema, alter(t, dutyFile, a)); len(faults) == 0 {
			t.Errorf("%s: the schema finds nothing", a.name)
		}
	}
}

// What aliases make of a small file is bounded: no more places are kept than maxPlaces.
func TestThePlacesOfADocumentAreBounded(t *testing.T) {
	t.Parallel()
	list := "&a [" + strings.Repeat("y, ", 99) + "y]"
	text := "version: 1\ntenants: [{token: acme, notificationPolicies: [{token: p, metadata: " + list + ", rules: [" + strings.Repeat("*a, ", 99) + "*a]}]}]\n"
	d, _, err := Read(gallerySource(text), "site.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(d.Lists["tenants"][0].Lists["notificationPolicies"][0].Places); n != maxPlaces {
		t.Errorf("%d places are kept", n)
	}
}

// What rows hold that the API took comes back, whatever its form.
func TestRecipientsComeBackInEveryForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(dutyFile, dutyEnv...), Options{})
	for _, rules := range []string{`[]`, `[{"severity":"MAJOR","channelToken":"hook"}]`, `[{"severity":"MAJOR","channelToken":"hook","recipients":null}]`,
		`[{"channelToken":"hook","severity":"*","recipients":" [ \"<a> & é\" , \"12\",\"true\" ] "}]`, `[{"severity":"MAJOR","channelToken":"hook","recipients":"[]"}]`} {
		if _, err := w.notify.Policies.Update(t.Context(), w.by("acme"), "alarms", store.Patch{"rules": rules}); err != nil {
			t.Fatal(err)
		}
		w.wantPlan(w.export(), Options{Prune: true}, "")
		other := newWorld(t)
		d := w.export()
		for _, e := range d.Lists["tenants"][0].Lists[listChannels] {
			if e.Name == "duty" {
				e.keep(keySecret, "s3cret mail")
			}
		}
		d.Lists["tenants"][0].Lists["connectors"][0].keep(keySecret, "s3cret broker")
		d.Lists["tenants"][0].Lists["httpSecrets"][0].keep(keySecret, "s3cret-hook")
		other.apply(d, Options{})
		other.wantPlan(d, Options{Prune: true}, "")
	}
}
