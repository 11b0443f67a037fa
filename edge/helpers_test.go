package edge

import (
	"bytes"
	"math"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"weir/internal/test/mqttpeer"
	"weir/model"
)

func removeAll(path string) error { return os.RemoveAll(path) }

// refusing is the port of a broker that lets nobody in.
func refusing(t *testing.T) string {
	return mqttpeer.Start(t, &mqttpeer.Broker{OnConnect: func(*packets.Connect) byte { return 0x87 }}, nil, false).Port()
}

// golden are records and their bytes: the format is frozen.
var golden = []struct {
	r     record
	bytes string
}{
	{record{kind: kindEvents, transport: "mqtt", tenant: "acme", device: "pump", wall: 0x0102030405060708, sender: 0x1112131415161718, payload: []byte("{}")},
		"\x01\x30\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18\x04acme\x04pump{}"},
	{record{kind: kindReports, transport: "http", tenant: "t", device: "d", wall: 1, doubtful: true, boot: 2, mono: 3},
		"\x01\x4b\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x01t\x01d"},
	{record{kind: kindTelemetry, transport: "lwm2m", tenant: "t", device: "d", wall: -1, payload: []byte{0}},
		"\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\x05lwm2m\x01t\x01d\x00"},
}

func TestTheFormatOfARecordIsFrozen(t *testing.T) {
	t.Parallel()
	for _, g := range golden {
		if got := appendRecord(nil, &g.r); string(got) != g.bytes {
			t.Errorf("%+v: %q, want %q", g.r, got, g.bytes)
		}
		got, err := decodeRecord([]byte(g.bytes))
		if len(got.payload) == 0 {
			got.payload = nil
		}
		if err != nil || !reflect.DeepEqual(got, g.r) {
			t.Errorf("%q: %+v, %v", g.bytes, got, err)
		}
		if head := len(g.bytes) - len(g.r.payload); head > 0 {
			for n := range head {
				if _, err := decodeRecord([]byte(g.bytes[:n])); err == nil {
					t.Errorf("%d bytes of %q decode", n, g.bytes)
				}
			}
		}
	}
	if _, err := decodeRecord([]byte("\x02")); err == nil {
		t.Error("another format decodes")
	}
}

func FuzzARecord(f *testing.F) {
	for _, g := range golden {
		f.Add([]byte(g.bytes))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		again, err := decodeRecord(appendRecord(nil, &r))
		if err != nil || again.topic("weir") != r.topic("weir") || again.wall != r.wall || !bytes.Equal(again.payload, r.payload) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}

// received is 2026-11-27T08:00:00.000001Z.
var received = model.NanosOf(time.Date(2026, 11, 27, 8, 0, 0, 1000, time.UTC))

var enriched = map[string]string{
	`{}`:                                   `{"altId":"edge:i:1:2","occurredTime":"2026-11-27T08:00:00.000001Z"}`,
	` { "a" : 1 }`:                         ` {"altId":"edge:i:1:2","occurredTime":"2026-11-27T08:00:00.000001Z", "a" : 1 }`,
	`{"altId":"x"}`:                        `{"occurredTime":"2026-11-27T08:00:00.000001Z","altId":"x"}`,
	`{"occurredTime":"y"}`:                 `{"altId":"edge:i:1:2","occurredTime":"y"}`,
	`{"altId":"x","occurredTime":"y"}`:     `{"altId":"x","occurredTime":"y"}`,
	`{"altId":null,"occurredTime":null}`:   `{"altId":null,"occurredTime":null}`,
	`[{}]`:                                 `[{}]`,
	`{"a":1} x`:                            `{"a":1} x`,
	`{"a":`:                                `{"a":`,
	``:                                     ``,
	"\x00\xff":                             "\x00\xff",
	`{"deep":{"altId":"x"},"b":[{"c":1}]}`: `{"altId":"edge:i:1:2","occurredTime":"2026-11-27T08:00:00.000001Z","deep":{"altId":"x"},"b":[{"c":1}]}`,
}

func TestWhatAMessageIsGivenOnItsWay(t *testing.T) {
	t.Parallel()
	for in, want := range enriched {
		if got := enrich([]byte(in), "i:1:2", received); string(got) != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// FuzzEnrich: what is given once is not given twice, and what is no JSON object stays as it is.
func FuzzEnrich(f *testing.F) {
	for in := range enriched {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		once := enrich(b, "i:1:2", received)
		if twice := enrich(once, "i:1:3", received); !bytes.Equal(once, twice) {
			t.Errorf("%q became %q and %q", b, once, twice)
		}
		if len(once) < len(b) {
			t.Errorf("%q became %q", b, once)
		}
	})
}

func TestAFlatBodyIsAnEvent(t *testing.T) {
	t.Parallel()
	got, ok := eventOf([]byte(`{"temp":21.5,"ts":"2026-11-27T08:00:00Z"}`))
	if want := `{"occurredTime":"2026-11-27T08:00:00Z","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"21.5"}}]}}`; !ok || string(got) != want {
		t.Errorf("%s", got)
	}
	if _, ok := eventOf([]byte(`{"temp":{}}`)); ok {
		t.Error("a body that does not decode has an event")
	}
}

// TestTheRateFollowsTheBrokerAbove: it halves once a second at most, never falls below one a second, and grows until it is gone.
func TestTheRateFollowsTheBrokerAbove(t *testing.T) {
	t.Parallel()
	p := pacer{}
	now := time.Duration(0)
	for range 1000 {
		now += time.Millisecond
		p.acknowledged(now)
	}
	p.slow(now)
	first := p.rate
	if first < 400 || first > 600 {
		t.Fatalf("1,000 a second became %v", first)
	}
	p.slow(now)
	if p.rate != first {
		t.Error("one refusal more halves it again at once")
	}
	for range 30 {
		now += time.Second
		p.slow(now)
	}
	if p.rate != slowest {
		t.Errorf("it fell to %v", p.rate)
	}
	sent := 0
	for end := now + 10*time.Second; now < end; {
		if wait := p.take(now); wait > 0 {
			now += wait
			continue
		}
		sent++
	}
	if want := 16; math.Abs(float64(sent-want)) > 4 {
		t.Errorf("%d in ten seconds from one a second on", sent)
	}
	for range 300 {
		now += time.Second
		p.take(now)
	}
	if p.rate != 0 {
		t.Errorf("it is still %v", p.rate)
	}
}

func TestURLsOfBrokersAbove(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"tcp://h:1883": true, "ssl://h:8883": true, "tls://[::1]:8883": true, "http://h:1": false, "tcp://h": false, "tcp://:1": false,
		"tcp://u:p@h:1": false, "tcp://h:1/x": false, "%": false} {
		if why := CheckURL(text); (why == "") != ok {
			t.Errorf("%s: %q", text, why)
		}
	}
}
