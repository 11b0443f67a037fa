package broker

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/handshake"
	"weir/internal/test/testcerts"
)

// refusals are those that were shown and not yet taken, as TENANT|DEVICE|REASON|MISTAKE.
type refusals struct {
	mu    sync.Mutex
	shown []string
}

func (r *refusals) add(tenant, device, why, mistake string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown = append(r.shown, tenant+"|"+device+"|"+why+"|"+mistake)
}

func (r *refusals) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	shown := r.shown
	r.shown = nil
	return shown
}

// Nobody is named before a CONNECT: such ends are shown once a minute for each reason, with what the client speaks instead.
func TestAConnectionThatEndsBeforeItsConnectIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen refusals
		x := newBenchWith(t, Config{}, Deps{Refused: seen.add})
		defer x.stop()
		sends := func(text string) {
			c := x.dial(mqtt311)
			c.send([]byte(text))
			synctest.Wait()
			_ = c.conn.Close()
			synctest.Wait()
		}
		holds := func(what, reason string, parts ...string) {
			t.Helper()
			shown := seen.take()
			if len(shown) != 1 || !strings.HasPrefix(shown[0], "||"+reason+"|from ") {
				t.Errorf("%s: %q", what, shown)
			}
			for _, p := range parts {
				if len(shown) > 0 && !strings.Contains(shown[0], p) {
					t.Errorf("%s: %q lacks %q", what, shown[0], p)
				}
			}
		}
		sends("") // a monitor
		sends("GET / HTTP/1.1\r\n\r\n")
		holds("HTTP", "not-mqtt", "speaks HTTP")
		for range 7 {
			sends("\x16\x03\x01\x00\x05hello")
		}
		time.Sleep(time.Minute)
		sends("\x16\x03\x01\x00\x05hello")
		holds("TLS", "not-mqtt", "speaks TLS", "port of mqtts", "7 more since")
		time.Sleep(time.Minute)
		sends("\x20\x00")
		holds("another packet", "not-mqtt", "the first byte is 0x20")
		silent := x.dial(mqtt311)
		time.Sleep(time.Minute)
		_ = silent.conn.Close()
		holds("silence", "no-connect", "no CONNECT arrived")
	})
}

func TestAFailedHandshakeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	ca, err := testcerts.NewCA("the CA")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		client func(net.Conn)
		want   string
	}{
		"plain MQTT":         {func(c net.Conn) { _, _ = c.Write(connectPacket(mqtt5)) }, "does not speak TLS"},
		"one that distrusts": {func(c net.Conn) { _ = tls.Client(c, &tls.Config{ServerName: "localhost"}).Handshake() }, "refused the certificate of the listener (tls: "},
		"one of an old version": {func(c net.Conn) {
			_ = tls.Client(c, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}).Handshake()
		}, "handshake failed: "},
		"one that never goes on": {func(net.Conn) {}, "did not finish"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			near, far := connected(t)
			if what == "one that never goes on" {
				_ = near.SetDeadline(time.Now()) // it is over
			}
			go func() {
				c.client(far)
				_, _ = io.Copy(io.Discard, far)
			}()
			err := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{pair.TLS()}, MinVersion: tls.VersionTLS12}).HandshakeContext(context.Background())
			if err == nil {
				t.Fatal("the handshake succeeded")
			}
			if got := handshake.Text(err); !strings.Contains(got, c.want) {
				t.Errorf("%q lacks %q", got, c.want)
			}
		})
	}
}

// connected are the two ends of a connection.
func connected(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return near, far
}

// What a refused CONNECT lacks is said to those who watch; the client learns no more than that it is refused.
func TestARefusedConnectSaysWhatIsWrongWithItsCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen refusals
		x := newBenchWith(t, Config{}, Deps{Refused: seen.add})
		defer x.stop()
		for what, c := range map[string]struct {
			options func(*hello)
			want    string
		}{
			"an unknown token":           {func(h *hello) { h.user = "acme:none" }, "acme|dev1|not-authorized|no credential of the tenant is the access token in the user name"},
			"a token with a password":    {func(h *hello) { h.user, h.password = "acme:tok1", "x" }, "acme|dev1|not-authorized|no credential of the tenant is this user name with this password"},
			"another device's client id": {func(h *hello) { h.clientID = "weir:acme:dev2" }, "acme|dev2|not-authorized|the credential is of another device"},
		} {
			for _, v := range bothVersions {
				x.expectRefused(v, connectPacket(v, c.options), map[byte][]byte{mqtt311: {0x20, 2, 0, connackNotAuthorized}, mqtt5: refusedConnack(codeNotAuthorized)}[v]...)
				if shown := seen.take(); len(shown) != 1 || !strings.HasPrefix(shown[0], c.want) {
					t.Errorf("%s: %q, not %q", what, shown, c.want)
				}
			}
		}
	})
}
