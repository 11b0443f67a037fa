package edgewire

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

func frameOf(t testing.TB, ms ...FrameMessage) []byte {
	t.Helper()
	w := &FrameWriter{}
	if err := w.Begin(7, install, 3); err != nil {
		t.Fatal(err)
	}
	for i := range ms {
		if !w.Add(&ms[i]) {
			t.Fatalf("message %d has no room", i)
		}
	}
	b, err := w.Frame()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func deflated(t testing.TB, raw []byte) []byte {
	t.Helper()
	out := bytes.NewBuffer([]byte{frameFormat})
	z, err := flate.NewWriter(out, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

var framed = []FrameMessage{{Number: 1, Kind: FrameEvents, Device: "pump", Payload: []byte(`{"a":1}`)}, {Number: 1 << 40, Kind: FrameReports, Device: "fan-1", Payload: []byte{}},
	{Number: 5, Kind: FrameResponses, Device: "pump", Payload: []byte("\x00\xff")}}

func TestAFrameIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	f, err := ParseFrame(frameOf(t, framed...))
	if err != nil || f.ID != 7 || f.Link() != "edge:"+install+":3" || !reflect.DeepEqual(f.Messages, framed) {
		t.Errorf("%+v, %v", f, err)
	}
	w := &FrameWriter{}
	if err := w.Begin(1, install, 1); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; w.Add(&FrameMessage{Number: uint64(n + 1), Device: "d", Payload: make([]byte, 300)}); n++ {
	}
	b, err := w.Frame()
	if err != nil {
		t.Fatal(err)
	}
	if f, err := ParseFrame(b); err != nil || len(f.Messages) != n || n < 500 {
		t.Errorf("%d of %d messages, %v", len(f.Messages), n, err)
	}
	if err := w.Begin(1, "x", 1); !errors.Is(err, ErrDocument) {
		t.Error(err)
	}
}

// TestHostileFrames are refused whole, and inflate to no more than a frame may hold.
func TestHostileFrames(t *testing.T) {
	t.Parallel()
	head := append([]byte{1}, bytes.Repeat([]byte{0xab}, 16)...)
	message := "\x01\x00\x01d\x00"
	many := append(append([]byte{}, head...), 1)
	for range MaxFrameMessages + 1 {
		many = append(many, message...)
	}
	for name, b := range map[string][]byte{
		"empty":          nil,
		"format":         {2, 0},
		"no deflate":     {frameFormat, 0xff, 0xff},
		"torn":           frameOf(t, framed...)[:20],
		"bomb":           deflated(t, make([]byte, 64<<20)),
		"no messages":    deflated(t, append(append([]byte{}, head...), 1)),
		"epoch 0":        deflated(t, append(append(append([]byte{}, head...), 0), message...)),
		"epoch too high": deflated(t, append(append(append([]byte{}, head...), 0xff, 0xff, 0xff, 0xff, 0x7f), message...)),
		"number 0":       deflated(t, append(append(append([]byte{}, head...), 1), "\x00\x00\x01d\x00"...)),
		"kind":           deflated(t, append(append(append([]byte{}, head...), 1), "\x01\x04\x01d\x00"...)),
		"device":         deflated(t, append(append(append([]byte{}, head...), 1), "\x01\x00\x01/\x00"...)),
		"payload":        deflated(t, append(append(append([]byte{}, head...), 1), "\x01\x00\x01d\x05x"...)),
		"the second":     deflated(t, append(append(append([]byte{}, head...), 1), message+"\x01\x00"...)),
		"too many":       deflated(t, many),
	} {
		if f, err := ParseFrame(b); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

func TestWhatIsSaidOfAFrame(t *testing.T) {
	t.Parallel()
	d := &Framed{Kind: KindFramed, Frame: 7, Codes: []byte{0, 0x87}}
	if got, err := ParseDown(encoded(t, d)); err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{`{"kind":"framed","codes":"AQ=="}`, `{"kind":"framed","codes":"!"}`, fmt.Sprintf(`{"kind":"framed","codes":"%s"}`, base64.StdEncoding.EncodeToString(make([]byte, MaxFrameMessages+1)))} {
		if _, err := ParseDown([]byte(text)); !errors.Is(err, ErrDocument) {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(frameOf(f, framed...))
	f.Add(frameOf(f, framed[:1]...)[:10])
	f.Add(deflated(f, make([]byte, 1<<20)))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := ParseFrame(b)
		if err != nil {
			return
		}
		w := &FrameWriter{}
		if err := w.Begin(frame.ID, frame.Install, frame.Epoch); err != nil {
			t.Fatal(err)
		}
		for i := range frame.Messages {
			if !w.Add(&frame.Messages[i]) {
				return // its numbers were written longer than they need
			}
		}
		again, err := w.Frame()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseFrame(again); err != nil || !reflect.DeepEqual(got, frame) {
			t.Fatalf("%+v became %+v, %v", frame, got, err)
		}
	})
}
