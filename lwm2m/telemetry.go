package lwm2m

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"weir/ingest"
	"weir/ingest/report"
	"weir/lwm2m/coap"
	"weir/lwm2m/content"
	"weir/model"
)

// holdFor is how long a message waits unanswered while the log has no room.
const holdFor = 10 * time.Second

// seconds are those since 1970.
func (s *Server) seconds() float64 { return float64(s.now().UnixNano()) / 1e9 }

// readings are what the numbers among records become: messages of at most model.MaxReadings, each value at its time. Readings of one time
// are one entry.
func readings(records []content.Record) (all []*model.Message) {
	var m *model.Message
	entry, at := -1, model.EntryTime{}
	names := map[string]bool{} // of the entry
	for _, r := range records {
		n, ok := r.Value.Number()
		if !ok || r.Value.Kind == content.Time || math.IsInf(n, 0) || math.IsNaN(n) {
			continue
		}
		t := model.EntryTime{}
		if r.HasTime {
			t = model.EntryTime{At: model.Nanos(r.At * 1e9), Has: true}
		}
		if m == nil || len(m.Measurements) == model.MaxReadings {
			m = &model.Message{Type: model.MeasurementEvent}
			all = append(all, m)
			entry = -1
		}
		name := r.Path.String()
		if entry < 0 || t != at || names[name] {
			entry, at = entry+1, t
			clear(names)
		}
		names[name] = true
		m.Measurements = append(m.Measurements, model.Reading{Entry: uint16(entry), Metric: name, Value: n, Time: t})
	}
	return all
}

// texts are the texts, times and links among records: attributes of the device by path.
func texts(records []content.Record) map[string]string {
	out := map[string]string{}
	for _, r := range records {
		switch v := r.Value; v.Kind {
		case content.String, content.Link:
			if utf8.ValidString(v.Text) && len(v.Text) <= report.MaxValue {
				out[r.Path.String()] = v.Text
			}
		case content.Time:
			if v.Int > -1<<36 && v.Int < 1<<36 {
				out[r.Path.String()] = time.Unix(v.Int, 0).UTC().Format(time.RFC3339)
			}
		}
	}
	return out
}

// ingest hands records to the intake and calls done once, with the answer that decides for all: the first that is not Stored. refuses says
// that the device can be told of a refusal.
func (s *Server) ingest(sess *session, m *coap.Message, records []content.Record, refuses bool, done func(ingest.Answer)) {
	raw := coap.Append(nil, m)
	var arrivals []*ingest.Arrival
	for _, message := range readings(records) {
		arrivals = append(arrivals, &ingest.Arrival{Message: message})
	}
	changed := s.changedTexts(sess, texts(records))
	keys := slices.Sorted(maps.Keys(changed))
	for part := range slices.Chunk(keys, model.MaxReported) {
		r := &model.Report{}
		for _, key := range part {
			r.Attributes = append(r.Attributes, model.Reported{Key: key, Type: model.ReportedString, Value: changed[key]})
		}
		arrivals = append(arrivals, &ingest.Arrival{Report: r})
	}
	if len(arrivals) == 0 {
		done(ingest.Answer{Outcome: ingest.Stored})
		return
	}
	left := make(chan ingest.Answer, len(arrivals))
	for i, a := range arrivals {
		s.arrive(sess, m, a, raw, i, refuses)
		if a.Message != nil {
			s.metrics.emitted.Add(float64(len(a.Message.Measurements)))
		}
		s.deps.Intake.Accept(sess.ctx, a, func(answer ingest.Answer) { left <- answer })
	}
	finish := func() {
		worst := ingest.Answer{Outcome: ingest.Stored}
		for range arrivals {
			if answer := <-left; worst.Outcome == ingest.Stored {
				worst = answer
			}
		}
		if worst.Outcome == ingest.Stored {
			s.reported(sess, changed)
		}
		done(worst)
	}
	if !s.begin(finish) {
		finish()
	}
}

// arrive fills in what all arrivals of a message have in common. i numbers them: each is recognised by itself when it comes again.
func (s *Server) arrive(sess *session, m *coap.Message, a *ingest.Arrival, raw []byte, i int, refuses bool) {
	a.Transport, a.Source, a.Tenant, a.Topic = ingest.TransportLwM2M, s.cfg.Source, sess.binding.Tenant, sess.binding.Device
	a.Body = raw
	a.Conn = &sess.binding
	a.ClientID, a.PacketID, a.Dup = fmt.Sprintf("lwm2m:%s:%s", sess.binding.Tenant, sess.binding.Device), m.ID, m.Type == coap.Confirmable
	switch {
	case !a.Dup:
		a.PacketID = 0
	case i > 0: // the newest message with an identifier is remembered: the others are recognised by an id of their own
		a.PacketID, a.Dup = 0, false
		if a.Message != nil {
			sum := sha256.Sum256(raw)
			a.Message.AltID = fmt.Sprintf("lwm2m:%x:%d", sum[:12], i)
		}
	}
	a.CannotRefuse, a.HoldFor, a.Partial = !refuses, holdFor, true
	if refuses {
		a.HoldFor = 0
	}
	s.state.heard(s.now())
}

// changedTexts leaves out what a device has reported before.
func (s *Server) changedTexts(sess *session, all map[string]string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byDevice[sess.binding.DeviceID]
	if r == nil {
		return all
	}
	for key, value := range all {
		if before, known := r.texts[key]; known && before == value {
			delete(all, key)
		}
	}
	return all
}

// maxTexts bounds what is remembered of the reports of a device.
const maxTexts = 256

// reported notes what a device has reported.
func (s *Server) reported(sess *session, changed map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byDevice[sess.binding.DeviceID]
	if r == nil {
		return
	}
	for key, value := range changed {
		if len(value) <= 256 && (len(r.texts) < maxTexts || r.texts[key] != "") {
			r.texts[key] = value
		}
	}
}
