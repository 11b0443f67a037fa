package lwm2m

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
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

// attributes are the texts, times and links among records, and what the profile says is one: attributes of the device by path.
func (p *profile) attributesOf(records []content.Record) map[string]model.Reported {
	out := map[string]model.Reported{}
	for _, r := range records {
		v, path := r.Value, r.Path.String()
		switch v.Kind {
		case content.String, content.Link:
			if utf8.ValidString(v.Text) && len(v.Text) <= report.MaxValue {
				out[path] = model.Reported{Key: path, Type: model.ReportedString, Value: v.Text}
			}
		case content.Time:
			if v.Int > -1<<36 && v.Int < 1<<36 {
				out[path] = model.Reported{Key: path, Type: model.ReportedString, Value: time.Unix(v.Int, 0).UTC().Format(time.RFC3339)}
			}
		default:
			if !p.attribute(r.Path) {
				continue
			}
			if n, ok := v.Number(); !ok || math.IsInf(n, 0) || math.IsNaN(n) {
				continue
			}
			typ := model.ReportedDouble
			switch v.Kind {
			case content.Integer, content.Unsigned:
				typ = model.ReportedLong
			case content.Boolean:
				typ = model.ReportedBoolean
			}
			text := content.FormatText(v)
			if v.Kind == content.Boolean {
				text = strconv.FormatBool(v.Bool)
			}
			out[path] = model.Reported{Key: path, Type: typ, Value: text}
		}
	}
	return out
}

// numbers are the records that are readings.
func (p *profile) numbers(records []content.Record) []content.Record {
	return slices.DeleteFunc(slices.Clone(records), func(r content.Record) bool { return p.attribute(r.Path) })
}

// Resources of the objects that say where a device is.
var located = map[uint16]struct{ latitude, longitude, altitude, accuracy, speed uint16 }{
	6: {0, 1, 2, 3, 6}, 3336: {6051, 6052, none, 6053, none},
}

// none is no resource.
const none = math.MaxUint16

// older are the resources of the first version of object 3336, which are texts.
var older = map[uint16]uint16{5513: 6051, 5514: 6052, 5515: 6053}

// positions are the locations among records, and the records that are none. An instance is one where it says latitude and longitude of one time.
func positions(records []content.Record) (m *model.Message, rest []content.Record) {
	type place struct {
		object, instance uint16
		at               model.EntryTime
	}
	found := map[place]map[uint16]float64{}
	var order []place
	of := func(r *content.Record) (place, uint16, float64, bool) {
		if len(r.Path) < 3 || !content.Locates(r.Path[0]) {
			return place{}, 0, 0, false
		}
		n, ok := r.Value.Number()
		resource := r.Path[2]
		if newer, is := older[resource]; is && r.Path[0] == 3336 {
			var err error
			n, err = strconv.ParseFloat(strings.TrimSpace(r.Value.Text), 64)
			resource, ok = newer, err == nil && r.Value.Kind == content.String
		}
		t := model.EntryTime{}
		if r.HasTime {
			t = model.EntryTime{At: model.Nanos(r.At * 1e9), Has: true}
		}
		return place{r.Path[0], r.Path[1], t}, resource, n, ok && !math.IsNaN(n) && !math.IsInf(n, 0)
	}
	for i := range records {
		p, resource, n, ok := of(&records[i])
		if !ok {
			continue
		}
		if found[p] == nil {
			found[p] = map[uint16]float64{}
			order = append(order, p)
		}
		found[p][resource] = n
	}
	is := map[place]bool{}
	for _, p := range order {
		names, values := located[p.object], found[p]
		lat, hasLat := values[names.latitude]
		lon, hasLon := values[names.longitude]
		if !hasLat || !hasLon || math.Abs(lat) > 90 || math.Abs(lon) > 180 || m != nil && len(m.Locations) == model.MaxReadings {
			continue
		}
		get := func(resource uint16) float64 {
			if v, ok := values[resource]; ok {
				return v
			}
			return math.NaN()
		}
		if m == nil {
			m = &model.Message{Type: model.LocationEvent}
		}
		is[p] = true
		m.Locations = append(m.Locations, model.Location{Latitude: lat, Longitude: lon, Elevation: get(names.altitude), Accuracy: get(names.accuracy), Speed: get(names.speed),
			Heading: math.NaN(), Time: p.at})
	}
	for i := range records {
		p, resource, _, ok := of(&records[i])
		names := located[p.object]
		if ok && is[p] && slices.Contains([]uint16{names.latitude, names.longitude, names.altitude, names.accuracy, names.speed}, resource) {
			continue
		}
		rest = append(rest, records[i])
	}
	return m, rest
}

// ingest hands records to the intake and calls done once, with the answer that decides for all: the first that is not Stored. refuses says
// that the device can be told of a refusal.
func (s *Server) ingest(sess *session, m *coap.Message, records []content.Record, refuses bool, done func(ingest.Answer)) {
	raw := coap.Append(nil, m)
	var arrivals []*ingest.Arrival
	var p *profile
	s.mu.Lock()
	if r := s.byDevice[sess.binding.DeviceID]; r != nil {
		p = r.profile
	}
	s.mu.Unlock()
	position, records := positions(records)
	for _, message := range readings(p.numbers(records)) {
		arrivals = append(arrivals, &ingest.Arrival{Message: message})
	}
	if position != nil {
		arrivals = append(arrivals, &ingest.Arrival{Message: position})
	}
	changed := s.changedTexts(sess, p.attributesOf(records))
	keys := slices.Sorted(maps.Keys(changed))
	for part := range slices.Chunk(keys, model.MaxReported) {
		r := &model.Report{}
		for _, key := range part {
			r.Attributes = append(r.Attributes, changed[key])
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

// report hands records to the intake that came in no notification.
func (s *Server) report(sess *session, records []content.Record) {
	s.ingest(sess, &coap.Message{Type: coap.NonConfirmable}, records, false, func(ingest.Answer) {})
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
func (s *Server) changedTexts(sess *session, all map[string]model.Reported) map[string]model.Reported {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byDevice[sess.binding.DeviceID]
	if r == nil {
		return all
	}
	for key, value := range all {
		if before, known := r.texts[key]; known && before == value.Value {
			delete(all, key)
		}
	}
	return all
}

// maxTexts bounds what is remembered of the reports of a device.
const maxTexts = 256

// reported notes what a device has reported.
func (s *Server) reported(sess *session, changed map[string]model.Reported) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byDevice[sess.binding.DeviceID]
	if r == nil {
		return
	}
	for key, value := range changed {
		if len(value.Value) <= 256 && (len(r.texts) < maxTexts || r.texts[key] != "") {
			r.texts[key] = value.Value
		}
	}
}
