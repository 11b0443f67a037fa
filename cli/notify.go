package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

// notifier reports to systemd how a service is doing, by the protocol of sd_notify(3): datagrams of NAME=value lines to the
// socket that NOTIFY_SOCKET names. Without one it does nothing.
type notifier struct{ socket string }

func (c *command) notifier() notifier { return notifier{c.getenv("NOTIFY_SOCKET")} }

// notify sends what has become true. An error is worth a line in the log and no more: the service runs as well.
func (n notifier) notify(states ...string) error {
	if n.socket == "" {
		return nil
	}
	if n.socket[0] != '/' && n.socket[0] != '@' { // @ is the abstract name space, which Go spells the same
		return errors.New("NOTIFY_SOCKET names no unix socket")
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(strings.Join(states, "\n")))
	return errors.Join(err, conn.Close())
}

// initSystem reports to the init system how an instance is doing. To that an instance is ready as soon as devices are served: a long
// log to apply must not get a start killed.
type initSystem struct {
	notifier
	log      *slog.Logger
	stopping func() // notifies once the stop begins
}

func newInitSystem(ctx context.Context, n notifier, log *slog.Logger) *initSystem {
	s := &initSystem{notifier: n, log: log}
	s.stopping = sync.OnceFunc(func() {
		context.AfterFunc(ctx, func() { s.say("STOPPING=1", "STATUS=Stopping") })
	})
	return s
}

func (s *initSystem) say(states ...string) {
	if err := s.notify(states...); err != nil {
		s.log.Warn("the init system could not be notified", "state", states[0], "error", err)
	}
}

// serving says that devices are served and queries wait, ready that everything is answered.
func (s *initSystem) serving() {
	s.say("READY=1", "STATUS=Serving devices; queries wait for what was acknowledged before the start")
	s.stopping()
}

func (s *initSystem) ready() {
	s.say("READY=1", "STATUS=Ready")
	s.stopping()
}

// waits says what a start or a stop waits for, and asks for the time that it may take.
func (s *initSystem) waits(text string, more time.Duration) {
	s.say("STATUS="+text, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", more.Microseconds()))
}
