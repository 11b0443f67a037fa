package ingest

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"weir/model"
)

// hostileBodies are bodies that no transport takes, each with its exact refusal. Both transports use the one decoder, so this table
// is the table of both; it seeds the fuzz target too.
var hostileBodies = []struct{ name, body, want string }{
	{"empty", ``, `expected an object at byte 0`},
	{"not JSON", `temp=21`, `expected an object at byte 0`},
	{"array", `[]`, `expected an object at byte 0`},
	{"trailing text", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1"}}]}} x`, `unexpected text after the document at byte 79`},
	{"unfinished", `{"eventType":"Measurement"`, `expected ',' or '}' at byte 26`},
	{"no event type", `{"payload":{}}`, `eventType is required at byte 14`},
	{"event type in other case", `{"eventType":"measurement","payload":{}}`, `eventType must be Measurement, Location, Alert or NewRelationship at byte 40`},
	{"event type of the platform", `{"eventType":"StateChange","payload":{}}`, `eventType StateChange is the platform's own at byte 40`},
	{"event type twice", `{"eventType":"Alert","eventType":"Alert"}`, `member "eventType" is given twice at byte 33`},
	{"no payload", `{"eventType":"Alert"}`, `payload is required at byte 21`},
	{"payload no object", `{"eventType":"Alert","payload":[]}`, `payload must be an object at byte 31`},
	{"no entries", `{"eventType":"Measurement","payload":{}}`, `payload: entries must hold at least one entry at byte 39`},
	{"empty entries", `{"eventType":"Measurement","payload":{"entries":[]}}`, `payload: entries must hold at least one entry at byte 51`},
	{"no metric", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{}}]}}`, `payload: an entry must hold at least one measurement at byte 68`},
	{"array for a value", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":[21.5]}}]}}`, `payload: the value of a metric must be a string that holds a number, a number, or true or false at byte 70`},
	{"object for a value", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":{}}}]}}`, `payload: the value of a metric must be a string that holds a number, a number, or true or false at byte 70`},
	{"null for a value", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":null}}]}}`, `payload: the value of a metric must be a string that holds a number, a number, or true or false at byte 70`},
	{"bare number beyond float64", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":1e999}}]}}`, `payload: the value of a metric must be a finite number at byte 75`},
	{"bare number in a location", `{"eventType":"Location","payload":{"entries":[{"latitude":1,"longitude":"0"}]}}`, `payload: latitude must be a string at byte 58`},
	{"no number", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"warm"}}]}}`, `payload: the value of a metric must be a string that holds a number at byte 76`},
	{"not a number", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"NaN"}}]}}`, `payload: the value of a metric must be a string that holds a number at byte 75`},
	{"hexadecimal", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"0x10"}}]}}`, `payload: the value of a metric must be a string that holds a number at byte 76`},
	{"beyond float64", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1e999"}}]}}`, `payload: the value of a metric must be a string that holds a finite number at byte 77`},
	{"metric twice", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1","t":"2"}}]}}`, `payload: metric "t" is given twice at byte 78`},
	{"metric without a name", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"":"1"}}]}}`, `payload: a metric's name must have 1 to 128 characters at byte 69`},
	{"latitude", `{"eventType":"Location","payload":{"entries":[{"latitude":"90.1","longitude":"0"}]}}`, `payload: latitude must lie in -90..90 at byte 81`},
	{"longitude missing", `{"eventType":"Location","payload":{"entries":[{"latitude":"1"}]}}`, `payload: latitude and longitude are required at byte 62`},
	{"heading that rounds to 360", `{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"1","heading":"359.99996"}]}}`, `payload: heading must lie in 0..360, 360 excluded at byte 100`},
	{"speed", `{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"1","speed":"-1"}]}}`, `payload: speed must not be negative at byte 91`},
	{"alert without type", `{"eventType":"Alert","payload":{"entries":[{"level":1}]}}`, `payload: type is required and must not be empty at byte 54`},
	{"alert level", `{"eventType":"Alert","payload":{"entries":[{"type":"a","level":2147483648}]}}`, `payload: level must be a whole number in 0..2147483647 at byte 73`},
	{"alert level with a fraction", `{"eventType":"Alert","payload":{"entries":[{"type":"a","level":1.0}]}}`, `payload: level must be a whole number in 0..2147483647 at byte 66`},
	{"relationship incomplete", `{"eventType":"NewRelationship","payload":{"relationshipType":"in"}}`, `payload: relationshipType, targetType and target are required at byte 66`},
	{"relationship target", `{"eventType":"NewRelationship","payload":{"relationshipType":"in","targetType":"moon","target":"m"}}`, `payload: targetType must be device, asset, area, customer or group at byte 99`},
	{"device no token", `{"device":"a/b","eventType":"Alert"}`, `device is not a device token at byte 15`},
	{"time", `{"occurredTime":"yesterday","eventType":"Alert"}`, `occurredTime must be an RFC 3339 time at byte 27`},
	{"zero instant", `{"occurredTime":"0001-01-01T00:00:00Z","eventType":"Alert"}`, `occurredTime must not be the zero instant at byte 38`},
	{"altId too long", `{"altId":"` + strings.Repeat("x", 129) + `"}`, `altId must have at most 128 characters at byte 140`},
	{"broken UTF-8", "{\"altId\":\"\xff\"}", `string is not valid UTF-8 at byte 10`},
	{"lone surrogate", `{"altId":"\ud800"}`, `malformed escape in a string at byte 10`},
	{"too deep", `{"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, `nesting deeper than 64 at byte 70`},
}

func TestHostileBodiesAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range hostileBodies {
		_, err := Decode([]byte(c.body))
		de, ok := errors.AsType[*DecodeError](err)
		if !ok || de.Text != c.want || de.Reason != ReasonUndecodable {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestMoreReadingsThanAMessageMayCarry(t *testing.T) {
	t.Parallel()
	body := func(n int) []byte {
		return []byte(`{"device":"d","eventType":"Measurement","payload":{"entries":[` + strings.TrimSuffix(strings.Repeat(`{"measurements":{"a":"1"}},`, n), ",") + `]}}`)
	}
	if ev, err := Decode(body(model.MaxReadings)); err != nil || ev.Message.Readings() != model.MaxReadings {
		t.Errorf("%d readings: %v", model.MaxReadings, err)
	}
	_, err := Decode(body(model.MaxReadings + 1))
	if de, ok := errors.AsType[*DecodeError](err); !ok || de.Reason != ReasonTooManyReadings {
		t.Errorf("one more: %v", err)
	}
}

func TestEveryMemberOfAnEventArrives(t *testing.T) {
	t.Parallel()
	ev, err := Decode([]byte(`{"device":"d1","eventType":"Measurement","occurredTime":"2026-01-02T03:04:05.123456789Z","altId":"é1",
		"credentialType":"ACCESS_TOKEN","credentialId":"tok","credentialSecret":null,"relationship":{"a":[1]},"unknown":[{"x":1}],
		"payload":{"entries":[{"measurements":{"temp":"21.5","hum":"-4e-1"}},{"occurredTime":"2026-01-02T03:04:06+01:00","measurements":{"temp":"+22"}}],"more":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	m := ev.Message
	if ev.Device != "d1" || m.AltID != "é1" || ev.Credential != (Credential{Type: "ACCESS_TOKEN", ID: "tok"}) || !m.HasOccurred ||
		m.Occurred != 1767323045123456000 {
		t.Errorf("got %+v", ev)
	}
	want := []model.Reading{{Metric: "temp", Value: 21.5}, {Metric: "hum", Value: -0.4},
		{Entry: 1, Metric: "temp", Value: 22, Time: model.EntryTime{At: 1767319446000000000, Has: true}}}
	for i, r := range want {
		if m.Measurements[i] != r {
			t.Errorf("reading %d: got %+v, want %+v", i, m.Measurements[i], r)
		}
	}
}

func TestTimesBeyondTheRangeOfNanosecondsStandAtItsEnd(t *testing.T) {
	t.Parallel()
	ev, err := Decode([]byte(`{"occurredTime":"9999-12-31T23:59:59Z","eventType":"Alert","payload":{"entries":[{"type":"a","occurredTime":"1000-01-01T00:00:00Z"}]}}`))
	if err != nil || ev.Message.Occurred != math.MaxInt64 || ev.Message.Alerts[0].Time.At != math.MinInt64 {
		t.Errorf("got %+v, %v", ev, err)
	}
}

func TestAnArrayIsSplitWithinItsBound(t *testing.T) {
	t.Parallel()
	evs, err := SplitArray([]byte(` [{"a":[1]}, {"b":2}]`), 2)
	if err != nil || len(evs) != 2 || string(evs[1]) != `{"b":2}` {
		t.Errorf("got %q, %v", evs, err)
	}
	for body, want := range map[string]string{`[1,2,3]`: "the array holds more than 2 events", `[]`: "the array is empty", `[1`: "the array: expected ',' or ']' at byte 2",
		`[1, x]`: "event 1: expected a value at byte 4", `[1] 2`: "the array: unexpected text after the document at byte 4"} {
		if _, err := SplitArray([]byte(body), 2); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
	if evs, err := SplitArray([]byte(`{}`), 2); evs != nil || err != nil {
		t.Errorf("an object was taken for an array")
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range hostileBodies {
		f.Add([]byte(c.body))
	}
	f.Add([]byte(`{"device":"d","eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1.5"},"occurredTime":"2026-01-02T03:04:05Z"}]}}`))
	f.Add([]byte(`{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"2","heading":null}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ev, err := Decode(body)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("the refusal takes more than one line: %q", err)
			}
			return
		}
		n := ev.Message.Readings()
		if n > model.MaxReadings || n == 0 && ev.Message.Relationship == nil {
			t.Errorf("%d readings were taken", n)
		}
		r := &model.Record{Kind: model.KindMessage, Message: &ev.Message}
		if _, err := model.DecodeRecord(model.AppendRecord(nil, r)); err != nil {
			t.Errorf("what was decoded does not fit a record: %v", err)
		}
	})
}

// FuzzSplitArray: what is split is what was sent, element by element, and never more than allowed.
func FuzzSplitArray(f *testing.F) {
	for _, s := range []string{"[]", "[{}]", " [1,2 , 3]\n", `[{"a":}]`, "[{}] x", "[[[[", "[null,null,null,null,null]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		events, err := SplitArray(body, 4)
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") || len(events) > 4 {
			t.Fatalf("%d events, %q", len(events), err)
		}
		var want []json.RawMessage
		if events != nil && json.Unmarshal(body, &want) == nil && !slices.EqualFunc(events, want, func(a []byte, b json.RawMessage) bool { return string(a) == string(b) }) {
			t.Fatalf("got %q, want %q", events, want)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"device":"d1","eventType":"Measurement","occurredTime":"2026-01-02T03:04:05.123Z","payload":{"entries":[{"measurements":{"temp":"21.57"}}]}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(body); err != nil {
			b.Fatal(err)
		}
	}
}
