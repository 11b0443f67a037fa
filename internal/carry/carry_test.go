package carry

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

const install = "00112233445566778899aabbccddeeff"

func header() Header {
	return Header{Instance: "weir", Tenant: "acme", Edge: "gw", Install: install, Version: "1", Made: time.Unix(1_800_000_000, 0).UTC()}
}

func someMessages() []Message {
	return []Message{
		{Epoch: 1, Number: 3, Received: 1_800_000_000_000_000_001, Topic: "weir/acme/devices/a/events", Payload: []byte(`{"altId":"edge:x:1:3"}`)},
		{Epoch: 1, Number: 4, Received: -1, Topic: "t", Payload: []byte{0, 1, 255}},
		{Epoch: 3, Number: 9, Topic: "t", Payload: bytes.Repeat([]byte("x"), frameBytes)},
		{Epoch: 3, Number: 10, Topic: "t", Payload: []byte("y")},
	}
}

func written(t testing.TB, to PublicKey, messages []Message) ([]byte, Totals) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, header(), to)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if err := w.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	totals, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), totals
}

func read(b []byte, k *PrivateKey) (all []Message, r *Reader, err error) {
	if r, err = NewReader(bytes.NewReader(b), func(string) (*PrivateKey, error) { return k, nil }); err != nil {
		return nil, nil, err
	}
	for {
		messages, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return all, r, err
		}
		all = append(all, messages...)
	}
}

func newKey(t testing.TB) *PrivateKey {
	t.Helper()
	k, err := NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := k.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParsePrivateKey(secret)
	if err != nil || again.Public() != k.Public() || k.Public().Check() != nil {
		t.Fatal(err)
	}
	return again
}

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	k := newKey(t)
	for name, to := range map[string]PublicKey{"plain": "", "sealed": k.Public()} {
		b, totals := written(t, to, someMessages())
		all, r, err := read(b, k)
		if err != nil || !reflect.DeepEqual(all, someMessages()) || r.Totals() != totals {
			t.Errorf("%s: %v, %v; %+v, want %+v", name, all, err, r.Totals(), totals)
		}
		if totals.Messages != 4 || totals.Frames != 3 || len(totals.Sum) != 64 {
			t.Errorf("%s: %+v", name, totals)
		}
		want := header()
		if to != "" {
			want.Key = to.ID()
		}
		if got := r.Header(); got != want {
			t.Errorf("%s: %+v", name, got)
		}
		if sealed := !bytes.Contains(b, []byte("devices/a/events")); sealed != (to != "") {
			t.Errorf("%s: sealed is %t", name, sealed)
		}
		if empty, _ := written(t, to, nil); true {
			if all, r, err := read(empty, k); err != nil || len(all) != 0 || r.Totals().Sum == "" {
				t.Errorf("%s, empty: %v", name, err)
			}
		}
	}
	sealed, _ := written(t, k.Public(), someMessages())
	if _, _, err := read(sealed, newKey(t)); !errors.Is(err, ErrKey) {
		t.Errorf("with another key: %v", err)
	}
	if _, _, err := read(sealed, nil); !errors.Is(err, ErrKey) {
		t.Errorf("without a key: %v", err)
	}
}

// golden is a plain file, made by hand from the description of the format: it is frozen.
const golden = "5745495243415259010000008c7b22696e7374616e6365223a2277656972222c2274656e616e74223a2261636d65222c2265646765223a226777222c" +
	"22696e7374616c6c4964223a223030313132323333343435353636373738383939616162626363646465656666222c2276657273696f6e223a223122" +
	"2c226d6164654174223a22323032372d30312d31355430383a30303a30305a227d0000004bfe9bb7b16d0102038280a0bbd29df1fa311a776569722f" +
	"61636d652f646576696365732f612f6576656e7473167b22616c744964223a22656467653a783a313a33227d01010174030001ff000000270ef109a2" +
	"6502017f04fce31a75586c4309bfef9db8abc44f8f1607bfdd198a3daf636151887d46"

func TestTheFormatOfAFileIsFrozen(t *testing.T) {
	t.Parallel()
	if b, _ := written(t, "", someMessages()[:2]); hex.EncodeToString(b) != golden {
		t.Errorf("a file is now\n%x", b)
	}
}

// TestAnAlteredFileIsRefused: every byte that is changed and every place at which the file is cut is noticed, at the latest at the end.
func TestAnAlteredFileIsRefused(t *testing.T) {
	t.Parallel()
	k := newKey(t)
	small := someMessages()[:2]
	for name, to := range map[string]PublicKey{"plain": "", "sealed": k.Public()} {
		b, _ := written(t, to, small)
		for i := range b {
			changed := bytes.Clone(b)
			changed[i] ^= 0x10
			if _, _, err := read(changed, k); err == nil {
				t.Fatalf("%s: byte %d of %d may be changed", name, i, len(b))
			}
			if _, _, err := read(b[:i], k); !errors.Is(err, ErrFile) {
				t.Fatalf("%s: cut at %d of %d: %v", name, i, len(b), err)
			}
		}
		if _, _, err := read(append(bytes.Clone(b), 0), k); !errors.Is(err, ErrFile) {
			t.Errorf("%s: something follows: %v", name, err)
		}
	}
}

func TestWhatAWriterRefuses(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]Message{
		"the same number": {Epoch: 2, Number: 5}, "an older one": {Epoch: 2, Number: 4}, "an older epoch": {Epoch: 1, Number: 6}, "no epoch": {Number: 6},
		"a large payload": {Epoch: 2, Number: 6, Payload: make([]byte, MaxPayload+1)}, "a long topic": {Epoch: 2, Number: 6, Topic: strings.Repeat("x", MaxTopic+1)},
	} {
		w, err := NewWriter(io.Discard, header(), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(Message{Epoch: 2, Number: 5}); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(m); !errors.Is(err, ErrFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := header()
	bad.Install = "x"
	if _, err := NewWriter(io.Discard, bad, ""); !errors.Is(err, ErrFile) {
		t.Errorf("an installation that is none: %v", err)
	}
	if _, err := NewWriter(io.Discard, header(), "?"); err == nil {
		t.Error("a key that is none")
	}
}

// FuzzRead: whatever a file holds, reading it ends, and what is read to its end is written as the same messages.
func FuzzRead(f *testing.F) {
	k := newKey(f)
	plain, _ := written(f, "", someMessages()[:2])
	sealed, _ := written(f, k.Public(), someMessages()[:2])
	empty, _ := written(f, "", nil)
	for _, b := range [][]byte{plain, sealed, empty, plain[:len(plain)-1], []byte(magic), {}} {
		f.Add(b)
	}
	f.Add(binary.BigEndian.AppendUint32([]byte(magic+"\x01"), 1<<31))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, r, err := read(b, k)
		if err != nil {
			return
		}
		var again bytes.Buffer
		w, err := NewWriter(&again, r.Header(), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if err := w.Add(m); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if back, _, err := read(again.Bytes(), k); err != nil || len(back) != len(all) {
			t.Fatalf("%d became %d, %v", len(all), len(back), err)
		}
	})
}
