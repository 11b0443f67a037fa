package edgewire

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/internal/ranges"
)

const install = "00112233445566778899aabbccddeeff"

func hello() *Hello {
	at := time.Unix(1_800_000_000, 0).UTC()
	return &Hello{Kind: KindHello, Install: install, Epoch: 3, Boot: "b", Nonce: "n", Machine: install, Version: "1", First: 11, Newest: 40, Position: 30, Oldest: 25,
		Absent: ranges.Set{{12, 12}}, Waiting: 10, Bytes: 5, MaxBytes: 100, OldestSeconds: 1.5, Time: &at}
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAHelloIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	h := hello()
	got, err := ParseHello(encoded(t, h))
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("%+v, %v", got, err)
	}
	w := &Welcome{Kind: KindWelcome, Nonce: "n", Time: *h.Time, Partitions: 1, Complete: true, Ranges: ranges.Set{{11, 11}, {13, 20}}, Carried: ranges.Set{{15, 20}}, CarryKey: "k"}
	back, err := ParseWelcome(encoded(t, w))
	if err != nil || !reflect.DeepEqual(back, w) {
		t.Errorf("%+v, %v", back, err)
	}
	gone, wanted := Lacking(h, w)
	if !reflect.DeepEqual(gone, ranges.Set{{21, 24}}) || !reflect.DeepEqual(wanted, ranges.Set{{25, 30}}) {
		t.Errorf("gone %v, wanted %v", gone, wanted)
	}
	w.Complete = false
	if gone, wanted := Lacking(h, w); gone != nil || wanted != nil {
		t.Errorf("what is not known lacks: %v %v", gone, wanted)
	}
}

func TestHostileHellos(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Hello){
		"kind":            func(h *Hello) { h.Kind = KindWelcome },
		"install":         func(h *Hello) { h.Install = strings.ToUpper(install) },
		"short install":   func(h *Hello) { h.Install = install[2:] },
		"machine":         func(h *Hello) { h.Machine = "x" },
		"epoch":           func(h *Hello) { h.Epoch = 0 },
		"version":         func(h *Hello) { h.Version = strings.Repeat("x", 257) },
		"boot":            func(h *Hello) { h.Boot = "a\nb" },
		"first":           func(h *Hello) { h.First = 0 },
		"newest":          func(h *Hello) { h.Newest = 9 },
		"huge":            func(h *Hello) { h.Newest = 1 << 63 },
		"position":        func(h *Hello) { h.Position = 41 },
		"oldest":          func(h *Hello) { h.Oldest = 42 },
		"bytes":           func(h *Hello) { h.Bytes = -1 },
		"absent":          func(h *Hello) { h.Absent = ranges.Set{{5, 3}} },
		"absent of later": func(h *Hello) { h.Absent = ranges.Set{{41, 41}} },
		"too many of those": func(h *Hello) {
			h.Absent = nil
			for i := range uint64(65) {
				h.Absent = append(h.Absent, [2]uint64{1 + 2*i, 1 + 2*i})
			}
			h.Newest = 1000
		},
	} {
		h := hello()
		change(h)
		if _, err := ParseHello(encoded(t, h)); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "null", "[]", "{", `{"kind":1}`, `{"kind":"hello","epoch":-1}`, strings.Repeat(" ", MaxDocument+1)} {
		if _, err := ParseHello([]byte(text)); !errors.Is(err, ErrDocument) {
			t.Errorf("%.20q: %v", text, err)
		}
		if _, err := ParseWelcome([]byte(text)); !errors.Is(err, ErrDocument) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func FuzzHello(f *testing.F) {
	f.Add(encoded(f, hello()))
	f.Add([]byte(`{"kind":"state","installId":"` + install + `","epoch":1,"first":1,"newest":0,"position":0,"oldest":1}`))
	f.Add([]byte(`{"kind":"hello","absent":[[1,2],[2,3]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHello(b)
		if err != nil {
			return
		}
		again, err := ParseHello(encoded(t, h))
		if err != nil || len(again.Absent) != len(h.Absent) || again.Link() != h.Link() {
			t.Fatalf("%+v, %v", again, err)
		}
		if gone, wanted := Lacking(h, &Welcome{Complete: true}); gone.Count()+wanted.Count() > h.Position {
			t.Fatalf("%v and %v lack of %d", gone, wanted, h.Position)
		}
	})
}

func FuzzWelcome(f *testing.F) {
	f.Add(encoded(f, &Welcome{Kind: KindWelcome, Nonce: "n", Partitions: 1, Complete: true, Ranges: ranges.Set{{11, 11}, {13, 20}}, Carried: ranges.Set{{15, 20}}, CarryKey: "k"}))
	f.Add([]byte(`{"kind":"welcome","partitions":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := ParseWelcome(b)
		if err == nil && (w.Partitions != 1 || w.Ranges.Check(MaxRanges) != nil) {
			t.Fatalf("%+v", w)
		}
	})
}
