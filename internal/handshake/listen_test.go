package handshake

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/internal/test/testcerts"
)

// serve serves HTTPS and reports the errors of failed handshakes.
func serve(t *testing.T) (address string, failed <-chan error, trusted *tls.Config) {
	t.Helper()
	ca, err := testcerts.NewCA("the CA")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 16)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "served over TLS "+r.TLS.ServerName)
	})}
	ended := make(chan error, 1)
	secure := HTTPS(l, &tls.Config{Certificates: []tls.Certificate{pair.TLS()}}, time.Minute, func(from netip.Addr, err error) {
		if !from.IsLoopback() {
			t.Errorf("from %s", from)
		}
		errs <- err
	})
	go func() { ended <- s.Serve(secure) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != http.ErrServerClosed { //nolint:errorlint // that one alone
			t.Error(err)
		}
	})
	return l.Addr().String(), errs, &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}
}

func TestAFailedHandshakeOfAnHTTPListenerIsReportedAndTheOthersAreServed(t *testing.T) {
	t.Parallel()
	address, failed, trusted := serve(t)
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	silent := dial() // holds back nobody
	defer silent.Close()
	_ = dial().Close() // a monitor is not reported: the next one is the first

	plain := dial()
	if _, err := io.WriteString(plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, _ := io.ReadAll(plain); !strings.HasPrefix(string(answer), "HTTP/1.0 400 ") {
		t.Errorf("a plain request was answered %q", answer)
	}
	if text := Text(<-failed); !strings.Contains(text, "does not speak TLS") {
		t.Error(text)
	}
	if err := tls.Client(dial(), &tls.Config{ServerName: "localhost"}).Handshake(); err == nil {
		t.Error("a client that does not know the CA trusts the listener")
	}
	if text := Text(<-failed); !strings.Contains(text, "refused the certificate of the listener") {
		t.Error(text)
	}

	good := tls.Client(dial(), trusted)
	if _, err := io.WriteString(good, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(good), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "served over TLS localhost" {
		t.Errorf("%q %v", body, err)
	}
}

func TestOfEachReasonOneAMinuteIsReported(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var shown []string
	r := &Reporter{Log: slog.New(slog.NewTextHandler(&log, nil)), Message: "ended", Show: func(reason, text string) { shown = append(shown, reason+": "+text) }}
	for range 3 {
		r.Report("api_tls", netip.MustParseAddr("10.0.0.7"), Reason, "no TLS")
	}
	r.Report("api_tls", netip.MustParseAddr("10.0.0.8"), "other", "what else")
	want := "tls-handshake: from 10.0.0.7 at listener api_tls: no TLS|other: from 10.0.0.8 at listener api_tls: what else"
	if got := strings.Join(shown, "|"); got != want || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("shown %s\nlogged %s", got, &log)
	}
}
