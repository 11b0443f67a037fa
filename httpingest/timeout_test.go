package httpingest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestTimeoutIsADeadline holds the context of a request against context.WithDeadline, for who waits and for who only looks.
func TestTimeoutIsADeadline(t *testing.T) {
	for name, end := range map[string]func(*timeout, context.CancelFunc){
		"time is over":           func(*timeout, context.CancelFunc) { time.Sleep(time.Minute) },
		"the connection is gone": func(_ *timeout, gone context.CancelFunc) { gone() },
		"the request is answered": func(c *timeout, _ context.CancelFunc) {
			c.stop()
		},
	} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				parent, gone := context.WithCancel(t.Context())
				defer gone()
				c := &timeout{Context: parent, ends: time.Now().Add(time.Minute)}
				defer c.stop()
				want, cancel := context.WithDeadline(parent, c.ends)
				defer cancel()
				if waits {
					_ = c.Done()
				}
				if ends, ok := c.Deadline(); c.Err() != nil || !ok || !ends.Equal(c.ends) {
					t.Fatalf("%s: at first %v, deadline %v, %v", name, c.Err(), ends, ok)
				}
				end(c, gone)
				synctest.Wait()
				if c.Err() == nil {
					t.Fatalf("%s, waited %v: goes on", name, waits)
				}
				if want.Err() != nil && c.Err() != want.Err() {
					t.Errorf("%s, waited %v: %v, want %v", name, waits, c.Err(), want.Err())
				}
				<-c.Done() // who comes late need not wait
			})
		}
	}
}
