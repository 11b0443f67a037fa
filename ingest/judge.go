package ingest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/netip"
	"strings"
	"time"

	"weir/ingest/report"
	"weir/ingest/response"
	"weir/model"
	"weir/store"
)

// judge decodes the message, unless its transport has, and finds out what its credential proves.
func (in *Intake) judge(ctx context.Context, m *arrival) {
	if in.shut.Load() {
		in.end(m, Refused, ReasonUnavailable, "the instance is stopping")
		return
	}
	if in.closed.Load() != nil {
		outcome := Refused
		if m.HoldFor != 0 {
			outcome = Withheld
		}
		in.end(m, outcome, ReasonUnavailable, "the transports are closed")
		return
	}
	// Allocate once per message what lives until it is applied.
	kept := &struct { // what waits for the applier, in one piece
		model.Record
		message  model.Message
		readings [1]model.Reading
	}{}
	m.rec = &kept.Record
	*m.rec = model.Record{
		Kind:      model.KindMessage,
		Transport: m.Transport,
		Source:    m.Source,
		Tenant:    m.Tenant,
		Account:   m.line.tenant,
		Device:    m.Topic,
		Received:  m.stamp,
		ClientID:  m.ClientID,
		PacketID:  m.PacketID,
		Dup:       m.Dup,
		Partial:   m.Partial,
		Bytes:     uint32(len(m.Body)),
	}
	// Packet id and hash recognize a repeat of a client.
	if m.PacketID != 0 {
		sum := sha256.Sum256(m.Body)
		copy(m.rec.Hash[:], sum[:])
	}
	if m.Link != "" {
		m.rec.Relay = &model.Relay{Link: m.Link, Number: m.Number}
	}
	if m.Conn != nil {
		m.rec.Credential, m.rec.DeviceID = m.Conn.Credential, m.Conn.DeviceID
	}
	// Decode before the credential is checked: it may stand in the body.
	ev, err := m.event(kept.readings[:0])
	if err != nil {
		in.unreadable(m, err.Reason, err.Text)
		return
	}
	switch {
	case ev.Report != nil:
		m.rec.Kind, m.rec.Report = model.KindDeviceReport, ev.Report
	case ev.Answer != nil:
		m.rec.Kind, m.rec.Response = model.KindCommandResponse, ev.Answer
	default:
		kept.message = ev.Message
		m.rec.Message = &kept.message
	}
	// What it takes from the ceiling is known before the log gets it.
	m.readings = m.rec.Taken()
	in.metrics.decoded.Inc()
	in.metrics.nulls.Add(float64(ev.Nulls))
	// The verdict goes into the record: the applier decides by it, at replay too.
	if err := in.vouch(ctx, m, &ev); err != nil {
		in.unjudged(m, err)
		return
	}
	switch {
	case m.rec.Device == "" && m.rec.Verdict == model.VerdictOK:
		in.unreadable(m, ReasonUndecodable, "device is required when no credential names it")
	case m.rec.Verdict == model.VerdictOtherDevice && m.Conn != nil && !m.CannotRefuse:
		in.end(m, Refused, ReasonNotAuthorized, "the event names another device than its topic")
	}
	// Without a tenant or a proof the message draws on the share of unauthenticated senders.
	m.unauthenticated = m.line.tenant == "" || m.rec.Verdict != model.VerdictOK
}

// event returns the message, the report or the answer that the transport decoded, or else decodes the body. Both have passed the same checks. A
// credential that the transport took from elsewhere stands in the place of one in the body.
func (m *arrival) event(readings []model.Reading) (ev Decoded, _ *DecodeError) {
	var err error
	switch {
	case m.Fault != "":
		return ev, &DecodeError{Reason: cmp.Or(m.FaultReason, ReasonUndecodable), Text: m.Fault}
	case m.Message != nil:
		return Decoded{Message: *m.Message, Credential: m.Credential}, checkMessage(m.Message)
	case m.Report != nil:
		if why := report.Check(m.Report); why != "" {
			return ev, &DecodeError{Reason: ReasonUndecodable, Text: why}
		}
		return Decoded{Report: m.Report, Credential: m.Credential}, nil
	case m.Reports:
		r, err := report.Decode(m.Body)
		if err != nil {
			return ev, &DecodeError{Reason: ReasonUndecodable, Text: err.Error()}
		}
		return Decoded{Report: r, Credential: m.Credential}, nil
	case m.Answer != nil:
		if why := response.Check(m.Answer); why != "" {
			return ev, &DecodeError{Reason: ReasonUndecodable, Text: why}
		}
		return Decoded{Answer: m.Answer, Credential: m.Credential}, nil
	case m.Answers:
		a, from, err := response.Decode(m.Body)
		if err != nil {
			return ev, &DecodeError{Reason: ReasonUndecodable, Text: err.Error()}
		}
		return Decoded{Device: from.Device, Answer: a, Credential: cmp.Or(m.Credential, Credential(from.Credential))}, nil
	case m.Flat:
		ev, err = decodeFlatInto(readings, m.Body)
		ev.Credential = m.Credential
	default:
		ev, err = decodeInto(readings, m.Body)
	}
	de, _ := errors.AsType[*DecodeError](err)
	return ev, de
}

// vouch sets the record's device, credential and verdict. A presented credential decides; without one that of the
// connection; without either the mode.
func (in *Intake) vouch(ctx context.Context, m *arrival, ev *Decoded) error {
	r := m.rec
	if r.Device == "" {
		r.Device = ev.Device
	}
	// The topic or connection has named a device: the body may not name another.
	if ev.Device != "" && ev.Device != r.Device {
		r.Verdict = model.VerdictOtherDevice
		return nil
	}
	mode := in.cfg.Load().DeviceAuth
	if mode == AuthDisabled {
		return nil
	}
	if !ev.Credential.Presented() {
		if m.Conn == nil && mode == AuthRequired {
			r.Verdict = model.VerdictMissing
		}
		return nil
	}
	// A password hash is expensive, so it draws on a budget that all unauthenticated senders share.
	proof, verdict, err := in.deps.Verify(ctx, Claim{
		Tenant:     m.Tenant,
		Credential: ev.Credential,
		From:       m.From,
		Spend: func() bool {
			m.hashed = in.deps.Ceiling.TakeHash()
			return m.hashed
		},
	})
	if err != nil || verdict != model.VerdictOK {
		r.Verdict = verdict
		return err
	}
	// A sender that has proven itself does not use up that budget.
	if m.hashed {
		in.deps.Ceiling.ReturnHash()
	}
	if r.Device == "" {
		r.Device = proof.Device
	}
	// The credential must be that of the device that topic, connection or body named.
	if r.Device != proof.Device || m.Conn != nil && m.Conn.DeviceID != proof.DeviceID {
		r.Verdict = model.VerdictOtherDevice
		return nil
	}
	r.Credential, r.DeviceID = proof.Credential, proof.DeviceID
	return nil
}

// unjudged ends a message whose credential was not judged: the sender may have presented the right one, so that it must learn that
// nothing was stored.
func (in *Intake) unjudged(m *arrival, err error) {
	if errors.Is(err, ErrSpent) {
		in.rejectOverCeiling(m, ReasonUnauthenticated)
		return
	}
	// Refused even where the transport cannot say so: the sender must resend.
	why := in.notJudged(err, m.stamp)
	in.end(m, Refused, why.Reason, why.Text)
	m.answer.RetryAfter = max(m.answer.RetryAfter, why.RetryAfter)
}

// notJudged is the refusal of a sender whose credential was not judged.
func (in *Intake) notJudged(err error, at model.Stamp) Answer {
	code := model.CodeOf(err)
	switch {
	case errors.Is(err, ErrSpent):
		return Answer{Outcome: Refused, Reason: ReasonUnauthenticated, Text: "over the ingest ceiling", RetryAfter: 1}
	case code == model.CodeThrottled:
		return Answer{
			Outcome:    Refused,
			Reason:     ReasonThrottled,
			Text:       "too many wrong passwords for this user name, try again later",
			RetryAfter: retryAfterOf(err),
		}
	case code == model.CodeUnavailable:
		return Answer{Outcome: Refused, Reason: ReasonBusy, Text: "too many credentials are being checked, try again", RetryAfter: 1}
	case errors.Is(err, context.Canceled): // the sender has closed its connection meanwhile
		return Answer{Outcome: Refused, Reason: ReasonUnavailable, Text: "the connection was closed before the credential was checked"}
	}
	// A fault is logged at a bounded rate: each message would have a line.
	if held, ok := in.faults.Allow(time.Duration(at.Mono)); ok {
		in.deps.Logger.Error("a credential could not be looked up", "error", err, "others", held)
	}
	return Answer{Outcome: Refused, Reason: ReasonUnavailable, Text: "the credential cannot be checked now"}
}

// Identify verifies the credential of a request that is no message, within the bounds of those in messages. refused is nil when the proof
// counts; a credential that proves nothing is refused as ReasonBadCredential, whatever is wrong with it.
func (in *Intake) Identify(ctx context.Context, tenant string, c Credential, from netip.Addr) (proof Proof, refused *Answer) {
	if in.shut.Load() {
		return Proof{}, &Answer{Outcome: Refused, Reason: ReasonUnavailable, Text: "the instance is stopping"}
	}
	// The same budget of hashes as for messages.
	hashed := false
	proof, verdict, err := in.deps.Verify(ctx, Claim{
		Tenant:     tenant,
		Credential: c,
		From:       from,
		Spend: func() bool {
			hashed = in.deps.Ceiling.TakeHash()
			return hashed
		},
	})
	switch {
	case err != nil:
		why := in.notJudged(err, in.deps.Stamp())
		return Proof{}, &why
	case verdict != model.VerdictOK:
		return Proof{}, &Answer{Outcome: Refused, Reason: ReasonBadCredential, Text: "the credential is not that of a device"}
	}
	if hashed {
		in.deps.Ceiling.ReturnHash()
	}
	return proof, nil
}

// retryAfterOf is the wait in seconds that a refusal with CodeThrottled carries.
func retryAfterOf(err error) int {
	if e, ok := errors.AsType[*model.Error](err); ok {
		if after, ok := e.Ext["retryAfterSeconds"].(int); ok {
			return after
		}
	}
	return 1
}

// unreadable refuses a body that is no ingest event. Where the transport cannot express that it is acknowledged through the
// log instead, sealed, and ends as a dead letter; where it can, a copy goes to the rejected-payload buffer for the operator.
func (in *Intake) unreadable(m *arrival, r Reason, why string) {
	in.metrics.undecoded.Inc()
	m.rec.Kind = model.KindMessage
	m.rec.Message = nil
	m.rec.Report = nil
	m.rec.Response = nil
	if !m.CannotRefuse {
		in.end(m, Refused, r, why)
		in.keepCopy(m, r, why)
		return
	}
	// What the body holds is not known, maybe a secret: it is stored sealed only.
	sealed, err := in.deps.Seal(SealedAs(m.Tenant), m.Body)
	if err != nil {
		in.deps.Logger.Error("a body cannot be sealed", "error", err)
		in.end(m, Refused, ReasonUnavailable, "the event could not be stored")
		return
	}
	m.rec.Kind, m.rec.Why, m.rec.Verdict, m.rec.Raw = model.KindRaw, rawWhy(m.FaultReason, why), model.VerdictOK, sealed
}

// rawWhy is what the record of a sealed body says of it: why it is not read, with the reason and NUL before it where the transport names one.
func rawWhy(r Reason, why string) string {
	if r == "" {
		return why
	}
	return string(r) + "\x00" + why
}

// reasonOfRaw reads what rawWhy has written.
func reasonOfRaw(text string) (Reason, string) {
	if r, why, ok := strings.Cut(text, "\x00"); ok {
		return Reason(r), why
	}
	return ReasonUndecodable, text
}

// The bounds of the copies that go to the rejected-payload buffer.
const (
	maxCopy         = 4 << 10 // bytes of a body
	copiesPerSecond = 20
	copyBurst       = 100
)

// keepCopy hands the beginning of a refused body to the rejected-payload buffer, unless too many came lately: those are only
// counted.
func (in *Intake) keepCopy(m *arrival, r Reason, why string) {
	// Bounded per second: refused bodies must not fill the disk.
	if !in.rejected.Take(time.Duration(m.stamp.Mono)) {
		in.lostCopies(1, nil)
		return
	}
	sealed, err := in.deps.Seal(SealedAs(m.Tenant), m.Body[:min(len(m.Body), maxCopy)])
	if err != nil {
		in.lostCopies(1, err)
		return
	}
	in.rejected.Put(&store.DeadLetter{
		Tenant:          m.line.tenant,
		Occurred:        m.stamp.Wall.Micros(),
		Kind:            store.DeadLetterIngest,
		Reason:          string(r),
		Source:          m.Source,
		Summary:         why,
		Subject:         m.Topic,
		Unauthenticated: true,
		Bytes:           int64(len(sealed)) + 256,
		Record:          sealed,
	})
}

// SealedAs is the name under which bodies of a tenant are sealed that did not decode.
func SealedAs(tenant string) string { return tenant + "/ingest/raw" }
