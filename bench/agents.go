package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// agent is a device that takes commands: it acknowledges each, and answers it.
type agent struct {
	*client
	index     int
	responses string     // topic
	work      *agentWork // of all
	body      *body      // of its readings; nil: it sends none
	due       []time.Time
	sent      int64 // publishes
	acked     int64
	commands  int64 // that were taken
	out       []byte
	lat       hist // from the reading that orders a command to the command
	over      atomic.Bool
}

// agentWork is what agents do, and what they have done together.
type agentWork struct {
	taken    func(token []byte, at time.Time) // is called for each command; nil: nobody asks
	silent   bool                             // commands are acknowledged and not answered
	timed    atomic.Bool                      // whether delays are kept
	enough   atomic.Bool                      // no further readings are sent
	commands atomic.Int64
}

// dialAgent connects a device of a tenant and subscribes it to its commands.
func (in *instance) dialAgent(ctx context.Context, tenant, device, secret string, index int, w *agentWork) (*agent, error) {
	c, err := dialMQTT(ctx, in.mqtt, "weir:"+tenant+":"+device, tenant+":"+secret, "weir/"+tenant+"/devices/"+device+"/events")
	if err != nil {
		return nil, err
	}
	a := &agent{client: c, index: index, responses: "weir/" + tenant + "/command-responses/" + device, work: w}
	if _, err := c.Write(subscribePacket("weir/" + tenant + "/device-commands/" + device)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return a, nil
}

// agents connects the first n devices, so many a second; 0: as fast as it goes.
func (in *instance) agents(ctx context.Context, n int, perSecond float64, w *agentWork) (*fleetOfAgents, error) {
	f := &fleetOfAgents{all: make([]*agent, n), failed: make(chan error, n)}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	began := time.Now()
	for i := range n {
		if perSecond > 0 {
			if err := pause(ctx, time.Until(began.Add(time.Duration(float64(i)/perSecond*float64(time.Second))))); err != nil {
				break
			}
		}
		g.Go(func() (err error) {
			a, err := in.dialAgent(gctx, tenant, deviceToken(i), accessToken(i), i, w)
			if err != nil {
				return err
			}
			f.all[i] = a
			if perSecond > 0 {
				f.begin(a)
			}
			return nil
		})
	}
	return f, g.Wait()
}

// fleetOfAgents are agents at work.
type fleetOfAgents struct {
	all    []*agent
	wg     sync.WaitGroup
	failed chan error
	closed bool
}

func (f *fleetOfAgents) begin(a *agent) {
	f.wg.Go(func() {
		if err := a.run(); !a.over.Load() {
			f.failed <- fmt.Errorf("agent %d, %d commands: %w", a.index, a.commands, err)
		}
	})
}

// close ends all connections and returns what failed before.
func (f *fleetOfAgents) close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	for _, a := range f.all {
		if a != nil {
			a.over.Store(true)
			_ = a.Close()
		}
	}
	f.wg.Wait()
	close(f.failed)
	return firstOf(f.failed)
}

// until waits until a condition holds, an agent fails or the time is over.
func (f *fleetOfAgents) until(ctx context.Context, longest time.Duration, holds func() (bool, error)) error {
	for end := time.Now().Add(longest); ; {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %s", longest)
		}
		select {
		case err := <-f.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// order sends two readings, the first of which crosses the threshold of the rule that orders a command.
func (a *agent) order() {
	a.due = append(a.due, time.Now())
	for range 2 {
		a.publish(a.topic, a.body.append(nil))
	}
}

func (a *agent) publish(topic string, payload []byte) {
	a.out = appendPublish(a.out, topic, a.sent, payload)
	a.sent++
}

func (a *agent) flush() error {
	if len(a.out) == 0 {
		return nil
	}
	_, err := a.Write(a.out)
	a.out = a.out[:0]
	return err
}

// run takes commands until the connection ends, and says why it did.
func (a *agent) run() error {
	var body []byte
	for {
		if a.r.Buffered() == 0 {
			if err := a.flush(); err != nil {
				return err
			}
		}
		header, err := a.r.ReadByte()
		if err != nil {
			return err
		}
		n, err := binary.ReadUvarint(a.r)
		if err != nil {
			return err
		}
		if body = append(body[:0], make([]byte, n)...); n > 0 {
			if _, err := io.ReadFull(a.r, body); err != nil {
				return err
			}
		}
		switch header >> 4 {
		case 3:
			if err := a.command(header, body); err != nil {
				return err
			}
		case 4:
			if id := binary.BigEndian.Uint16(body); id != packetID(a.acked) {
				return fmt.Errorf("PUBACK %d out of order, expected %d", id, packetID(a.acked))
			}
			a.acked++
		case 9:
		default:
			return fmt.Errorf("unexpected packet % x", header)
		}
	}
}

var errCommand = errors.New("a command cannot be read")

// command takes a command.
func (a *agent) command(header byte, body []byte) error {
	now := time.Now()
	if header&0x06 != 0x02 || len(body) < 4 {
		return errCommand
	}
	at := 2 + int(binary.BigEndian.Uint16(body))
	if len(body) < at+2 {
		return errCommand
	}
	a.out = append(append(a.out, 0x40, 2), body[at:at+2]...)
	token, nonce := member(body[at+2:], "token"), member(body[at+2:], "dispatchNonce")
	if token == nil || nonce == nil {
		return errCommand
	}
	a.commands++
	a.work.commands.Add(1)
	if a.work.taken != nil {
		a.work.taken(token, now)
	}
	if a.work.silent {
		return nil
	}
	a.publish(a.responses, fmt.Appendf(nil, `{"commandToken":%q,"success":true,"dispatchNonce":%q}`, token, nonce))
	if a.body == nil || len(a.due) == 0 {
		return nil
	}
	if a.work.timed.Load() {
		a.lat.add(now.Sub(a.due[0]), 1)
	}
	if a.due = a.due[1:]; !a.work.enough.Load() {
		a.order()
	}
	return nil
}

// member is the text of a member of a JSON object, nil where it has none; nothing in it is escaped.
func member(object []byte, name string) []byte {
	_, rest, ok := bytes.Cut(object, []byte(`"`+name+`":"`))
	if !ok {
		return nil
	}
	text, _, ok := bytes.Cut(rest, []byte(`"`))
	if !ok {
		return nil
	}
	return text
}
