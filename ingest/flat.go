package ingest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"weir/internal/jsonscan"
	"weir/model"
)

// DecodeFlat reads a flat body: one JSON object whose members are metrics with their values, and optionally ts, the time of
// all of them. It is the same message as an event with one entry. A body that is well-formed JSON is refused with all that is
// wrong in it, by name. Members that are null are left out and counted.
func DecodeFlat(body []byte) (Decoded, error) { return decodeFlatInto(nil, body) }

// decodeFlatInto is DecodeFlat with memory for readings, which is used as far as it goes.
func decodeFlatInto(room []model.Reading, body []byte) (ev Decoded, err error) {
	d := flatDecoder{decoder: decoder{Scanner: jsonscan.New(withoutPadding(body)), room: room}}
	d.body(&ev.Message)
	ev.Nulls = d.nulls
	if err := d.End(); err != nil {
		return Decoded{}, &DecodeError{Reason: d.reason(), Text: err.Error()}
	}
	if why := d.wrong(); why != "" {
		return Decoded{}, &DecodeError{Reason: ReasonUndecodable, Text: why}
	}
	return ev, nil
}

// flatTime is the member of a flat body that is no metric.
const flatTime = "ts"

// flatDecoder collects what is wrong with the members instead of failing at the first.
type flatDecoder struct {
	decoder
	faults   []string // the first maxFaults
	surplus  int      // faults beyond them
	badValue bool     // a metric has a value of another kind
	metrics  int
	nulls    int // members without a value
}

// Bounds of the text that reports the faults of a flat body.
const (
	maxFaults    = 8
	maxFaultName = 32 // characters of a member's name
)

func (d *flatDecoder) body(m *model.Message) {
	m.Type, m.Measurements = model.MeasurementEvent, d.room
	d.Object(func(name []byte) {
		if string(name) == flatTime {
			d.timestamp(m)
			return
		}
		if d.Null() { // a sensor that has no value yet: Zigbee2MQTT and Tasmota write that so
			d.nulls++
			return
		}
		d.metrics++
		d.count()
		// Go on after a fault, so that the sender learns of all of them at once.
		if why := checkMetric(m.Measurements, string(name)); why != "" {
			d.Skip()
			d.fault(why)
			return
		}
		v, why := d.flatValue()
		if why != "" {
			d.badValue = true
			d.fault(quoted(name) + " is " + why)
			return
		}
		m.Measurements = append(m.Measurements, model.Reading{Metric: string(name), Value: v})
	})
}

func (d *flatDecoder) fault(text string) {
	if len(d.faults) == maxFaults {
		d.surplus++
		return
	}
	d.faults = append(d.faults, text)
}

// quoted is the name of a member as a fault shows it.
func quoted(name []byte) string {
	s := []rune(string(name))
	if len(s) > maxFaultName {
		s = append(s[:maxFaultName], '…')
	}
	return strconv.Quote(string(s))
}

// wrong is the text of all faults, "" when there are none.
func (d *flatDecoder) wrong() string {
	if len(d.faults) == 0 && d.metrics == 0 {
		if d.nulls > 0 {
			return "a flat body must hold at least one metric with a value, and all are null"
		}
		return "a flat body must hold at least one metric"
	}
	text := strings.Join(d.faults, ", ")
	if d.surplus > 0 {
		text = fmt.Sprintf("%s and %d more", text, d.surplus)
	}
	if d.badValue {
		text += ": the value of a metric must be a number, a string that holds a number, or true or false"
	}
	return text
}

// flatValue takes a value. why says what it is when it is no value of a metric.
func (d *flatDecoder) flatValue() (v float64, why string) {
	switch d.Peek() {
	case '{':
		why = "an object"
	case '[':
		why = "an array"
	case 't', 'f':
		return d.boolean(flatWhat), ""
	case '"':
		if v, why = decimalOf(d.Bytes(flatWhat)); why != "" {
			return 0, "a string that holds no number"
		}
		return v, ""
	default:
		if v, ok := floatOf(d.Number(flatWhat)); ok {
			return v, ""
		}
		return 0, "not a finite number"
	}
	d.Skip()
	return 0, why
}

const flatWhat = "a value"

// Bounds of ts as a number: seconds and milliseconds since 1970 that lie between 2001 and 2286. A value outside both is no time
// that a device means: the uptime, micro- or nanoseconds, or an epoch other than 1970.
const (
	minEpochSeconds = 1e9
	maxEpochSeconds = 1e10
)

const wrongTime = `"ts" must be an RFC 3339 time, or seconds or milliseconds since 1970 (10 or 13 digits)`

// timestamp takes ts.
func (d *flatDecoder) timestamp(m *model.Message) {
	if m.HasOccurred {
		d.fault(`"ts" is given twice`)
	}
	var at time.Time
	switch c := d.Peek(); {
	case c == '"':
		t, err := model.ParseTime(d.String(flatTime))
		if err == nil {
			at = t
		}
	case c == '-' || c >= '0' && c <= '9':
		at = epochTime(d.Number(flatTime))
	default:
		d.Skip()
	}
	// Text, number or neither: one fault names what is allowed.
	if at.IsZero() && d.Err() == nil {
		d.fault(wrongTime)
	}
	m.Occurred, m.HasOccurred = model.NanosOf(at), true
}

// epochTime returns the time of a number of seconds or milliseconds since 1970, the zero time when it is out of bounds. It may have
// a fraction, which is kept to the microsecond.
func epochTime(number string) time.Time {
	v, err := strconv.ParseFloat(number, 64)
	if ms := v / 1e3; err == nil && ms >= minEpochSeconds && ms < maxEpochSeconds {
		return time.UnixMicro(int64(math.Round(v * 1e3)))
	}
	if err != nil || v < minEpochSeconds || v >= maxEpochSeconds {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.Round(v * 1e6)))
}
