package ruletest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/model"
	"weir/rules"
	registry "weir/rules/facts"
)

// then is what the registry said of a device.
type then struct {
	registry.None
	limit float64
	group bool
}

func (t *then) Number(int64, string) (float64, bool)                   { return t.limit, t.limit != 0 }
func (t *then) Numbers(int64) map[string]float64                       { return map[string]float64{"limit": t.limit} }
func (t *then) InGroup(int64, int64, string, int) (member, known bool) { return t.group, true }

// history is what a device sent in half a minute, with what was said of it then.
func history(p *Recorder) {
	begin := model.MicrosOf(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	send := func(second float64, device string, value, limit float64, more func(*rules.Input)) {
		at := begin + model.Micros(second*1e6)
		in := &rules.Input{Position: rules.Position{Received: at.Nanos()}, Device: rules.Device{ID: 1, Token: device}, Kind: rules.Measurement, Occurred: at,
			Readings: []model.Reading{{Metric: "temp", Value: value}}, Facts: &then{limit: limit, group: true}, Anchors: []model.Anchor{{Type: "area", Token: "hall"}}}
		if more != nil {
			more(in)
		}
		p.Watch(in)
	}
	send(0.25, "a", 60, 50, nil)
	send(1, "b", 99, 50, nil)
	send(2, "a", 60, 70, func(in *rules.Input) { in.Occurred -= 500_000 })
	send(3, "a", 60, 0, func(in *rules.Input) { in.Anchors = nil })
	send(4, "a", 60, 55, nil)
	send(5, "a", 0, 55, func(in *rules.Input) { in.Kind, in.Presence = rules.Transition, model.Disconnected })
	send(6, "a", 0, 55, func(in *rules.Input) {
		in.Kind, in.Where = rules.Location, &model.Location{Latitude: 47.5, Longitude: 8.5}
	})
	send(7, "a", 0, 55, func(in *rules.Input) { in.Kind = rules.Bare })
}

const pinnedTest = `begin 2026-03-01T12:00:00Z

test an incident
  rule r group line {"name":"n","type":"threshold","severity":"major","when":{"metric":"temp","op":"gt","thresholdAttr":"limit"},"actions":[{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"hot"}}]}
  at 250ms a attribute limit=50
  at 250ms a joins area/hall
  at 250ms a joins group/line
  at 250ms a temp=60
  at 2s a attribute limit=70
  at 2s a temp=60 taken 1.5s
  at 3s a attribute limit none
  at 3s a leaves area/hall
  at 3s a temp=60
  at 4s a attribute limit=55
  at 4s a joins area/hall
  at 4s a temp=60
  at 5s a disconnected
  at 6s a position 8.5,47.5
  at 7s a
  at 16s
  expect raised r a severity major at 250ms value 60 alarm hot
  expect resolved r a severity major at 1.5s
  expect raised r a severity major at 4s value 60 alarm hot
`

// TestHistoryBecomesATest: the statements say what was sent and what the registry said of then, and the test passes; edges that are not
// those of the history refuse it.
func TestHistoryBecomesATest(t *testing.T) {
	t.Parallel()
	r := &Recorder{Device: "a", Group: "line", Version: 3, Reads: rules.Reads{Attributes: []string{"limit"}}}
	history(r)
	recording, err := r.Recording()
	if err != nil || recording.Samples != 7 {
		t.Fatalf("%+v %v", recording, err)
	}
	c, err := rules.NewCompiler((&File{}).Limits())
	if err != nil {
		t.Fatal(err)
	}
	at := func(second float64) model.Micros { return recording.Begin + model.Micros(second*1e6) }
	p := Pin{Recording: *recording, Test: "an incident", Rule: "r", From: at(1), To: at(10), Draft: Rule{Group: "line",
		Definition: `{"name":"n","type":"threshold","severity":"major","when":{"metric":"temp","op":"gt","thresholdAttr":"limit"},"actions":[{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"hot"}}]}`},
		Had: []Edge{{at(4), "a", model.Raised}, {at(1.5), "a", model.Resolved}}}
	text, err := p.Write(c, World{})
	if err != nil || text != pinnedTest {
		t.Errorf("%v\n%s", err, text)
	}
	p.Had = p.Had[:1]
	if _, err := p.Write(c, World{}); err == nil || !strings.Contains(err.Error(), "has 2 edges and not the 1 that were fired") {
		t.Errorf("another history: %v", err)
	}
}

func TestWhatCannotBePinnedIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := (&Recorder{}).Recording(); err == nil {
		t.Error("nothing is pinned")
	}
	long := &Recorder{}
	for range MaxPinned/8 + 1 {
		history(long)
	}
	if _, err := long.Recording(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(MaxPinned)) || len(long.text.String()) > MaxPinned*100 {
		t.Errorf("%v, %d bytes", err, long.text.Len())
	}
	odd := &Recorder{Reads: rules.Reads{Attributes: []string{"my limit"}}}
	odd.Watch(&rules.Input{Device: rules.Device{Token: "a"}, Readings: []model.Reading{{Metric: "my temp"}}, Facts: &then{limit: 1}})
	if _, err := odd.Recording(); err == nil || !strings.Contains(err.Error(), `"my limit"`) {
		t.Errorf("%v", err)
	}
}

// TestAMetricWhoseNameHasBlanksIsPinnedInQuotes, as a test reads it again.
func TestAMetricWhoseNameHasBlanksIsPinnedInQuotes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"my temp", `a "b" \\ c`, "#1", `"x"`, "/3303/0/5700", "größe 温度", "a=b c"} {
		p := &Recorder{}
		p.Watch(&rules.Input{Device: rules.Device{Token: "a"}, Readings: []model.Reading{{Metric: name, Value: 7}}, Facts: &then{}})
		if p.err != nil {
			t.Errorf("%q: %v", name, p.err)
		}
		line := strings.TrimSpace(p.text.String())
		f, problems := Parse("x.ruletest", []byte("rule r {\"name\":\"n\",\"type\":\"absence\",\"timeout\":\"9s\"}\ntest x\n  "+line+"\n  expect nothing\n"))
		if len(problems) > 0 {
			t.Fatalf("%s: %v", line, problems)
		}
		if got := f.Tests[0].steps[0].readings; len(got) != 1 || got[0].Metric != name || got[0].Value != 7 {
			t.Errorf("%s reads as %+v, want %q", line, got, name)
		}
	}
}
