package edge

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"weir/model"
)

// Bodies are how what a platform has read goes up: what a transport decoded itself (LwM2M, Sparkplug, …) has no body of its own.

type eventBody struct {
	AltID        string `json:"altId,omitempty"`
	OccurredTime string `json:"occurredTime,omitempty"`
	EventType    string `json:"eventType"`
	Payload      any    `json:"payload"`
}

type entriesBody struct {
	Entries []any `json:"entries"`
}

type measurementBody struct {
	Measurements map[string]string `json:"measurements"`
	OccurredTime string            `json:"occurredTime,omitempty"`
}

type locationBody struct {
	Latitude     string `json:"latitude"`
	Longitude    string `json:"longitude"`
	Elevation    string `json:"elevation,omitempty"`
	Accuracy     string `json:"accuracy,omitempty"`
	Speed        string `json:"speed,omitempty"`
	Heading      string `json:"heading,omitempty"`
	OccurredTime string `json:"occurredTime,omitempty"`
}

type alertBody struct {
	Type         string `json:"type"`
	Level        int32  `json:"level"`
	Message      string `json:"message,omitempty"`
	Source       string `json:"source,omitempty"`
	OccurredTime string `json:"occurredTime,omitempty"`
}

type relationshipBody struct {
	Type       string `json:"relationshipType"`
	TargetType string `json:"targetType"`
	Target     string `json:"target"`
}

type answerBody struct {
	Command string          `json:"commandToken"`
	Nonce   string          `json:"dispatchNonce,omitempty"`
	Success bool            `json:"success"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// bodyOf returns the body that a record of a platform stands for, and what kind it is. The decoders of package ingest read it as the same.
func bodyOf(r *model.Record) (kind, []byte, error) {
	switch r.Kind {
	case model.KindDeviceReport:
		b, err := reportBody(r.Report)
		return kindReports, b, err
	case model.KindCommandResponse:
		a := r.Response
		b, err := json.Marshal(answerBody{a.Command, a.Nonce, a.Success, json.RawMessage(a.Payload), a.Error})
		return kindResponses, b, err
	case model.KindMessage:
		b, err := json.Marshal(eventOfMessage(r.Message))
		return kindEvents, b, err
	}
	return 0, nil, fmt.Errorf("%w: kind %d", errRecord, r.Kind)
}

func eventOfMessage(m *model.Message) *eventBody {
	out := &eventBody{AltID: m.AltID, EventType: m.Type.String()}
	if m.HasOccurred {
		out.OccurredTime = timeText(m.Occurred)
	}
	entries := entriesBody{}
	switch m.Type {
	case model.LocationEvent:
		for i := range m.Locations {
			l := &m.Locations[i]
			entries.Entries = append(entries.Entries, locationBody{decimal(l.Latitude), decimal(l.Longitude), decimal(l.Elevation), decimal(l.Accuracy), decimal(l.Speed), decimal(l.Heading), entryTime(l.Time)})
		}
	case model.AlertEvent:
		for i := range m.Alerts {
			a := &m.Alerts[i]
			entries.Entries = append(entries.Entries, alertBody{a.Type, a.Level, a.Message, a.Source, entryTime(a.Time)})
		}
	case model.NewRelationship:
		r := m.Relationship
		out.Payload = relationshipBody{r.Type, r.TargetType, r.Target}
		return out
	default:
		for i := 0; i < len(m.Measurements); {
			first := &m.Measurements[i]
			one := measurementBody{map[string]string{}, entryTime(first.Time)}
			for ; i < len(m.Measurements) && m.Measurements[i].Entry == first.Entry; i++ {
				one.Measurements[m.Measurements[i].Metric] = decimal(m.Measurements[i].Value)
			}
			entries.Entries = append(entries.Entries, one)
		}
	}
	out.Payload = entries
	return out
}

// decimal is the text of a number, "" for one that is not there.
func decimal(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func entryTime(t model.EntryTime) string {
	if !t.Has {
		return ""
	}
	return timeText(t.At)
}

func reportBody(r *model.Report) ([]byte, error) {
	values := make(map[string]json.RawMessage, len(r.Attributes))
	for i := range r.Attributes {
		a := &r.Attributes[i]
		switch a.Type {
		case model.ReportedNull:
			values[a.Key] = json.RawMessage("null")
		case model.ReportedString:
			b, err := json.Marshal(a.Value)
			if err != nil {
				return nil, err
			}
			values[a.Key] = b
		default:
			text := a.Value
			if _, err := strconv.ParseInt(text, 10, 64); err == nil && a.Type == model.ReportedDouble {
				text += ".0" // a whole number without it is a LONG
			}
			values[a.Key] = json.RawMessage(text)
		}
	}
	return json.Marshal(map[string]any{"attributes": values})
}
