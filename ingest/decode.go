package ingest

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"weir/internal/jsonscan"
	"weir/model"
)

// Decoded is an ingest event, a device report or an answer to a command, with what only the intake may see: the credential in the body.
type Decoded struct {
	Device     string
	Message    model.Message
	Report     *model.Report   // a device report
	Answer     *model.Response // an answer to a command; with neither of them, Message counts
	Credential Credential
	Nulls      int // members of a flat body that were null and are left out
}

// Credential is what a body presents. Secret never leaves the intake.
type Credential struct {
	Type, ID, Secret string
}

// Presented reports whether the body names a credential at all.
func (c Credential) Presented() bool { return c.Type != "" || c.ID != "" || c.Secret != "" }

// DecodeError is why a body is not an ingest event. Its text is one line, fit to be sent to the device.
type DecodeError struct {
	Reason Reason // ReasonUndecodable or ReasonTooManyReadings
	Text   string
}

func (e *DecodeError) Error() string { return e.Text }

// Decode reads an ingest event in JSON and checks its form: what can be checked without the device, the clock or the
// registry. Unknown members are ignored; a known member may be given once.
func Decode(body []byte) (ev Decoded, err error) { return decodeInto(nil, body) }

// decodeInto is Decode with memory for readings, which is used as far as it goes.
func decodeInto(room []model.Reading, body []byte) (ev Decoded, err error) {
	d := decoder{Scanner: jsonscan.New(withoutPadding(body)), room: room}
	d.event(&ev)
	if err := d.End(); err != nil {
		return Decoded{}, &DecodeError{Reason: d.reason(), Text: err.Error()}
	}
	return ev, nil
}

// withoutPadding cuts the NUL bytes off the end of a body: a C program that sends its whole buffer, or counts the end of a string, appends
// them. Elsewhere a NUL byte is refused.
func withoutPadding(body []byte) []byte { return bytes.TrimRight(body, "\x00") }

type decoder struct {
	jsonscan.Scanner
	tooMany  bool
	readings int
	room     []model.Reading
}

func (d *decoder) reason() Reason {
	if d.tooMany {
		return ReasonTooManyReadings
	}
	return ReasonUndecodable
}

// check fails with what a check of the form has found, at the present byte.
func (d *decoder) check(why string) {
	if why != "" {
		d.Fail("%s", why)
	}
}

// once notes that the member was seen and fails when it was seen before.
func (d *decoder) once(seen *uint32, bit int, name string) {
	if *seen&(1<<bit) != 0 {
		d.Fail("member %q is given twice", name)
	}
	*seen |= 1 << bit
}

var eventMembers = [...]string{"device", "eventType", "payload", "occurredTime", "altId", "credentialType", "credentialId", "credentialSecret", "relationship"}

func (d *decoder) event(ev *Decoded) {
	var seen uint32
	var eventType, payload []byte
	var payloadAt int
	d.Object(func(name []byte) {
		bit := indexOf(eventMembers[:], name)
		if bit < 0 {
			d.Skip()
			return
		}
		d.once(&seen, bit, eventMembers[bit])
		if eventMembers[bit] == "payload" {
			if d.Peek() != '{' {
				d.Fail("payload must be an object")
			}
			// Its form depends on eventType, which may come later: keep the bytes.
			payload = d.Raw()
			payloadAt = d.Pos() - len(payload)
			return
		}
		if d.Null() {
			return // as if it were absent
		}
		switch eventMembers[bit] {
		case "device":
			if ev.Device = d.String("device"); d.Err() == nil && !model.ValidToken(ev.Device) {
				d.Fail("device is not a device token")
			}
		case "eventType":
			eventType = d.Bytes("eventType")
		case "occurredTime":
			ev.Message.Occurred = d.time("occurredTime")
			ev.Message.HasOccurred = true
		case "altId":
			ev.Message.AltID = d.bounded("altId", maxAltID)
		case "credentialType":
			ev.Credential.Type = d.bounded("credentialType", maxCredential)
		case "credentialId":
			ev.Credential.ID = d.bounded("credentialId", maxCredential)
		case "credentialSecret":
			ev.Credential.Secret = d.bounded("credentialSecret", maxCredential)
		case "relationship":
			d.Skip() // accepted, unused
		}
	})
	// All members are known now.
	switch {
	case d.Err() != nil:
	case len(eventType) == 0:
		d.Fail("eventType is required")
	case payload == nil:
		d.Fail("payload is required")
	default:
		d.payload(&ev.Message, eventType, payload, payloadAt)
	}
}

func (d *decoder) payload(m *model.Message, eventType, payload []byte, at int) {
	p := decoder{Scanner: jsonscan.New(payload)}
	switch string(eventType) {
	case "Measurement":
		m.Type, m.Measurements = model.MeasurementEvent, d.room
		p.entries(func(i int) { p.measurement(m, i) })
	case "Location":
		m.Type = model.LocationEvent
		p.entries(func(int) { p.location(m) })
	case "Alert":
		m.Type = model.AlertEvent
		p.entries(func(int) { p.alert(m) })
	case "NewRelationship":
		m.Type = model.NewRelationship
		m.Relationship = p.relationship()
	default:
		d.check(checkType(string(eventType)))
		return
	}
	// Report positions within the whole body.
	if p.End() != nil {
		d.Adopt(&p.Scanner, at, "payload: ")
		d.tooMany = p.tooMany
	}
}

// entries walks {"entries": [...]}; there must be at least one.
func (d *decoder) entries(entry func(i int)) {
	var seen uint32
	n := 0
	d.Object(func(name []byte) {
		if string(name) != "entries" {
			d.Skip()
			return
		}
		d.once(&seen, 0, "entries")
		d.Array(func(i int) {
			n++
			entry(i)
		})
	})
	d.check(checkEntries(n))
}

// count takes one reading from the message's allowance.
func (d *decoder) count() {
	d.readings++
	if why := checkCount(d.readings); why != "" && d.Err() == nil {
		d.tooMany = true
		d.check(why)
	}
}

func (d *decoder) measurement(m *model.Message, entry int) {
	var seen uint32
	first := len(m.Measurements)
	var at model.EntryTime
	d.Object(func(name []byte) {
		switch string(name) {
		case "measurements":
			d.once(&seen, 0, "measurements")
			d.Object(func(metric []byte) { d.metric(m, first, entry, string(metric)) })
		case "occurredTime":
			d.once(&seen, 1, "occurredTime")
			at = d.entryTime()
		default:
			d.Skip()
		}
	})
	if d.Err() == nil && len(m.Measurements) == first {
		d.Fail("an entry must hold at least one measurement")
	}
	// occurredTime may come after the readings that it is for.
	for i := first; i < len(m.Measurements); i++ {
		m.Measurements[i].Time = at
	}
}

func (d *decoder) metric(m *model.Message, first, entry int, name string) {
	if why := checkMetric(m.Measurements[first:], name); why != "" {
		d.check(why)
		return
	}
	d.count()
	v := d.value("the value of a metric")
	if d.Err() == nil {
		m.Measurements = append(m.Measurements, model.Reading{Entry: uint16(entry), Metric: name, Value: v})
	}
}

var locationMembers = [...]string{"latitude", "longitude", "elevation", "accuracy", "speed", "heading"}

func (d *decoder) location(m *model.Message) {
	var seen uint32
	l := model.Location{}
	fields := [...]*float64{&l.Latitude, &l.Longitude, &l.Elevation, &l.Accuracy, &l.Speed, &l.Heading}
	// NaN says that a member is absent.
	for _, f := range fields {
		*f = math.NaN()
	}
	d.count()
	d.Object(func(name []byte) {
		if string(name) == "occurredTime" {
			d.once(&seen, len(fields), "occurredTime")
			l.Time = d.entryTime()
			return
		}
		bit := indexOf(locationMembers[:], name)
		if bit < 0 {
			d.Skip()
			return
		}
		d.once(&seen, bit, locationMembers[bit])
		if bit > 1 && d.Null() {
			return
		}
		*fields[bit] = d.decimal(locationMembers[bit])
	})
	if d.Err() == nil {
		d.check(checkLocation(&l))
	}
	m.Locations = append(m.Locations, l)
}

var alertMembers = [...]string{"type", "level", "message", "source", "occurredTime"}

func (d *decoder) alert(m *model.Message) {
	var seen uint32
	a := model.Alert{}
	d.count()
	d.Object(func(name []byte) {
		bit := indexOf(alertMembers[:], name)
		if bit < 0 {
			d.Skip()
			return
		}
		d.once(&seen, bit, alertMembers[bit])
		if bit > 0 && bit < 4 && d.Null() {
			return
		}
		switch bit {
		case 0:
			a.Type = d.String("type")
		case 1:
			n, err := strconv.ParseInt(d.Number("level"), 10, 32)
			if err != nil || n < 0 {
				d.check(levelRange)
			}
			a.Level = int32(n)
		case 2:
			a.Message = d.String("message")
		case 3:
			a.Source = d.String("source")
		case 4:
			a.Time = d.entryTime()
		}
	})
	d.check(checkAlert(&a))
	m.Alerts = append(m.Alerts, a)
}

func (d *decoder) relationship() *model.Relationship {
	var seen uint32
	r := &model.Relationship{}
	d.Object(func(name []byte) {
		switch string(name) {
		case "relationshipType":
			d.once(&seen, 0, "relationshipType")
			r.Type = d.String("relationshipType")
		case "targetType":
			d.once(&seen, 1, "targetType")
			r.TargetType = d.String("targetType")
		case "target":
			d.once(&seen, 2, "target")
			r.Target = d.String("target")
		default:
			d.Skip()
		}
	})
	d.check(checkRelationship(r))
	return r
}

func (d *decoder) entryTime() model.EntryTime {
	if d.Null() {
		return model.EntryTime{}
	}
	return model.EntryTime{At: d.time("occurredTime"), Has: true}
}

// time takes an RFC 3339 instant. The zero instant is what some clients send for "none" and is refused.
func (d *decoder) time(what string) model.Nanos {
	s := d.String(what)
	if d.Err() != nil {
		return 0
	}
	t, err := model.ParseTime(s)
	switch {
	case err != nil:
		d.Fail("%s must be an RFC 3339 time", what)
	case t.IsZero():
		d.Fail("%s must not be the zero instant", what)
	}
	return model.NanosOf(t)
}

// value takes the value of a metric: a string that holds a number, a number, or true (1) or false (0).
func (d *decoder) value(what string) float64 {
	switch c := d.Peek(); {
	case c == '"':
		return d.decimal(what)
	case c == 't' || c == 'f':
		return d.boolean(what)
	case c == '-' || c >= '0' && c <= '9':
		v, ok := floatOf(d.Number(what))
		if !ok {
			d.Fail("%s must be a finite number", what)
		}
		return v
	}
	d.Fail("%s must be a string that holds a number, a number, or true or false", what)
	return 0
}

// boolean takes true as 1 and false as 0.
func (d *decoder) boolean(what string) float64 {
	if d.Bool(what) {
		return 1
	}
	return 0
}

// decimal takes a string that holds a finite decimal number.
func (d *decoder) decimal(what string) float64 {
	b := d.Bytes(what)
	if d.Err() != nil {
		return 0
	}
	v, why := decimalOf(b)
	if why != "" {
		d.Fail("%s %s", what, why)
	}
	return v
}

// decimalOf reads the text of a finite decimal number and returns what is wrong with it, "" when nothing is. It accepts the
// syntax of a JSON number with an optional leading plus: no hexadecimal, no underscores, no words.
func decimalOf(b []byte) (v float64, why string) {
	for _, c := range b {
		if !(c >= '0' && c <= '9' || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E') {
			return 0, "must be a string that holds a number"
		}
	}
	v, ok := floatOf(string(b))
	if !ok {
		return 0, notFinite
	}
	return v, ""
}

// floatOf reads a number; ok is false for what is beyond float64 or no number.
func floatOf(s string) (v float64, ok bool) {
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil && !math.IsInf(v, 0) && !math.IsNaN(v)
}

func (d *decoder) bounded(what string, most int) string {
	s := d.String(what)
	d.check(checkBound(what, s, most))
	return s
}

func indexOf(names []string, b []byte) int {
	for i, n := range names {
		if n == string(b) {
			return i
		}
	}
	return -1
}

// SplitArray returns the events of an array body without looking into them more than to find their ends; nil when the body
// is no array. At most max events are taken. A refusal names the broken event by its index.
func SplitArray(body []byte, most int) ([][]byte, error) {
	s := jsonscan.New(withoutPadding(body))
	if s.Peek() != '[' {
		return nil, nil
	}
	var events [][]byte
	why := ""
	s.Array(func(i int) {
		if i >= most {
			why = fmt.Sprintf("the array holds more than %d events", most)
			s.Fail("%s", why)
			return
		}
		events = append(events, s.Raw())
		if s.Err() != nil {
			why = fmt.Sprintf("event %d: %v", i, s.Err())
		}
	})
	// An error of the array itself, of an event, or none.
	err := s.End()
	switch {
	case err == nil && len(events) > 0:
		return events, nil
	case err == nil:
		why = "the array is empty"
	case why == "":
		why = fmt.Sprintf("the array: %v", err)
	}
	return nil, &DecodeError{Reason: ReasonUndecodable, Text: why}
}

// EventMembers are the members of an ingest event.
func EventMembers() []string { return eventMembers[:len(eventMembers):len(eventMembers)] }
