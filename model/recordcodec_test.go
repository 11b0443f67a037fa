package model

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"
)

// goldenRecords are records of every kind; the fuzz target starts from them.
func goldenRecords() []*Record {
	stamp := Stamp{Boot: 0xfeed, Mono: 12345, Wall: 1790000000123456789}
	base := Record{Transport: "mqtt", Source: "mqtt1", Tenant: "acme", Account: "acme", Device: "d1", Received: stamp, Credential: 7, DeviceID: 9,
		ClientID: "weir:acme:d1", PacketID: 77, Dup: true, Hash: [16]byte{1, 2, 3}, Bytes: 120}
	with := func(kind RecordKind, f func(*Record)) *Record {
		r := base
		r.Kind = kind
		f(&r)
		return &r
	}
	return []*Record{
		with(KindMessage, func(r *Record) {
			r.Message = &Message{Type: MeasurementEvent, AltID: "a-1", Occurred: 5, HasOccurred: true, Measurements: []Reading{
				{Entry: 0, Metric: "temp", Value: 21.5}, {Entry: 1, Metric: "hum", Value: math.Copysign(0, -1), Time: EntryTime{At: -7, Has: true}}}}
		}),
		with(KindMessage, func(r *Record) {
			r.Account, r.Dup, r.Hash, r.ClientID, r.PacketID, r.Credential, r.DeviceID = "", false, [16]byte{}, "", 0, 0, 0
			r.Verdict = VerdictBad
			r.Message = &Message{Type: LocationEvent, Locations: []Location{{Latitude: 1, Longitude: -2, Elevation: 3, Accuracy: 4, Speed: 5, Heading: 6}}}
		}),
		with(KindMessage, func(r *Record) {
			r.Message = &Message{Type: AlertEvent, Alerts: []Alert{{Type: "door", Level: math.MaxInt32, Message: "open", Source: "s"}}}
		}),
		with(KindMessage, func(r *Record) {
			r.Message = &Message{Type: NewRelationship, Relationship: &Relationship{Type: "in", TargetType: "area", Target: "a"}}
		}),
		with(KindRaw, func(r *Record) { r.Raw, r.Why = []byte{9, 9}, "no JSON" }),
		with(KindPresence, func(r *Record) {
			r.Presence = &Presence{State: Connected, Reason: "connect", Session: math.MaxUint64, Expected: 3, Occurred: 4}
		}),
		with(KindDeviceReport, func(r *Record) {
			r.Report = &Report{Attributes: []Reported{{"fw", ReportedString, "1"}, {"gone", ReportedNull, ""}, {"cfg", ReportedJSON, "{}"}}}
		}),
		with(KindCommandResponse, func(r *Record) {
			r.Response = &Response{Command: "c-1", Nonce: "n1", Success: true, Payload: `{"v":1}`}
		}),
		with(KindCommandResponse, func(r *Record) { r.Response = &Response{Command: "c-1", Error: "jammed"} }),
		with(KindControl, func(r *Record) { r.Control = &Control{Sequence: 5, Part: 1, Parts: 2, Body: []byte("body")} }),
		with(KindClock, func(*Record) {}),
		with(KindClock, func(r *Record) { r.Received.Clock = ClockUnset }),
		with(KindClock, func(r *Record) { r.Received.Clock, r.Received.Shown = ClockBehind, -5 }),
		with(KindTimeMap, func(r *Record) { r.TimeMap = &TimeMap{Boot: 0xfeed, Mono: 3, Wall: 1790000000123456789} }),
		with(KindTimeMap, func(r *Record) { r.TimeMap = &TimeMap{Boot: 1, Guessed: true} }),
		with(KindMessage, func(r *Record) { r.Partial, r.Message = true, oneReading() }),
		with(KindMessage, func(r *Record) { r.PacketID, r.PacketZero, r.Message = 0, true, oneReading() }),
		with(KindMessage, func(r *Record) {
			r.Relay, r.Message, r.Received.Clock = &Relay{Link: "edge1", Number: math.MaxUint64}, oneReading(), ClockUnset
		}),
		with(KindPresence, func(r *Record) {
			r.Relay, r.Partial, r.Presence = &Relay{}, true, &Presence{State: Disconnected}
		}),
	}
}

func oneReading() *Message {
	return &Message{Type: MeasurementEvent, Measurements: []Reading{{Metric: "temp", Value: 21.5}}}
}

func TestARecordReadsBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, r := range goldenRecords() {
		got, err := DecodeRecord(AppendRecord(nil, r))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("kind %d: got %+v, %v; want %+v", r.Kind, got, err, r)
		}
	}
}

// TestADecoderUsedAgainLeavesNothingBehind: room that a record of another kind was in before gives the same record.
func TestADecoderUsedAgainLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	golden := goldenRecords()
	var d RecordDecoder
	for round := range len(golden) {
		d.Expect(len(golden) - 1) // the last finds none
		for i := range golden {
			want := golden[(i+round)%len(golden)]
			got, err := d.Decode(AppendRecord(nil, want))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("round %d, kind %d: got %+v, %v; want %+v", round, want.Kind, got, err, want)
			}
		}
	}
}

func TestARecordIsPeekedAtWithoutBeingDecoded(t *testing.T) {
	t.Parallel()
	for _, r := range goldenRecords() {
		kind, boot, unset := PeekRecord(AppendRecord(nil, r))
		if kind != r.Kind || boot != r.Received.Boot || unset != (r.Received.Clock == ClockUnset) {
			t.Errorf("kind %d: peeked %d, %x, %v", r.Kind, kind, boot, unset)
		}
	}
	if kind, _, _ := PeekRecord([]byte{recordVersion, 1}); kind != 0 {
		t.Errorf("peeked kind %d at a stump", kind)
	}
}

func TestTheRecordFormatIsFrozen(t *testing.T) {
	t.Parallel()
	want := "\x01\x01\x1f\xed\xfe\x00\x00\x00\x00\x00\x00\xf2\xc0\x01\xaa\xb4"
	if got := AppendRecord(nil, goldenRecords()[0]); !bytes.HasPrefix(got, []byte(want)) {
		t.Errorf("the first bytes are %q, want %q", got[:len(want)], want)
	}
}

// TestBothRecordFormatsAreFrozen holds whole records of both formats: a reader of either finds every field where it is today.
func TestBothRecordFormatsAreFrozen(t *testing.T) {
	t.Parallel()
	narrow := Record{Kind: KindMessage, Transport: "mqtt", Source: "mqtt1", Tenant: "acme", Account: "acme", Device: "d1",
		Received: Stamp{Boot: 1, Mono: 2, Wall: 3}, ClientID: "c", PacketID: 7, Bytes: 9, Message: oneReading()}
	wide := narrow
	wide.PacketID, wide.PacketZero, wide.Partial, wide.Relay = 0, true, true, &Relay{Link: "e", Number: 300}
	answer := narrow
	answer.Kind, answer.Message, answer.Response = KindCommandResponse, nil, &Response{Command: "c-1", Nonce: "n1", Success: true, Payload: "21"}
	head := "\x01\x00\x00\x00\x00\x00\x00\x00\x04\x06\x04mqtt\x05mqtt1\x04acme\x02d1\x00\x09\x01c"
	body := "\x02\x00\x01\x00\x00\x04temp\x00\x00\x00\x00\x00\x805@"
	for _, c := range []struct {
		name string
		rec  *Record
		want string
	}{
		{"format 1", &narrow, "\x01\x01\x14" + head + "\x07\x00" + body},
		{"a command response", &answer, "\x01\x08\x14" + head + "\x07\x00" + "\x01\x03c-1\x02n1\x0221\x00"},
		{"format 2", &wide, "\x02\x01\x14\x07" + head + "\x00\x00" + "\x01e\xac\x02" + body},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := AppendRecord(nil, c.rec); string(got) != c.want {
				t.Errorf("written as\n%q, want\n%q", got, c.want)
			}
			if got, err := DecodeRecord([]byte(c.want)); err != nil || !reflect.DeepEqual(got, c.rec) {
				t.Errorf("read as %+v, %v; want %+v", got, err, c.rec)
			}
		})
	}
}

// TestFormat1HasNoFlagsOfFormat2: a byte of flags with its top bit set was never written, and a flag that no Weir knows is damage.
func TestFormat1HasNoFlagsOfFormat2(t *testing.T) {
	t.Parallel()
	for _, b := range [][]byte{AppendRecord(nil, goldenRecords()[0]), AppendRecord(nil, goldenRecords()[len(goldenRecords())-1])} {
		b[1+int(b[0])] |= 0x80
		if _, err := DecodeRecord(b); !errors.Is(err, ErrRecord) {
			t.Errorf("format %d: got %v", b[0], err)
		}
	}
}

func TestANewerRecordIsRefusedAsSuch(t *testing.T) {
	t.Parallel()
	b := AppendRecord(nil, goldenRecords()[0])
	b[0] = recordVersion + 1
	if _, err := DecodeRecord(b); !errors.Is(err, ErrRecordVersion) {
		t.Errorf("got %v", err)
	}
}

func TestATruncatedRecordIsAnError(t *testing.T) {
	t.Parallel()
	for _, r := range goldenRecords() {
		b := AppendRecord(nil, r)
		for n := range len(b) {
			if _, err := DecodeRecord(b[:n]); err == nil {
				t.Fatalf("kind %d: %d of %d bytes were taken", r.Kind, n, len(b))
			}
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range goldenRecords() {
		f.Add(AppendRecord(nil, r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			return
		}
		again := AppendRecord(nil, r)
		back, err := DecodeRecord(again)
		if err != nil || !bytes.Equal(AppendRecord(nil, back), again) {
			t.Errorf("%q reads as %+v, which does not read back: %v", b, r, err)
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	long := string(bytes.Repeat([]byte("A"), MaxToken))
	for s, want := range map[string]bool{"a": true, "9-_z": true, "Boiler7": true, long: true, long + "A": false,
		"": false, "-a": false, "_a": false, "a.b": false, "a*": false, "a>": false, "a+": false, "a#": false, "a/b": false, "a:b": false, "a b": false, "é": false} {
		if ValidToken(s) != want {
			t.Errorf("%.20q: valid %v, want %v", s, !want, want)
		}
	}
}

func TestThePlaneOfATokenDecidesBeforeItsAuthorities(t *testing.T) {
	t.Parallel()
	all := map[Authority]bool{AllAuthorities: true}
	access := &Principal{Kind: AccessCaller, System: all, Tenants: all}
	identity := &Principal{Kind: IdentityCaller, System: all, Tenants: all}
	for a, tier := range authorityTiers {
		if got, want := access.Has(a), tier&TierTenant != 0 && a != StateDemote; got != want {
			t.Errorf("an access token with * has %s: %v", a, got)
		}
		if got, want := identity.Has(a), tier&TierSystem != 0; got != want {
			t.Errorf("an identity token with * has %s: %v", a, got)
		}
	}
	if access.Has("no:such") || (&Principal{}).Has(DeviceRead) || (*Principal)(nil).Has(DeviceRead) {
		t.Error("an unknown authority, an anonymous caller or nobody passed")
	}
}
