package mqttclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"
)

// Link keeps a session open: it connects again when the session ends, after a wait that grows from MinWait to MaxWait with each failure in a row.
type Link struct {
	// Options returns how the next session is opened; TLS files are read in it. The version counts only when Auto is not set.
	Options func() (SessionOptions, error)
	// Auto begins with MQTT 5 and goes on with 3.1.1 where the broker does not speak it: reason code 0x84, return code 1, or two
	// connections in a row that end without CONNACK. That is remembered until the next failure.
	Auto bool
	// Up is called with each session, and prepares it: subscribes, publishes. An error ends the session, and counts as a failure.
	Up func(ctx context.Context, s *Session) error
	// Ending is called when ctx has ended, before the last session is closed; nil: nothing is.
	Ending func(s *Session)
	// Down is called with why a session ended or could not be opened, and how long the next attempt waits.
	Down func(err error, wait time.Duration)
	// MinWait and MaxWait bound the wait; default 1 s and 30 s.
	MinWait, MaxWait time.Duration

	version byte
	silent  int // connections in a row without CONNACK
}

// Run keeps sessions open until ctx ends, then closes the last one. It returns nil.
func (l *Link) Run(ctx context.Context) error {
	if l.MinWait <= 0 {
		l.MinWait = time.Second
	}
	if l.MaxWait <= 0 {
		l.MaxWait = 30 * time.Second
	}
	l.version = MQTT5
	wait := l.MinWait
	for ctx.Err() == nil {
		up, err := l.one(ctx)
		if ctx.Err() != nil {
			break
		}
		if up {
			wait = l.MinWait
		}
		if errors.Is(err, errOther) { // at once, with the other version
			continue
		}
		pause := Jitter(wait)
		if l.Down != nil {
			l.Down(err, pause)
		}
		wait = min(2*wait, l.MaxWait)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// Jitter shortens a wait by up to a half, so that many clients of a broker do not come back together.
func Jitter(wait time.Duration) time.Duration { return wait - rand.N(wait/2+1) }

var errOther = errors.New("mqttclient: the other version")

// one opens a session and waits for its end. up says that it was prepared.
func (l *Link) one(ctx context.Context) (up bool, err error) {
	o, err := l.Options()
	if err != nil {
		return false, err
	}
	if l.Auto {
		o.Version = l.version
	}
	s, err := Open(ctx, o)
	if err != nil {
		return false, l.other(err)
	}
	l.silent = 0
	defer s.Close()
	if err := l.Up(ctx, s); err != nil {
		l.version = MQTT5
		return false, err
	}
	select {
	case <-s.Done():
		err = s.Err()
	case <-ctx.Done():
		if l.Ending != nil {
			l.Ending(s)
		}
	}
	l.version = MQTT5
	return true, err
}

// other decides whether the failure is one of the version.
func (l *Link) other(err error) error {
	if !l.Auto {
		return err
	}
	closed := errors.Is(err, ErrNoConnack)
	if closed {
		l.silent++
	} else {
		l.silent = 0
	}
	if l.version == MQTT5 && (IsOtherVersion(err) && !closed || closed && l.silent >= 2) {
		l.version, l.silent = MQTT311, 0
		return errOther
	}
	if !closed {
		l.version = MQTT5
	}
	return err
}

// IsOtherVersion reports whether a broker that was greeted with MQTT 5 may speak MQTT 3.1.1 only.
func IsOtherVersion(err error) bool {
	r, refused := errors.AsType[*Refused](err)
	return refused && (r.Code == 0x84 || r.Code == 1 && r.Version == MQTT311) || errors.Is(err, ErrNoConnack)
}

// isReset reports whether the other side has closed a connection on which something was still on its way.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
