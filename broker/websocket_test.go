package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"weir/internal/test/fixture"
	"weir/model"
)

// serve has the broker serve one more listener.
func (x *bench) serve(d Listener) pipes {
	ln := pipes{fixture.NewPipes(0)}
	go func() {
		if err := x.broker.ServeListener(context.Background(), ln, d); err != nil {
			x.t.Errorf("ServeDoor: %v", err)
		}
	}()
	return ln
}

const upgradeRequest = "GET /mqtt HTTP/1.1\r\nHost: weir\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqttv3.1, mqtt\r\n\r\n"

// wsPeer is the client's end of a WebSocket: it reads what frames carry and writes the frames that a test makes.
type wsPeer struct {
	net.Conn
	in     *bufio.Reader
	left   int
	pongs  []string
	status int // of the close frame
}

// openWS opens a WebSocket over conn.
func openWS(t testing.TB, conn net.Conn) *wsPeer {
	t.Helper()
	go io.WriteString(conn, upgradeRequest)
	w := &wsPeer{Conn: conn, in: bufio.NewReader(conn)}
	resp, err := http.ReadResponse(w.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The example of RFC 6455, section 1.3.
	if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || resp.Header.Get("Sec-WebSocket-Protocol") != "mqtt" {
		t.Fatalf("answered with %+v", resp)
	}
	return w
}

func (w *wsPeer) Read(p []byte) (int, error) {
	for w.left == 0 {
		var b [8]byte
		if _, err := io.ReadFull(w.in, b[:2]); err != nil {
			return 0, err
		}
		opcode, size := b[0]&15, int(b[1])
		switch size {
		case 126:
			_, _ = io.ReadFull(w.in, b[:2])
			size = int(binary.BigEndian.Uint16(b[:2]))
		case 127:
			_, _ = io.ReadFull(w.in, b[:8])
			size = int(binary.BigEndian.Uint64(b[:8]))
		}
		if opcode == frameBinary {
			w.left = size
			continue
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(w.in, payload); err != nil {
			return 0, err
		}
		switch opcode {
		case framePong:
			w.pongs = append(w.pongs, string(payload))
		case frameClose:
			w.status = int(binary.BigEndian.Uint16(payload))
		}
	}
	n, err := w.in.Read(p[:min(len(p), w.left)])
	w.left -= n
	return n, err
}

// clientFrame is a masked frame.
func clientFrame(first byte, payload ...byte) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n <= maxControl:
		b = append(b, frameMasked|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, frameMasked|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, frameMasked|127), uint64(n))
	}
	mask := []byte{1, 20, 0, 255}
	b = append(b, mask...)
	for i, p := range payload {
		b = append(b, p^mask[i&3])
	}
	return b
}

const wholeBinary = frameFin | frameBinary

// cuts are the ways in which a stream of packets can lie in frames.
func cuts(stream []byte) map[string][]byte {
	all := map[string][]byte{"all in one frame": clientFrame(wholeBinary, stream...)}
	var single, parts []byte
	for i, b := range stream {
		single = append(single, clientFrame(wholeBinary, b)...)
		opcode := byte(frameContinuation)
		if i == 0 {
			opcode = frameBinary
		}
		if i == len(stream)-1 {
			opcode |= frameFin
		}
		parts = append(parts, clientFrame(opcode, b)...)
		parts = append(parts, clientFrame(frameFin|framePing, 'p')...)
		if i > 0 {
			all[fmt.Sprintf("cut at %d", i)] = slices.Concat(clientFrame(wholeBinary, stream[:i]...), clientFrame(wholeBinary), clientFrame(wholeBinary, stream[i:]...))
		}
	}
	all["a frame for each byte"] = single
	all["fragments of a byte, with pings between them"] = parts[:len(parts)-7]
	return all
}

func TestPacketsMayLieInFramesInAnyWay(t *testing.T) {
	t.Parallel()
	stream := slices.Concat(connectPacket(mqtt311), publishPacket(mqtt311, qos1, theEvents, 7, "x"), []byte{pktPingreq << 4, 0})
	for name, frames := range cuts(stream) {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			w := openWS(t, x.serve(Listener{Name: "mqtt_ws", WebSocket: true}).dial())
			c := attach(t, w, mqtt311)
			c.send(frames)
			synctest.Wait()
			got := c.take()
			slices.SortFunc(got, slices.Compare) // the PINGRESP waits for nobody
			if want := [][]byte{{0x20, 2, 0, 0}, puback(7), {0xd0, 0}}; !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s: received % x", name, got)
			}
			if n := counted(t, x.broker.metrics.byListener.WithLabelValues("mqtt_ws")); n != 1 {
				t.Errorf("%s: %v connections on the listener", name, n)
			}
			w.Close()
			<-c.read
		})
	}
}

func TestBytesOfAWebSocketMayComeOneByOne(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		conn := x.serve(Listener{WebSocket: true}).dial()
		w := &wsPeer{Conn: conn, in: bufio.NewReader(conn)}
		go func() {
			for _, b := range slices.Concat([]byte(upgradeRequest), clientFrame(wholeBinary, connectPacket(mqtt5)...),
				clientFrame(wholeBinary, publishPacket(mqtt5, qos1, theEvents, 7, strings.Repeat("y", 200))...)) {
				conn.Write([]byte{b})
			}
		}()
		if _, err := http.ReadResponse(w.in, nil); err != nil {
			t.Fatal(err)
		}
		c := attach(t, w, mqtt5)
		synctest.Wait()
		if got := c.take(); len(got) != 2 || !slices.Equal(got[1], puback(7)) {
			t.Fatalf("received % x", got)
		}
		conn.Close()
		<-c.read
	})
}

// TestAFrameMayComeInPiecesAtAnyMoment: the head of a frame is read by pieces, and a deadline that was set for an earlier packet and
// ends between two of them must not lose one.
func TestAFrameMayComeInPiecesAtAnyMoment(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		w := openWS(t, x.serve(Listener{WebSocket: true}).dial())
		c := attach(t, w, mqtt5)
		c.send(clientFrame(wholeBinary, connectPacket(mqtt5, func(h *hello) { h.keepAlive = 60 })...))
		ping := clientFrame(wholeBinary, pktPingreq<<4, 0)
		time.Sleep(10 * time.Second)
		c.send(ping)
		time.Sleep(80*time.Second - time.Millisecond)
		c.send(ping[:1])
		time.Sleep(2 * time.Millisecond)
		c.send(ping[1:])
		synctest.Wait()
		if got := c.take(); len(got) != 3 || !slices.Equal(got[2], []byte{pktPingresp << 4, 0}) || c.isClosed() {
			t.Errorf("received % x", got)
		}
		w.Close()
		<-c.read
	})
}

func TestALargePacketInOneFrameAndInMany(t *testing.T) {
	t.Parallel()
	big := publishPacket(mqtt311, qos1, theEvents, 9, strings.Repeat("z", 900<<10))
	for name, frames := range map[string][]byte{"one": clientFrame(wholeBinary, big...), "many": func() (all []byte) {
		for part := range slices.Chunk(big, 1000) {
			all = append(all, clientFrame(wholeBinary, part...)...)
		}
		return all
	}()} {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			w := openWS(t, x.serve(Listener{WebSocket: true}).dial())
			c := attach(t, w, mqtt311)
			c.send(clientFrame(wholeBinary, connectPacket(mqtt311)...), frames)
			c.expect(name, []byte{0x20, 2, 0, 0}, puback(9))
			w.Close()
			<-c.read
		})
	}
}

// badFrames are what a client must not send, and the status with which it is told.
var badFrames = map[string]struct {
	frame  []byte
	status int
}{
	"text":                          {clientFrame(frameFin|frameText, []byte("hello")...), closeUnsupported},
	"not masked":                    {[]byte{wholeBinary, 1, 0}, closeProtocol},
	"a reserved bit":                {clientFrame(wholeBinary|0x40, 1), closeProtocol},
	"an unknown kind":               {clientFrame(frameFin|3, 1), closeProtocol},
	"an unknown control frame":      {clientFrame(frameFin|11, 1), closeProtocol},
	"a ping in fragments":           {clientFrame(framePing, 1), closeProtocol},
	"a ping that is too long":       {clientFrame(frameFin|framePing, make([]byte, 126)...), closeProtocol},
	"a continuation of nothing":     {clientFrame(frameFin|frameContinuation, 1), closeProtocol},
	"a message within another":      {slices.Concat(clientFrame(frameBinary), clientFrame(wholeBinary, 1)), closeProtocol},
	"a length that is no length":    {[]byte{wholeBinary, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, closeProtocol},
	"text, with something after it": {slices.Concat(clientFrame(frameFin|frameText, 1), make([]byte, 5000)), closeUnsupported},
}

func TestAFrameOfBadFormEndsTheConnectionAndSaysWhy(t *testing.T) {
	t.Parallel()
	for name, bad := range badFrames {
		for _, established := range []bool{false, true} {
			inBubble(t, Config{}, func(t *testing.T, x *bench) {
				w := openWS(t, x.serve(Listener{WebSocket: true}).dial())
				c := attach(t, w, mqtt5)
				if established {
					c.send(clientFrame(wholeBinary, connectPacket(mqtt5)...))
					synctest.Wait()
					c.take()
				}
				c.send(bad.frame)
				time.Sleep(2 * lastWordTimeout)
				c.expectClosed(name)
				if w.status != bad.status {
					t.Errorf("%s: closed with %d, want %d", name, w.status, bad.status)
				}
				if got := c.take(); established && (len(got) != 1 || !slices.Equal(got[0], disconnect(codeMalformed))) {
					t.Errorf("%s: the last word is % x", name, got)
				}
				w.Close()
			})
		}
	}
}

func TestAPingIsAnsweredAndTheLastWordIsHeard(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		w := openWS(t, x.serve(Listener{WebSocket: true}).dial())
		c := attach(t, w, mqtt5)
		c.send(clientFrame(wholeBinary, connectPacket(mqtt5)...))
		synctest.Wait()
		c.take()
		time.Sleep(20 * time.Second) // the deadline of the last write is long over
		c.send(clientFrame(frameFin|framePing, []byte("are you there")...))
		synctest.Wait()
		if !slices.Equal(w.pongs, []string{"are you there"}) {
			t.Errorf("pongs: %q", w.pongs)
		}
		if n := x.broker.drop(func(model.Binding) bool { return true }); n != 1 {
			t.Fatalf("%d connections were dropped", n)
		}
		time.Sleep(2 * lastWordTimeout)
		c.expect("dropped", disconnect(codeNotAuthorized))
		c.expectClosed("dropped")
		if w.status != closeNormal {
			t.Errorf("closed with %d", w.status)
		}
		w.Close()
	})
}

func TestARefusedWebSocketHandshakeGetsTheReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, old, new, want string }{
		{"another path", "/mqtt ", "/ ", "404"},
		{"POST", "GET", "POST", "405"},
		{"a browser that looks", "Upgrade: websocket\r\n", "", "426"},
		{"HTTP/1.0", "HTTP/1.1", "HTTP/1.0", "426"},
		{"an old version", "Version: 13", "Version: 8", "426"},
		{"no key", "dGhlIHNhbXBsZSBub25jZQ==", "short", "400"},
		{"no subprotocol", "mqttv3.1, mqtt", "chat", "400"},
		{"a body", "Host: weir", "Host: weir\r\nContent-Length: 3", "400"},
	} {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			conn := x.serve(Listener{WebSocket: true}).dial()
			request := strings.Replace(upgradeRequest, c.old, c.new, 1)
			if request == upgradeRequest {
				t.Fatalf("%s: nothing is different", c.name)
			}
			go io.WriteString(conn, request)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || !strings.HasPrefix(resp.Status, c.want) {
				t.Errorf("%s: %+v, %v", c.name, resp, err)
			}
			conn.Close()
			synctest.Wait()
			if n := counted(t, x.broker.metrics.refused.WithLabelValues("websocket")); n != 1 {
				t.Errorf("%s: counted %v", c.name, n)
			}
		})
	}
}

func TestAnUnauthenticatedRequestIsBoundedInSizeAndTime(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		ln := x.serve(Listener{WebSocket: true})
		long := ln.dial()
		sent := make(chan int)
		go func() {
			n, _ := io.WriteString(long, "GET /mqtt HTTP/1.1\r\nX: "+strings.Repeat("x", 1<<20))
			sent <- n
		}()
		if n := <-sent; n > maxUpgrade+readBuffer {
			t.Errorf("%d bytes of a header were taken", n)
		}
		slow := ln.dial()
		began := time.Now()
		go io.WriteString(slow, "GET /mqtt HTTP/1.1\r\n")
		_, err := slow.Read(make([]byte, 1))
		if took := time.Since(began); err == nil || took != 10*time.Second {
			t.Errorf("a slow one ended after %v: %v", took, err)
		}
	})
}

// TestAnotherImplementationIsUnderstood has a library of WebSockets speak with the door.
func TestAnotherImplementationIsUnderstood(t *testing.T) {
	t.Parallel()
	x := newBench(t, Config{}, nil)
	defer x.stop()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go x.broker.ServeListener(context.Background(), ln, Listener{WebSocket: true})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+ln.Addr().String()+"/mqtt", &websocket.DialOptions{Subprotocols: []string{"mqtt"}})
	if err != nil {
		t.Fatal(err)
	}
	conn := websocket.NetConn(ctx, ws, websocket.MessageBinary)
	if _, err := conn.Write(slices.Concat(connectPacket(mqtt311), publishPacket(mqtt311, qos1, theEvents, 3, "v"))); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if _, err := io.ReadFull(conn, got); err != nil || !slices.Equal(got, append([]byte{0x20, 2, 0, 0}, puback(3)...)) {
		t.Fatalf("received % x, %v", got, err)
	}
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Errorf("closing: %v", err)
	}
}

func FuzzWebSocketFrames(f *testing.F) {
	for _, b := range badFrames {
		f.Add(b.frame)
	}
	f.Add(clientFrame(wholeBinary, connectPacket(mqtt5)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		go io.Copy(io.Discard, theirs)
		c := &wsConn{Conn: ours, in: bufio.NewReader(strings.NewReader(string(b)))}
		n, _ := io.Copy(io.Discard, c)
		if n > int64(len(b)) {
			t.Errorf("%d bytes from %d", n, len(b))
		}
	})
}
