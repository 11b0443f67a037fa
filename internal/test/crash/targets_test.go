package crash_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// targets are other systems to which rules deliver: a server of webhooks and a broker of MQTT 5. They keep what they received by its idempotency
// key, over every end of the instance. They hang up on one of eight deliveries when they have it and have not said so.
type targets struct {
	web    net.Listener
	broker net.Listener

	mu    sync.Mutex
	of    map[string]string // what each key brought
	n     int               // with those that came again
	wrong []string
}

func newTargets(t *testing.T) *targets {
	t.Helper()
	g := &targets{of: map[string]string{}}
	for _, l := range []*net.Listener{&g.web, &g.broker} {
		var err error
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	server := &http.Server{Handler: http.HandlerFunc(g.ServeHTTP)}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(g.web) }) // until it is closed
	running.Go(func() { g.accept() })
	t.Cleanup(func() {
		_ = server.Close()
		_ = g.broker.Close()
		running.Wait()
	})
	return g
}

// received keeps a delivery, and says whether it is answered.
func (g *targets) received(key, body string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
	was, again := g.of[key]
	switch {
	case key == "":
		g.wrong = append(g.wrong, "a delivery of "+body+" without a key")
	case again && was != body:
		g.wrong = append(g.wrong, fmt.Sprintf("the key %s brought %q, and then %q", key, was, body))
	}
	g.of[key] = body
	return g.n%8 != 0
}

// has says whether a key was received.
func (g *targets) has(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.of[key]
	return ok
}

// keys are those that were received, and how often something came again.
func (g *targets) keys() (keys []string, again int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.of {
		keys = append(keys, key)
	}
	return keys, g.n - len(g.of)
}

// ServeHTTP implements http.Handler.
func (g *targets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil { // the instance was killed
		return
	}
	if !g.received(r.Header.Get("X-Weir-Idempotency-Key"), string(body)) {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusNoContent)
}

// accept takes connections of MQTT until the listener is closed.
func (g *targets) accept() {
	for {
		c, err := g.broker.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for r := bufio.NewReader(c); g.packet(c, r) == nil; {
			}
		}()
	}
}

// packet takes a packet and answers it.
func (g *targets) packet(c net.Conn, r *bufio.Reader) error {
	header, err := r.ReadByte()
	if err != nil {
		return err
	}
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	answer := []byte{0xd0, 0} // PINGRESP
	switch header >> 4 {
	case 1:
		answer = []byte{0x20, 3, 0, 0, 0}
	case 3:
		at := 2 + int(binary.BigEndian.Uint16(body))
		length, width := binary.Uvarint(body[at+2:])
		properties, payload := body[at+2+width:at+2+width+int(length)], body[at+2+width+int(length):]
		key := ""
		if _, rest, ok := bytes.Cut(properties, []byte("idempotency_key")); ok {
			key = string(rest[2 : 2+binary.BigEndian.Uint16(rest)])
		}
		if !g.received(key, string(payload)) {
			return io.EOF
		}
		answer = []byte{0x40, 2, body[at], body[at+1]}
	case 14:
		return io.EOF
	}
	_, err = c.Write(answer)
	return err
}

// config lets the instance reach the targets.
func (g *targets) config() string {
	return fmt.Sprintf("egress: {allowed_destinations: [\"127.0.0.1/32:%d\", \"127.0.0.1/32:%d\"]}\n", g.web.Addr().(*net.TCPAddr).Port, g.broker.Addr().(*net.TCPAddr).Port)
}
