package ingest

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"weir/model"
)

// hostileMessages are events that no transport may bring in, as JSON and as a transport of its own format hands them over. The
// refusal is the same: only the JSON decoder adds where in the body it stands.
var hostileMessages = []struct {
	name, body string
	message    model.Message
	reason     Reason
	want       string
}{
	{"event type of the platform", `{"eventType":"StateChange","payload":{}}`, model.Message{Type: model.StateChange}, ReasonUndecodable, "eventType StateChange is the platform's own"},
	{"unknown event type", `{"eventType":"Weather","payload":{}}`, model.Message{Type: 77}, ReasonUndecodable, "eventType must be Measurement, Location, Alert or NewRelationship"},
	{"no entries", `{"eventType":"Measurement","payload":{}}`, model.Message{Type: model.MeasurementEvent}, ReasonUndecodable, "entries must hold at least one entry"},
	{"no locations", `{"eventType":"Location","payload":{"entries":[]}}`, model.Message{Type: model.LocationEvent}, ReasonUndecodable, "entries must hold at least one entry"},
	{"too many readings", tooManyBody(), tooManyReadings(), ReasonTooManyReadings, "a message may carry at most 256 readings"},
	{"altId too long", `{"altId":"` + strings.Repeat("é", 129) + `"}`, oneMetric(func(m *model.Message) { m.AltID = strings.Repeat("é", 129) }), ReasonUndecodable, "altId must have at most 128 characters"},
	{"altId not UTF-8", "{\"altId\":\"\xff\"}", oneMetric(func(m *model.Message) { m.AltID = "\xff" }), ReasonUndecodable, "string is not valid UTF-8"},
	{"metric not UTF-8", "{\"eventType\":\"Measurement\",\"payload\":{\"entries\":[{\"measurements\":{\"\xff\":\"1\"}}]}}", metrics("\xff"), ReasonUndecodable, "string is not valid UTF-8"},
	{"metric twice", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1","u":"1","t":"2"}}]}}`, metrics("t", "u", "t"), ReasonUndecodable, `metric "t" is given twice`},
	{"metric without a name", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"":"1"}}]}}`, metrics(""), ReasonUndecodable, "a metric's name must have 1 to 128 characters"},
	{"metric name too long", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"` + strings.Repeat("x", 129) + `":"1"}}]}}`,
		metrics(strings.Repeat("x", 129)), ReasonUndecodable, "a metric's name must have 1 to 128 characters"},
	{"beyond float64", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1e999"}}]}}`,
		oneMetric(func(m *model.Message) { m.Measurements[0].Value = math.Inf(1) }), ReasonUndecodable, "the value of a metric must be a string that holds a finite number"},
	{"latitude", `{"eventType":"Location","payload":{"entries":[{"latitude":"90.1","longitude":"0"}]}}`, location(90.1, 0, nil), ReasonUndecodable, "latitude must lie in -90..90"},
	{"longitude", `{"eventType":"Location","payload":{"entries":[{"latitude":"0","longitude":"-181"}]}}`, location(0, -181, nil), ReasonUndecodable, "longitude must lie in -180..180"},
	{"longitude missing", `{"eventType":"Location","payload":{"entries":[{"latitude":"1"}]}}`, location(1, math.NaN(), nil), ReasonUndecodable, "latitude and longitude are required"},
	{"elevation", `{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"1","elevation":"1e9"}]}}`,
		location(1, 1, func(l *model.Location) { l.Elevation = 1e9 }), ReasonUndecodable, "elevation must lie in -99999999..99999999"},
	{"accuracy", `{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"1","accuracy":"-1"}]}}`,
		location(1, 1, func(l *model.Location) { l.Accuracy = -1 }), ReasonUndecodable, "accuracy must not be negative"},
	{"endless accuracy", `{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"1","accuracy":"1e999"}]}}`,
		location(1, 1, func(l *model.Location) { l.Accuracy = math.Inf(1) }), ReasonUndecodable, "accuracy must be a string that holds a finite number"},
	{"speed", `{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"1","speed":"-1"}]}}`,
		location(1, 1, func(l *model.Location) { l.Speed = -1 }), ReasonUndecodable, "speed must not be negative"},
	{"endless speed", `{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"1","speed":"1e999"}]}}`,
		location(1, 1, func(l *model.Location) { l.Speed = math.Inf(1) }), ReasonUndecodable, "speed must be a string that holds a finite number"},
	{"heading that rounds to 360", `{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"1","heading":"359.99996"}]}}`,
		location(1, 1, func(l *model.Location) { l.Heading = 359.99996 }), ReasonUndecodable, "heading must lie in 0..360, 360 excluded"},
	{"alert without type", `{"eventType":"Alert","payload":{"entries":[{"level":1}]}}`, alert(model.Alert{Level: 1}), ReasonUndecodable, "type is required and must not be empty"},
	{"alert level", `{"eventType":"Alert","payload":{"entries":[{"type":"a","level":-1}]}}`, alert(model.Alert{Type: "a", Level: -1}), ReasonUndecodable, "level must be a whole number in 0..2147483647"},
	{"alert not UTF-8", "{\"eventType\":\"Alert\",\"payload\":{\"entries\":[{\"type\":\"a\",\"message\":\"\xff\"}]}}", alert(model.Alert{Type: "a", Message: "\xff"}), ReasonUndecodable, "string is not valid UTF-8"},
	{"relationship missing", `{"eventType":"NewRelationship","payload":{}}`, model.Message{Type: model.NewRelationship}, ReasonUndecodable, "relationshipType, targetType and target are required"},
	{"relationship incomplete", `{"eventType":"NewRelationship","payload":{"relationshipType":"in"}}`,
		relationship(model.Relationship{Type: "in"}), ReasonUndecodable, "relationshipType, targetType and target are required"},
	{"relationship target", `{"eventType":"NewRelationship","payload":{"relationshipType":"in","targetType":"moon","target":"m"}}`,
		relationship(model.Relationship{Type: "in", TargetType: "moon", Target: "m"}), ReasonUndecodable, "targetType must be device, asset, area, customer or group"},
	// What JSON cannot express has no body.
	{"entries of another type", "", oneMetric(func(m *model.Message) { m.Type = model.AlertEvent }), ReasonUndecodable, "a message holds entries of its own type only"},
	{"entries of two types", "", oneMetric(func(m *model.Message) { m.Alerts = []model.Alert{{Type: "a"}} }), ReasonUndecodable, "a message holds entries of its own type only"},
	{"relationship beside readings", "", oneMetric(func(m *model.Message) { m.Relationship = &model.Relationship{} }), ReasonUndecodable, "a message holds entries of its own type only"},
	{"first entry is missing", "", oneMetric(func(m *model.Message) { m.Measurements[0].Entry = 1 }), ReasonUndecodable, "entries are numbered from 0, one after the other"},
	{"an entry that comes again", "", model.Message{Type: model.MeasurementEvent, Measurements: []model.Reading{{Metric: "a"}, {Entry: 1, Metric: "a"}, {Metric: "b"}}},
		ReasonUndecodable, "entries are numbered from 0, one after the other"},
	{"two times in an entry", "", model.Message{Type: model.MeasurementEvent, Measurements: []model.Reading{{Metric: "a"}, {Metric: "b", Time: model.EntryTime{Has: true}}}},
		ReasonUndecodable, "the readings of an entry have one time"},
}

func oneMetric(change func(*model.Message)) model.Message {
	m := metrics("t")
	change(&m)
	return m
}

func metrics(names ...string) model.Message {
	m := model.Message{Type: model.MeasurementEvent}
	for _, n := range names {
		m.Measurements = append(m.Measurements, model.Reading{Metric: n, Value: 1})
	}
	return m
}

func tooManyReadings() model.Message {
	m := model.Message{Type: model.MeasurementEvent}
	for i := range model.MaxReadings + 1 {
		m.Measurements = append(m.Measurements, model.Reading{Entry: uint16(i), Metric: "t"})
	}
	return m
}

func tooManyBody() string {
	return `{"eventType":"Measurement","payload":{"entries":[` + strings.Repeat(`{"measurements":{"t":"1"}},`, model.MaxReadings) + `{"measurements":{"t":"1"}}]}}`
}

func location(lat, lon float64, change func(*model.Location)) model.Message {
	nan := math.NaN()
	l := model.Location{Latitude: lat, Longitude: lon, Elevation: nan, Accuracy: nan, Speed: nan, Heading: nan}
	if change != nil {
		change(&l)
	}
	return model.Message{Type: model.LocationEvent, Locations: []model.Location{l}}
}

func alert(a model.Alert) model.Message {
	return model.Message{Type: model.AlertEvent, Alerts: []model.Alert{a}}
}

func relationship(r model.Relationship) model.Message {
	return model.Message{Type: model.NewRelationship, Relationship: &r}
}

var inTheBody = regexp.MustCompile(`^(?:payload: )?(.*) at byte \d+$`)

// TestATransportsReadingIsCheckedAsJSONIs: the same hostile messages, through the intake, as JSON and decoded by the transport.
func TestATransportsReadingIsCheckedAsJSONIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range hostileMessages {
		t.Run(c.name, func(t *testing.T) {
			if c.body != "" {
				an := w.send(w.arrival(1, c.body))
				text := inTheBody.FindStringSubmatch(an.Text)
				if an.Outcome != Refused || an.Reason != c.reason || text == nil || text[1] != c.want {
					t.Errorf("as JSON: %+v, want %s: %s", an, c.reason, c.want)
				}
			}
			a := w.arrival(1, "\x01\x02")
			a.Message = &c.message
			if an := w.send(a); an.Outcome != Refused || an.Reason != c.reason || an.Text != c.want {
				t.Errorf("as a message: %+v, want %s: %s", an, c.reason, c.want)
			}
		})
	}
}

// TestADecodedMessageIsStoredAsItsJSON: each kind of event, through log and applier, by both ways.
func TestADecodedMessageIsStoredAsItsJSON(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"eventType":"Measurement","altId":"x","occurredTime":"2026-02-28T12:00:00Z","payload":{"entries":[{"measurements":{"temp":"21.5","n":"2"}},{"measurements":{"temp":"3"},"occurredTime":"2026-02-28T13:00:00Z"}]}}`,
		`{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"2","heading":"3"}]}}`,
		`{"eventType":"Alert","payload":{"entries":[{"type":"door","level":1,"message":"open"}]}}`,
		`{"eventType":"NewRelationship","payload":{"relationshipType":"in","targetType":"area","target":"a"}}`,
	} {
		ev, err := Decode([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkMessage(&ev.Message); err != nil {
			t.Errorf("%s: refused as a message: %v", body, err)
		}
		w := newWorld(t)
		w.furnish(1)
		a := w.arrival(1, body)
		a.Message = &ev.Message
		if an := w.send(a); an.Outcome != Stored {
			t.Errorf("%s: %+v", body, an)
		}
		w.apply()
		w.ledger()
	}
}

// FuzzDecodedMessage: whatever the JSON decoder takes, the check of a decoded message takes as well.
func FuzzDecodedMessage(f *testing.F) {
	for _, c := range hostileMessages {
		f.Add([]byte(c.body))
	}
	f.Add([]byte(`{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"2","heading":null}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ev, err := Decode(body)
		if err != nil {
			return
		}
		if err := checkMessage(&ev.Message); err != nil {
			t.Errorf("taken as JSON, as a message: %v", err)
		}
	})
}

// TestAMessageThatCannotBeRefusedIsSealedAsItCame: a transport without words for a refusal gets a dead letter of the bytes.
func TestAMessageThatCannotBeRefusedIsSealedAsItCame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	a := w.arrival(1, "\x01\x02")
	a.CannotRefuse, a.Message = true, new(metrics(""))
	if an := w.send(a); an.Outcome != Stored {
		t.Fatalf("%+v", an)
	}
	w.apply()
	dead := w.deadLetters()
	if len(dead) != 1 || dead[0].Reason != string(ReasonUndecodable) || dead[0].Summary != "a metric's name must have 1 to 128 characters" {
		t.Errorf("%+v", dead)
	}
	if w.ledger()["dead letter"] != 1 {
		t.Error("the ledger has no dead letter")
	}
}
