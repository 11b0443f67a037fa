package httpingest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/loopback"
	"weir/internal/test/poll"
)

// TestFloodsDoNotKeepADeviceOut: silent connections, such that have sent one request, and half bodies, from many addresses; a device is
// served on its old connection and on new ones all the time.
func TestFloodsDoNotKeepADeviceOut(t *testing.T) {
	for name, sent := range map[string]string{
		"silent":       "",
		"half headers": "POST /weir/acme/events HTTP/1.1\r\n",
		"half bodies":  request(event)[:120],
		"one request":  "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			const slots = 100
			d := open(t, Config{MaxConnections: slots})
			to := strings.TrimPrefix(d.url, "http://")
			closed := d.handler.metrics.closed.WithLabelValues("full")
			post := func(c net.Conn) {
				t.Helper()
				if _, err := io.WriteString(c, request(event)); err != nil {
					t.Fatal(err)
				}
				res, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || res.StatusCode != http.StatusAccepted {
					t.Fatalf("%v, %v", res, err)
				}
			}
			kept := loopback.Dial(t, "127.0.1.1", to)
			for i := range 5 * slots {
				c := loopback.Dial(t, fmt.Sprintf("127.0.0.%d", 1+i%20), to)
				if _, err := io.WriteString(c, sent); err != nil {
					t.Fatal(err)
				}
				if i%50 == 0 {
					post(kept)
					post(loopback.Dial(t, fmt.Sprintf("127.0.2.%d", 1+i/50), to))
				}
			}
			poll.True(t, "connections were evicted", func() bool { return testutil.ToFloat64(closed) >= 4*slots })
			if n := testutil.ToFloat64(d.handler.metrics.connections); n > slots {
				t.Errorf("%v connections", n)
			}
		})
	}
}

// TestStalledLargeBodiesDoNotDelayAnotherAddress: an address has a quarter of the slots, and a body that stalls loses its slot.
func TestStalledLargeBodiesDoNotDelayAnotherAddress(t *testing.T) {
	for _, slots := range []int{1, 5, 32} {
		synctest.Test(t, func(t *testing.T) {
			d, p := inMemory(t, Config{MaxLargeBodies: slots})
			large := request(strings.Repeat("x", 200<<10))
			for range 2 * slots {
				c := p.dialFrom("127.0.0.1")
				go c.send(large[:70<<10])
				synctest.Wait()
			}
			good := p.dialFrom("127.0.0.2")
			go good.send(large)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := good.take(); !strings.HasPrefix(got, "HTTP/1.1 202") {
				t.Errorf("of %d slots: answered %q", slots, got)
			}
			if n := d.handler.large.Len(); n > max(slots/4, 1) {
				t.Errorf("of %d slots one address has %d", slots, n)
			}
			if n := testutil.ToFloat64(d.handler.metrics.largeStopped); slots < 4 && n == 0 {
				t.Error("none was stopped")
			}
		})
	}
}

// TestHeadersAreBounded: at the documented size.
func TestHeadersAreBounded(t *testing.T) {
	d := open(t, Config{})
	for size, want := range map[int]int{maxHeader: 202, maxHeader + 1: 431} {
		head := fmt.Sprintf("POST /weir/acme/events HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nX: ", len(event))
		c := loopback.Dial(t, "127.0.0.1", strings.TrimPrefix(d.url, "http://"))
		_, _ = fmt.Fprintf(c, "%s%s\r\n\r\n%s", head, strings.Repeat("x", size-len(head)-4), event)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != want {
			t.Errorf("%d bytes: %v, %v", size, res, err)
		}
	}
}
