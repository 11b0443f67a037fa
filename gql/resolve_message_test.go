package gql

import (
	"testing"

	"weir/ingest/trace"
	"weir/model"
)

// What a message caused says by which version of the profile it was judged; a sender that is not authenticated learns nothing of it.
func TestAMessageShowsItsStepsAndEdges(t *testing.T) {
	of := func(v model.Verdict) messageDetail {
		r := &model.Record{Device: "boiler-1", Verdict: v, Message: &model.Message{Type: model.MeasurementEvent, HasOccurred: true}}
		edges := []model.Edge{{Rule: "hot", Profile: "boiler", Version: 3, Signal: model.Raised, Severity: "major", Value: 97, HasValue: true},
			{Rule: "cold", Profile: "boiler", Version: 3, Signal: model.Resolved, Value: 97, HasValue: true}}
		return showMessage(&FoundMessage{Traced: trace.Traced{Offset: 7, Outcome: "stored", InLog: true}, Record: r, Edges: edges}, true)
	}
	m := of(model.VerdictOK)
	if len(m.Edges) != 2 || m.Edges[0].Rule != "hot" || *m.Edges[0].Value != 97 || *m.Edges[0].Severity != "major" || m.Edges[1].Value != nil || m.Version == nil || *m.Version != 3 || !m.InLog {
		t.Errorf("%+v", m)
	}
	if len(m.Steps) != 2 || m.Steps[0].Name != "taken" || m.Steps[1].Name != "received" {
		t.Errorf("steps %+v", m.Steps)
	}
	if m := of(model.VerdictBad); len(m.Edges) != 0 || m.Version != nil || len(m.Steps) != 1 {
		t.Errorf("of a sender that is not authenticated: %+v", m)
	}
}
