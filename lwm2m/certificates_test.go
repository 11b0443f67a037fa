package lwm2m

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pion/dtls/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/certs"
	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
	"weir/model"
)

// certificatesOf are the certificates of a test: that of the server, and the devices by fingerprint.
type certificatesOf struct {
	own   *tls.Certificate
	known map[string]Key
}

func (c *certificatesOf) Own(context.Context) (*tls.Certificate, error) { return c.own, nil }

func (c *certificatesOf) Of(_ context.Context, fingerprint string) (Key, error) {
	k, ok := c.known[fingerprint]
	if !ok {
		return Key{}, ErrUnknown
	}
	return k, nil
}

// certificateOf makes a certificate that was good since a day ago.
func certificateOf(t *testing.T, name string, life time.Duration) (pair *tls.Certificate, fingerprint string) {
	t.Helper()
	self, err := certs.NewSelfSigned([]string{name}, time.Now(), life)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.X509KeyPair(self.Cert, self.Key)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(c.Certificate[0])
	return &c, hex.EncodeToString(sum[:])
}

func meterKey() Key {
	return Key{Binding: model.Binding{Tenant: "acme", TenantID: 1, Device: "meter", DeviceID: 7, Credential: 9}}
}

// TestACertificateProvesADevice on the socket on which another device has a pre-shared key. Its session goes on after a restart and while it is parked, and
// ends with its credential.
func TestACertificateProvesADevice(t *testing.T) {
	t.Parallel()
	own, ours := certificateOf(t, "weir", time.Hour)
	pair, fingerprint := certificateOf(t, "meter", time.Hour)
	these := &certificatesOf{own, map[string]Key{fingerprint: meterKey()}}
	with := func(d *Deps) { d.Certificates = these }
	in, rows := &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}
	first := live(t, in, rows, Settings{ParkAfter: time.Millisecond}, with)
	relay, err := lwm2mpeer.NewRelay(first.address)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	c := meterOf(t, relay, lwm2mpeer.Options{Certificate: pair, Trusts: func(der []byte) error {
		if sum := sha256.Sum256(der); hex.EncodeToString(sum[:]) != ours {
			return errors.New("another server")
		}
		return nil
	}})
	if _, err := c.Register(t.Context(), []string{"ep=meter", "lt=300", "lwm2m=1.1"}, "</3303/0>"); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "it is observed", func() bool { return c.Observed("/3303/0") })
	if seen := first.Seen(1, nil); len(seen) != 1 || seen[0].Security != "X509" || seen[0].Binding != meterKey().Binding {
		t.Errorf("%+v", seen)
	}
	parked := func(s *life) {
		t.Helper()
		poll.True(t, "it is parked", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.sessions) == 0 && len(s.parked) == 1
		})
	}
	parked(first)
	notifies(t, c, 1)
	first.stop()
	second := live(t, in, rows, Settings{ParkAfter: time.Millisecond}, with)
	if err := relay.Target(second.address); err != nil {
		t.Fatal(err)
	}
	notifies(t, c, 2)
	if relay.Hellos() != 1 {
		t.Errorf("%d handshakes", relay.Hellos())
	}
	parked(second)
	delete(these.known, fingerprint)
	second.Drop(func(b model.Binding) bool { return b.Credential == 9 })
	poll.True(t, "it is gone", func() bool {
		second.mu.Lock()
		defer second.mu.Unlock()
		return len(second.sessions)+len(second.parked) == 0
	})
	psk, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: second.address, Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer psk.Close()
	if _, err := psk.Register(t.Context(), []string{"lt=300"}, "</1/0>"); err != nil {
		t.Fatal(err)
	}
}

// TestACertificateThatProvesNothing: one that is not registered, one that has expired, and none at all.
func TestACertificateThatProvesNothing(t *testing.T) {
	t.Parallel()
	own, _ := certificateOf(t, "weir", time.Hour)
	unknown, _ := certificateOf(t, "meter", time.Hour)
	expired, old := certificateOf(t, "meter", -time.Hour)
	these := &certificatesOf{own, map[string]Key{old: meterKey()}}
	s := live(t, &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}, Settings{}, func(d *Deps) { d.Certificates = these })
	for _, c := range []struct {
		pair    *tls.Certificate
		outcome string
	}{{unknown, "unknown_certificate"}, {expired, "unknown_certificate"}, {&tls.Certificate{}, "failed"}} {
		before := testutil.ToFloat64(s.metrics.handshakes.WithLabelValues(c.outcome))
		client, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: s.address, Certificate: c.pair, Timeout: time.Minute})
		if err == nil {
			client.Close()
			t.Errorf("%s: the handshake is complete", c.outcome)
		} else if strings.Contains(err.Error(), "deadline") {
			t.Errorf("%s: the device is not told: %v", c.outcome, err)
		}
		poll.True(t, "it is counted", func() bool {
			return testutil.ToFloat64(s.metrics.handshakes.WithLabelValues(c.outcome)) > before
		})
	}
	if n := s.sessionCount(); n != 0 {
		t.Errorf("%d sessions", n)
	}
}

// TestTheKeyDecidesWhereBothAreShown: a certificate beside the identity of another device, or beside none that is known, proves nothing.
func TestTheKeyDecidesWhereBothAreShown(t *testing.T) {
	t.Parallel()
	own, _ := certificateOf(t, "weir", time.Hour)
	pair, fingerprint := certificateOf(t, "meter", time.Hour)
	s := live(t, &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}, Settings{}, func(d *Deps) {
		d.Certificates = &certificatesOf{own, map[string]Key{fingerprint: meterKey()}}
	})
	var who proof
	if err := s.certified(t.Context(), &who, pair.Certificate); err != nil || !who.known || !who.certificate {
		t.Fatalf("%+v %v", who, err)
	}
	s.key(t.Context(), &who, []byte("nobody"))
	if who.known || who.certificate || who.key.DeviceID != 0 {
		t.Errorf("%+v", who)
	}
}

// TestEveryCipherSuite that is offered completes a handshake, and carries a registration.
func TestEveryCipherSuite(t *testing.T) {
	t.Parallel()
	own, _ := certificateOf(t, "weir", time.Hour)
	pair, fingerprint := certificateOf(t, "meter", time.Hour)
	s := live(t, &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}, Settings{}, func(d *Deps) {
		d.Certificates = &certificatesOf{own, map[string]Key{fingerprint: meterKey()}}
	})
	for i := range allSuites {
		suite := &allSuites[i]
		if suite.id == dtls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 { // the certificate has another key
			continue
		}
		o := lwm2mpeer.Options{Server: s.address, Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute, Suites: []dtls.CipherSuiteID{suite.id}}
		if suite.certificate {
			o.Certificate = pair
		}
		c, err := lwm2mpeer.Dial(t.Context(), o)
		if err != nil {
			t.Errorf("%v: %v", suite.id, err)
			continue
		}
		if _, err := c.Register(t.Context(), []string{"lt=300"}, "</1/0>"); err != nil {
			t.Errorf("%v: %v", suite.id, err)
		}
		c.Close()
	}
}

// TestTheListOfCipherSuites is checked, and kept to.
func TestTheListOfCipherSuites(t *testing.T) {
	t.Parallel()
	for list, why := range map[string]string{
		"":                                   "",
		"TLS_PSK_WITH_AES_128_CCM_8":         "",
		"TLS_PSK_WITH_NULL_SHA":              "none that is offered",
		"TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8": "pre-shared keys",
	} {
		err := CheckCipherSuites(strings.Fields(list))
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", list, err)
		}
	}
	s := live(t, &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}, Settings{CipherSuites: []string{"TLS_PSK_WITH_AES_128_GCM_SHA256"}})
	if _, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: s.address, Identity: "meter", Key: bytes.Repeat([]byte("k"), 16), Timeout: time.Minute}); err == nil ||
		strings.Contains(err.Error(), "deadline") {
		t.Errorf("a suite that is not offered: %v", err)
	}
}
