package canvas

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/model"
)

// TestWhatNodesDoAtAnEdge: the steps of a canvas with branches after one another, beside one another and in common, at edges of each kind.
func TestWhatNodesDoAtAnEdge(t *testing.T) {
	t.Parallel()
	c := newCompiler(t)
	r := c.Compile(document(t, `s source
k compute {"name":"limit","expr":"hasValue ? 100.0 / (value - 60.0) : 1.0"}
c threshold {"name":"Hot","severity":"major","when":{"metric":"temp","op":"gt","threshold":{"kind":"literal","value":50}}}
b1 branch {"when":"value > 70.0"}
b2 branch {"when":"int(value) / (int(value) - 80) > 0"}
b3 branch {"when":"limit < 5.0"}
lonely branch {"when":"true"}
a1 action {"action":"raiseAlarm","alarmKey":"hot"}
a2 action {"action":"raiseAlarm","alarmKeyTemplate":"series == 'nameless' ? '' : series"}
a3 action {"action":"sendCommand","command":"stop","maxAgeMs":60000}
a4 action {"action":"publish","connectorRef":"k"}
s:out > c:in
c:signal > b1:in
c:signal > lonely:in
c:signal > a1:in
c:signal > a4:in
b1:out > b2:in
b1:out > b3:in
b2:out > a2:in
b3:out > a3:in
k:value > b3:value`), profile)
	if !r.OK {
		t.Fatalf("%+v", r.Diagnostics)
	}
	trace := c.Tracer(&r)
	const at = model.Micros(1772366400e6)
	for _, q := range []struct {
		what string
		f    model.Edge
		want string
	}{
		{"all pass", model.Edge{Signal: model.Raised, Value: 85, HasValue: true},
			"s source delivered|c condition raised (value 85)|a1 action raised|b1 branch passed|b2 branch passed|a2 action raised|b3 branch passed|a3 action sent|a4 action sent"},
		{"the first blocks", model.Edge{Signal: model.Raised, Value: 65.5, HasValue: true},
			"s source delivered|c condition raised (value 65.5)|a1 action raised|b1 branch blocked|b2 branch skipped (branch b1 did not pass)|a2 action skipped (branch b1 did not pass)|" +
				"b3 branch skipped (branch b1 did not pass)|a3 action skipped (branch b1 did not pass)|a4 action sent"},
		{"a guard fails", model.Edge{Signal: model.Raised, Value: 80, HasValue: true},
			"s source delivered|c condition raised (value 80)|a1 action raised|b1 branch passed|b2 branch blocked (division by zero)|a2 action skipped (branch b2 did not pass)|" +
				"b3 branch blocked|a3 action skipped (branch b3 did not pass)|a4 action sent"},
		{"a template gives no key, and the edge is old", model.Edge{Series: "nameless", Signal: model.Raised, Value: 95, HasValue: true, Received: (at + 61e6).Nanos()},
			"s source delivered|c condition raised (value 95)|a1 action raised|b1 branch passed|b2 branch passed|a2 action skipped (the template fails)|" +
				"b3 branch passed|a3 action skipped (the edge is older than maxAge)|a4 action sent"},
		{"a timer", model.Edge{Signal: model.Raised, Timer: true},
			"s source delivered (timer)|c condition raised|a1 action raised|b1 branch blocked|b2 branch skipped (branch b1 did not pass)|a2 action skipped (branch b1 did not pass)|" +
				"b3 branch skipped (branch b1 did not pass)|a3 action skipped (branch b1 did not pass)|a4 action sent"},
		{"resolved", model.Edge{Signal: model.Resolved, Value: 20, HasValue: true},
			"s source delivered|c condition resolved (value 20)|a1 action cleared|b1 branch skipped|b2 branch skipped|a2 action cleared|b3 branch skipped|a3 action inert|a4 action inert"},
	} {
		q.f.Occurred, q.f.Series = at, cmp.Or(q.f.Series, "boiler-1")
		if q.f.Received == 0 {
			q.f.Received = at.Nanos() + model.Nanos(time.Second)
		}
		var got []string
		for _, s := range trace(q.f) {
			text := s.Node + " " + s.Kind + " " + s.Disposition
			if s.Detail != "" {
				text += fmt.Sprintf(" (%s)", s.Detail)
			}
			got = append(got, text)
		}
		if text := strings.Join(got, "|"); text != q.want {
			t.Errorf("%s:\ngot  %s\nwant %s", q.what, text, q.want)
		}
	}
}
