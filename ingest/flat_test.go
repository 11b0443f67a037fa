package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/model"
	"weir/store"
)

// bareValues are values of a metric beside the string of a number, with the same value as a string.
var bareValues = []struct{ bare, text string }{
	{"21.5", "21.5"}, {"-4e-1", "-4e-1"}, {"0", "0"}, {"-0", "-0"}, {"1400", "1400"}, {"0.1", "0.1"}, {"1E3", "1E3"}, {"true", "1"}, {"false", "0"},
	{"9007199254740993", "9007199254740993"}, {"1.7976931348623157e308", "1.7976931348623157e308"}, {"5e-324", "5e-324"}, {"1e-999", "1e-999"},
}

func TestABareValueIsTheValueOfItsString(t *testing.T) {
	t.Parallel()
	for _, c := range bareValues {
		event := func(v string) []byte {
			return []byte(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":` + v + `}}]}}`)
		}
		want, err := Decode(event(strconv.Quote(c.text)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(event(c.bare))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", c.bare, got, err, want)
		}
		flat, err := DecodeFlat([]byte(`{"t":` + c.bare + `}`))
		if err != nil || !reflect.DeepEqual(flat, want) {
			t.Errorf("%s in a flat body: got %+v, %v; want %+v", c.bare, flat, err, want)
		}
	}
}

func TestAFlatBodyIsTheEventWithItsMetrics(t *testing.T) {
	t.Parallel()
	got, err := DecodeFlat([]byte(` {"temp": 21.5, "rpm": "1400", "on": true, "ts": "2026-02-28T12:00:00Z", "é": -1} `))
	if err != nil {
		t.Fatal(err)
	}
	want, err := Decode([]byte(`{"eventType":"Measurement","occurredTime":"2026-02-28T12:00:00Z","payload":{"entries":[{"measurements":{"temp":"21.5","rpm":"1400","on":"1","é":"-1"}}]}}`))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v, %v", got, want, err)
	}
}

func TestTheTimeOfAFlatBody(t *testing.T) {
	t.Parallel()
	for ts, want := range map[string]string{
		`"2026-02-28T13:00:00.5+01:00"`: "2026-02-28T12:00:00.5Z",
		`1772280000`:                    "2026-02-28T12:00:00Z",
		`1772280000.25`:                 "2026-02-28T12:00:00.25Z",
		`1772280000123`:                 "2026-02-28T12:00:00.123Z",
		`1772280000123.456`:             "2026-02-28T12:00:00.123456Z",
		`1.772280000e9`:                 "2026-02-28T12:00:00Z",
		`"2026-02-28t12:00:00z"`:        "2026-02-28T12:00:00Z",
		`"2016-12-31T23:59:60Z"`:        "2017-01-01T00:00:00Z",
		`1000000000`:                    "2001-09-09T01:46:40Z",
		`1000000000000`:                 "2001-09-09T01:46:40Z",
	} {
		ev, err := DecodeFlat([]byte(`{"t":1,"ts":` + ts + `}`))
		if err != nil || !ev.Message.HasOccurred || ev.Message.Occurred.Time().UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%s: %v, %v; want %s", ts, ev.Message.Occurred.Time().UTC(), err, want)
		}
	}
	for _, ts := range []string{`0`, `12`, `999999999`, `10000000000`, `999999999999`, `10000000000000`, `1772280000123456`, `1772280000123456789`, `-1772280000`,
		`1e999`, `"1772280000"`, `"yesterday"`, `"0001-01-01T00:00:00Z"`, `""`, `null`, `true`, `{}`, `[1772280000]`, `"2026-02-28T12:00:00+24:00"`, `"2026-02-28T12:00:00,5Z"`} {
		_, err := DecodeFlat([]byte(`{"t":1,"ts":` + ts + `}`))
		if err == nil || err.Error() != wrongTime {
			t.Errorf("%s: %v", ts, err)
		}
	}
}

const flatExpected = ": the value of a metric must be a number, a string that holds a number, or true or false"

// What devices append or have no value for costs them nothing.
func TestPaddingAndNullsAreLeftOut(t *testing.T) {
	t.Parallel()
	for body, nulls := range map[string]int{
		"{\"t\":21.5}\x00": 0, "{\"t\":21.5}\n\x00\x00\x00\x00": 0, `{"temperature":null,"t":21.5,"humidity":null}`: 2,
	} {
		ev, err := DecodeFlat([]byte(body))
		if m := ev.Message.Measurements; err != nil || len(m) != 1 || m[0].Metric != "t" || m[0].Value != 21.5 || ev.Nulls != nulls {
			t.Errorf("%q: %v, %v", body, ev, err)
		}
	}
	event := `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"21.5"}}]}}`
	if ev, err := Decode([]byte(event + "\x00\x00")); err != nil || len(ev.Message.Measurements) != 1 {
		t.Errorf("an event: %v", err)
	}
	if all, err := SplitArray([]byte("["+event+"]\x00"), 10); err != nil || len(all) != 1 {
		t.Errorf("an array of events: %v", err)
	}
}

// hostileFlats are bodies that are not flat, each with its exact refusal.
var hostileFlats = []struct{ name, body, want string }{
	{"empty", ``, `expected an object at byte 0`},
	{"not JSON", `temp=21`, `expected an object at byte 0`},
	{"a number alone", `21.5`, `expected an object at byte 0`},
	{"array", `[{"t":1}]`, `expected an object at byte 0`},
	{"no metric", `{}`, `a flat body must hold at least one metric`},
	{"time alone", `{"ts":1772280000}`, `a flat body must hold at least one metric`},
	{"unfinished", `{"t":1`, `expected ',' or '}' at byte 6`},
	{"trailing text", `{"t":1} x`, `unexpected text after the document at byte 8`},
	{"NaN", `{"t":NaN}`, `a value must be a number at byte 5`},
	{"malformed number", `{"t":01}`, `malformed number at byte 5`},
	{"nulls alone", `{"t":null,"u":null}`, `a flat body must hold at least one metric with a value, and all are null`},
	{"a NUL byte inside", "{\"t\":1}\x00{}\x00", `unexpected text after the document at byte 7`},
	{"beyond float64", `{"t":-1e999}`, `"t" is not a finite number` + flatExpected},
	{"string beyond float64", `{"t":"1e999"}`, `"t" is a string that holds no number` + flatExpected},
	{"text", `{"t":"warm"}`, `"t" is a string that holds no number` + flatExpected},
	{"empty text", `{"t":""}`, `"t" is a string that holds no number` + flatExpected},
	{"all at once", `{"ok":1,"env":{"t":1},"tags":[1],"none":null,"note":"x","ts":7,"more":true}`,
		`"env" is an object, "tags" is an array, "note" is a string that holds no number, ` + wrongTime + flatExpected},
	{"an event", `{"eventType":"Measurement","payload":{"entries":[]}}`, `"eventType" is a string that holds no number, "payload" is an object` + flatExpected},
	{"metric twice", `{"t":1,"t":2}`, `metric "t" is given twice`},
	{"time twice", `{"t":1,"ts":1772280000,"ts":1772280000}`, `"ts" is given twice`},
	{"metric without a name", `{"":1}`, `a metric's name must have 1 to 128 characters`},
	{"metric name too long", `{"` + strings.Repeat("é", 129) + `":1}`, `a metric's name must have 1 to 128 characters`},
	{"name in a fault is shortened", `{"` + strings.Repeat("é", 128) + `":[]}`, `"` + strings.Repeat("é", 32) + `…" is an array` + flatExpected},
	{"more faults than are listed", `{"a":[],"b":[],"c":[],"d":[],"e":[],"f":[],"g":[],"h":[],"i":[],"j":[]}`,
		`"a" is an array, "b" is an array, "c" is an array, "d" is an array, "e" is an array, "f" is an array, "g" is an array, "h" is an array and 2 more` + flatExpected},
	{"broken UTF-8", "{\"\xff\":1}", `string is not valid UTF-8 at byte 2`},
	{"too deep", `{"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, `nesting deeper than 64 at byte 70`},
}

func TestHostileFlatBodiesAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range hostileFlats {
		_, err := DecodeFlat([]byte(c.body))
		de, ok := errors.AsType[*DecodeError](err)
		if !ok || de.Text != c.want || de.Reason != ReasonUndecodable {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestAFlatBodyHasTheReadingsOfAMessageAtMost(t *testing.T) {
	t.Parallel()
	body := func(n int) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"m%d":%d`, i, i)
		}
		return []byte("{" + b.String()[1:] + "}")
	}
	if ev, err := DecodeFlat(body(model.MaxReadings)); err != nil || ev.Message.Readings() != model.MaxReadings {
		t.Errorf("%d: %v", model.MaxReadings, err)
	}
	_, err := DecodeFlat(body(model.MaxReadings + 1))
	if de, ok := errors.AsType[*DecodeError](err); !ok || de.Reason != ReasonTooManyReadings {
		t.Errorf("one more: %v", err)
	}
}

// flat is a flat body of a connected device.
func (w *world) flat(device int, body string) *Arrival {
	a := w.arrival(device, body)
	a.Flat = true
	return a
}

// TestAFlatBodyIsStoredWholeOrNotAtAll: through the intake, the log and the applier; what is refused is shown with its reason.
func TestAFlatBodyIsStoredWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	w.apply()
	watcher := w.watch(Watch{})
	const wrong = `{"temp":21.5,"wifi":{"rssi":-60},"note":null}`
	if an := w.send(w.flat(1, `{"temp":21.5,"n":3}`)); an.Outcome != Stored {
		t.Fatalf("%+v", an)
	}
	want := `"wifi" is an object` + flatExpected
	if an := w.send(w.flat(1, wrong)); an.Outcome != Refused || an.Reason != ReasonUndecodable || an.Text != want {
		t.Errorf("%+v", an)
	}
	mute := w.flat(1, wrong)
	mute.CannotRefuse = true
	if an := w.send(mute); an.Outcome != Stored {
		t.Errorf("%+v", an)
	}
	w.apply()
	var got []string
	seen, _ := w.seen(watcher)
	for _, s := range seen {
		got = append(got, strings.TrimSpace(fateOf(s)+" "+s.Why))
	}
	slices.Sort(got)
	if wants := []string{"mqtt acme/d1 dead letter undecodable  [] " + want, "mqtt acme/d1 refused undecodable  [] " + want,
		"mqtt acme/d1 stored  Measurement [temp=21.5 n=3]"}; !slices.Equal(got, wants) {
		t.Errorf("saw\n%s", strings.Join(got, "\n"))
	}
	if o := w.ledger(); o[store.OutcomeStored] != 1 || o[store.OutcomeRefused] != 1 || o[store.OutcomeDeadLetter] != 1 {
		t.Errorf("the ledger: %v", o)
	}
}

// TestACredentialBesideTheBody: it counts like one in an event, and what is wrong with it refuses the message.
func TestACredentialBesideTheBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		device string
		with   Credential
		fault  string
		want   Answer
		reason Reason // of the dead letter
	}{
		{"right", "d1", Credential{Type: "ACCESS_TOKEN", ID: "token-1"}, "", Answer{}, ""},
		{"wrong", "d1", Credential{Type: "ACCESS_TOKEN", ID: "guessed"}, "", Answer{}, ReasonBadCredential},
		{"of another device", "d2", Credential{Type: "ACCESS_TOKEN", ID: "token-1"}, "", Answer{}, ReasonBadCredential},
		{"none", "d1", Credential{}, "", Answer{}, ReasonBadCredential},
		{"a header that is none", "d1", Credential{}, "no such scheme", Answer{Outcome: Refused, Reason: ReasonUndecodable, Text: "no such scheme"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.furnish(2)
			an := w.send(&Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "acme", Topic: c.device, Body: []byte(`{"temp":1}`), Flat: true,
				Credential: c.with, Fault: c.fault})
			if an.Outcome != c.want.Outcome || an.Reason != c.want.Reason || an.Text != c.want.Text {
				t.Errorf("%+v", an)
			}
			w.apply()
			w.ledger()
			dead := w.deadLetters()
			if c.reason == "" && len(dead) != 0 || c.reason != "" && (len(dead) != 1 || dead[0].Reason != string(c.reason)) {
				t.Errorf("dead letters: %+v", dead)
			}
		})
	}
}

// FuzzFlat holds the decoder against encoding/json: it takes exactly the objects whose members are values of metrics.
func FuzzFlat(f *testing.F) {
	for _, c := range hostileFlats {
		f.Add([]byte(c.body))
	}
	for _, c := range bareValues {
		f.Add([]byte(`{"t":` + c.bare + `,"ts":1772280000.5}`))
	}
	f.Add([]byte(`{"t":"+1.5e3","\u00e9":false,"ts":"2026-02-28T12:00:00Z"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ev, err := DecodeFlat(body)
		if err != nil {
			de, ok := errors.AsType[*DecodeError](err)
			if !ok || strings.ContainsAny(de.Text, "\r\n") || len(de.Text) > 4096 {
				t.Errorf("the refusal is %q", err)
			}
			return
		}
		var members map[string]any
		if json.Unmarshal(body, &members) != nil {
			t.Fatal("encoding/json refuses it")
		}
		_, timed := members[flatTime]
		delete(members, flatTime)
		if len(members) != len(ev.Message.Measurements) || timed != ev.Message.HasOccurred || ev.Message.Readings() > model.MaxReadings {
			t.Fatalf("%d readings of %d members", len(ev.Message.Measurements), len(members))
		}
		for _, r := range ev.Message.Measurements {
			if want, ok := jsonValue(members[r.Metric]); !ok || want != r.Value && !math.IsNaN(want) {
				t.Errorf("%s is %v, encoding/json reads %v", r.Metric, r.Value, members[r.Metric])
			}
		}
		if why := checkMessage(&ev.Message); why != nil {
			t.Errorf("taken, and refused as a message: %v", why)
		}
		if _, err := model.DecodeRecord(model.AppendRecord(nil, &model.Record{Kind: model.KindMessage, Message: &ev.Message})); err != nil {
			t.Errorf("what was decoded does not fit a record: %v", err)
		}
	})
}

// jsonValue is the value of a metric as encoding/json reads it.
func jsonValue(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case string:
		f, err := strconv.ParseFloat(v, 64)
		return f, err == nil
	}
	return 0, false
}
