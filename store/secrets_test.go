package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"weir/internal/rootkey"
	"weir/model"
)

func TestSealedValuesOpenUnderTheirNameAndKeyAlone(t *testing.T) {
	var key, other rootkey.Key
	key[3], other[4] = 9, 9
	v := NewVault(key)
	for _, plain := range []string{"", "x", strings.Repeat("plain", 1000)} {
		blob, err := v.Seal("name", []byte(plain))
		if err != nil || blob[0] != 1 || len(blob) != sealedHead+len(plain)+tagBytes {
			t.Fatal(len(blob), err)
		}
		if got, err := v.Open("name", blob); string(got) != plain || err != nil {
			t.Errorf("%q %v", got, err)
		}
		if again, _ := v.Seal("name", []byte(plain)); bytes.Equal(blob, again) {
			t.Error("the same value seals the same twice")
		}
		if _, err := v.Open("other", blob); !errors.Is(err, ErrSealed) {
			t.Error("under another name:", err)
		}
		if _, err := NewVault(other).Open("name", blob); !errors.Is(err, ErrSealed) || !strings.Contains(err.Error(), key.ID()) {
			t.Error("under another key:", err)
		}
		for i := range min(len(blob), 2*sealedHead) {
			damaged := bytes.Clone(blob)
			damaged[i] ^= 0x10
			if _, err := v.Open("name", damaged); err == nil {
				t.Fatalf("byte %d is not covered", i)
			}
			if _, err := v.Open("name", blob[:i]); err == nil {
				t.Fatalf("%d bytes open", i)
			}
		}
	}
	if _, err := v.Open("name", []byte{2}); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
}

// Written by this version; every later one must read it.
func TestSealedValuesOfTheFirstFormatOpen(t *testing.T) {
	var key rootkey.Key
	for i := range key {
		key[i] = byte(i)
	}
	blob, err := NewVault(key).Open("1/tenant/connector/7/secret", mustHex(t, goldenSealed))
	if string(blob) != "hello" || err != nil {
		t.Errorf("%q %v", blob, err)
	}
}

func FuzzOpen(f *testing.F) {
	v := NewVault(rootkey.Key{1})
	blob, err := v.Seal("n", []byte("plain"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(blob)
	f.Add(blob[:50])
	f.Add([]byte{})
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		plain, err := v.Open("n", b)
		if err == nil && string(plain) != "plain" {
			t.Errorf("%x opens as %q", b, plain)
		}
	})
}

func FuzzDecodeViewChanges(f *testing.F) {
	body, err := EncodeViewChanges([]model.ViewChange{{Kind: model.ViewDevice, Key: "t/d", Body: []byte("{}")}, {Kind: model.ViewTenant, Key: "t"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte{})
	f.Add([]byte{2})
	f.Add([]byte("\x01[{\"k\":1}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		vs, err := DecodeViewChanges(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Error(err)
			}
			return
		}
		again, err := EncodeViewChanges(vs)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeViewChanges(again); err != nil {
			t.Error(err)
		}
	})
}

const goldenSealed = "01630dcd2966c4336645296ec9991eb4b1b6126c008988f2b75e88cdac26ee69a0b67389a672d17b149b5d443aca316495a562cf73685139ae752aab63846aa34879a3406ae6ad781dc713574a21b1898c03abc2cb48a818fa3465779d1d4ec35a0816dc72dc"

func mustHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
