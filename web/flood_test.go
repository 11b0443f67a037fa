package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/loopback"
	"weir/internal/test/poll"
)

// listening serves a front on loopback.
func listening(t *testing.T, cfg Config) (*Server, string) {
	t.Helper()
	s := newServer(t, cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.http.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

// TestFloodsDoNotKeepAUserOut: silent connections, such that have sent one request, and half bodies, from many addresses; a user is served
// on an old connection and on new ones all the time.
func TestFloodsDoNotKeepAUserOut(t *testing.T) {
	for name, sent := range map[string]string{
		"silent":      "",
		"half bodies": "POST /reads HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\n\r\n{",
		"one request": "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			const slots = 100
			cfg := testConfig()
			cfg.MaxConnections = slots
			cfg.Handlers["POST /reads"] = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
			s, to := listening(t, cfg)
			get := func(c net.Conn) {
				t.Helper()
				if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				res, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || res.StatusCode != http.StatusOK {
					t.Fatalf("%v, %v", res, err)
				}
			}
			kept := loopback.Dial(t, "127.0.1.1", to)
			for i := range 5 * slots {
				if _, err := io.WriteString(loopback.Dial(t, fmt.Sprintf("127.0.0.%d", 1+i%20), to), sent); err != nil {
					t.Fatal(err)
				}
				if i%50 == 0 {
					get(kept)
					get(loopback.Dial(t, fmt.Sprintf("127.0.2.%d", 1+i/50), to))
				}
			}
			poll.True(t, "connections were evicted", func() bool { return testutil.ToFloat64(s.listen.Closed.WithLabelValues("full")) >= 4*slots })
			if n := testutil.ToFloat64(s.listen.Connections); n > slots {
				t.Errorf("%v connections", n)
			}
		})
	}
}

// TestHeadersAreBounded: at the documented size.
func TestHeadersAreBounded(t *testing.T) {
	_, to := listening(t, testConfig())
	for size, want := range map[int]int{maxHeader: http.StatusOK, maxHeader + 1: http.StatusRequestHeaderFieldsTooLarge} {
		const head = "GET /healthz HTTP/1.1\r\nHost: x\r\nX: "
		c := loopback.Dial(t, "127.0.0.1", to)
		_, _ = io.WriteString(c, head+strings.Repeat("x", size-len(head)-4)+"\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != want {
			t.Errorf("%d bytes: %v, %v", size, res, err)
		}
	}
}
