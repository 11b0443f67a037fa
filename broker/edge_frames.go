package broker

import (
	"errors"
	"sync"

	"weir/ingest"
	"weir/internal/edgewire"
)

// framePurposes are what the messages of a frame are, by their kind.
var framePurposes = [...]purpose{edgewire.FrameEvents: forEvents, edgewire.FrameTelemetry: forTelemetry, edgewire.FrameResponses: forAnswers, edgewire.FrameReports: forReports}

// edgeFrames takes a frame of an edge: its messages go to the intake as if each had come alone, and the frame is acknowledged once every one of them has
// its outcome. It reports false where the topic is none for frames. A frame that cannot be read is refused whole.
func (d *devices) edgeFrames(c *conn, p *publish, number uint64) bool {
	if p.topic != c.talk.frames {
		return false
	}
	f, err := edgewire.ParseFrame(p.payload)
	if err != nil || p.qos == 0 {
		d.b.metrics.edgeFrames.WithLabelValues("malformed").Inc()
		d.b.refusals.Add(1)
		in := d.b.deps.Intake
		in.Refuse(in.Received(ingest.TransportUplink, d.b.cfg.Source, c.binding.Tenant, len(p.payload)), ingest.ReasonUndecodable)
		if p.qos > 0 {
			c.acks.complete(number, verdict{code: codePayloadInvalid, reason: "not a frame of an edge"})
		}
		return true
	}
	d.b.metrics.edgeFrames.WithLabelValues("taken").Inc()
	d.uplinks.up(c, f.Link())
	one := &framing{d: d, c: c, number: number, said: edgewire.Framed{Kind: edgewire.KindFramed, Frame: f.ID, Codes: make([]byte, len(f.Messages))}, left: len(f.Messages)}
	for i := range f.Messages {
		d.framed(c, f, i, one)
	}
	return true
}

// framed hands a message of a frame to the intake.
func (d *devices) framed(c *conn, f *edgewire.Frame, i int, one *framing) {
	m := &f.Messages[i]
	behind, err := d.b.deps.Edges.Behind(c.ctx, c.binding, m.Device)
	if err != nil {
		answer := ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUnavailable}
		if errors.Is(err, ErrNotBehind) {
			answer.Reason = ingest.ReasonNotAuthorized
		}
		d.b.refusals.Add(1)
		in := d.b.deps.Intake
		in.Refuse(in.Received(ingest.TransportUplink, d.b.cfg.Source, c.binding.Tenant, len(m.Payload)), answer.Reason)
		one.ended(i, answer)
		return
	}
	a := &ingest.Arrival{Transport: ingest.TransportUplink, Source: d.b.cfg.Source, Tenant: c.binding.Tenant, Topic: behind.Device, Body: m.Payload, From: c.from,
		Conn: &behind, ClientID: c.clientID, HoldFor: -1, Link: f.Link(), Number: m.Number}
	framePurposes[m.Kind].shape(a)
	d.b.deps.Intake.Accept(c.ctx, a, func(answer ingest.Answer) { one.ended(i, answer) })
}

// framing is a frame on its way through the intake.
type framing struct {
	d      *devices
	c      *conn
	number uint64 // of the publish

	mu      sync.Mutex
	said    edgewire.Framed
	left    int
	refused bool
	ends    *cause // a message says that the connection is to end
}

// ended takes in the outcome of a message. The last one acknowledges the frame.
func (f *framing) ended(i int, answer ingest.Answer) {
	v := f.c.verdictOn(answer)
	f.mu.Lock()
	switch {
	case v.ends != nil:
		f.ends = v.ends
	case v.code >= codeUnspecified:
		f.said.Codes[i], f.refused = v.code, true
	}
	f.left--
	over := f.left == 0
	f.mu.Unlock()
	if !over {
		return
	}
	switch {
	case f.ends != nil: // the edge sends the frame again: what is stored is known by its number
		f.c.acks.complete(f.number, verdict{ends: f.ends})
	case !f.refused:
		f.c.acks.complete(f.number, verdict{})
	default:
		// The committer of the log calls this: it must not wait for the lock of the subscriptions.
		go func() {
			v := verdict{code: edgewire.CodeSomeRefused}
			if !f.d.tellEdge(f.c, &f.said, nil) {
				v.code = codeQuotaExceeded // all of it is sent again
			}
			f.c.acks.complete(f.number, v)
		}()
	}
}
