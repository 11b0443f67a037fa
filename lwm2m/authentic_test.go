package lwm2m

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/dtls/v3/pkg/crypto/prf"
	"github.com/pion/dtls/v3/pkg/protocol"
	"github.com/pion/dtls/v3/pkg/protocol/recordlayer"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
)

// TestAForgedRecordWakesNoSession: one with the connection id of a parked session, or a repeat of what its device has sent, leaves it
// parked; the next one of the device wakes it.
func TestAForgedRecordWakesNoSession(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]lwm2mpeer.Options{"with a connection id": {}, "without": {NoConnectionID: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, rows := &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}
			s := live(t, in, rows, Settings{ParkAfter: time.Millisecond})
			relay, err := lwm2mpeer.NewRelay(s.address)
			if err != nil {
				t.Fatal(err)
			}
			defer relay.Close()
			c := meterOf(t, relay, o)
			if _, err := c.Register(t.Context(), []string{"ep=meter", "lt=300", "lwm2m=1.1"}, "</3303/0>"); err != nil {
				t.Fatal(err)
			}
			poll.True(t, "it is observed", func() bool { return c.Observed("/3303/0") })
			parked := func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.parked) == 1 && len(s.sessions) == 0
			}
			poll.True(t, "it is parked", parked)
			notifies(t, c, 1)
			poll.True(t, "it is parked again", parked)
			seen := relay.Last()
			forged := bytes.Clone(seen)
			binary.BigEndian.PutUint32(forged[7:], 1<<20) // the number of a record that is to come
			torn := bytes.Clone(forged)
			torn[len(torn)-1] ^= 1
			wakes := testutil.ToFloat64(s.metrics.wakes)
			dropped := func() float64 { return testutil.ToFloat64(s.metrics.droppedTotal.WithLabelValues("forged")) }
			before := dropped()
			conn, err := net.Dial("udp", s.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			wanted := before
			for _, b := range [][]byte{seen, forged, torn, seen[:20], append(bytes.Clone(forged), forged...)} {
				if _, err := conn.Write(b); err != nil {
					t.Fatal(err)
				}
				if o.NoConnectionID { // its address is what a session is known by, and this is another one
					s.openSocket().route(b, addrOf(t, s))
				}
				if len(b) > idOffset+8 {
					wanted++
				}
			}
			poll.True(t, "they are dropped", func() bool { return dropped() >= wanted })
			if n := testutil.ToFloat64(s.metrics.wakes); n != wakes || !parked() {
				t.Errorf("%v wakes, %v before; parked: %v", n, wakes, parked())
			}
			notifies(t, c, 2)
			if n := testutil.ToFloat64(s.metrics.wakes); n != wakes+1 {
				t.Errorf("%v wakes, %v before", n, wakes)
			}
			if relay.Hellos() != 1 {
				t.Errorf("%d handshakes", relay.Hellos())
			}
		})
	}
}

// addrOf is the address by which the parked session is known.
func addrOf(t *testing.T, s *life) netip.AddrPort {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.parked {
		return k.from
	}
	t.Fatal("none is parked")
	return netip.AddrPort{}
}

// asleep is a parked session of a cipher suite, and what its device seals.
func asleep(tb testing.TB, of *suite, id string) (k *parked, seal func(number uint64, body []byte) []byte) {
	tb.Helper()
	k = &parked{id: id, state: dtlsState{CipherSuiteID: uint16(of.id), MasterSecret: bytes.Repeat([]byte{7}, 48), RemoteEpoch: 1, RemoteSequenceNumber: 10}}
	keys, err := prf.GenerateEncryptionKeys(k.state.MasterSecret, k.state.RemoteRandom[:], k.state.LocalRandom[:], of.mac, of.key, of.iv, sha256.New)
	if err != nil {
		tb.Fatal(err)
	}
	theirs := *keys // the client writes what the server reads
	theirs.ClientWriteKey, theirs.ServerWriteKey = keys.ServerWriteKey, keys.ClientWriteKey
	theirs.ClientWriteIV, theirs.ServerWriteIV = keys.ServerWriteIV, keys.ClientWriteIV
	theirs.ClientMACKey, theirs.ServerMACKey = keys.ServerMACKey, keys.ClientMACKey
	cipher, err := of.open(&theirs)
	if err != nil {
		tb.Fatal(err)
	}
	return k, func(number uint64, body []byte) []byte {
		h := recordlayer.Header{ContentType: protocol.ContentTypeApplicationData, Version: protocol.Version1_2, Epoch: 1, SequenceNumber: number}
		raw := body
		if id != "" {
			h.ContentType, h.ConnectionID = protocol.ContentTypeConnectionID, []byte(id)
			raw = append(bytes.Clone(body), byte(protocol.ContentTypeApplicationData))
		}
		h.ContentLen = uint16(len(raw))
		head, err := h.Marshal()
		if err != nil {
			tb.Fatal(err)
		}
		out, err := cipher.(interface {
			Encrypt(*recordlayer.RecordLayer, []byte) ([]byte, error)
		}).Encrypt(&recordlayer.RecordLayer{Header: h}, append(head, raw...))
		if err != nil {
			tb.Fatal(err)
		}
		return out
	}
}

// TestEachSuiteOpensItsRecords with a connection id and without, and none that is changed in a single byte.
func TestEachSuiteOpensItsRecords(t *testing.T) {
	t.Parallel()
	for i := range allSuites {
		for _, id := range []string{"", "\x00abcdefg"} {
			k, seal := asleep(t, &allSuites[i], id)
			whole := seal(10, []byte("a notification of a meter"))
			if !k.authentic(whole) {
				t.Errorf("%v, connection id %q: its record is not opened", allSuites[i].id, id)
			}
			if k.authentic(seal(9, []byte("an earlier one"))) {
				t.Errorf("%v: a record that was taken before is taken again", allSuites[i].id)
			}
			for at := range whole {
				changed := bytes.Clone(whole)
				changed[at] ^= 1
				if at != 1 && at != 2 && k.authentic(changed) { // the version is compared when the record is taken
					t.Errorf("%v, connection id %q: byte %d was changed", allSuites[i].id, id, at)
				}
			}
		}
	}
}

// FuzzRoute: no datagram makes the router fail, none but the first of a handshake begins anything, and none wakes a parked session that its
// device has not sent.
func FuzzRoute(f *testing.F) {
	const id = "\x00abcdefg"
	meter, seal := asleep(f, suiteOf(allSuites[0].id), id)
	genuine := seal(10, []byte("a notification"))
	hello := append([]byte{22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 8}, bytes.Repeat([]byte{0}, 8)...)
	f.Add(hello)
	f.Add([]byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0})
	f.Add([]byte{23, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0})
	f.Add([]byte{20, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1})
	f.Add(genuine)
	f.Add(genuine[:len(genuine)-1])
	f.Add(append(seal(3, []byte("an old one")), genuine...))
	here, there, asleepAt := netip.MustParseAddrPort("127.0.0.1:5000"), netip.MustParseAddrPort("127.0.0.1:5001"), netip.MustParseAddrPort("127.0.0.1:5002")
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newSocket(nil, 8)
		begun, woken := 0, 0
		s.begin = func(netip.AddrPort) *peer { begun++; return nil }
		s.wake = func(*peer, *parked) { woken++ }
		s.name(newPeer(s, here), []byte{1, 2, 3, 4, 5, 6, 7, 8})
		s.add(newPeer(s, there))
		k := *meter
		s.restored(&k)
		byAddress := *meter
		byAddress.id, byAddress.from = "", asleepAt
		s.restored(&byAddress)
		for _, from := range []netip.AddrPort{here, there, asleepAt} {
			s.route(b, from)
		}
		if begun > 0 && (len(b) < recordHeader || b[0] != recordHandshake) {
			t.Fatalf("%x has begun a handshake", b)
		}
		if woken > 0 && !bytes.Contains(b, genuine[recordHeader+8:]) {
			t.Fatalf("%x has woken a session", b)
		}
	})
}
