package broker

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"weir/ingest"
	"weir/internal/carry"
	"weir/model"
)

// Carried hands messages to the intake that an edge has put into a file which was carried by hand, as if the edge had relayed them: under their
// numbers, with the source of the broker. It needs no broker that runs.
type Carried struct {
	InstanceID string
	Source     string
	Intake     Intake
	Edges      Edges
}

// What is not taken at once is tried again.
const (
	carriedPause  = time.Second
	carriedWait   = 24 * time.Hour // for the ceiling of the tenant
	carriedTrials = 120            // without one message that is taken
)

// ErrNotTaken says that messages were not taken: the instance has no room, or its transports are closed. The text says why.
var ErrNotTaken = errors.New("broker: the instance takes no message now")

// Take hands messages over and waits until all of them are synced in the log. A message that the edge may not send, or that does not decode, is there as a
// dead letter. It waits for the ceiling of the tenant and for room in the log. After an error the same messages may be taken again: what is there is
// a repeat.
func (i *Carried) Take(ctx context.Context, edge model.Binding, install string, messages []carry.Message) error {
	left, idle := messages, 0
	for {
		rest, why, err := i.once(ctx, edge, install, left)
		switch {
		case err != nil:
			return err
		case len(rest) == 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if idle++; len(rest) < len(left) {
			idle = 0
		}
		if left = rest; idle >= carriedTrials {
			return errors.Join(ErrNotTaken, errors.New(why))
		}
		pause := time.NewTimer(carriedPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

// once hands messages over, and returns those that were not taken, and why.
func (i *Carried) once(ctx context.Context, edge model.Binding, install string, messages []carry.Message) (rest []carry.Message, why string, err error) {
	answers := make([]ingest.Answer, len(messages))
	ended := make(chan struct{})
	var open atomic.Int64
	open.Store(1)
	done := func() {
		if open.Add(-1) == 0 {
			close(ended)
		}
	}
	handed := 0
	for n := range messages {
		a, fault := i.arrival(ctx, edge, install, &messages[n])
		if err = fault; err != nil {
			break
		}
		open.Add(1)
		handed++
		i.Intake.Accept(ctx, a, func(answer ingest.Answer) {
			answers[n] = answer
			done()
		})
		if ctx.Err() != nil {
			break
		}
	}
	done()
	<-ended
	for n := range messages {
		if n >= handed || answers[n].Outcome != ingest.Stored {
			rest = append(rest, messages[n])
		}
		if n < handed && answers[n].Outcome != ingest.Stored {
			why = string(answers[n].Reason)
		}
	}
	return rest, why, err
}

// arrival is what a message is for the intake, as relay makes it. CannotRefuse: nobody is there to be told, so that what is unfit is kept
// as a dead letter, and each number of the file has an end.
func (i *Carried) arrival(ctx context.Context, edge model.Binding, install string, m *carry.Message) (*ingest.Arrival, error) {
	tenant, device, purpose := deviceTopic(i.InstanceID, m.Topic)
	a := &ingest.Arrival{Transport: ingest.TransportUplink, Source: i.Source, Tenant: edge.Tenant, Topic: device, Body: m.Payload,
		Link: "edge:" + install + ":" + strconv.FormatUint(uint64(m.Epoch), 10), Number: m.Number, CannotRefuse: true, CeilingWait: carriedWait, HoldFor: -1}
	if purpose == forbidden || tenant != edge.Tenant {
		a.Topic, a.Conn = edge.Device, &edge
		a.Fault, a.FaultReason = "topic "+shownID(m.Topic)+" is none of a device of the tenant", ingest.ReasonNotAuthorized
		return a, nil
	}
	behind, err := i.Edges.Behind(ctx, edge, device)
	switch {
	case errors.Is(err, ErrNotBehind):
		a.Conn = &edge
		a.Fault, a.FaultReason = "this edge may not publish for the device", ingest.ReasonNotAuthorized
		return a, nil
	case err != nil:
		return nil, err
	}
	a.Topic, a.Conn = behind.Device, &behind
	purpose.shape(a)
	return a, nil
}
