package broker

import (
	"bytes"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Each fault of the library's codec that our code works around has a test here, in two halves: bare, the library still has
// it, so that an upgrade that mends it is noticed; behind our checks it does not show.

const gone = "the library does not have this fault any more: look whether the check before it can go"

func TestMochiFault_ASubscribeOfSevenBytesPanics(t *testing.T) {
	t.Parallel()
	seven := []byte{0x82, 5, 0, 1, 0, 0, 0}
	func() {
		defer func() {
			if recover() == nil {
				t.Error(gone)
			}
		}()
		_ = mochiDecodes(mqtt5, pktSubscribe, seven[2:])
	}()
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		other := x.connect(mqtt5, func(h *hello) { h.clientID = theClient + ":other" })
		c := x.connect(mqtt5)
		c.send(seven)
		c.expectEnd(codeMalformed)
		other.send(pingreq)
		other.expect("another connection", pingresp)
		if counted(t, x.broker.metrics.panics) != 0 {
			t.Error("panicked")
		}
	})
}

func TestMochiFault_LengthsHaveNoEnd(t *testing.T) {
	t.Parallel()
	endless := slices.Concat([]byte{0xC0}, slices.Repeat([]byte{0x80}, 40), []byte{0})
	if n, _, err := packets.DecodeLength(bytes.NewReader(endless[1:])); err != nil || n != 0 {
		t.Errorf("a length of 41 bytes: %v: %s", err, gone)
	}
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		c.send(endless)
		c.expectEnd(codeMalformed)
	})
}

func TestMochiFault_APropertyReachesPastItsSection(t *testing.T) {
	t.Parallel()
	reaching := publishWith(qos1, theEvents, 1, slices.Concat([]byte{1}, prop32(2, 0x7b7d7b7d)), "rest")
	pk := packets.Packet{ProtocolVersion: mqtt5, FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1}}
	if err := pk.PublishDecode(reaching[2:]); err != nil {
		t.Errorf("a value in the payload: %v: %s", err, gone)
	}
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		c.send(reaching)
		c.expectEnd(codeMalformed)
		x.expectStored()
	})
}

// Its server, stores and listeners are not used: only its codec is.
func TestOnlyTheCodecOfTheLibraryIsUsed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			if strings.HasPrefix(path, "github.com/mochi-mqtt/") && path != "github.com/mochi-mqtt/server/v2/packets" {
				t.Errorf("%s imports %s", file, path)
			}
		}
	}
}
