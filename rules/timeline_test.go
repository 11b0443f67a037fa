package rules_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/model"
	"weir/rules"
)

// timeline is a plant that runs a script: a line is a record, or what the engine emitted since the last such line.
//
//	5 d1 4.5 v=3 @a      at listening time 5 s, device 1, event time 4.5 s, metric v, at area a; without a metric it is bare
//	5 d1 4 disconnected  a transition of presence; demoted/reason, connected
//	60                   any other record
//	> raised@4=3         edges; d2:raised@4 for a device other than d1, or an anchor
//	restart              snapshot and load
//	publish RULE         another body of the rule
//	gone d1              the device is removed; leave d1 a: it leaves the anchor; enroll d1: it is in the roster
//	5 boot 2 20          another start, the second, with a grace of 20 s
//	5 hold               the tenant is refused; 9 release: it is not any more
//	5 limit d1 3         an attribute of the device, none without a number; 5 yard 2: another geometry of the fence
//	5 member d1          the device is in the group, or not any more
//	5 d1 4.5 ^20         a position, by its longitude
//	5 disable            the tenant is disabled; 9 enable 20: it is not any more, with a grace of 20 s
//	5 down plant         a link is cut; 9 up plant: it is there again; d1 4.5 v=3 ~plant came over it
type timeline struct {
	*plant
	rule  []model.RuleView
	store map[string]rules.Page
	facts *registered
}

func newTimeline(t rapid.TB, l rules.Limits, definitions ...string) *timeline {
	c, err := rules.NewCompiler(l)
	if err != nil {
		t.Fatal(err)
	}
	tl := &timeline{plant: &plant{t: t, c: c, e: rules.NewEngine(c, nil)}, store: map[string]rules.Page{}, facts: newRegistered()}
	tl.publish(0, definitions...)
	return tl
}

func (tl *timeline) publish(seconds int64, definitions ...string) {
	tl.rule = nil
	for i, d := range definitions {
		tl.rule = append(tl.rule, view(fmt.Sprintf("r%d", i), d))
	}
	tl.install(seconds, tl.rule...)
	for _, h := range tl.e.Health(pump.ProfileKey) {
		if h.Status != rules.Active {
			tl.t.Fatalf("%s: %s", h.Token, h.Message)
		}
	}
}

func (tl *timeline) at(seconds float64) rules.Position {
	p := tl.next(0)
	p.Listening = rules.Listening(seconds*1000) * 1e6
	p.Received = model.Nanos(p.Listening)
	tl.e.Advance(p, tl.emit)
	return p
}

func (tl *timeline) edge(e model.Edge) string {
	s := fmt.Sprintf("%s@%s", e.Signal, strconv.FormatFloat(float64(e.Occurred)/1e6, 'f', -1, 64))
	if e.HasValue {
		s += fmt.Sprintf("=%g", e.Value)
	}
	if e.Series != "d1" {
		s = e.Series + ":" + s
	}
	return s
}

// TestTimeThatStandsStill: what a device could not say is not its silence.
func TestTimeThatStandsStill(t *testing.T) {
	t.Parallel()
	const absence, hold = `"type":"absence","timeout":"10s","lateness":"0s"`, `"type":"duration","hold":"10s","lateness":"0s",` + over5
	for name, c := range map[string]struct{ rule, script string }{
		"after a start, from the first message on": {absence, `
			1 d1 1 v=1
			5 boot 2 20
			restart
			16 d1 2 v=1
			restart
			25.9
			26
			> raised@12`},
		"after a start, at the latest from the end of the grace on": {absence, `
			1 d1 1 v=1
			5 boot 2 20
			restart
			30.9
			31
			> raised@11`},
		"a second start begins the grace again": {absence, `
			1 d1 1 v=1
			5 boot 2 20
			10 boot 3 20
			restart
			35.9
			36
			> raised@11`},
		"a device that is new since the start": {absence, `
			1 boot 2 20
			2 d1 1 v=1
			12
			> raised@11`},
		"a tenant that is refused": {absence, `
			1 d1 1 v=1
			5 hold
			30
			restart
			30 release
			35.9
			restart
			36
			> raised@11`},
		"refused again before and after it has run": {absence, `
			1 d1 1 v=1
			5 hold
			30 release
			32 hold
			restart
			50 release
			53.9
			54
			> raised@11`},
		"a message while the tenant is refused": {absence, `
			1 d1 1 v=1
			5 hold
			8 d1 2 v=1
			20 release
			29.9
			30
			> raised@12`},
		"refused during the grace": {absence, `
			1 d1 1 v=1
			5 boot 2 20
			10 hold
			40 release
			60.9
			restart
			61
			> raised@11`},
		"a start ends what the one before has refused": {absence, `
			1 d1 1 v=1
			5 hold
			9 boot 2 3
			20
			> raised@11`},
		"a hold": {hold, `
			1 d1 1 v=9
			5 hold
			50 release
			55.9
			56
			> raised@11`},
		"a tenant that is disabled": {absence, `
			1 d1 1 v=1
			5 disable
			restart
			3600 enable 20
			restart
			3602 d1 3600 v=1
			3611.9
			3612
			> raised@3610`},
		"a tenant that is disabled, and its devices do not come back": {absence, `
			1 d1 1 v=1
			5 disable
			3600 enable 20
			3625.9
			restart
			3626
			> raised@11`},
		"disabled while it is refused": {absence, `
			1 d1 1 v=1
			5 hold
			10 disable
			restart
			20 release
			100 hold
			200 enable 0
			restart
			300
			300 release
			305.9
			306
			> raised@11`},
		"a start while it is disabled": {absence, `
			1 d1 1 v=1
			5 disable
			9 boot 2 3
			restart
			2000 enable 3
			2008.9
			2009
			> raised@11`},
		"a cut link": {absence, `
			0 up plant
			1 d1 1 v=1 ~plant
			1 d2 1 v=1
			5 down plant
			restart
			11
			> d2:raised@11
			100
			restart
			100 up plant
			105.9
			106
			> raised@11`},
		"a link that is cut while the tenant is refused": {absence, `
			0 up plant
			1 d1 1 v=1 ~plant
			5 hold
			8 down plant
			restart
			20 release
			30 up plant
			restart
			35.9
			36
			> raised@11`},
		"a device that goes on over another way": {absence, `
			0 up plant
			1 d1 1 v=1 ~plant
			5 down plant
			20 d1 16 v=1
			restart
			29.9
			30
			> raised@26`},
		"a device that moves behind a link that is cut": {absence, `
			0 up plant
			1 d1 1 v=1 ~plant
			2 d2 2 v=1
			3 down plant
			4 d2 4 v=1 ~plant
			restart
			100
			110 up plant
			118.9
			119
			> raised@11
			119.9
			120
			> d2:raised@14`},
		"a start, and the link comes up later": {absence, `
			0 up plant
			1 d1 1 v=1 ~plant
			5 boot 2 3
			restart
			60 up plant
			68.9
			69
			> raised@11`},
		"what is due before it stands still": {absence, `
			1 d1 1 v=1
			11.5
			> raised@11
			12 hold
			100`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newTimeline(t, rules.Limits{}, `{"name":"n",`+c.rule+`}`).run(c.script)
		})
	}
}

func (tl *timeline) took() string {
	var words []string
	for _, e := range tl.edges {
		words = append(words, tl.edge(e))
	}
	tl.edges = nil
	return strings.Join(words, " ")
}

func (tl *timeline) run(script string) {
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == ">":
			if got := tl.took(); got != strings.Join(words[1:], " ") {
				tl.t.Errorf("at %q: got %q", line, got)
			}
		case words[0] == "restart":
			tl.reload(tl.store, tl.rule)
		case words[0] == "publish":
			tl.publish(int64(tl.now()/1e9), strings.TrimPrefix(line, "publish "))
		case words[0] == "late":
			if got := fmt.Sprint(tl.e.Health(pump.ProfileKey)[0].LateSamples); got != words[1] {
				tl.t.Errorf("%s samples late, want %s", got, words[1])
			}
		default:
			tl.record(words)
		}
	}
	if got := tl.took(); got != "" {
		tl.t.Errorf("in the end %q", got)
	}
}

func (tl *timeline) now() rules.Listening { return tl.last }

func (tl *timeline) record(words []string) {
	l, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		tl.t.Fatalf("%q: %v", words, err)
	}
	at := tl.at(l)
	tl.last = at.Listening
	if len(words) == 1 {
		return
	}
	switch words[1] {
	case "gone", "leave", "enroll":
		tl.change(at, words)
		return
	case "boot", "hold", "release", "disable", "enable", "up", "down":
		tl.pause(at, words)
		return
	case "limit", "yard", "member":
		tl.register(at, words)
		return
	}
	id, _ := strconv.ParseInt(words[1][1:], 10, 64)
	occurred, err := strconv.ParseFloat(words[2], 64)
	if err != nil {
		tl.t.Fatalf("%q: %v", words, err)
	}
	in := &rules.Input{Position: at, Profile: pump.ProfileKey, Device: testDevice(id), Kind: rules.Bare, Occurred: model.Micros(occurred * 1e6), Facts: tl.facts}
	for _, w := range words[3:] {
		tl.fill(in, w)
	}
	tl.e.Apply(in, tl.emit)
}

func (tl *timeline) fill(in *rules.Input, w string) {
	states := map[string]model.PresenceState{"connected": model.Connected, "disconnected": model.Disconnected, "demoted": model.Demoted}
	name, value, isMetric := strings.Cut(w, "=")
	state, reason, _ := strings.Cut(w, "/")
	switch {
	case isMetric:
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			tl.t.Fatal(err)
		}
		in.Kind, in.Readings = rules.Measurement, append(in.Readings, model.Reading{Metric: name, Value: v})
	case strings.HasPrefix(w, "^"):
		lon, err := strconv.ParseFloat(w[1:], 64)
		if err != nil {
			tl.t.Fatal(err)
		}
		in.Kind, in.Where = rules.Location, &model.Location{Longitude: lon, Latitude: 5}
	case strings.HasPrefix(w, "~"):
		in.Link = w[1:]
	case strings.HasPrefix(w, "@"):
		in.Anchors = append(in.Anchors, model.Anchor{Type: "area", Token: w[1:]})
	default:
		in.Kind, in.Presence, in.Reason = rules.Transition, states[state], reason
	}
}

func (tl *timeline) change(at rules.Position, words []string) {
	id, _ := strconv.ParseInt(words[2][1:], 10, 64)
	switch words[1] {
	case "gone":
		tl.e.RemoveDevice(at, id, tl.emit)
	case "leave":
		tl.e.Leave(at, testDevice(id).ID, model.Anchor{Type: "area", Token: words[3]}, tl.emit)
	default:
		tl.e.Enroll(at, pump.ProfileKey, testDevice(id), tl.emit)
	}
}

// register changes what the registry knows.
func (tl *timeline) register(at rules.Position, words []string) {
	if words[1] == "yard" {
		tl.facts.yard, _ = strconv.Atoi(words[2])
		return
	}
	id, _ := strconv.ParseInt(words[2][1:], 10, 64)
	switch {
	case words[1] == "member":
		tl.facts.members[id] = !tl.facts.members[id]
		tl.e.Rescope(at, id, tl.facts, tl.emit)
	case len(words) > 3:
		n, _ := strconv.ParseFloat(words[3], 64)
		tl.facts.limit[id] = n
	default:
		delete(tl.facts.limit, id)
	}
}

// pause lets the time of devices stand still, or run.
func (tl *timeline) pause(at rules.Position, words []string) {
	switch words[1] {
	case "boot":
		boot, _ := strconv.ParseUint(words[2], 10, 64)
		grace, _ := strconv.ParseInt(words[3], 10, 64)
		tl.e.Boot(boot, rules.Listening(grace*1e9))
	case "hold":
		tl.e.Hold(pump.Tenant, at.Listening)
	case "disable":
		tl.e.Disable(pump.Tenant)
	case "enable":
		grace, _ := strconv.ParseInt(words[2], 10, 64)
		tl.e.Enable(pump.Tenant, rules.Listening(grace*1e9))
	case "up", "down":
		tl.e.Link(words[2], words[1] == "up", at.Listening)
	default:
		tl.e.Release(pump.Tenant, at.Listening)
	}
}

const over5 = `"when":{"metric":"v","op":"gt","threshold":5}`

// TestClockThatWasSetBack: a run of late samples as fast as listening time is a clock; a backlog, which is faster, is none.
func TestClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	const rule = `{"name":"n","type":"repeating","count":1,"window":"1s","lateness":"0s",` + over5 + `}`
	tl := newTimeline(t, rules.Limits{}, rule)
	tl.run("10 d1 9000 v=9\n> raised@9000=9\n20 d1 9001 v=1\n> resolved@9001")
	for i := range 7 {
		tl.run(fmt.Sprintf("%d d1 %d v=9", 30+10*i, 1000+10*i))
	}
	tl.run("late 7\nrestart\n100 d1 1070 v=9\n> raised@1070=9\nlate 7\n110 d1 1080 v=1\n> resolved@1080")
	if n, device := tl.e.SetBack(); n != 1 || device != "d1" {
		t.Errorf("%d clocks, device %q", n, device)
	}

	tl = newTimeline(t, rules.Limits{}, rule)
	tl.run("10 d1 9000 v=1")
	for i := range 20 {
		tl.run(fmt.Sprintf("%d d1 %d v=9", 30+10*i, 1000+300*i))
	}
	tl.run("late 20")
	if n, _ := tl.e.SetBack(); n != 0 {
		t.Error("a backlog was taken for a clock")
	}
}

func TestBudgetOfSamplesRefusesAndRecovers(t *testing.T) {
	t.Parallel()
	tl := newTimeline(t, rules.Limits{Settings: rules.Settings{MaxSamples: 3}},
		`{"name":"n","type":"repeating","count":2,"window":"10s","lateness":"0s",`+over5+`}`)
	tl.run("1 d1 1 v=9\n2 d1 2 v=9\n> raised@2=9\n2 d2 2 v=9\n3 d1 3 v=9") // the last one would be the fourth
	if h, n := tl.e.Health(pump.ProfileKey)[0], tl.e.Stats().Samples; h.RefusedKeys != 1 || n != 3 {
		t.Errorf("refused %d, retained %d", h.RefusedKeys, n)
	}
	// What is old leaves, though the sample that shows it is refused.
	tl.run("20 d1 20 v=9\n21 d1 21 v=9\n> resolved@21\n22 d1 22 v=9\n> raised@22=9")
	tl.run("24 gone d1\n> resolved@24")
	if n := tl.e.Stats().Samples; n != 1 {
		t.Errorf("retained %d", n)
	}
}

// TestUploadsOnceAMinute: a device that sends six readings once a minute, not to the millisecond, loses none of them under
// any kind with windows, and the rules say of them what they say of readings that came one by one.
func TestUploadsOnceAMinute(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		`"type":"aggregate","windowMode":"tumbling","window":"30s","agg":"sum","metric":"v","op":"ge","threshold":20`,
		`"type":"aggregate","windowMode":"sliding","window":"25s","agg":"sum","metric":"v","op":"ge","threshold":20`,
		`"type":"aggregate","windowMode":"session","gap":"15s","agg":"sum","metric":"v","op":"ge","threshold":20`,
		`"type":"repeating","count":3,"window":"30s",` + over5,
		`"type":"deltaRate","metric":"v","op":"ge","threshold":9`,
		`"type":"duration","hold":"90s",` + over5,
	} {
		together, alone := newTimeline(t, rules.Limits{}, `{"name":"n",`+rule+`}`), newTimeline(t, rules.Limits{}, `{"name":"n",`+rule+`}`)
		for minute := 1; minute <= 30; minute++ {
			for i := 1; i <= 6; i++ {
				at := 60*minute - 60 + 10*i
				v := (at / 10 * 7) % 11
				if minute%5 > 2 {
					v = 9
				}
				alone.record(strings.Fields(fmt.Sprintf("%d d1 %d v=%d", at, at, v)))
				together.record(strings.Fields(fmt.Sprintf("%.1f d1 %d v=%d", float64(60*minute)+float64(minute*37%40)/10, at, v)))
			}
		}
		alone.at(9000)
		together.at(9000)
		if got, want := together.took(), alone.took(); got != want || want == "" {
			t.Errorf("%s:\n got %s\nwant %s", rule, got, want)
		}
		if n := together.e.Health(pump.ProfileKey)[0].LateSamples; n != 0 {
			t.Errorf("%s: %d set aside", rule, n)
		}
	}
}

// The page of the clocks, as it is stored: of tenants that were refused, and with everything that came later.
const (
	clocksPage1 = "\x01\x63\x03\x01\x02\x80\x94\xeb\xdc\x03\x80\xbc\xc1\x96\x0b\x80\xa0\xd9\xe6\x1d\x01\x80\xf8\x82\xad\x16\x00\x00"
	clocksPage2 = "\x02\x63\x02\x01\x02\x00\x80\xa8\xd6\xb9\x07\x80\xa0\xd9\xe6\x1d\x01\x80\xd0\xac\xf3\x0e\x00\x03\x01\x05" + "plant" + "\x00\x80\xa8\xd6\xb9\x07\x80\xa0\xd9\xe6\x1d\x01\x80\xd0\xac\xf3\x0e\x00\x07\x00\x01\x05" + "plant" + "\x00"
)

// TestThePageOfClocksIsFrozen: both versions are read, and what they say is written again as it was.
func TestThePageOfClocksIsFrozen(t *testing.T) {
	t.Parallel()
	script := map[string]string{
		clocksPage1: "1 boot 2 4\n1 d1 1 v=1\n1 hold\n1.5 release\n2 boot 3 4\n3 hold",
		clocksPage2: "1 boot 2 4\n1 up plant\n1 d1 1 v=1 ~plant\n2 hold\n3 down plant\n4 disable",
	}
	for want, script := range script {
		tl := newTimeline(t, rules.Limits{}, `{"name":"n","type":"absence","timeout":"1h","lateness":"0s"}`)
		tl.run(script)
		pages := tl.e.FreezeClocks()
		if len(pages) != 1 {
			t.Fatalf("%d pages", len(pages))
		}
		if body := string(pages[0].Data[:len(pages[0].Data)-4]); body != want {
			t.Errorf("%q is written as %q, not %q", script, body, want)
			continue
		}
		e := rules.NewEngine(tl.c, nil)
		if err := e.Load(pages); err != nil {
			t.Fatal(err)
		}
		if got := e.FreezeClocks(); got != nil { // one that has not changed is not written
			t.Errorf("read as %q, %q is written", want, got[0].Data)
		}
	}
}
