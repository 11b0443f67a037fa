package edge

import (
	"encoding/json"
	"strconv"

	"weir/ingest"
)

// eventOf returns the ingest event that a flat body stands for: brokers and a Weir above recognise a repeat by members that a flat body
// has no place for. A body that does not decode has none, and goes up as it is.
func eventOf(flat []byte) (body []byte, ok bool) {
	ev, err := ingest.DecodeFlat(flat)
	if err != nil {
		return nil, false
	}
	values := make(map[string]string, len(ev.Message.Measurements))
	for _, r := range ev.Message.Measurements {
		values[r.Metric] = strconv.FormatFloat(r.Value, 'g', -1, 64)
	}
	type entry struct {
		Measurements map[string]string `json:"measurements"`
	}
	out := struct {
		OccurredTime string `json:"occurredTime,omitempty"`
		EventType    string `json:"eventType"`
		Payload      struct {
			Entries []entry `json:"entries"`
		} `json:"payload"`
	}{EventType: "Measurement"}
	if ev.Message.HasOccurred {
		out.OccurredTime = timeText(ev.Message.Occurred)
	}
	out.Payload.Entries = []entry{{values}}
	body, err = json.Marshal(out)
	return body, err == nil
}
