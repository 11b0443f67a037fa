package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/test/testweir"
)

// outOfRange: the API's default is to refuse; what is flagged or clamped takes effect with the publish, and is marked wherever a
// reading is shown.
func outOfRange(t *testing.T, w *world) {
	tn := w.tenant(t, "out-of-range")
	shown := func(a *answer, want string) {
		t.Helper()
		if got := string(a.Data); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	tn.profile("p", map[string]string{"high": above("high", "pressure", 16, "")})
	shown(tn.devices(`mutation{
		a:createMetricDefinition(request:{token:"pressure",deviceProfileToken:"p",metricKey:"pressure",dataType:"DOUBLE",maxValue:40}){outOfRange}
		b:createMetricDefinition(request:{token:"level",deviceProfileToken:"p",metricKey:"level",dataType:"DOUBLE",maxValue:8,outOfRange:"CLAMP"}){outOfRange}}`, nil),
		`{"a":{"outOfRange":"REFUSE"},"b":{"outOfRange":"CLAMP"}}`)
	tn.refused(`mutation{updateMetricDefinition(token:"level",request:{outOfRange:"DROP"}){token}}`, nil, "INVALID_INPUT", "is none of REFUSE, FLAG, CLAMP")
	tn.refused(`mutation{updateMetricDefinition(token:"level",request:{outOfRange:null}){token}}`, nil, "INVALID_INPUT", "outOfRange")
	tn.publish("p")
	tn.device("d", "p")
	send := func(metric, value string) { tn.kept(measured(metric, value, tn.as("d"))) }
	send("pressure", "99")
	tn.devices(`mutation{updateMetricDefinition(token:"pressure",request:{outOfRange:"FLAG"}){token}}`, nil)
	send("pressure", "98")
	tn.applied("d")
	if l := tn.ledger("http"); l.DeadLetter != 2 {
		t.Errorf("refused, and flagged in a draft only: %+v", l)
	}
	tn.publish("p")

	s, err := tn.Dial("event-management", tn.token)
	if err == nil {
		err = s.Subscribe("1", `subscription{measurementStream(deviceToken:"d",name:"pressure"){value outOfRange}}`, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ { // until the subscription stands
		send("pressure", fmt.Sprint(41+n))
		m, err := s.Next(50 * time.Millisecond)
		if err == nil {
			if !strings.Contains(string(m.Payload), `"outOfRange":"FLAGGED"`) {
				t.Errorf("the stream says %s", m.Payload)
			}
			break
		}
		if !errors.Is(err, testweir.ErrQuiet) || n > 200 {
			t.Fatal(err)
		}
	}
	send("pressure", "99")
	send("level", "77")
	send("level", "8")
	tn.applied("d")
	shown(tn.events(`{measurementEvents(name:"pressure",criteria:{pageNumber:1,pageSize:1,deviceToken:"d"}){results{value outOfRange}}}`, nil),
		`{"measurementEvents":{"results":[{"value":99,"outOfRange":"FLAGGED"}]}}`)
	shown(tn.events(`{measurementEvents(name:"level",criteria:{pageNumber:1,pageSize:2,deviceToken:"d"}){results{value outOfRange}}}`, nil),
		`{"measurementEvents":{"results":[{"value":8,"outOfRange":null},{"value":8,"outOfRange":"CLAMPED"}]}}`)
	var latest struct {
		LatestMeasurements []struct {
			Name       string
			OutOfRange *string
		}
	}
	tn.states(`{latestMeasurements(deviceToken:"d"){name outOfRange}}`, nil).into(t, &latest)
	for _, m := range latest.LatestMeasurements {
		if marked := m.OutOfRange != nil; marked != (m.Name == "pressure") || marked && *m.OutOfRange != "FLAGGED" {
			t.Errorf("the latest value of %s has the mark %v", m.Name, m.OutOfRange)
		}
	}
	shown(tn.rules(`{detections(criteria:{pageNumber:1,pageSize:5}){results{ruleToken edge value}}}`, nil),
		`{"detections":{"results":[{"ruleToken":"high","edge":"raised","value":41}]}}`)
	var ledger struct {
		IngestLedger []struct{ Stored, Readings, OutOfRange int }
	}
	tn.events(`{ingestLedger(criteria:{}){stored readings outOfRange}}`, nil).into(t, &ledger)
	sum := 0
	for _, l := range ledger.IngestLedger {
		sum += l.OutOfRange
		if l.Stored != l.Readings {
			t.Errorf("%+v", l)
		}
	}
	stored, _ := tn.measurements(map[string]any{"deviceToken": "d"})
	for _, m := range stored {
		if m.Name == "pressure" {
			sum--
		}
	}
	if sum != 1 {
		t.Errorf("the ledger has %d more readings out of range than there are of pressure, want the one of level", sum)
	}
}
