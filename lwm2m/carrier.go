package lwm2m

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/command"
	"weir/ingest"
	"weir/lwm2m/coap"
	"weir/model"
)

// carrierName is the name by which dispatches to LwM2M devices are stored.
const carrierName = "lwm2m"

// An answer to a command that the intake does not take is handed over answerTries times, answerPause apart.
const (
	answerTries = 3
	answerPause = 250 * time.Millisecond
)

// wakeTimeout is how long it may take until a parked session is there again.
const wakeTimeout = 5 * time.Second

// carrier brings commands to registered devices: each is one exchange or several, whose end is the end of the command. What waits is a
// device, not a packet. It may be called while the desk holds a lock of its own: it calls the desk from goroutines only.
type carrier struct {
	s    *Server
	desk command.Desk
	room chan struct{} // commands that are performed at once

	mu   sync.Mutex
	busy map[int64]bool // devices with a claim or an exchange under way
}

func newCarrier(s *Server) *carrier {
	return &carrier{s: s, desk: s.deps.Desk, room: make(chan struct{}, s.cfg.CommandConcurrency), busy: map[int64]bool{}}
}

var _ command.Carrier = (*carrier)(nil)

// Commands returns the server as a carrier of commands; nil when Deps.Desk is.
func (s *Server) Commands() command.Carrier {
	if s.carrier == nil {
		return nil
	}
	return s.carrier
}

// Traits implements command.Carrier. A dispatch whose end was not reported, such as that of a run before, is PARKED by the check for
// stranded commands.
func (c *carrier) Traits() command.Traits {
	return command.Traits{Name: carrierName, Sources: []string{c.s.cfg.Source}, ByAnswer: true}
}

// Reach implements command.Carrier.
func (c *carrier) Reach(device int64) command.Reach {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	r := c.s.byDevice[device]
	switch {
	case r == nil:
		return command.Unknown
	case r.sleeps(c.s.now(), c.s.settings.Load().Awake):
		return command.Asleep
	}
	return command.Present
}

// Rhythm implements command.Carrier: a device in queue mode is back before its registration ends.
func (c *carrier) Rhythm(device int64) (back time.Duration, asleep bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	r := c.s.byDevice[device]
	if r == nil || !r.Queue {
		return 0, false
	}
	return max(r.lifetime()-c.s.now().Sub(r.Heard.Time()), 0), true
}

// Offer implements command.Carrier.
func (c *carrier) Offer(device int64) bool {
	if c.s.closing.Load() || c.s.registered(device) == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[device] {
		return true // the desk offers again when this one has ended
	}
	c.busy[device] = true
	c.s.begin(func() { c.claim(device) })
	return true
}

func (c *carrier) claim(device int64) {
	slept := c.Reach(device) == command.Asleep
	c.desk.Claim(device, carrierName, func(d command.Dispatch, ok bool) {
		if !ok {
			c.free(device)
			return
		}
		c.s.begin(func() { c.deliver(d, slept) })
	})
}

func (c *carrier) free(device int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, device)
}

// reachable tells the desk that a device can be reached.
func (c *carrier) reachable(device int64) { c.desk.Reachable(device) }

// deliver performs a command and reports its end. One that was claimed while the device slept is parked, also where it has woken up since: those
// that were parked before it go first.
func (c *carrier) deliver(d command.Dispatch, slept bool) {
	end := func(how command.End, text string) {
		c.free(d.DeviceID)
		c.desk.Ended(command.Receipt{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Carrier: carrierName, End: how, Text: text})
	}
	select {
	case c.room <- struct{}{}:
		defer func() { <-c.room }()
	case <-c.s.ctx.Done():
		end(command.Slept, "")
		return
	}
	c.s.mu.Lock()
	r := c.s.byDevice[d.DeviceID]
	var sess *session
	reachable := false
	if r != nil && !slept && !r.sleeps(c.s.now(), c.s.settings.Load().Awake) {
		reachable = true
	}
	c.s.mu.Unlock()
	if reachable {
		ctx, cancel := context.WithTimeout(c.s.ctx, wakeTimeout)
		sess = c.s.reach(ctx, r)
		cancel()
	}
	switch {
	case sess == nil:
		end(command.Slept, "")
		if !reachable && c.Reach(d.DeviceID) == command.Present {
			c.reachable(d.DeviceID)
		}
		return
	case d.Expires > 0 && model.MicrosOf(c.s.now()) >= d.Expires:
		end(command.Lost, "")
		return
	}
	c.s.metrics.attempted.WithLabelValues(opOf(d.Name)).Inc()
	payload, err := c.s.perform(sess, r, d)
	if errors.Is(err, errLong) { // other commands go meanwhile
		c.free(d.DeviceID)
		return
	}
	if err != nil {
		c.s.metrics.failed.WithLabelValues(opOf(d.Name)).Inc()
	}
	switch {
	case errors.As(err, new(badParameters)):
		end(command.Undeliverable, err.Error())
		return
	case errors.Is(err, errNoAnswer) && r.Queue || errors.Is(err, errEnded):
		c.s.mu.Lock()
		r.asleep = true
		c.s.mu.Unlock()
		end(command.Slept, "")
		return
	}
	c.answer(sess, d, payload, err)
	end(command.Acknowledged, "")
}

// answer hands the answer of a device to the log, and reports whether that has it.
func (c *carrier) answer(sess *session, d command.Dispatch, payload string, err error) bool {
	answer := model.Response{Command: d.Token, Nonce: d.Nonce, Success: err == nil, Payload: payload}
	if err != nil {
		answer.Error = err.Error()
	}
	for try := 1; ; try++ {
		one := answer
		a := &ingest.Arrival{Answer: &one}
		c.s.arrive(sess, &coap.Message{Type: coap.NonConfirmable}, a, []byte(payload), 0, true)
		taken := make(chan ingest.Answer, 1)
		c.s.deps.Intake.Accept(c.s.ctx, a, func(got ingest.Answer) { taken <- got })
		got := <-taken
		if got.Outcome == ingest.Stored {
			return true
		}
		if try == answerTries || c.s.ctx.Err() != nil {
			c.s.metrics.dropped("answer")
			c.s.log.Warn("the answer of a device to a command could not be stored", "device", d.Device, "command", d.Token, "reason", got.Reason)
			return false
		}
		wait, cancel := context.WithTimeout(c.s.ctx, answerPause)
		<-wait.Done()
		cancel()
	}
}
