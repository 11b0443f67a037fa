package ruletest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const hot = `rule hot {"name":"n","type":"threshold","severity":"major","when":{"metric":"t","op":"gt","threshold":5}}` + "\n"

// mistakes are files that are refused, with what is said of them.
var mistakes = map[string]struct{ text, want string }{
	"empty":                        {"", `f:0:0: there is no test (write "test" and a name, and the statements of the test below it)`},
	"another word":                 {"tset x", `1:1: "tset" begins no statement before the first test (did you mean test?)`},
	"another word in a test":       {"test x\n  att 1s", `2:3: "att" begins no statement in a test (did you mean at?)`},
	"a header in a test":           {"test x\nlateness 5s", `2:1: "lateness" begins no statement in a test (known are rule, fence, at, expect, test)`},
	"a statement before a test":    {"at 1s", `1:1: "at" begins no statement before the first test (known are rules, begin, lateness, rule, fence, test)`},
	"a test without a name":        {"test # x", "1:6: the test has no name"},
	"a name twice":                 {hot + "test x\nexpect nothing\ntest x\nexpect nothing", "4:6: there is a test of this name already"},
	"no rule":                      {"test x\nexpect nothing", `1:1: the test names no rule (name one: "rule" and its token)`},
	"no expectation":               {hot + "test x\nat 1s", "2:1: the test expects nothing: write expect nothing, or what shall come"},
	"a rule twice":                 {hot + hot, "2:6: the rule hot is named already"},
	"no token of a rule":           {"rule", "1:5: the token of a rule is missing"},
	"another token of a rule":      {"rule a/b/c/d", `1:6: "a/b/c/d" is no token of a rule`},
	"no definition":                {"rule a b", `1:8: "b" is not understood here (a definition is a JSON object: {…})`},
	"broken definition":            {"rule a {\"name\":\n  x}", "1:8: the definition is not valid JSON: invalid character 'x' looking for beginning of value"},
	"text after a definition":      {"rule a {\n} x", "1:9: there is something after the definition"},
	"no path":                      {"rules", "1:6: the path of a file with rules is missing"},
	"no time to begin":             {"begin today", `1:7: "today" is no time (for example 2026-01-01T00:00:00Z)`},
	"no lateness":                  {"lateness", "1:9: a time is missing (for example 90s or 1h30m)"},
	"lateness of zero":             {"lateness 0s", "1:10: must be longer than zero"},
	"text after a statement":       {"lateness 5s 6s", `1:13: "6s" is not understood here`},
	"at without a time":            {"test x\nat", "2:3: a time is missing (for example 90s or 1h30m)"},
	"at without a unit":            {"test x\nat 5 d t=1", `2:4: "5" is no time (for example 90s or 1h30m)`},
	"a time of centuries":          {"test x\nat 99999h", "2:4: a time is at most 400 days, and a number of microseconds"},
	"a time of a nanosecond":       {"test x\nat 1ns", "2:4: a time is at most 400 days, and a number of microseconds"},
	"time that goes back":          {"test x\nat 5s\nat 4s", "3:4: time does not go back: it is 5s (what a device sends late has its own time: taken 5s, or old 10s)"},
	"times without a distance":     {"test x\nat 1s..5s d t=1", "2:11: a distance is missing (for example 0s..60s every 10s)"},
	"times that end before":        {"test x\nat 5s..1s every 1s d t=1", "2:4: the times end before they begin"},
	"times of both":                {"test x\nat 1s..2s every 1s d t=1 taken 1s..2s every 1s", "2:4: only one of arrival and taken can be several times"},
	"several restarts":             {"test x\nat 1s..2s every 1s restart", "2:4: only what a device sends is repeated"},
	"too many samples":             {"test x\nat 0s..1h every 1ms d t=1", "2:4: a file has at most 50000 samples, repetitions counted"},
	"another device":               {"test x\nat 1s d/1 t=1", `2:7: "d/1" is no token of a device`},
	"no reading":                   {"test x\nat 1s d t", `2:9: "t" is no reading (write metric=number)`},
	"a quote without an end":       {"test x\nat 1s d \"a b=1", `2:9: "a b is no name in quotes (for example "Node Temperature"=21)`},
	"no number":                    {"test x\nat 1s d t=NaN", `2:9: "NaN" is no number`},
	"a metric twice":               {"test x\nat 1s d t=1 t=2", "2:13: the sample has t twice"},
	"no anchor":                    {"test x\nat 1s d joins hall", `2:15: "hall" is no anchor (for example area/hall)`},
	"no attribute":                 {"test x\nat 1s d attribute", `2:18: "" is no attribute (for example attribute limit=80)`},
	"no value of an attribute":     {"test x\nat 1s d attribute limit", "2:24: the value of the attribute is missing (write limit=80, or limit none)"},
	"no number for an attribute":   {"test x\nat 1s d attribute limit=x", `2:19: "x" is no number`},
	"no new definition":            {hot + "test x\nat 1s publish hot", "3:18: the new definition is missing"},
	"another rule is published":    {hot + "test x\nat 1s publish cold {}\nexpect nothing", `3:1: the test has no rule "cold" (its rules are hot)`},
	"another rule is expected":     {hot + "test x\nexpect raised cold d", `3:1: the test has no rule "cold" (its rules are hot)`},
	"a misspelt rule is expected":  {hot + "test x\nexpect raised hott d", `3:1: the test has no rule "hott" (did you mean hot?)`},
	"an edge without its device":   {hot + "test x\nexpect raised hot", "3:18: the rule and its device or anchor are missing (for example expect raised too-hot boiler-1)"},
	"another word is expected":     {hot + "test x\nexpect rised hot d", `3:8: "rised" is none of raised, resolved, nothing, late, failed, missing (did you mean raised?)`},
	"another property of an edge":  {hot + "test x\nexpect raised hot d where x", `3:21: "where" is none of severity, at, value, alarm, which an edge has`},
	"a misspelt property":          {hot + "test x\nexpect raised hot d severty major", `3:21: "severty" is none of severity, at, value, alarm, which an edge has (did you mean severity?)`},
	"no severity":                  {hot + "test x\nexpect raised hot d severity majr", `3:30: "majr" is no severity (did you mean major?)`},
	"no alarm":                     {hot + "test x\nexpect raised hot d alarm", "3:26: the key of the alarm is missing (write the key of an alarm, or none)"},
	"an alarm of a resolved edge":  {hot + "test x\nexpect resolved hot d alarm a", "3:29: only a raised edge raises alarms (what is resolved ends all that its rule contributes to)"},
	"no token of a fence":          {"fence a/b 0,0", `1:7: "a/b" is no token of a fence (for example fence yard 8.5,47.3 8.6,47.3 8.6,47.4)`},
	"a fence without a geometry":   {"fence yard", "1:11: a ring has at least 3 positions (for example 8.5,47.3 8.6,47.3 8.6,47.4)"},
	"a fence that ends before":     {"fence yard none", `1:12: "none" is no position (longitude and latitude: 8.55,47.35)`},
	"a fence twice":                {"fence yard 0,0 1,0 1,1\nfence yard 0,0 1,0 1,1", "2:7: the fence yard is declared already (a fence that changes has its time: at 10s fence yard …)"},
	"a hole of a line":             {"fence yard 0,0 9,0 9,9 hole 1,1 2,2", "1:36: a ring has at least 3 positions (for example 8.5,47.3 8.6,47.3 8.6,47.4)"},
	"an outer ring of a line":      {"fence yard 0,0 9,0 hole 1,1 2,1 2,2", "1:20: a ring has at least 3 positions (for example 8.5,47.3 8.6,47.3 8.6,47.4)"},
	"a position of one number":     {"test x\nat 1s d position 8.5", `2:18: "8.5" is no position (longitude and latitude: 8.55,47.35)`},
	"latitude before longitude":    {"test x\nat 1s d position 47.3,108.5", `2:18: "47.3,108.5" is not on the globe (longitude comes first, from -180 to 180, then latitude, from -90 to 90)`},
	"a position that is no number": {"test x\nat 1s d position NaN,0", `2:18: "NaN,0" is not on the globe (longitude comes first, from -180 to 180, then latitude, from -90 to 90)`},
	"a broken geometry":            {"test x\nat 1s fence yard {\n", "2:18: the geometry is not valid JSON: unexpected EOF"},
	"a misspelt word of a device":  {"test x\nat 1s d psition 8,47", `2:9: "psition" is no reading (did you mean position?)`},
	"a misspelt word":              {hot + "test x\nat 1s restrat\nexpect nothing", `3:1: nothing else in the test names a device "restrat" (did you mean restart?)`},
	"another kind of anchor":       {"test x\nat 1s d joins aera/hall", `2:15: "aera" is no kind of anchor (did you mean area?)`},
	"no group":                     {"rule hot group {}", `1:16: "{}" is no token of a group (for example rule too-hot group boilers {…})`},
	"a group without a rule":       {"rule hot group g", "1:17: the definition of the rule is missing (a rule of a file has the scope that the file says)"},
	"an edge without its value":    {hot + "test x\nexpect raised hot d value x", `3:27: "x" is no value (a number, or none)`},
	"a figure without a number":    {hot + "test x\nexpect late hot many", `3:17: "many" is no number (for example expect late too-hot 2)`},
	"not UTF-8":                    {"test \xff", "f:0:0: this is not UTF-8 (save it as UTF-8)"},
}

func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	t.Parallel()
	for name, c := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := Parse("f", []byte(c.text))
			if len(problems) == 0 {
				t.Fatal("it is accepted")
			}
			p := problems[0]
			p.Source = ""
			got := strings.TrimPrefix(p.String(), "f: ")
			if want := strings.TrimPrefix(c.want, "f:0:0: "); got != want && got != "f:"+want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// failures are tests that fail, with the line and what is said.
var failures = map[string]struct{ script, want string }{
	"nothing came":           {"at 1s d t=5\nexpect raised hot d", "4: expect raised hot d: nothing came"},
	"something came":         {"at 1s d t=6\nexpect nothing", "4: expect nothing: instead came raised hot d severity major at 1s value 6"},
	"another device":         {"at 1s d t=6\nexpect raised hot e", "4: expect raised hot e: instead came raised hot d severity major at 1s value 6"},
	"the other edge":         {"at 1s d t=6\nexpect resolved hot d", "4: expect resolved hot d: instead came raised hot d severity major at 1s value 6"},
	"another severity":       {"at 1s d t=6\nexpect raised hot d severity minor", "4: expect raised hot d severity minor: instead came raised hot d severity major at 1s value 6"},
	"another time":           {"at 1s d t=6\nexpect raised hot d at 2s", "4: expect raised hot d at 2s: instead came raised hot d severity major at 1s value 6"},
	"another value":          {"at 1s d t=6\nexpect raised hot d value 7 # the limit", "4: expect raised hot d value 7: instead came raised hot d severity major at 1s value 6"},
	"a value where none is":  {"at 1s d t=6\nexpect raised hot d value none", "4: expect raised hot d value none: instead came raised hot d severity major at 1s value 6"},
	"an edge more":           {"at 1s d t=6\nat 2s d t=1\nexpect raised hot d", "5: nothing after expect raised hot d: instead came resolved hot d severity major at 2s"},
	"an edge in the end":     {"expect nothing\nat 1s d t=6", "2: nothing more at the end of the test: instead came raised hot d severity major at 1s value 6"},
	"another figure":         {"at 1s d t=6\nat 2s d t=1 old 2s\nexpect late hot 0", "5: expect late hot 0: instead came late hot 1"},
	"other alarms":           {"at 1s d t=6\nexpect raised hot d alarm a", "4: expect raised hot d alarm a: instead came raised hot d severity major at 1s value 6"},
	"another number missing": {"at 1s d t=6\nexpect raised hot d\nexpect missing hot 1", "5: expect missing hot 1: instead came missing hot 0"},
	"too many samples":       {"rule long {\"name\":\"n\",\"type\":\"repeating\",\"count\":20000,\"window\":\"24h\"}\nat 1s..10001s every 1s d\nat 3h\nexpect nothing", "2: at most 10000 samples in the windows of the test: instead came more"},
	"an edge before figures": {"at 1s d t=6\nexpect late hot 0\nat 2s\nexpect nothing", "6: expect nothing: instead came raised hot d severity major at 1s value 6"},
	"many":                   {"at 1s..30s every 2s d t=6\nexpect nothing", "4: expect nothing: instead came raised hot d severity major at 1s value 6"},
}

func TestFailuresNameTheLineAndWhatCameInstead(t *testing.T) {
	t.Parallel()
	for name, c := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, problems := Parse("f", []byte(hot+"test x\n"+c.script+"\n"))
			if len(problems) > 0 {
				t.Fatal(problems.Lines())
			}
			report, problems := f.Run(compiler(t, f), around)
			if len(problems) > 0 {
				t.Fatal(problems.Lines())
			}
			if report.Failed != 1 {
				t.Fatal("the test passes")
			}
			if got := fmt.Sprintf("%d: %s", report.Tests[0].Failure.Line, report.Tests[0].Failure); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestRulesOfATestThatDoNotCompileAreNamed(t *testing.T) {
	t.Parallel()
	f, problems := Parse("f", []byte("rule cold\ntest x\nexpect nothing\ntest y\nrule warm {\"name\":\"n\",\n \"type\":\"threshold\"}\nat 1s publish warm {}\nexpect nothing\n"))
	if len(problems) > 0 {
		t.Fatal(problems.Lines())
	}
	report, problems := f.Run(compiler(t, f), around)
	var got []string
	for _, p := range problems {
		p.Source = ""
		got = append(got, p.String())
	}
	want := []string{"f:1:6: there is no such rule", "f:5:6: rule warm: when: required by type threshold",
		"f:7:15: rule warm: name: required; type: required"}
	if !slices.Equal(got, want) || len(report.Tests) > 0 {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestWhatATestReads: repetitions, ages, its own begin, rules that take several lines, comments.
func TestWhatATestReads(t *testing.T) {
	t.Parallel()
	const text = "\ufeff# comment\r\nbegin 2026-07-01T21:59:00Z\r\nrule night {\r\n" +
		`  "name": "n", "type": "threshold", "when": {"cel": "has(m.t) && m.t > 5.0 && occurred.getHours() >= 22"}` + "\r\n} # the end\r\n" +
		"test by the clock\n  at 0s..120s every 30s d t=6  # five\n  expect raised night d at 60s value none\n" +
		"  at 3m d t=6 old 2m30s\n  expect late night 1\n  at 4m d x=1\n  at 5m d t=6 taken -1s\n  expect late night 2 # older than the edge\n" +
		"  at 6m..7m every 30s d t=1\n  expect resolved night d at 6m\n  at 8m restart\n  at 9m d t=9\n  expect raised night d\n  expect failed night 0\n"
	f, problems := Parse("f", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems.Lines())
	}
	report, problems := f.Run(compiler(t, f), around)
	if len(problems) > 0 || report.Failed > 0 {
		t.Fatalf("%s %+v", problems.Lines(), report.Tests[0].Failure)
	}
}

// TestGeofencesThatDoNotRead: what is wrong with one has the place of its statement, and a test costs at most what a file may.
func TestGeofencesThatDoNotRead(t *testing.T) {
	t.Parallel()
	const in = `rule in {"name":"n","type":"threshold","when":{"cel":"geo.inFence('yard')"}}` + "\n"
	many := strings.Builder{}
	for i := range 1500 {
		fmt.Fprintf(&many, " %.4f,%.4f", 10*math.Cos(float64(i)*math.Pi/750), 10*math.Sin(float64(i)*math.Pi/750))
	}
	for text, want := range map[string]string{
		"fence yard 0,0 1,1 1,0 0,1\n" + in + "test x\nexpect nothing":                                                 "f:1:7: fence yard: geometry: ring 1, position 1: the edge from here meets the one from ring 1, position 3; rings must not cross or touch themselves or one another",
		in + "test x\nat 1s fence yard {\"kind\":\"VOXEL_3D\"}\nexpect nothing":                                        `f:3:13: fence yard: geometry: kind: "VOXEL_3D" is reserved and not supported yet, use "POLYGON_2D"`,
		"fence yard 0,0 9,0 9,9 hole 20,20 21,20 21,21\n" + in + "test x\nexpect nothing":                              "f:1:7: fence yard: geometry: ring 2: a hole must be inside of ring 1",
		"fence yard" + many.String() + "\n" + in + "test x\nat 1s..10000s every 1s d position 0,0\nexpect raised in d": "f:3:1: positions times rules times the size of the geofences are too much (divide it into files, or use fewer positions)",
	} {
		f, problems := Parse("f", []byte(text))
		if len(problems) > 0 {
			t.Fatal(problems.Lines())
		}
		_, problems = f.Run(compiler(t, f), around)
		if len(problems) != 1 {
			t.Errorf("%.40s: %s", text, problems.Lines())
			continue
		}
		if problems[0].Source = ""; problems[0].String() != want {
			t.Errorf("got  %s\nwant %s", problems[0], want)
		}
	}
}

// TestFencesOfTwoTenants: rules of a test know the geofences that their tenant declares; two tenants may not mean two by one name.
func TestFencesOfTwoTenants(t *testing.T) {
	t.Parallel()
	ring := func(far int) string {
		return fmt.Sprintf(`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[0,0],[%d,0],[%d,%d],[0,0]]]}}`, far, far, far)
	}
	world := around
	world.Rule = func(token string) (Rule, error) {
		return Rule{Definition: `{"name":"n","type":"threshold","when":{"cel":"geo.inFence('yard')"}}`, Stable: "truck/" + token,
			Fences: map[string]string{"yard": ring(map[string]int{"near": 1, "close": 1, "far": 9}[token])}}, nil
	}
	for text, want := range map[string]string{
		"test x\nrule near\nrule close\nat 1s d position 0.5,0.1\nexpect raised close d\nexpect raised near d\nat 2s d position 8,1\nexpect resolved close d\nexpect resolved near d": "",
		"test x\nrule near\nfence yard 0,0 9,0 9,9\nat 2s d position 8,1\nexpect raised near d":                                                                                       "",
		"test x\nrule near\nrule far\nexpect nothing": "f:3:6: the rules of the test are of two tenants, which both have a geofence yard (test them apart)",
	} {
		f, problems := Parse("f", []byte(text))
		if len(problems) > 0 {
			t.Fatal(problems.Lines())
		}
		report, problems := f.Run(compiler(t, f), world)
		if len(problems) > 0 {
			problems[0].Source = ""
		}
		if got := strings.TrimSuffix(problems.Lines(), "\n"); got != want || want == "" && report.Failed > 0 {
			t.Errorf("%s\n got %q %+v\nwant %q", text, got, report, want)
		}
	}
}

func outcome(t *testing.T, f *File) string {
	t.Helper()
	report, problems := f.Run(compiler(t, f), around)
	text, err := json.Marshal([]any{report, problems})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// FuzzParse: any text is refused with a place that lies in it, or runs, twice with one outcome.
func FuzzParse(f *testing.F) {
	for _, c := range mistakes {
		f.Add(c.text)
	}
	for _, c := range failures {
		f.Add(hot + "test x\n" + c.script)
	}
	files, err := filepath.Glob("testdata/*" + Extension)
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, problems := Parse("f", []byte(text))
		if len(problems) > maxProblems || len(problems) > 0 == (len(file.Tests) > 0) {
			t.Fatal(file, problems)
		}
		lines := strings.Count(text, "\n") + 1
		for _, p := range problems {
			if p.Line < 0 || p.Line > lines || p.Reason == "" {
				t.Fatal(p)
			}
		}
		if len(problems) > 0 || len(text) > 4096 {
			return
		}
		if first, second := outcome(t, file), outcome(t, file); first != second {
			t.Fatalf("%s\n%s", first, second)
		}
	})
}
