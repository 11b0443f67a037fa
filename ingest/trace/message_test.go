package trace

import (
	"math"
	"testing"

	"weir/ingest"
	"weir/model"
)

// What Event writes is what ingest reads, with the same readings.
func TestAMessageAsAnEventIsReadAgain(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, c := range []struct {
		m    model.Message
		want string
	}{
		{model.Message{Type: model.MeasurementEvent, AltID: "a", Occurred: 5, HasOccurred: true, Measurements: []model.Reading{{Metric: "load", Value: 0.1}, {Metric: "temp", Value: -1e300}, {Entry: 1, Metric: "temp", Value: 2}}},
			`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"load":"0.1","temp":"-1e+300"}},{"measurements":{"temp":"2"}}]}}`},
		{model.Message{Type: model.LocationEvent, Locations: []model.Location{{Latitude: 48.1, Longitude: 11.5, Elevation: nan, Accuracy: nan, Speed: 3, Heading: nan}}},
			`{"eventType":"Location","payload":{"entries":[{"latitude":"48.1","longitude":"11.5","speed":"3"}]}}`},
		{model.Message{Type: model.AlertEvent, Alerts: []model.Alert{{Type: "hot", Level: 3, Message: "too \"hot\""}}},
			`{"eventType":"Alert","payload":{"entries":[{"level":3,"message":"too \"hot\"","type":"hot"}]}}`},
		{model.Message{Type: model.NewRelationship, Relationship: &model.Relationship{Type: "t"}}, ""},
	} {
		got := Event(&c.m)
		if got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
		if got == "" {
			continue
		}
		again, err := ingest.Decode([]byte(got))
		if err != nil || again.Message.Readings() != c.m.Readings() || again.Message.HasOccurred || again.Message.AltID != "" || Event(&again.Message) != got {
			t.Errorf("read again: %+v, %v", again.Message, err)
		}
	}
	if Event(nil) != "" {
		t.Error("no message is an event")
	}
}
