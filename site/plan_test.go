package site

import (
	"errors"
	"strings"
	"testing"

	"weir/model"
	"weir/rules"
)

func TestAPlanShowsWhatDiffersInsideADocument(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	changed := w.read(strings.NewReplacer("threshold: 80", "threshold: 85", "lines: [1, 2]", "lines: [1, 3], night: {on: true}").Replace(plantFile), plantEnv...)
	const want = `~ tenant acme: config.lines[1] 2 → 3, config.night none → {"on":true}
~ detection rule acme/too-hot: definition.when.threshold 80 → 85
^ publish acme/boiler v2
`
	w.wantPlan(changed, Options{}, want)
	p := w.plan(changed, Options{})
	if f := p.Changes[1].Fields[0]; f.Name != "definition" || len(f.Inside) != 1 {
		t.Errorf("%+v", f)
	}
}

// Two values that are cut are never cut to the same.
func TestAPlanShowsLongValuesWhereTheyDiffer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("abcdefghij", 20)
	for _, c := range []struct {
		old, new any
		want     string
	}{
		{long + "X", long + "Y", `x …abcdefghijabcdefghijX" → …abcdefghijabcdefghijY"`},
		{"short", "other", `x "short" → "other"`},
		{nil, long, `x none → "` + long[:59] + "…"},
		{long + "X" + long, long + "Y" + long, `x …abcdefghijabcdefghijX` + long[:39] + `… → …abcdefghijabcdefghijY` + long[:39] + `…`},
	} {
		f := FieldChange{Name: "x", Old: c.old, New: c.new}
		if got := f.String(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestAPlanNamesWhatIsNotDeclared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	less := w.read(`
version: 1
tiers: []
identities: [{email: ada@example.org, memberships: []}]
tenants:
  - token: acme
    deviceProfiles: [{token: boiler, detectionRules: []}]
    devices: []
`)
	before := w.dump()
	p := w.plan(less, Options{})
	var got []string
	for i := range p.Undeclared {
		got = append(got, p.Undeclared[i].String())
	}
	const want = `2 devices are not in the file; --prune would delete them: acme/boiler-1, acme/boiler-2
1 detection rule is not in the file; --prune would delete it: acme/too-hot
1 membership is not in the file; --prune would delete it: ada@example.org in acme
1 tenant tier is not in the file; --prune would delete it: night`
	if strings.Join(got, "\n") != want || len(p.Changes) != 0 {
		t.Errorf("got\n%s\nand %s", strings.Join(got, "\n"), lines(p))
	}
	if p := w.plan(w.read("version: 1\ntenants: [{token: acme, devices: []}]"), Options{Prune: true}); len(p.Undeclared) != 0 || len(p.Changes) != 2 {
		t.Error(p.Undeclared, lines(p))
	}
	if p := w.apply(less, Options{}); len(p.Undeclared) != 0 {
		t.Error(p.Undeclared)
	}
	if w.dump() != before {
		t.Error("something was changed")
	}
	if p := w.plan(w.read(plantFile, plantEnv...), Options{}); len(p.Undeclared) != 0 {
		t.Error(p.Undeclared)
	}
}

func TestManyUndeclaredAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(fleetFile("A", 300)), Options{})
	p := w.plan(w.read(fleetFile("A", 1)), Options{})
	if len(p.Undeclared) != 1 || !strings.HasPrefix(p.Undeclared[0].String(), "299 devices are not in the file; --prune would delete them: acme/d1, acme/d10, ") ||
		!strings.HasSuffix(p.Undeclared[0].String(), ", …") {
		t.Error(p.Undeclared)
	}
}

// What is refused for its own sake is reported, all of it; what only refers to something that was refused is not.
func TestAllThatIsRefusedIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	before := w.dump()
	d := w.read(`
version: 1
identities:
  - {email: bob@example.org}
  - {email: ada@example.org, systemRoles: [tenant-admin]}
tenants:
  - token: acme
    deviceTypes: [{token: pump, profileToken: nowhere}]
    devices:
      - {token: p1, deviceTypeToken: pump, credentials: [{token: p1-key, credentialType: ACCESS_TOKEN}]}
      - {token: boiler-3, deviceTypeToken: pump, externalId: "0012"}
      - {token: boiler-4, externalId: "0012"}
      - {token: boiler-2, externalId: "0012"}
`)
	for _, run := range []func() error{
		func() error { _, err := w.Plan(t.Context(), operator, d, Options{}); return err },
		func() error { _, err := w.Apply(t.Context(), operator, d, Options{}); return err },
	} {
		err := run()
		e, ok := errors.AsType[*model.Error](err)
		if !ok || len(e.All) != 5 {
			t.Fatalf("got %v", err)
		}
		got := strings.ReplaceAll(err.Error(), w.dir+"/", "")
		const want = `site.yaml:8:33: tenants[0].deviceTypes[0].profileToken: "nowhere" does not exist
site.yaml:12:10: tenants[0].devices[2]: deviceTypeToken: is required
site.yaml:13:27: tenants[0].devices[3].externalId: conflict: externalId of a device must be unique, "0012" is in use
site.yaml:4:6: identities[0]: password: is required
site.yaml:5:30: identities[1].systemRoles: roleTokens: "tenant-admin" is no role of scope system`
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if w.dump() != before {
			t.Error("something was changed")
		}
	}
}

func TestAPlanWarnsOfRulesThatDoNotFitTheirMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	d := w.read(`
version: 1
tenants:
  - token: acme
    deviceProfiles:
      - token: boiler
        detectionRules:
          - {token: typo, definition: {name: n, type: threshold, when: {metric: Temp, op: gt, threshold: 1}}}
          - {token: never, definition: {name: n, type: threshold, when: {metric: temp, op: gt, threshold: 500}}}
          - {token: fine, definition: {name: n, type: threshold, when: {metric: temp, op: gt, threshold: 400}}}
          - {token: off, enabled: false, definition: {name: n, type: threshold, when: {metric: nothing, op: gt, threshold: 1}}}
`)
	p := w.plan(d, Options{})
	const want = `site.yaml:9:28: detection rule boiler/never: when.threshold: 500 lies outside of the range of the metric "temp", -40..400: only a value outside the range crosses it; outOfRange: FLAG keeps such a value and lets rules judge it
site.yaml:8:27: detection rule boiler/typo: when.metric: the profile declares no metric "Temp" (did you mean temp?)`
	if got := strings.ReplaceAll(strings.Join(p.Warnings, "\n"), w.dir+"/", ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// A rule that the file does not name is held against the metrics, too.
	w.apply(d, Options{})
	p = w.plan(w.read("version: 1\ntenants: [{token: acme, deviceProfiles: [{token: boiler}]}]"), Options{})
	if len(p.Warnings) != 2 {
		t.Error(p.Warnings)
	}
}

// TestAPlanWarnsOfWhatRulesNameThatIsNotThere: geofences and commands, each with the nearest one that is. An instance that performs more
// actions than this one says so by its compiler.
func TestAPlanWarnsOfWhatRulesNameThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.compiler = func() (*rules.Compiler, error) {
		return rules.NewCompiler(rules.Limits{Actions: []rules.ActionType{rules.ActionSendCommand}})
	}
	const file = `
version: 1
tenants:
  - token: acme
    geoFences:
      - {token: yard, geometry: {kind: POLYGON_2D, geometry: {type: Polygon, coordinates: [[[0, 0], [1, 0], [1, 1], [0, 0]]]}}}
    deviceProfiles:
      - token: truck
        publish: false
        commandDefinitions:
          - {token: stop, commandKey: stop}
        detectionRules:
          - {token: in, definition: {name: n, type: threshold, when: {cel: 'geo.inFence("yard") && !geo.inFence("yrd")'}}}
          - {token: far, definition: {name: n, type: threshold, when: {cel: 'geo.inFence("warehouse")'}}}
          - {token: halt, enabled: true, definition: {name: n, type: connectivity, actions: [{type: sendCommand, sendCommand: {command: stopp}}]}}
          - {token: fine, definition: {name: n, type: threshold, when: {cel: 'geo.inFence("yard")'}}}
`
	const want = `site.yaml:14:26: detection rule truck/far: when: there is no geofence "warehouse" (there are yard)
site.yaml:15:42: detection rule truck/halt: actions: the profile declares no command "stopp" (did you mean stop?)
site.yaml:13:25: detection rule truck/in: when: there is no geofence "yrd" (did you mean yard?)`
	p := w.plan(w.read(file), Options{})
	if got := strings.ReplaceAll(strings.Join(p.Warnings, "\n"), w.dir+"/", ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestAPlanNamesTheGroupThatWasMeant: a scope that is not there is refused, since the rule would judge nothing.
func TestAPlanNamesTheGroupThatWasMeant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.read(`
version: 1
tenants:
  - token: acme
    entityGroups:
      - {token: heavy, memberType: device, membershipMode: dynamic, selector: 'attr["load"] > 10.0'}
    deviceProfiles:
      - token: truck
        detectionRules:
          - {token: r, entityGroupToken: hevy, entityGroupVersion: 1, definition: {name: n, type: threshold, when: {metric: t, op: gt, threshold: 1}}}
`)
	_, err := w.Plan(t.Context(), operator, d, Options{})
	if err == nil || !strings.Contains(err.Error(), `site.yaml:10:24: tenants[0].deviceProfiles[0].detectionRules[0].entityGroupToken: entity group "hevy" has no published version 1 (did you mean heavy?)`) {
		t.Error(err)
	}
}

// How a line ends, and whether an editor has put a mark before the first one, is no other file.
func TestTheDigestIsThatOfTheText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	digest := w.plan(w.read(fleetFile("A", 3)), Options{}).Digest
	for name, text := range map[string]string{
		"CRLF": strings.ReplaceAll(fleetFile("A", 3), "\n", "\r\n"),
		"mark": "\ufeff" + fleetFile("A", 3),
	} {
		if got := w.plan(w.read(text), Options{}).Digest; got != digest {
			t.Errorf("%s: %s, not %s", name, got, digest)
		}
	}
	if got := w.plan(w.read(fleetFile("A", 3)+"# a remark\n"), Options{}).Digest; got == digest {
		t.Error("another text has the same digest")
	}
}
