package connlimit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A client whose body is refused while it is still on its way reads the whole answer and its end, and no reset of the connection.
func TestARefusalIsReadWhileTheBodyIsOnItsWay(t *testing.T) {
	t.Parallel()
	limit := New(4, Metrics{prometheus.NewGauge(prometheus.GaugeOpts{}), prometheus.NewCounter(prometheus.CounterOpts{}), NewClosed("closed")})
	h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/close" {
			w.Header().Set("Connection", "close")
		}
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	}), ReadHeaderTimeout: time.Minute}
	limit.Guard(h)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(limit.Listen(l)) }()
	defer func() {
		if err := errors.Join(h.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	for _, path := range []string{"/", "/close"} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, 1<<20, strings.Repeat("x", 64<<10)); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 413") || !strings.HasSuffix(string(answer), "too large\n") {
			t.Errorf("%s: %q, %v", path, answer, err)
		}
	}
}
