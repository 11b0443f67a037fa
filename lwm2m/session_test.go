package lwm2m

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// slowToClose is a connection whose reads end at once when it is closed, as those of the library do, and whose alert is written only when it is let.
type slowToClose struct {
	closing, alert chan struct{}
}

func (c *slowToClose) Read([]byte) (int, error)    { <-c.closing; return 0, net.ErrClosed }
func (c *slowToClose) Write(b []byte) (int, error) { return len(b), nil }
func (c *slowToClose) RemoteAddr() net.Addr        { return &net.UDPAddr{} }
func (c *slowToClose) Close() error {
	close(c.closing)
	<-c.alert
	return nil
}

// TestNobodyComesBetweenASessionAndItsAlert: who reads a session is through with it only once the alert of who ends it is written, since the socket is closed then.
func TestNobodyComesBetweenASessionAndItsAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slowToClose{closing: make(chan struct{}), alert: make(chan struct{})}
		s := newSession(c, time.Now)
		through := make(chan struct{})
		go func() {
			defer close(through)
			defer s.close()
			s.run()
		}()
		go s.close()
		synctest.Wait()
		select {
		case <-through:
			t.Error("the session is over before its alert is written")
		default:
		}
		close(c.alert)
		<-through
	})
}
