package broker

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/test/testcerts"
)

// secured are the parts of a test of TLS.
type secured struct {
	*bench
	ca     *testcerts.CA
	server testcerts.Pair
	ln     pipes
}

// inSecureBubble runs test with a broker that serves TLS, too, and asks for client certificates.
func inSecureBubble(t *testing.T, cfg Config, ws bool, test func(*testing.T, *secured)) {
	t.Helper()
	inBubble(t, cfg, func(t *testing.T, x *bench) {
		s := &secured{bench: x}
		var err error
		if s.ca, err = testcerts.NewCA("test CA"); err != nil {
			t.Fatal(err)
		}
		if s.server, err = s.ca.Server(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		s.ln = x.serve(Listener{Name: "mqtts", WebSocket: ws, TLS: &tls.Config{Certificates: []tls.Certificate{s.server.TLS()},
			ClientCAs: s.ca.Pool(), ClientAuth: tls.VerifyClientCertIfGiven, SessionTicketsDisabled: true}})
		test(t, s)
	})
}

// secure speaks TLS 1.2 with the broker, whose client learns within the handshake whether its certificate is taken. With
// own that is shown.
func (s *secured) secure(own *testcerts.Pair) (*tls.Conn, error) {
	c := &tls.Config{RootCAs: s.ca.Pool(), ServerName: "localhost", MaxVersion: tls.VersionTLS12}
	if own != nil {
		one := own.TLS()
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &one, nil }
	}
	conn := tls.Client(s.ln.dial(), c)
	return conn, conn.Handshake()
}

func (s *secured) client(ca *testcerts.CA) testcerts.Pair {
	s.t.Helper()
	p, err := ca.Client("dev1")
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// knows makes the certificate a credential of dev1.
func (s *secured) knows(p testcerts.Pair) {
	s.verifier.proofs[Claim{Tenant: "acme", Type: X509Certificate, ID: p.Hash()}] = s.verifier.proofs[Claim{Tenant: "acme", Type: AccessToken, ID: "tok1"}]
}

func byCertificate(h *hello) { h.user = "acme:" }

func TestACredentialOpensAConnectionOverTLS(t *testing.T) {
	t.Parallel()
	for _, ws := range []bool{false, true} {
		inSecureBubble(t, Config{}, ws, func(t *testing.T, s *secured) {
			conn, err := s.secure(nil)
			if err != nil {
				t.Fatal(err)
			}
			send, over := []byte(nil), net.Conn(conn)
			if send = slices.Concat(connectPacket(mqtt311), publishPacket(mqtt311, qos1, theEvents, 7, "x")); ws {
				over, send = openWS(t, conn), clientFrame(wholeBinary, send...)
			}
			c := attach(t, over, mqtt311)
			c.send(send)
			c.expect("over TLS", []byte{0x20, 2, 0, 0}, puback(7))
			if n := counted(t, s.broker.metrics.byListener.WithLabelValues("mqtts")); n != 1 {
				t.Errorf("%v connections on the listener", n)
			}
			conn.NetConn().Close()
			<-c.read
			synctest.Wait()
			if n := counted(t, s.broker.metrics.byListener.WithLabelValues("mqtts")); n != 0 {
				t.Errorf("%v connections on the listener at the end", n)
			}
		})
	}
}

func TestACertificateIsACredential(t *testing.T) {
	t.Parallel()
	inSecureBubble(t, Config{}, false, func(t *testing.T, s *secured) {
		known, unknown := s.client(s.ca), s.client(s.ca)
		s.knows(known)
		for _, c := range []struct {
			name string
			own  *testcerts.Pair
			say  func(*hello)
			code byte
		}{
			{"the device's", &known, byCertificate, codeSuccess},
			{"one that nobody registered", &unknown, byCertificate, codeNotAuthorized},
			{"none", nil, byCertificate, codeNotAuthorized},
			{"one beside an access token", &unknown, func(*hello) {}, codeSuccess},
			{"the hash as an access token", nil, func(h *hello) { h.user += known.Hash() }, codeNotAuthorized},
			{"with a password that means nothing", &known, func(h *hello) { byCertificate(h); h.password = "x" }, codeNotAuthorized},
			{"of another device", &known, func(h *hello) { byCertificate(h); h.clientID = "weir:acme:dev2" }, codeNotAuthorized},
			{"in another tenant", &known, func(h *hello) { h.user = "globex:"; h.clientID = "weir:globex:dev1" }, codeNotAuthorized},
			{"without a user name", &known, func(h *hello) { h.noUser = true }, codeNotAuthorized},
		} {
			conn, err := s.secure(c.own)
			if err != nil {
				t.Fatal(err)
			}
			peer := attach(t, conn, mqtt5)
			peer.send(connectPacket(mqtt5, c.say))
			synctest.Wait()
			if got := peer.take(); len(got) == 0 || got[0][3] != c.code {
				t.Errorf("%s: CONNACK % x, want %#x", c.name, got, c.code)
			}
			conn.NetConn().Close()
			<-peer.read
			time.Sleep(2 * lastWordTimeout)
		}
	})
}

func TestACertificateOfAnotherCAEndsTheHandshake(t *testing.T) {
	t.Parallel()
	inSecureBubble(t, Config{}, false, func(t *testing.T, s *secured) {
		other, err := testcerts.NewCA("another CA")
		if err != nil {
			t.Fatal(err)
		}
		p := s.client(other)
		s.knows(p) // even so
		conn, err := s.secure(&p)
		if err == nil {
			t.Fatal("it was taken")
		}
		conn.NetConn().Close()
		synctest.Wait()
		if n := counted(t, s.broker.metrics.refused.WithLabelValues("tls-handshake")); n != 1 {
			t.Errorf("counted %v", n)
		}
	})
}

func TestAConnectionEndsWithItsCertificate(t *testing.T) {
	t.Parallel()
	inSecureBubble(t, Config{MaxSession: 100 * time.Hour, MaxKeepAlive: 10 * time.Hour}, false, func(t *testing.T, s *secured) {
		p := s.client(s.ca)
		s.knows(p)
		conn, err := s.secure(&p)
		if err != nil {
			t.Fatal(err)
		}
		c := attach(t, conn, mqtt5)
		c.send(connectPacket(mqtt5, byCertificate, func(h *hello) { h.keepAlive = 40_000 }))
		synctest.Wait()
		c.take()
		for time.Until(p.Cert.NotAfter) > time.Hour {
			c.send([]byte{pktPingreq << 4, 0})
			time.Sleep(time.Hour)
			synctest.Wait()
			if c.take(); c.isClosed() {
				t.Fatalf("ended %v before", time.Until(p.Cert.NotAfter))
			}
		}
		c.send([]byte{pktPingreq << 4, 0})
		synctest.Wait()
		c.take()
		time.Sleep(time.Until(p.Cert.NotAfter) + 2*time.Second)
		c.expect("over", disconnect(codeMaximumConnectTime))
		conn.NetConn().Close()
		<-c.read
	})
}

func TestASlowHandshakeDelaysNoOtherClient(t *testing.T) {
	t.Parallel()
	inSecureBubble(t, Config{MaxHandshakes: 4}, false, func(t *testing.T, s *secured) {
		var idle []net.Conn
		for range 3 {
			idle = append(idle, s.ln.dial()) // and never a byte
		}
		began := time.Now()
		conn, err := s.secure(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := attach(t, conn, mqtt311)
		c.send(connectPacket(mqtt311))
		c.expect("beside the slow ones", []byte{0x20, 2, 0, 0})
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		half := s.ln.dial() // a whole hello by and by, one byte in three seconds
		go func() {
			for _, b := range []byte{22, 3, 1, 0, 100, 1, 0, 0, 96} {
				if _, err := half.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(3 * time.Second)
			}
		}()
		for _, conn := range append(idle, half) {
			_, _ = io.Copy(io.Discard, conn)
			if took := time.Since(began); took != 10*time.Second {
				t.Errorf("a slow one was closed after %v", took)
			}
		}
		time.Sleep(3 * time.Second)
		if n := counted(t, s.broker.metrics.refused.WithLabelValues("tls-handshake")); n != 4 {
			t.Errorf("counted %v", n)
		}
		conn.NetConn().Close()
		<-c.read
	})
}

func TestOfTooManyHandshakesTheOldestGoes(t *testing.T) {
	t.Parallel()
	inSecureBubble(t, Config{MaxHandshakes: 2}, false, func(t *testing.T, s *secured) {
		first := s.ln.dial()
		synctest.Wait() // it is let in before the others come
		for range 2 {
			defer s.ln.dial().Close()
		}
		began := time.Now()
		if _, err := first.Read(make([]byte, 1)); err == nil || time.Since(began) > 0 {
			t.Errorf("the oldest is open: %v after %v", err, time.Since(began))
		}
	})
}

// halves writes in two pieces with a moment between them, once it is told to.
type halves struct {
	net.Conn
	pause time.Duration
}

func (h *halves) Write(p []byte) (int, error) {
	if h.pause == 0 {
		return h.Conn.Write(p)
	}
	n, err := h.Conn.Write(p[:3])
	if err != nil {
		return n, err
	}
	time.Sleep(h.pause)
	m, err := h.Conn.Write(p[3:])
	return n + m, err
}

// TestARecordOfTLSMayComeInPiecesAtAnyMoment: a deadline that was set for an earlier packet ends between two of them.
func TestARecordOfTLSMayComeInPiecesAtAnyMoment(t *testing.T) {
	t.Parallel()
	inSecureBubble(t, Config{}, false, func(t *testing.T, s *secured) {
		raw := &halves{Conn: s.ln.dial()}
		conn := tls.Client(raw, &tls.Config{RootCAs: s.ca.Pool(), ServerName: "localhost"})
		c := attach(t, conn, mqtt5)
		c.send(connectPacket(mqtt5, func(h *hello) { h.keepAlive = 60 }))
		time.Sleep(10 * time.Second)
		c.send([]byte{pktPingreq << 4, 0})
		time.Sleep(80*time.Second - time.Millisecond)
		raw.pause = 2 * time.Millisecond
		c.send([]byte{pktPingreq << 4, 0})
		synctest.Wait()
		if got := c.take(); len(got) != 3 || !slices.Equal(got[2], []byte{pktPingresp << 4, 0}) || c.isClosed() {
			t.Errorf("received % x", got)
		}
		raw.Close()
		<-c.read
	})
}
