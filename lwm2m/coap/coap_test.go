package coap

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

func TestMessages(t *testing.T) {
	t.Parallel()
	register := Message{Type: Confirmable, Code: POST, ID: 1, Token: []byte{0xaa, 0xbb}}
	register.AddPath(URIPath, "rd")
	register.AddUint(ContentFormat, 40)
	register.Add(URIQuery, []byte("ep=urn:dev:1"))
	register.Add(URIQuery, []byte("lt=300"))
	register.Payload = []byte("</3/0>")
	temperature := Message{Type: Confirmable, Code: GET, ID: 0x7d34, Token: []byte{0x20, 1, 2, 3}}
	temperature.AddPath(URIPath, "temperature")
	for _, tc := range []struct {
		name, bytes string
		message     Message
	}{
		{"get", "44017d3420010203bb74656d7065726174757265", temperature},
		{"content", "60457d34ff32322e332043", Message{Type: Acknowledgement, Code: Content, ID: 0x7d34, Token: []byte{}, Payload: []byte("22.3 C")}},
		{"empty", "60007d35", Message{Type: Acknowledgement, ID: 0x7d35, Token: []byte{}}},
		{"reset", "70007d36", Message{Type: Reset, ID: 0x7d36, Token: []byte{}}},
		{"register", "42020001aabbb272641128" + "3c" + hex.EncodeToString([]byte("ep=urn:dev:1")) + "06" + hex.EncodeToString([]byte("lt=300")) + "ff" + hex.EncodeToString([]byte("</3/0>")), register},
	} {
		want, err := hex.DecodeString(tc.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := Append(nil, &tc.message); !bytes.Equal(got, want) {
			t.Errorf("%s is written as\n%x, want\n%x", tc.name, got, want)
		}
		got, err := Parse(want)
		if err != nil || !reflect.DeepEqual(got, tc.message) {
			t.Errorf("%s is read as %+v, %v, want %+v", tc.name, got, err, tc.message)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	m := Message{Code: GET}
	m.AddUint(Accept, 11542)
	m.AddUint(Observe, 0)
	m.AddPath(URIPath, "3303", "0", "5700")
	m.AddBlock(Block2, Block{Number: 3, More: true, Size: 256})
	m.Add(URIQuery, []byte(strings.Repeat("x", 300)))
	got, err := Parse(Append(nil, &m))
	if err != nil {
		t.Fatal(err)
	}
	if path := strings.Join(got.Texts(URIPath), "/"); path != "3303/0/5700" {
		t.Error(path)
	}
	if v, ok := got.Uint(Observe); !ok || v != 0 {
		t.Error(v, ok)
	}
	if v, ok := got.Uint(Accept); !ok || v != 11542 {
		t.Error(v, ok)
	}
	if b, ok := got.Block(Block2); !ok || b != (Block{3, true, 256}) {
		t.Errorf("%+v %v", b, ok)
	}
	if q := got.Texts(URIQuery); len(q) != 1 || len(q[0]) != 300 {
		t.Error(q)
	}
	if n := got.Unknown(URIPath, URIQuery, Accept); n != Block2 {
		t.Error("critical:", n)
	}
	if n := got.Unknown(URIPath, URIQuery, Accept, Block2); n != 0 {
		t.Error("critical:", n)
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]string{
		"nothing": "", "short": "4001", "version 2": "80010001", "token of 9 bytes": "49010001010203040506070809", "token cut": "42010001aa",
		"empty with a token": "41000001aa", "empty with a payload": "40000001ff00", "marker alone": "40010001ff", "option of 15": "40010001f0", "length 15": "400100010f",
		"option cut": "40010001b5aa", "number over 65535": "40010001e0ffffe0ffff", "extended cut": "40010001d0",
	} {
		raw, err := hex.DecodeString(b)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := Parse(raw); err != ErrFormat {
			t.Errorf("%s: %+v %v", name, m, err)
		}
	}
}

func TestNewer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		before, now uint32
		want        bool
	}{{1, 2, true}, {2, 1, false}, {2, 2, false}, {1<<24 - 1, 0, true}, {0, 1<<24 - 1, false}, {5, 5 + 1<<23, false}} {
		if got := Newer(tc.before, tc.now); got != tc.want {
			t.Errorf("Newer(%d, %d) = %v", tc.before, tc.now, got)
		}
	}
}

// FuzzParse: nothing makes Parse fail otherwise than with ErrFormat, and what it reads is written as it came or shorter.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"44017d3420010203bb74656d7065726174757265", "60457d34ff32322e332043", "60007d35", "42020001aabbb272641128063c653d31", "40010001e0ffffe0ffff", "4001000160d1020851"} {
		b, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(Append(nil, &m))
		if err != nil || again.Code != m.Code || again.ID != m.ID || !bytes.Equal(again.Payload, m.Payload) || len(again.Options) != len(m.Options) {
			t.Fatalf("%x: %+v, again %+v, %v", b, m, again, err)
		}
		m.Block(Block1)
		m.Uint(Observe)
	})
}
