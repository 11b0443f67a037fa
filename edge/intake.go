package edge

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"weir/auth"
	"weir/ingest"
	"weir/model"
	"weir/spool"
)

// Intake accepts what the transports take from devices. It is what ingest.Intake is on a platform, without a registry: who may send was
// settled by the transport, and what a message says is judged by the broker above.
type Intake struct {
	e    *Edge
	shut atomic.Bool

	mu   sync.Mutex
	room chan struct{} // closed when the log may have room again
}

func newIntake(e *Edge) *Intake { return &Intake{e: e, room: make(chan struct{})} }

// Shut refuses what comes from now on.
func (in *Intake) Shut() { in.shut.Store(true) }

// Answers of the intake.
var (
	answerStopping = ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUnavailable, Text: "the instance is stopping"}
	answerFailed   = ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUnavailable, Text: "the event could not be stored"}
	answerFull     = ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonBackpressure, Text: "the log is full until the broker above takes messages again", RetryAfter: 10}
)

// message is an arrival on its way into the log.
type message struct {
	*ingest.Arrival
	rec  record
	line lineKey
	key  [2]uint64 // by which a repeat is known
}

// Accept takes a message and calls done once: Stored after its sync. A full log is waited for as long as the message may be held.
func (in *Intake) Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer)) {
	m := in.receive(a)
	if why := in.judge(ctx, m); why != nil {
		in.end(m, why)
		done(*why)
		return
	}
	m.key = m.rec.repeat()
	if in.e.seen.repeats(m.key, a.Dup, func(stored bool) {
		if !stored {
			in.end(m, &answerFailed)
			done(in.answer(m, ctx, answerFailed))
			return
		}
		in.e.book.turnedAway(m.line, "duplicate")
		done(ingest.Answer{Outcome: ingest.Stored})
	}) {
		return
	}
	in.append(ctx, []*message{m}, func(answer ingest.Answer) { done(answer) })
}

// AcceptAll takes all messages or none.
func (in *Intake) AcceptAll(ctx context.Context, as []*ingest.Arrival, done func(answer ingest.Answer, index int)) {
	ms := make([]*message, len(as))
	for i, a := range as {
		ms[i] = in.receive(a)
	}
	for i, m := range ms {
		why := in.judge(ctx, m)
		if why == nil {
			continue
		}
		for _, m := range ms {
			in.end(m, why)
		}
		done(*why, i)
		return
	}
	in.append(ctx, ms, func(answer ingest.Answer) {
		if answer.Outcome == ingest.Stored {
			done(answer, -1)
			return
		}
		done(answer, 0)
	})
}

// receive counts a message where it was parsed.
func (in *Intake) receive(a *ingest.Arrival) *message {
	m := &message{Arrival: a, rec: record{transport: a.Transport, tenant: a.Tenant, device: a.Topic, sender: senderOf(a), payload: a.Body}}
	in.e.clock.stamp(&m.rec)
	m.line = lineOf(&m.rec)
	in.e.book.received(m.line)
	in.e.metrics.received.Inc()
	return m
}

// judge returns why a message is refused, nil for one that goes into the log. Over MQTT anything does. HTTP can express what is wrong, and
// needs to know the device.
func (in *Intake) judge(ctx context.Context, m *message) *ingest.Answer {
	undecodable := func(text string) *ingest.Answer {
		in.e.metrics.malformed.Inc()
		return &ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUndecodable, Text: text}
	}
	switch {
	case in.shut.Load():
		return &answerStopping
	case m.Fault != "":
		return undecodable(m.Fault)
	case m.Flat:
		m.rec.kind = kindTelemetry
	case m.Answers:
		m.rec.kind = kindResponses
	case m.Reports:
		m.rec.kind = kindReports
	}
	if m.Transport != ingest.TransportHTTP {
		return nil
	}
	if in.e.verifier != nil {
		return in.proven(ctx, m, undecodable)
	}
	if !in.admitted(m.Credential) {
		return &ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonNotAuthorized, Text: "this edge asks for a user name and a password: send them with HTTP Basic authentication"}
	}
	if m.rec.kind != kindEvents {
		return nil
	}
	ev, err := ingest.Decode(m.Body)
	if de, ok := errors.AsType[*ingest.DecodeError](err); ok {
		answer := undecodable(de.Text)
		answer.Reason = de.Reason
		return answer
	}
	if ev.Device == "" || !model.ValidToken(ev.Device) {
		return undecodable("device is required: an edge knows no credentials that could name it")
	}
	m.rec.device = ev.Device
	return nil
}

// proven judges a message over HTTP by the credential of its device at the Weir above.
func (in *Intake) proven(ctx context.Context, m *message, undecodable func(string) *ingest.Answer) *ingest.Answer {
	credential, named := m.Credential, m.rec.device
	if m.rec.kind == kindEvents {
		ev, err := ingest.Decode(m.Body)
		if de, ok := errors.AsType[*ingest.DecodeError](err); ok {
			answer := undecodable(de.Text)
			answer.Reason = de.Reason
			return answer
		}
		if named = ev.Device; !credential.Presented() {
			credential = ev.Credential
		}
	}
	proof, err := in.e.verifier.Verify(ctx, auth.Claim{Tenant: m.rec.tenant, Type: credential.Type, ID: credential.ID, Secret: credential.Secret, From: m.From})
	switch {
	case err != nil && !judged(err):
		return &ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonBusy, Text: "the credential cannot be checked now", RetryAfter: 1}
	case err != nil || named != "" && named != proof.Device:
		return &ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonNotAuthorized, Text: "the credential is not that of the device"}
	}
	m.rec.device = proof.Device
	return nil
}

// judged reports whether an error says that a credential is not good.
func judged(err error) bool {
	_, ok := auth.VerdictOf(err)
	return ok
}

// admitted reports whether a credential is the one that the site's devices share.
func (in *Intake) admitted(c ingest.Credential) bool {
	if in.e.cfg.Username == "" {
		return true
	}
	return in.Admit(c.ID, c.Secret)
}

// Admit reports whether user name and password are those that the site's devices share; where none are configured anybody is admitted.
func (in *Intake) Admit(user, password string) bool {
	if in.e.cfg.Username == "" {
		return true
	}
	have, want := sha256.Sum256([]byte(user+"\x00"+password)), sha256.Sum256([]byte(in.e.cfg.Username+"\x00"+in.e.cfg.Password.Reveal()))
	return subtle.ConstantTimeCompare(have[:], want[:]) == 1
}

// append hands the records to the log in one piece.
func (in *Intake) append(ctx context.Context, ms []*message, done func(ingest.Answer)) {
	entries, left := make([]spool.Entry, len(ms)), len(ms)
	for i, m := range ms {
		entries[i] = spool.Entry{Data: appendRecord(make([]byte, 0, len(m.Body)+64+len(m.rec.tenant)+len(m.rec.device)), &m.rec), Done: func(at model.Offset, err error) {
			// The committer answers the entries of a group one after the other.
			if err == nil {
				in.e.book.accepted(m.line, at)
			} else {
				in.end(m, &answerFailed)
			}
			in.e.seen.end(m.key, err == nil)
			if left--; left > 0 {
				return
			}
			if err != nil {
				done(in.answer(m, ctx, answerFailed))
				return
			}
			done(ingest.Answer{Outcome: ingest.Stored, Offset: at})
		}}
	}
	for {
		room := in.waitForRoom()
		err := in.e.spool.Append(ctx, entries...)
		switch {
		case err == nil:
			return
		case errors.Is(err, spool.ErrFull):
			if in.again(ctx, ms[0], room) {
				continue
			}
			in.turnAway(ctx, ms, answerFull, done)
		default:
			in.turnAway(ctx, ms, answerFailed, done)
		}
		return
	}
}

// again makes or waits for room, and reports whether to try again.
func (in *Intake) again(ctx context.Context, m *message, room <-chan struct{}) bool {
	in.e.metrics.full.Inc()
	if in.e.cfg.WhenFull == dropOldest {
		return in.e.dropOldest() == nil
	}
	in.e.keepSoon() // what was acknowledged above makes room once the state says so
	switch {
	case m.HoldFor == 0:
		return false
	case m.HoldFor > 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.HoldFor)
		defer cancel()
	}
	select {
	case <-room:
		return true
	case <-ctx.Done():
		return false
	}
}

// waitForRoom returns what is closed when the log may have room again.
func (in *Intake) waitForRoom() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.room
}

// roomAgain wakes the messages that wait for room.
func (in *Intake) roomAgain() {
	in.mu.Lock()
	defer in.mu.Unlock()
	close(in.room)
	in.room = make(chan struct{})
}

// turnAway ends messages that the log did not take.
func (in *Intake) turnAway(ctx context.Context, ms []*message, why ingest.Answer, done func(ingest.Answer)) {
	answer := in.answer(ms[0], ctx, why)
	for _, m := range ms {
		in.end(m, &answer)
		in.e.seen.end(m.key, false)
	}
	done(answer)
}

// answer says it in the words of the transport: a sender that waits and was not waited for to the end resends.
func (in *Intake) answer(m *message, ctx context.Context, why ingest.Answer) ingest.Answer {
	if m.HoldFor != 0 || ctx.Err() != nil {
		why.Outcome = ingest.Withheld
	}
	return why
}

// end counts a message that does not get into the log.
func (in *Intake) end(m *message, why *ingest.Answer) {
	in.e.book.turnedAway(m.line, "refused:"+string(why.Reason))
}

// Presence implements the transports' interface: a Weir above is notified of who is connected at the site.
func (in *Intake) Presence(_ context.Context, _, _ string, b model.Binding, p model.Presence, done func(ingest.Answer)) {
	r := record{}
	in.e.clock.stamp(&r)
	in.e.presence.asserted(b, &p)
	in.e.comesOrGoes(b, &p, &r)
	done(ingest.Answer{Outcome: ingest.Stored})
}

// Firing implements the transports' interface: there is no edge behind an edge.
func (in *Intake) Firing(_ context.Context, _, _ string, _ model.Binding, _ model.Firing, _ string, _ uint64, done func(ingest.Answer)) {
	done(ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonNotAuthorized})
}

// Received counts a packet that becomes no message.
func (in *Intake) Received(transport, source, tenant string, _ int) ingest.Packet {
	m := &message{Arrival: &ingest.Arrival{}, rec: record{transport: transport, tenant: tenant}}
	in.e.clock.stamp(&m.rec)
	in.e.book.received(lineOf(&m.rec))
	in.e.metrics.received.Inc()
	return ingest.NewPacket(transport, source, tenant, m.rec.wall)
}

// ReasonOtherInstance is why a publish is refused whose topic begins with the id of another instance.
const ReasonOtherInstance ingest.Reason = "other-instance"

// Refuse counts why it does not.
func (in *Intake) Refuse(p ingest.Packet, reason ingest.Reason) {
	transport, tenant, at := p.About()
	if reason == ReasonOtherInstance {
		in.e.metrics.mismatched.Inc()
	}
	in.e.book.turnedAway(lineKey{Hour: at.Hour(), Tenant: tenant, Transport: transport}, "refused:"+string(reason))
}

// TenantFull implements the transports' interface: an edge has no ceilings, the broker above has.
func (in *Intake) TenantFull(string) bool { return false }

// Identify implements the transports' interface: an edge hands out nothing by credential.
func (in *Intake) Identify(context.Context, string, ingest.Credential, netip.Addr) (ingest.Proof, *ingest.Answer) {
	return ingest.Proof{}, &ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonBadCredential, Text: "an edge serves no commands"}
}
