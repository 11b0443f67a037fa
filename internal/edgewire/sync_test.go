package edgewire

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

var hash = strings.Repeat("ab", 32)

func TestDocumentsAboutDevices(t *testing.T) {
	t.Parallel()
	d := &Devices{Kind: KindDevices, Nonce: "n", Next: "b", Devices: []Device{{ID: 1, Token: "a"}, {ID: 2, Token: "b", Credentials: []Credential{{ID: 3, Type: "ACCESS_TOKEN", IDHash: hash, Expires: 4}}}}}
	if got, err := ParseDown(encoded(t, d)); err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseDown([]byte(`{"kind":"changed"}`)); err != nil || !reflect.DeepEqual(got, &Changed{KindChanged}) {
		t.Errorf("%+v, %v", got, err)
	}
	s := &Sync{Kind: KindSync, Nonce: "n", After: "a"}
	if got, err := ParseUp(encoded(t, s)); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{`{"kind":"devices","devices":[{"id":1,"token":"b"},{"id":2,"token":"a"}]}`, `{"kind":"devices","devices":[{"id":0,"token":"b"}]}`, `{"kind":"devices","devices":[{"id":1,"token":"b/c"}]}`,
		`{"kind":"devices","devices":[{"id":1,"token":"b"}],"next":"a"}`, `{"kind":"devices","devices":[{"id":1,"token":"b","credentials":[{"id":1,"idHash":"x"}]}]}`,
		`{"kind":"devices","devices":1}`, `{"kind":"none"}`, `x`} {
		if got, err := ParseDown([]byte(text)); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if got, err := ParseUp([]byte(`{"kind":"sync","after":"a b"}`)); !errors.Is(err, ErrDocument) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzDown(f *testing.F) {
	f.Add(encoded(f, &Framed{Kind: KindFramed, Frame: 7, Codes: []byte{0, 0x87}}))
	f.Add(encoded(f, &Devices{Kind: KindDevices, Nonce: "n", Next: "b", Devices: []Device{{ID: 1, Token: "b", Credentials: []Credential{{ID: 3, Type: "ACCESS_TOKEN", IDHash: hash}}}}}))
	f.Add([]byte(`{"kind":"changed"}`))
	f.Add(encoded(f, &Site{Kind: KindSite, Nonce: "n", Digest: "d", Part: 1, Parts: 2, Body: []byte{1}}))
	f.Add([]byte(`{"kind":"welcome","partitions":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDown(b)
		if err != nil {
			return
		}
		if _, err := ParseDown(encoded(t, d)); err != nil {
			t.Fatalf("%+v: %v", d, err)
		}
	})
}
