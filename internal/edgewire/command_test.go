package edgewire

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDocumentsAboutCommands(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0).UTC()
	c := &Command{Kind: KindCommand, Device: "pump", Nonce: "n", Body: []byte(`{"token":"c"}`), Expires: &at}
	if got, err := ParseCommand(encoded(t, c)); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, d := range []any{&Listening{Kind: KindListening, All: true, Begin: []string{"a", "b"}, End: []string{"c"}}, &Delivered{Kind: KindDelivered, Nonce: "n", End: EndAbsent}, hello()} {
		if got, err := ParseUp(encoded(t, d)); err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for _, text := range []string{`{"kind":"listening","begin":["a b"]}`, `{"kind":"listening","end":[1]}`, `{"kind":"listening","begin":["` + strings.Repeat(`a","`, MaxDevices+1) + `a"]}`,
		`{"kind":"delivered","end":"x"}`, `{"kind":"delivered","end":"absent","nonce":"\n"}`, `{"kind":"delivered","end":1}`, `{"kind":"other"}`, `[]`} {
		if got, err := ParseUp([]byte(text)); !errors.Is(err, ErrDocument) {
			t.Errorf("%.40s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{`{"kind":"welcome"}`, `{"kind":"command","device":"a/b","nonce":"n","body":{}}`, `{"kind":"command","device":"a","body":{}}`, `{"kind":"command","device":"a","nonce":"n"}`,
		`{"kind":"command","device":"a","nonce":"n","body":[]}`, `{"kind":"command","device":"a","nonce":"n","body":{},"expires":"never"}`, ``} {
		if got, err := ParseCommand([]byte(text)); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func FuzzUp(f *testing.F) {
	f.Add(encoded(f, &Listening{Kind: KindListening, All: true, Begin: []string{"a", "b"}, End: []string{"c"}}))
	f.Add(encoded(f, &Delivered{Kind: KindDelivered, Nonce: "n", End: EndAbsent}))
	f.Add(encoded(f, hello()))
	f.Add(encoded(f, transitions()))
	f.Add(encoded(f, firings()))
	f.Add(encoded(f, &AskSite{Kind: KindAskSite, Nonce: "n", Have: "d", Part: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseUp(b)
		if err != nil {
			return
		}
		if _, err := ParseUp(encoded(t, d)); err != nil {
			t.Fatalf("%+v: %v", d, err)
		}
	})
}

func FuzzCommand(f *testing.F) {
	f.Add([]byte(`{"kind":"command","device":"a","nonce":"n","body":{"token":"c"},"expires":"2026-11-27T08:00:00Z"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseCommand(b); err == nil && (c.Nonce == "" || len(c.Body) == 0) {
			t.Fatalf("%+v", c)
		}
	})
}
