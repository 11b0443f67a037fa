package edgewire

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestASiteInParts: what is divided is joined again, whatever its size; a part that is missing or another's is noticed.
func TestASiteInParts(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 3*sitePart)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(noise)
	for _, body := range [][]byte{nil, []byte("{}"), noise} {
		d, err := DivideSite(body)
		if err != nil {
			t.Fatal(err)
		}
		var parts [][]byte
		for {
			a := &AskSite{Kind: KindAskSite, Nonce: "n", Part: len(parts)}
			if got, err := ParseUp(encoded(t, a)); err != nil || !reflect.DeepEqual(got, a) {
				t.Fatalf("%+v, %v", got, err)
			}
			got, err := ParseDown(encoded(t, d.Answer(a)))
			s, ok := got.(*Site)
			if err != nil || !ok || s.Nonce != "n" || s.Part != len(parts) || s.Digest != d.Digest {
				t.Fatalf("%+v, %v", got, err)
			}
			if parts = append(parts, s.Body); len(parts) == s.Parts {
				break
			}
		}
		got, err := JoinSite(d.Digest, parts)
		if err != nil || string(got) != string(body) {
			t.Fatalf("%d bytes, %v, want %d", len(got), err, len(body))
		}
		if _, err := JoinSite(strings.Repeat("0", 64), parts); !errors.Is(err, ErrDocument) {
			t.Errorf("another digest: %v", err)
		}
		if _, err := JoinSite(d.Digest, parts[1:]); !errors.Is(err, ErrDocument) {
			t.Errorf("without the first part: %v", err)
		}
		if s := d.Answer(&AskSite{Nonce: "n", Have: d.Digest}); s.Parts != 0 || s.Body != nil {
			t.Errorf("who has it gets %+v", s)
		}
	}
	if _, err := DivideSite(make([]byte, MaxSite+1)); err == nil {
		t.Error("more than the bound is divided")
	}
}

func firings() *Firings {
	return &Firings{Kind: KindFirings, Install: strings.Repeat("ab", 16), Epoch: 1, Firings: []Firing{{ID: 7, Device: "a", Profile: "p", Rule: "r", Signal: SignalRaised, Occurred: time.Date(2026, 11, 28, 5, 0, 0, 0, time.UTC), Value: new(1.5)},
		{ID: 8, Device: "a", Profile: "p", Rule: "r", Signal: SignalResolved, Occurred: time.Date(2026, 11, 28, 5, 0, 1, 0, time.UTC)}}}
}

func TestFirings(t *testing.T) {
	t.Parallel()
	if got, err := ParseUp(encoded(t, firings())); err != nil || !reflect.DeepEqual(got, firings()) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, bad := range map[string]func(*Firings){
		"no installation": func(f *Firings) { f.Install = "x" },
		"no epoch":        func(f *Firings) { f.Epoch = 0 },
		"none":            func(f *Firings) { f.Firings = nil },
		"not in order":    func(f *Firings) { f.Firings[1].ID = 7 },
		"no device":       func(f *Firings) { f.Firings[0].Device = "a/b" },
		"no rule":         func(f *Firings) { f.Firings[0].Rule = "" },
		"no signal":       func(f *Firings) { f.Firings[0].Signal = "x" },
		"no time":         func(f *Firings) { f.Firings[0].Occurred = time.Time{} },
	} {
		f := firings()
		bad(f)
		if got, err := ParseUp(encoded(t, f)); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestRunsOfAHello(t *testing.T) {
	t.Parallel()
	h := hello()
	h.Runs = []Runs{{Profile: "p", Version: 3, From: 5}, {Profile: "q", Version: 1, From: 2, Until: 4}}
	if got, err := ParseHello(encoded(t, h)); err != nil || !reflect.DeepEqual(got.Runs, h.Runs) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []Runs{{Profile: "a b", From: 1}, {Profile: "p"}, {Profile: "p", From: 3, Until: 2}} {
		h.Runs = []Runs{bad}
		if _, err := ParseHello(encoded(t, h)); !errors.Is(err, ErrDocument) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
