package site

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/yamldoc"
)

// sound is the file that is altered.
const sound = `version: 1
tiers:
  - {token: night, color: sky, config: {shedPriority: 20}}
roles:
  - {token: viewer, scope: tenant, authorities: ["device:read"]}
identities:
  - email: ada@example.org
    firstName: Ada
    password_env: KEY
    systemRoles: [operator]
    memberships: [{tenant: acme, roles: [viewer]}]
tenants:
  - token: acme
    name: Acme
    tierToken: night
    ingestBurst: 4000
    shedPriority: 50
    deviceProfiles:
      - token: boiler
        inactivityTimeoutSeconds: 600
        location: {expectedAccuracyMeters: 2.5}
        metricDefinitions:
          - {token: boiler-temp, metricKey: temp, dataType: DOUBLE, unit: Cel, minValue: -40, maxValue: 150}
          - {token: boiler-mode, metricKey: mode, dataType: INT, enum: ["0", "1"]}
        detectionRules:
          - token: too-hot
            definition:
              name: Too hot
              type: threshold
              severity: major
              when: {metric: temp, op: gt, threshold: 80}
          - token: odd
            definition:
              name: Odd
              type: threshold
              when:
                cel: '"temp" in m && m.temp > 90.0'
    deviceTypes:
      - {token: boiler-type, profileToken: boiler}
    devices:
      - token: boiler-1
        deviceTypeToken: boiler-type
        externalId: SN1
        credentials:
          - {token: key-1, credentialType: ACCESS_TOKEN, credentialId_env: KEY}
          - {token: user-1, credentialType: MQTT_BASIC, credentialId: fred, credentialValue_env: KEY, expiresAt: "2031-01-01T00:00:00Z"}
      - {token: boiler-2, deviceTypeToken: boiler-type, externalId: SN2}
`

// alteration is one mistake: what is replaced in the sound file by what, and where the report must point to and what it
// must say there.
type alteration struct{ name, old, new, place, says string }

const (
	atRule = "tenants[0].deviceProfiles[0].detectionRules[0].definition"
	atCEL  = "tenants[0].deviceProfiles[0].detectionRules[1].definition.when.cel"
	atTemp = "tenants[0].deviceProfiles[0].metricDefinitions[0]"
)

var alterations = []alteration{
	// Inside definitions.
	{"misspelt key of a rule", "severity: major", "sevrity: major", "30:15: " + atRule + ".sevrity", "unknown field (did you mean severity? known are actions, agg,"},
	{"key of a rule in another case", "severity: major", "Severity: major", "30:15: " + atRule + ".Severity", "did you mean severity?"},
	{"misspelt key of a condition", "op: gt", "opp: gt", "31:36: " + atRule + ".when.opp", "unknown field (did you mean op? known are cel, clear, metric, op, threshold, thresholdAttr)"},
	{"misspelt metric of a condition", "{metric: temp, op", "{metrc: temp, op", "31:22: " + atRule + ".when.metrc", "did you mean metric?"},
	{"misspelt threshold", "threshold: 80", "treshold: 80", "31:44: " + atRule + ".when.treshold", "did you mean threshold?"},
	{"unknown op", "op: gt", "op: gte", "31:36: " + atRule + ".when.op", `"gte" is not one of gt, ge, lt, le, eq, ne (did you mean ge?)`},
	{"sign for an op", "op: gt", `op: ">"`, "31:36: " + atRule + ".when.op", "is not one of gt, ge"},
	{"unknown severity", "severity: major", "severity: majr", "30:15: " + atRule + ".severity", "(did you mean major?)"},
	{"severity in capitals", "severity: major", "severity: MAJOR", "30:15: " + atRule + ".severity", `"MAJOR" is not one of critical, major`},
	{"unknown kind", "type: threshold\n              severity", "type: treshold\n              severity", "29:15: " + atRule + ".type", "(did you mean threshold?)"},
	{"kind that is not run", "type: threshold\n              severity", "type: absence\n              timeout: 5m\n              severity", "", "not used by type absence"},
	{"threshold as a text", "threshold: 80", `threshold: "80"`, "31:44: " + atRule + ".when.threshold", "must be a number, not a string"},
	{"comparison without threshold", ", threshold: 80", "", "31:15: " + atRule + ".when", "lacks its threshold"},
	{"comparison without op", "op: gt, ", "", "31:15: " + atRule + ".when", "lacks its op"},
	{"comparison without metric", "{metric: temp, op", "{op", "31:15: " + atRule + ".when", "lacks its metric"},
	{"rule without a condition", "              when: {metric: temp, op: gt, threshold: 80}\n", "", "27:13: " + atRule + ".when", "required by type threshold"},
	{"rule without a name", "              name: Too hot\n", "", "27:13: " + atRule + ".name", "required"},
	{"rule without a kind", "              type: threshold\n              severity", "              severity", "27:13: " + atRule + ".type", "required"},
	{"rule with a null", "severity: major", "severity: null", "30:15: " + atRule + ".severity", "must be a string, not null"},
	{"field of another kind", "severity: major", "hold: 5m", "30:15: " + atRule + ".hold", "not used by type threshold"},
	{"duration in days", "severity: major", "window: 14d", "30:15: " + atRule + ".window", "is no duration such as"},
	{"id in a rule", "severity: major", "id: x", "27:13: " + atRule, `must not have an "id"`},
	{"key of a rule twice", "severity: major", "severity: major\n              severity: minor", "31:15: " + atRule + ".severity", "is given twice"},
	{"condition as a text", "when: {metric: temp, op: gt, threshold: 80}", "when: temp > 80", "31:15: " + atRule + ".when", "must be an object, not a string"},
	{"action that is not known", "severity: major", "severity: major\n              actions: [{type: sendMail}]", "31:26: " + atRule + ".actions[0].type", "is not one of raiseAlarm"},
	{"misspelt key of an action", "severity: major", "severity: major\n              actions: [{type: raiseAlarm, raiseAlrm: {}}]", "31:44: " + atRule + ".actions[0].raiseAlrm", "did you mean raiseAlarm?"},
	{"metric that is no name", "{metric: temp, op", `{metric: "` + strings.Repeat("t", 129) + `", op`, "31:22: " + atRule + ".when.metric", "must have at most 128 characters"},
	{"definition is a list", "definition:\n              name: Odd\n              type: threshold\n              when:\n                cel: '\"temp\" in m && m.temp > 90.0'", "definition: [threshold]", "33:13: tenants[0].deviceProfiles[0].detectionRules[1].definition", "must be a JSON object"},
	// Expressions.
	{"variable that is not there", "m.temp > 90.0", "temp > 90.0", "37:17: " + atCEL, "undeclared reference to 'temp' (the variables are anchors, attr, device, geo, m, occurred; m.temp reads the metric temp)"},
	{"whole number against a double", "m.temp > 90.0", "m.temp > 90", "37:17: " + atCEL, "(write 90.0: metrics, attributes and values are doubles)"},
	{"broken expression", "m.temp > 90.0'", "m.temp > '", "37:17: " + atCEL, "Syntax error"},
	{"expression that gives a number", `'"temp" in m && m.temp > 90.0'`, "m.temp", "37:17: " + atCEL, "gives a double, it must give a bool"},
	{"function that is not there", "m.temp > 90.0", "hot(m.temp)", "37:17: " + atCEL, "undeclared reference to 'hot'"},
	{"condition that is never true", `'"temp" in m && m.temp > 90.0'`, `"1.0 > 2.0"`, "37:17: " + atCEL, "the condition is never true"},
	{"an attribute alone, which no sample releases", `'"temp" in m && m.temp > 90.0'`, `'!("a" in attr)'`, "37:17: " + atCEL, "the condition is true for every sample of a device without attributes"},
	// Values.
	{"data type of another product", "dataType: DOUBLE", "dataType: FLOAT", "23:51: " + atTemp + ".dataType", `"FLOAT" is none of DOUBLE, INT, BOOLEAN, STRING`},
	{"data type in small letters", "dataType: DOUBLE", "dataType: double", "23:51: " + atTemp + ".dataType", "(did you mean DOUBLE?)"},
	{"min above max", "minValue: -40", "minValue: 400", "23:80: " + atTemp + ".minValue", "400 is above maxValue 150"},
	{"unknown word for values out of range", "minValue: -40", "outOfRange: DROP, minValue: -40", "23:80: " + atTemp + ".outOfRange", `"DROP" is none of REFUSE, FLAG, CLAMP`},
	{"small letters for values out of range", "minValue: -40", "outOfRange: clamp, minValue: -40", "23:80: " + atTemp + ".outOfRange", "(did you mean CLAMP?)"},
	{"null for values out of range", "minValue: -40", "outOfRange: null, minValue: -40", "23:80: " + atTemp + ".outOfRange", "null is refused"},
	{"bound that cannot be stored", "dataType: DOUBLE, unit: Cel, minValue: -40", "dataType: INT, outOfRange: CLAMP, minValue: -40.5", "23:85: " + atTemp + ".minValue", "-40.5 is no whole number"},
	{"no metric key", "metricKey: temp, ", "", "23:14: " + atTemp + ".metricKey", "is required"},
	{"no data type", "dataType: DOUBLE, ", "", "23:14: " + atTemp + ".dataType", "is required"},
	{"no definition", "          - token: odd\n            definition:\n              name: Odd\n              type: threshold\n              when:\n                cel: '\"temp\" in m && m.temp > 90.0'\n", "          - token: odd\n", "32:13: tenants[0].deviceProfiles[0].detectionRules[1].definition", "is required"},
	{"empty metric key", "metricKey: temp", `metricKey: ""`, "23:34: " + atTemp + ".metricKey", "must not be empty"},
	{"source name of two metrics", "metricKey: mode", `sourceNames: [Mode, temp], metricKey: mode`, "24:34: tenants[0].deviceProfiles[0].metricDefinitions[1].sourceNames", `"temp" is given to the metric definition "boiler-temp" at site.yaml:23:34 already`},
	{"source name that is empty", "metricKey: temp", `sourceNames: [""], metricKey: temp`, "23:34: " + atTemp + ".sourceNames", "1 to 128 characters"},
	{"metric key twice", "metricKey: mode", "metricKey: temp", "24:34: tenants[0].deviceProfiles[0].metricDefinitions[1].metricKey", `"temp" is given to the metric definition "boiler-temp" at site.yaml:23:34 already`},
	{"enum that is no list of texts", `enum: ["0", "1"]`, "enum: {a: 1}", "24:66: tenants[0].deviceProfiles[0].metricDefinitions[1].enum", "must be a JSON array of strings"},
	{"time-out below the minimum", "inactivityTimeoutSeconds: 600", "inactivityTimeoutSeconds: 6", "20:9: tenants[0].deviceProfiles[0].inactivityTimeoutSeconds", "must be at least 60"},
	{"accuracy below zero", "expectedAccuracyMeters: 2.5", "expectedAccuracyMeters: -1", "21:9: tenants[0].deviceProfiles[0].location", "must not be below 0"},
	{"unit that is too long", "unit: Cel", "unit: " + strings.Repeat("x", 129), "23:69: " + atTemp + ".unit", "is longer than 128 characters"},
	{"null where one is refused", "metricKey: temp", "metricKey: null", "23:34: " + atTemp + ".metricKey", "null is refused"},
	{"bad email", "email: ada@example.org", "email: ada.example.org", "7:5: identities[0].email", "must be an email address"},
	{"short password", "password_env: KEY", "password_env: SHORT", "9:5: identities[0].password", "must have at least"},
	{"scope that is not there", "scope: tenant", "scope: tenants", "5:21: roles[0].scope", "is none of"},
	{"authority that is not there", "device:read", "device:reed", "5:36: roles[0].authorities", `"device:reed" is no authority`},
	{"color that is not there", "color: sky", "color: pink", "3:20: tiers[0].color", "is none of"},
	{"tier with a misspelt key", "shedPriority: 20", "shedPrio: 20", "3:32: tiers[0].config", "shedPrio"},
	{"priority out of range", "shedPriority: 50", "shedPriority: 5000", "17:5: tenants[0].shedPriority", "shedPriority"},
	{"external id twice", "externalId: SN2", "externalId: SN1", "47:57: tenants[0].devices[1].externalId", `"SN1" is given to the device "boiler-1" at site.yaml:43:9 already`},
	{"device without a type", "deviceTypeToken: boiler-type, externalId", "externalId", "47:10: tenants[0].devices[1].deviceTypeToken", "is required"},
	{"certificate whose id is no hash", "credentialType: MQTT_BASIC, credentialId: fred, credentialValue_env: KEY", "credentialType: X509_CERTIFICATE, credentialId: fred", "46:63: tenants[0].devices[0].credentials[1].credentialId", "64 lower-case hexadecimal digits"},
	{"unknown credential type", "credentialType: MQTT_BASIC", "credentialType: BASIC", "46:29: tenants[0].devices[0].credentials[1].credentialType", "is none of ACCESS_TOKEN"},
	// Form and references.
	{"misspelt field", "externalId: SN1", "externalID: SN1", "43:9: tenants[0].devices[0].externalID", "(did you mean externalId?)"},
	{"misspelt list", "detectionRules:", "detectonRules:", "25:9: tenants[0].deviceProfiles[0].detectonRules", "(did you mean detectionRules?)"},
	{"device type that is not declared", "deviceTypeToken: boiler-type\n", "deviceTypeToken: boilertype\n", "42:9: tenants[0].devices[0].deviceTypeToken", "(did you mean boiler-type?)"},
	{"profile that is not declared", "profileToken: boiler", "profileToken: boilr", "39:30: tenants[0].deviceTypes[0].profileToken", "(did you mean boiler?)"},
	{"tier that is not declared", "tierToken: night", "tierToken: nigth", "15:5: tenants[0].tierToken", "(did you mean night?)"},
	{"role that is not declared", "roles: [viewer]", "roles: [viewers]", "11:34: identities[0].memberships[0].roles", "(did you mean viewer?)"},
	{"tenant that is not declared", "tenant: acme", "tenant: amce", "11:20: identities[0].memberships[0]", "(did you mean acme?)"},
	{"device twice", "token: boiler-2", "token: boiler-1", "47:10: tenants[0].devices[1].token", "is declared at site.yaml:41:9 already"},
	{"token with a blank", "token: boiler-2", "token: boiler 2", "47:17: tenants[0].devices[1].token", "is no token"},
	{"number as a text", "ingestBurst: 4000", `ingestBurst: "4000"`, "16:18: tenants[0].ingestBurst", "must be a whole number"},
	{"time that is none", `"2031-01-01T00:00:00Z"`, "next year", "46:114: tenants[0].devices[0].credentials[1].expiresAt", "must be a time"},
	{"secret in the file", "credentialId_env: KEY", "credentialId: s3cret", "45:58: tenants[0].devices[0].credentials[0].credentialId", "a secret does not stand in a site file"},
	{"newer version", "version: 1", "version: 2", "1:10: version", "must be 1"},
	{"tab", "    name: Acme", "\tname: Acme", "14:1", "use blanks"},
}

func checked(text string, complete bool) Source {
	src := gallerySource(text)
	src.LookupEnv = lookup([]string{"KEY=correct horse battery", "SHORT=short"})
	src.Checked, src.Complete = true, complete
	return src
}

func problemsOf(t *testing.T, src Source) (Problems, []string) {
	t.Helper()
	_, warnings, err := Read(src, "site.yaml")
	ps, ok := errors.AsType[Problems](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	return ps, warnings
}

func alter(t *testing.T, text string, a alteration) string {
	t.Helper()
	if strings.Count(text, a.old) != 1 {
		t.Fatalf("%s: %q is %d times in the file", a.name, a.old, strings.Count(text, a.old))
	}
	return strings.Replace(text, a.old, a.new, 1)
}

// find returns the problem at a place that says a text.
func find(ps Problems, a alteration) bool {
	for _, p := range ps {
		at := fmt.Sprintf("%d:%d", p.Line, p.Column)
		if p.Path != "" {
			at += ": " + p.Path
		}
		if (a.place == "" || at == a.place) && strings.Contains(p.String(), a.says) {
			return true
		}
	}
	return false
}

func TestEachAlteredFileIsRefusedAtItsPlace(t *testing.T) {
	t.Parallel()
	if ps, warnings := problemsOf(t, checked(sound, true)); len(ps)+len(warnings) > 0 {
		t.Fatal(ps, warnings)
	}
	if len(alterations) < 57 {
		t.Errorf("%d alterations", len(alterations))
	}
	for _, a := range alterations {
		ps, _ := problemsOf(t, checked(alter(t, sound, a), true))
		if !find(ps, a) {
			t.Errorf("%s: want %s: … %s\ngot %v", a.name, a.place, a.says, yamldoc.Problems(ps).Lines())
		}
		for _, p := range ps {
			if p.Line == 0 || strings.Contains(p.String(), "s3cret") {
				t.Errorf("%s: %v", a.name, p)
			}
		}
	}
}

// Mistakes that do not hide each other are reported together.
func TestAllAlterationsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	together := []string{"misspelt key of a rule", "misspelt threshold", "unknown op", "variable that is not there", "data type of another product", "no metric key", "metric key twice",
		"time-out below the minimum", "bad email", "short password", "authority that is not there", "color that is not there", "priority out of range", "external id twice",
		"unknown credential type", "misspelt list"}
	text, n := sound, 0
	var want []alteration
	for _, a := range alterations {
		for _, name := range together[:len(together)-1] {
			if a.name == name && a.name != "metric key twice" {
				text, n = alter(t, text, a), n+1
				want = append(want, a)
			}
		}
	}
	ps, _ := problemsOf(t, checked(text, true))
	for _, a := range want {
		a.place = ""
		if !find(ps, a) {
			t.Errorf("%s is not reported", a.name)
		}
	}
	if len(ps) != n || n < 14 {
		t.Errorf("%d problems of %d alterations:\n%s", len(ps), n, yamldoc.Problems(ps).Lines())
	}
}

// A file that changes what an instance has names the changed fields only.
func TestAPartialFileIsNoMistakeForAPlan(t *testing.T) {
	t.Parallel()
	text := "version: 1\ntenants: [{token: acme, deviceProfiles: [{token: p, metricDefinitions: [{token: m, maxValue: 5}], detectionRules: [{token: r, enabled: false}]}]}]\n"
	if ps, warnings := problemsOf(t, checked(text, false)); len(ps)+len(warnings) > 0 {
		t.Error(ps, warnings)
	}
	if ps, _ := problemsOf(t, checked(text, true)); len(ps) != 3 {
		t.Error(ps)
	}
}

func TestWhatIsProbablyNotMeantIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, a := range []alteration{
		{"a misspelt metric", "{metric: temp, op", "{metric: Temp, op", "", `site.yaml:31:22: ` + atRule + `.when.metric: the profile declares no metric "Temp" (did you mean temp?)`},
		{"an unknown metric in an expression", "m.temp > 90.0", "m.tmp > 90.0", "", `the profile declares no metric "tmp" (did you mean temp?)`},
		{"a threshold above the range", "threshold: 80", "threshold: 180", "", `site.yaml:31:44: ` + atRule + `.when.threshold: 180 lies outside of the range of the metric "temp", -40..150`},
		{"a metric of texts", "metricKey: mode, dataType: INT", "metricKey: mode, dataType: STRING", "", `metricDefinitions[1].dataType: no message with a reading of a metric of the type STRING is stored`},
		{"an enum of words", `enum: ["0", "1"]`, "enum: [off, eco]", "", `metricDefinitions[1].enum: none of the values is a number`},
		{"a draft that does not compile", "- token: odd\n            definition:\n              name: Odd", "- token: odd\n            enabled: false\n            definition:\n              nam: Odd", "", `definition.nam: unknown field (did you mean name?`},
	} {
		ps, warnings := problemsOf(t, checked(alter(t, sound, a), true))
		if len(ps) > 0 || !strings.Contains(strings.Join(warnings, "\n"), a.says) {
			t.Errorf("%s: %v, %q", a.name, ps, warnings)
		}
	}
}

func TestAListWithoutAValueIsWarnedOfAndAShortAccessTokenToo(t *testing.T) {
	t.Parallel()
	text := "version: 1\ntenants:\n  - token: acme\n    deviceProfiles:\n      - token: p\n        detectionRules:\n    devices: [{token: d, credentials: [{token: c, credentialType: ACCESS_TOKEN, credentialId_env: SHORT}]}]\n"
	src := Source{Checked: true, ReadFile: func(string) ([]byte, error) { return []byte(text), nil }, Stat: func(string) (fs.FileInfo, error) { return nil, os.ErrNotExist },
		LookupEnv: func(string) (string, bool) { return "0123456789abcde", true }}
	ps, warnings := problemsOf(t, src)
	all := strings.Join(warnings, "\n")
	for _, want := range []string{
		"deviceProfiles[0].detectionRules: is empty, so it declares nothing and leaves what is there (write [] where there shall be none)",
		"credentials[0].credentialId_env: has fewer than 16 characters: an access token of this length can be guessed",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%v\n%s\nlacks %s", ps, all, want)
		}
	}
	if len(ps) > 0 || len(warnings) != 2 || strings.Contains(all, "0123456789abcde") {
		t.Errorf("%v\n%s", ps, all)
	}
	text = strings.Replace(text, "detectionRules:", "detectionRules: []", 1)
	src.LookupEnv = func(string) (string, bool) { return "0123456789abcdef", true }
	if ps, warnings := problemsOf(t, src); len(ps)+len(warnings) > 0 {
		t.Errorf("%v %v", ps, warnings)
	}
}

// The places inside of a definition survive every way to write it.
func TestTheExamplesAreCheckedWithoutAnInstance(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Glob(filepath.Join("..", "examples", "*", "site.yaml"))
	if err != nil || len(examples) < 3 {
		t.Fatal(examples, err)
	}
	for _, file := range examples {
		if _, warnings, err := Read(Source{WithoutSecrets: true, Complete: true}, file); err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", file, warnings, err)
		}
	}
}

// What has no form in YAML lies beside the table.
func TestAFileInUTF16IsNamedAsThat(t *testing.T) {
	t.Parallel()
	src := Source{Checked: true, ReadFile: func(string) ([]byte, error) { return []byte("\xff\xfev\x00"), nil },
		Stat: func(string) (fs.FileInfo, error) { return nil, os.ErrNotExist }}
	if ps, _ := problemsOf(t, src); len(ps) == 0 || !strings.Contains(ps[0].String(), "UTF-16") {
		t.Error(ps)
	}
}
