package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/lograte"
	"weir/internal/throttle"
	"weir/internal/trickle"
	"weir/model"
	"weir/presence"
	"weir/spool"
	"weir/store"
)

// DeviceAuthMode determines how the intake treats the credential in a body.
type DeviceAuthMode string

// The modes: required refuses an event for which nothing vouches, optional checks what is presented, disabled checks none.
const (
	AuthRequired DeviceAuthMode = "required"
	AuthOptional DeviceAuthMode = "optional"
	AuthDisabled DeviceAuthMode = "disabled"
)

// Proof is what a verified credential proves.
type Proof struct {
	Credential int64 // row id
	DeviceID   int64 // row id
	Device     string
	TenantID   int64 // row id
}

// Claim is a credential that a message presents.
type Claim struct {
	Tenant string
	Credential
	From netip.Addr
	// Spend is called before a password hash runs; false says that no hash is allowed now.
	Spend func() bool
}

// ErrSpent says that a credential was not judged because Claim.Spend did not allow it.
var ErrSpent = errors.New("ingest: a password hash was not allowed")

// VerifyFunc verifies a credential that a message presents. The proof counts with model.VerdictOK only. An error says that the
// credential was not judged, and its message must not be accepted: ErrSpent, a *model.Error with CodeThrottled while the user name
// waits after wrong passwords or with CodeUnavailable while too many are being checked, else a fault.
type VerifyFunc func(ctx context.Context, c Claim) (Proof, model.Verdict, error)

// Ceiling hands out readings. Known reports whether a tenant of that name exists.
type Ceiling interface {
	Known(tenant string) bool
	Take(tenant string, readings int) bool
	Wait(ctx context.Context, tenant string, readings int, timeout time.Duration) bool
	Empty(tenant string) bool
	TakeUnauthenticated(messages, bytes int) bool
	// TakeHash draws on the password hashes that all unauthenticated senders share. ReturnHash gives one back, for a sender that
	// has proven itself by it.
	TakeHash() bool
	ReturnHash()
}

// Pressure reports how full the log is.
type Pressure interface {
	// Refusing reports whether transports that can express it refuse new messages.
	Refusing() bool
	// Full reports whether no message is taken, whatever the transport.
	Full() bool
	// Sample reads the figures again: the log has just refused a record.
	Sample()
	// Wait waits until the log may have more space than before, or ctx ends.
	Wait(ctx context.Context) error
}

// SealFunc seals bytes with the root key; ad binds them to the place where they are kept.
type SealFunc func(ad string, plain []byte) ([]byte, error)

// IntakeConfig is the configuration of an intake.
type IntakeConfig struct {
	AuthSettings
	HoldSettings
}

// IntakeDeps are the intake's collaborators.
type IntakeDeps struct {
	Log      spool.Log
	Counts   *TransportCounts
	Stamp    func() model.Stamp
	Verify   VerifyFunc
	Ceiling  Ceiling
	Pressure Pressure
	Throttle *throttle.Throttle // nil: no sender is slowed
	Seal     SealFunc
	// KeepRejected stores copies of bodies that were refused as unreadable, in one transaction.
	KeepRejected func(ctx context.Context, ds []*store.DeadLetter) error
	// Tap shows messages as they end; nil shows them nowhere.
	Tap *Tap
	// Rates counts them for the last hour; nil: nothing does.
	Rates    *Rates
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Intake stands after every transport.
type Intake struct {
	cfg      atomic.Pointer[effectiveConfig]
	deps     IntakeDeps
	metrics  *intakeMetrics
	rejected *trickle.Queue[*store.DeadLetter]
	faults   lograte.Every // credentials that could not be looked up
	shut     atomic.Bool
	closed   atomic.Pointer[string] // why no message is taken in for now
}

// NewIntake returns an intake. Run stores the copies of refused bodies until its context ends.
func NewIntake(cfg IntakeConfig, deps IntakeDeps) *Intake {
	in := &Intake{deps: deps, metrics: newIntakeMetrics(deps.Registry)}
	in.rejected = trickle.NewQueue(copiesPerSecond, copyBurst, deps.KeepRejected, in.lostCopies)
	in.Set(cfg)
	return in
}

// effectiveConfig is a configuration while it applies.
type effectiveConfig struct {
	IntakeConfig
	over context.Context // ends when another one takes its place
	end  func()
}

// Set changes what an event must prove and whether publishes wait, for what arrives from now on and for what waits already.
func (in *Intake) Set(cfg IntakeConfig) {
	f := &effectiveConfig{IntakeConfig: cfg}
	f.over, f.end = context.WithCancel(context.Background())
	// Wake what waits under the old configuration, so that it looks at the new one.
	if old := in.cfg.Swap(f); old != nil {
		old.end()
	}
}

// Config returns the effective configuration.
func (in *Intake) Config() IntakeConfig { return in.cfg.Load().IntakeConfig }

// Run writes the copies of refused bodies to the rejected-payload buffer.
func (in *Intake) Run(ctx context.Context) error { return in.rejected.Run(ctx) }

// lostCopies counts copies that the rejected-payload buffer did not get.
func (in *Intake) lostCopies(n int, err error) {
	in.metrics.rejectedLost.Add(float64(n))
	if err != nil {
		in.deps.Logger.Warn("copies of refused bodies could not be stored", "copies", n, "error", err)
	}
}

// Suspend makes the intake take no message in until Resume. Messages whose sender resends what is not answered are left without an answer,
// others are refused as while the log is unavailable.
func (in *Intake) Suspend(reason string) { in.closed.Store(&reason) }

// Resume ends Suspend.
func (in *Intake) Resume() { in.closed.Store(nil) }

// Suspended is why no message is taken in, "" when messages are.
func (in *Intake) Suspended() string {
	if reason := in.closed.Load(); reason != nil {
		return *reason
	}
	return ""
}

// Shut makes the intake refuse what still comes and waits until what it has accepted is answered and its counts are stored.
func (in *Intake) Shut(ctx context.Context) error {
	// Refuse first: only then is what Sync waits for finite.
	in.shut.Store(true)
	// The counts of refusals need a batch to ride in.
	if err := in.keepCounts(ctx); err != nil {
		return err
	}
	if err := in.deps.Log.Sync(ctx); err != nil {
		return err
	}
	if in.deps.Counts.Pending() {
		return fmt.Errorf("%w: counts of the transports are not in it", spool.ErrUnavailable)
	}
	return nil
}

// arrival is an Arrival on its way through the intake.
type arrival struct {
	*Arrival
	line  line
	stamp model.Stamp
	rec   *model.Record
	// readings is what the message takes from a bucket; a message that carries none counts as one.
	readings        int
	unauthenticated bool
	hashed          bool            // TakeHash gave one
	held            context.Context // of a positive HoldFor, once it is held: ends with that time
	release         context.CancelFunc
	answer          Answer // set when it ended already
	ended           bool
}

// Accept takes one message in and reports through done, exactly once, how it ended. It may wait: for the ceiling up to
// CeilingWait, for the log while its unsynced bound is reached, and for space in the log up to HoldFor. ctx is the life of the
// connection: when it ends first, the message is withheld.
func (in *Intake) Accept(ctx context.Context, a *Arrival, done func(Answer)) {
	m := in.receive(a)
	defer m.stopHold()
	in.judge(ctx, m)
	if !m.ended {
		in.admit(ctx, m)
	}
	if m.ended {
		done(m.answer)
		return
	}
	in.append(ctx, m, done)
}

// AcceptAll takes an array of messages in: all of them or, when one is unfit or the log lacks space for all, none. done is
// called once, with the index of the message that decided, -1 when all are stored.
func (in *Intake) AcceptAll(ctx context.Context, as []*Arrival, done func(Answer, int)) {
	// Count every message as received, also those after the first that is unfit.
	ms := make([]*arrival, len(as))
	bad := -1
	for i, a := range as {
		if ms[i] = in.receive(a); bad < 0 {
			if in.judge(ctx, ms[i]); ms[i].ended {
				bad = i
			}
		}
	}
	defer ms[0].stopHold() // the first is held for all
	if bad < 0 {
		bad = in.admitAll(ctx, ms)
	}
	if bad >= 0 {
		// All share the outcome of the one that decided.
		verdict := ms[bad].answer
		for i, m := range ms {
			if i != bad && !m.ended {
				in.end(m, verdict.Outcome, verdict.Reason, verdict.Text)
			}
		}
		done(verdict, bad)
		return
	}
	in.appendAll(ctx, ms, done)
}

// ErrNotResendable says that a dead letter has no message that could be sent again.
var ErrNotResendable = errors.New("ingest: the dead letter has no readable message")

// Resend takes the message of a dead letter in again, as a new record of the transport and the source resend that is judged as the registry is
// now. It goes through the ceiling of its tenant and the space of the log. The verdict on its credential stays what it was, the
// time of a message that named none is that of its first receipt, and one without an altId gets one of the dead letter, so that it
// is stored once however often it is sent.
func (in *Intake) Resend(ctx context.Context, d *store.DeadLetter) (Answer, error) {
	rec, err := model.DecodeRecord(d.Record)
	if d.Kind != store.DeadLetterIngest || err != nil || rec.Message == nil && rec.Report == nil && rec.Response == nil {
		return Answer{}, ErrNotResendable
	}
	if in.shut.Load() {
		return Answer{Outcome: Refused, Reason: ReasonUnavailable}, nil
	}
	// Counted as another message: the first one ended as a dead letter.
	m := in.receive(&Arrival{Transport: TransportResend, Source: TransportResend, Tenant: rec.Tenant, Topic: rec.Device})
	m.rec = &model.Record{
		Kind:       rec.Kind,
		Transport:  TransportResend,
		Source:     TransportResend,
		Tenant:     rec.Tenant,
		Account:    m.line.tenant,
		Device:     rec.Device,
		Received:   m.stamp,
		Credential: rec.Credential,
		DeviceID:   rec.DeviceID,
		Verdict:    rec.Verdict,
		Partial:    rec.Partial,
		Bytes:      rec.Bytes,
		Message:    messageToResend(rec, d),
		Report:     rec.Report,
		Response:   rec.Response,
	}
	m.readings = m.rec.Taken()
	// The credential is not there any more; its verdict of then counts.
	m.unauthenticated = m.line.tenant == "" || rec.Verdict != model.VerdictOK
	if in.admit(ctx, m); m.ended {
		return m.answer, nil
	}
	answer := make(chan Answer, 1)
	in.append(ctx, m, func(a Answer) { answer <- a })
	return <-answer, nil
}

// messageToResend is the message of a dead letter as it is sent again, nil when it holds none: a report that is applied twice sets the same, and a
// second answer to a command moves nothing.
func messageToResend(rec *model.Record, d *store.DeadLetter) *model.Message {
	if rec.Message == nil {
		return nil
	}
	message := *rec.Message
	if !message.HasOccurred {
		message.Occurred, message.HasOccurred = rec.Received.Wall, true
	}
	if message.AltID == "" {
		message.AltID = fmt.Sprintf("resend:%d:%d", d.Epoch, d.Offset)
	}
	return &message
}

// Packet is a packet that was received and becomes no Arrival.
type Packet struct {
	m   *arrival
	why string
}

// Of is the packet with the device that sent it and what is wrong with it, for those who watch.
func (p Packet) Of(device, why string) Packet {
	if p.m != nil {
		p.m.Topic = device
	}
	p.why = why
	return p
}

// Received counts a packet where it is parsed, and its bytes. The transport calls Refuse with what it returns as soon as
// it knows why the packet becomes no Arrival: a forbidden topic, a topic that nothing reads.
func (in *Intake) Received(transport, source, tenant string, bytes int) Packet {
	in.metrics.strayBytes.Add(float64(bytes))
	return Packet{m: in.receive(&Arrival{Transport: transport, Source: source, Tenant: tenant})}
}

// Refuse counts a received packet as refused, with the reason.
func (in *Intake) Refuse(p Packet, reason Reason) { in.end(p.m, Refused, reason, p.why) }

// Drop counts a received packet as dropped, with the reason: its sender is not notified.
func (in *Intake) Drop(p Packet, reason Reason) { in.end(p.m, Dropped, reason, p.why) }

// TenantFull reports whether the tenant's ceiling admits no reading at all, so that a transport need not read the body.
func (in *Intake) TenantFull(tenant string) bool {
	return in.deps.Ceiling.Known(tenant) && in.deps.Ceiling.Empty(tenant)
}

// receive counts the message as received. Unknown tenants share one account, so that no sender can fill the ledger.
func (in *Intake) receive(a *Arrival) *arrival {
	m := &arrival{Arrival: a, stamp: in.deps.Stamp(), readings: 1}
	m.line = line{transport: a.Transport, source: a.Source, hour: m.stamp.Hour()}
	if in.deps.Ceiling.Known(a.Tenant) {
		m.line.tenant = a.Tenant
	}
	in.deps.Counts.received(m.line)
	in.deps.Rates.Received(m.line.tenant, m.line.transport, m.stamp.Wall)
	in.metrics.inbound.Inc()
	return m
}

// end gives the message its outcome at the intake.
func (in *Intake) end(m *arrival, o Outcome, r Reason, text string) {
	counted := store.OutcomeRefused
	if o == Dropped {
		counted = store.OutcomeDropped
	}
	// A message that did not decode has no readings to count.
	readings := 0
	if m.rec != nil && m.rec.Message != nil {
		readings = m.rec.Message.Readings()
	}
	// Ledger, rates and metrics count it once, here.
	in.deps.Counts.turnedAway(m.line, counted, r, readings)
	in.deps.Rates.Ended(m.line.tenant, m.line.transport, m.stamp.Wall, counted)
	in.metrics.turnedAway(r)
	m.answer = Answer{Outcome: o, Reason: r, Text: text}
	m.ended = true
	in.show(m, counted, text)
	// Time of the tenant's devices stands still: what they could not say is not their silence.
	if r == ReasonCeiling || r == ReasonBackpressure || r == ReasonUnavailable {
		in.noteUnheard(m)
	}
	switch {
	case r == ReasonCeiling || r == ReasonUnauthenticated || r == ReasonBusy:
		m.answer.RetryAfter = 1
	case r == ReasonBackpressure:
		m.answer.RetryAfter = 10
	}
}

// show lets watchers see a message that ended at the intake.
func (in *Intake) show(m *arrival, o store.Outcome, why string) {
	device := m.Topic
	if m.rec != nil {
		device = m.rec.Device
	}
	in.deps.Tap.noteUnproven(m.line.tenant, m.stamp.Wall, m.Transport, m.Tenant, device, m.answer.Reason, why)
	if !in.deps.Tap.Busy() {
		return
	}
	// A message that ended before it was decoded is shown with what its transport said.
	rec := m.rec
	if rec == nil {
		rec = &model.Record{
			Transport: m.Transport,
			Source:    m.Source,
			Tenant:    m.Tenant,
			Account:   m.line.tenant,
			Device:    m.Topic,
			Received:  m.stamp,
			Bytes:     uint32(len(m.Body)),
		}
	}
	in.deps.Tap.show(ending{rec: rec, outcome: o, reason: m.answer.Reason, why: why})
}

// Demote hands demotions of devices of one tenant to the log, as its other presence records, and waits until they are synced. It
// returns the newest offset, and what the log or the ceiling said to the first that was refused: those before it are in the log.
func (in *Intake) Demote(ctx context.Context, source string, devices []presence.Asserted, reason string) (last model.Offset, refused *Answer) {
	answers := make(chan Answer, len(devices))
	var ended atomic.Bool // one was refused
	// Stop at the first refusal: the caller learns up to where it came.
	handed := 0
	for _, d := range devices {
		p := model.Presence{State: model.Demoted, Reason: reason, Session: d.Session, Occurred: in.deps.Stamp().Wall}
		in.Presence(ctx, TransportAPI, source, d.Binding, p, func(a Answer) {
			if a.Outcome != Stored {
				ended.Store(true)
			}
			answers <- a
		})
		if handed++; ended.Load() {
			break
		}
	}
	// Wait for all that were handed over, whatever their order.
	for range handed {
		a := <-answers
		if last = max(last, a.Offset); a.Outcome != Stored && refused == nil {
			refused = &a
		}
	}
	return last, refused
}

// Presence hands a transition that a transport asserts to the log. It takes one reading from the tenant's ceiling.
func (in *Intake) Presence(ctx context.Context, transport, source string, b model.Binding, p model.Presence, done func(Answer)) {
	if !in.deps.Ceiling.Take(b.Tenant, 1) {
		in.metrics.presenceRefused.Inc()
		in.deps.Counts.links.Refused(b.Tenant)
		done(Answer{Outcome: Refused, Reason: ReasonCeiling, RetryAfter: 1})
		return
	}
	// No message of the ledger: presence records are not counted there.
	r := &model.Record{
		Kind:       model.KindPresence,
		Transport:  transport,
		Source:     source,
		Tenant:     b.Tenant,
		Account:    b.Tenant,
		Device:     b.Device,
		DeviceID:   b.DeviceID,
		Credential: b.Credential,
		Received:   in.deps.Stamp(),
		Presence:   &p,
	}
	err := in.deps.Log.Append(ctx, spool.Entry{Data: model.AppendRecord(nil, r), Value: r, Done: func(off model.Offset, err error) {
		if err != nil {
			done(Answer{Outcome: Refused, Reason: ReasonUnavailable})
			return
		}
		done(Answer{Outcome: Stored, Offset: off})
	}})
	if err != nil {
		in.metrics.presenceRefused.Inc()
		done(Answer{Outcome: Refused, Reason: ReasonUnavailable})
	}
}

// Firing hands an edge of a rule that a site has judged to the log. It takes one reading from the tenant's ceiling. link and number make it known: it is
// taken once.
func (in *Intake) Firing(ctx context.Context, transport, source string, b model.Binding, f model.Firing, link string, number uint64, done func(Answer)) {
	if !in.deps.Ceiling.Take(b.Tenant, 1) {
		in.deps.Counts.links.Refused(b.Tenant)
		done(Answer{Outcome: Refused, Reason: ReasonCeiling, RetryAfter: 1})
		return
	}
	r := &model.Record{
		Kind:      model.KindFiring,
		Transport: transport,
		Source:    source,
		Tenant:    b.Tenant,
		Account:   b.Tenant,
		Device:    b.Device,
		DeviceID:  b.DeviceID,
		Received:  in.deps.Stamp(),
		Firing:    &f,
		Relay:     &model.Relay{Link: link, Number: number},
	}
	err := in.deps.Log.Append(ctx, spool.Entry{Data: model.AppendRecord(nil, r), Value: r, Done: func(off model.Offset, err error) {
		if err != nil {
			done(Answer{Outcome: Refused, Reason: ReasonUnavailable})
			return
		}
		done(Answer{Outcome: Stored, Offset: off})
	}})
	if err != nil {
		done(Answer{Outcome: Refused, Reason: ReasonUnavailable})
	}
}

// NewPacket is a packet that another intake than this package's counts: that of an edge, which received it at a time.
func NewPacket(transport, source, tenant string, at model.Nanos) Packet {
	return Packet{m: &arrival{Arrival: &Arrival{Transport: transport, Source: source, Tenant: tenant}, stamp: model.Stamp{Wall: at}}}
}

// About returns the transport, the tenant that the packet named, and its receive time.
func (p Packet) About() (transport, tenant string, at model.Nanos) {
	return p.m.Transport, p.m.Tenant, p.m.stamp.Wall
}
