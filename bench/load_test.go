package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// serve acknowledges PUBLISH packets after a delay, as answer says, until the peer goes. It has an inbox of its own, as a
// socket has: the client's writes do not wait for its reads.
func serve(c net.Conn, delay time.Duration, answer func(n int, id uint16) []byte) {
	type arrival struct {
		at time.Time
		id uint16
	}
	inbox := make(chan arrival, 1<<16)
	go func() {
		defer close(inbox)
		r := bufio.NewReader(c)
		for {
			if _, err := r.ReadByte(); err != nil {
				return
			}
			n, err := binary.ReadUvarint(r)
			if err != nil {
				return
			}
			body := make([]byte, n)
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			topic := int(binary.BigEndian.Uint16(body))
			inbox <- arrival{time.Now(), binary.BigEndian.Uint16(body[2+topic:])}
		}
	}()
	defer c.Close()
	n := 0
	for a := range inbox {
		time.Sleep(time.Until(a.at.Add(delay)))
		b := answer(n, a.id)
		if b == nil {
			return
		}
		n++
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

func puback(_ int, id uint16) []byte { return []byte{0x40, 2, byte(id >> 8), byte(id)} }

// crowd is so many senders, each before a server of its own.
func crowd(t *testing.T, n int, delay time.Duration, answer func(int, uint16) []byte) []*sender {
	t.Helper()
	var out []*sender
	for i := range n {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = near.Close() })
		go serve(far, delay, answer)
		out = append(out, &sender{client: &client{Conn: near, r: bufio.NewReader(near), topic: "t"}, body: newBody(live, uint64(i)), index: i, of: n})
	}
	return out
}

func TestAClosedLoopNeverHasMoreInFlightThanItsWindow(t *testing.T) {
	t.Parallel()
	for _, split := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ss := crowd(t, 1, 10*time.Millisecond, puback)
			var stop atomic.Bool
			time.AfterFunc(time.Second, func() { stop.Store(true) })
			ss[0].timed.Store(true)
			if err := closedLoop(20, split)(ss[0], &stop); err != nil {
				t.Fatal(err)
			}
			// 20 in flight at 10 ms make 2,000 a second; the last ones are taken in.
			if n := ss[0].acked.Load(); n < 1900 || n > 2100 || n != ss[0].sent {
				t.Errorf("%d acknowledged, %d sent", n, ss[0].sent)
			}
			if p := ss[0].lat.quantile(0.99); p < 9*time.Millisecond || p > 11*time.Millisecond {
				t.Errorf("p99 is %v", p)
			}
			closeAll(ss)
			synctest.Wait()
		})
	}
}

func TestAPacedLoadKeepsItsRateAndCountsAStandstill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ss := crowd(t, 4, 5*time.Millisecond, puback)
		b := &bench{warmup: time.Second, seconds: 10 * time.Second}
		o, err := b.drive(t.Context(), selfPID, ss, paced(400), nil)
		if err != nil {
			t.Fatal(err)
		}
		if o.rate < 395 || o.rate > 405 {
			t.Errorf("%.1f messages per second", o.rate)
		}
		if p := o.lat.quantile(0.99); p < 4*time.Millisecond || p > 6*time.Millisecond {
			t.Errorf("p99 is %v", p)
		}
		var sent int64
		for _, s := range ss {
			sent += s.sent
		}
		if o.acked != sent || o.acked < 4390 || o.acked > 4410 {
			t.Errorf("%d acknowledged, %d sent in eleven seconds", o.acked, sent)
		}
		closeAll(ss)

		// The server stands still for two seconds: whatever was due meanwhile waited, too.
		ss = crowd(t, 1, 0, func(n int, id uint16) []byte {
			if n == 500 {
				time.Sleep(2 * time.Second)
			}
			return puback(n, id)
		})
		if o, err = b.drive(t.Context(), selfPID, ss, paced(100), nil); err != nil {
			t.Fatal(err)
		}
		if p := o.lat.quantile(0.9); p < 900*time.Millisecond {
			t.Errorf("p90 is %v with a fifth of the messages delayed by 0 to 2 s", p)
		}
		closeAll(ss)
		synctest.Wait()
	})
}

func TestAServerThatDoesNotKeepItsWordIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(int, uint16) []byte
		want   string
	}{
		"out of order": {func(n int, id uint16) []byte { return puback(n, id+uint16(n/7)) }, "out of order"},
		"goes away": {func(n int, id uint16) []byte {
			if n == 30 {
				return nil
			}
			return puback(n, id)
		}, "30 acknowledged: "},
		"more than was sent": {func(_ int, id uint16) []byte {
			var b []byte
			for i := range uint16(100) {
				b = append(b, puback(0, id+i)...)
			}
			return b
		}, "acknowledged, "},
	} {
		synctest.Test(t, func(t *testing.T) {
			ss := crowd(t, 1, 0, c.answer)
			b := &bench{seconds: time.Second}
			_, err := b.drive(t.Context(), selfPID, ss, upTo(200, 20), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v", name, err)
			}
			closeAll(ss)
			synctest.Wait()
		})
	}
}

func TestQuantilesAreRightToThreePercent(t *testing.T) {
	t.Parallel()
	var a, b hist
	for us := range int64(100_000) {
		h := &a
		if us%2 == 0 {
			h = &b
		}
		h.add(time.Duration(us)*time.Microsecond, 1)
	}
	a.merge(&b)
	for _, q := range []float64{0.001, 0.1, 0.5, 0.99, 0.999} {
		want := time.Duration(q*100_000) * time.Microsecond
		if got := a.quantile(q); got < want-time.Microsecond || got > want+want/25+time.Microsecond {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	if a.add(24*time.Hour, 1); a.quantile(1) < time.Hour {
		t.Errorf("a day counts as %v", a.quantile(1))
	}
}
