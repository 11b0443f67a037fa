package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
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

// serviceReady returns what to do once an instance is ready: the init system is notified, and notified again when the stop begins.
func (c *command) serviceReady(ctx context.Context, log *slog.Logger) func() {
	n := c.notifier()
	say := func(states ...string) {
		if err := n.notify(states...); err != nil {
			log.Warn("the init system could not be notified", "state", states[0], "error", err)
		}
	}
	return func() {
		say("READY=1", "STATUS=Ready")
		context.AfterFunc(ctx, func() { say("STOPPING=1", "STATUS=Stopping") })
	}
}
