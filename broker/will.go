package broker

import (
	"context"

	"weir/ingest"
)

// lastWill is a will on its way to the gate.
type lastWill struct {
	arrival *ingest.Arrival
	purpose purpose
	revoked bool // the device may not publish any more
}

func (s *session) lastWill() *lastWill {
	return &lastWill{purpose: s.topics.purpose(s.will.topic), revoked: s.cause.Load().kind == revoked, arrival: &ingest.Arrival{
		Transport: ingest.TransportMQTT, Source: s.b.cfg.Source, Tenant: s.binding.Tenant, Topic: s.binding.Device, Body: s.will.payload,
		Conn: &s.binding, ClientID: s.clientID, HoldFor: -1, CannotRefuse: true, // no connection is left that could be told how it ends
	}}
}

// publishWill takes a will where a publish of its device would go, and counts how it ended: what cannot be stored is in the
// ledger with its reason. A full log is waited for, no longer than ConnectTimeout.
func (b *Broker) publishWill(w *lastWill) {
	a := w.arrival
	switch {
	case w.revoked:
		b.refuseWill(w, ingest.ReasonNotAuthorized)
		return
	case w.purpose != forEvents:
		b.refuseWill(w, ingest.ReasonNoConsumer)
		return
	}
	ctx, cancel := context.WithTimeout(b.closing, b.cfg.ConnectTimeout)
	defer cancel()
	b.deps.Gate.Accept(ctx, a, func(answer ingest.Answer) { b.willEnded(a, answer) })
}

// refuseWill counts a will that does not become an arrival.
func (b *Broker) refuseWill(w *lastWill, reason ingest.Reason) {
	a := w.arrival
	b.deps.Gate.Refuse(b.deps.Gate.Received(a.Transport, a.Source, a.Tenant, len(a.Body)), reason)
	b.willEnded(w.arrival, ingest.Answer{Outcome: ingest.Refused, Reason: reason})
}

// willEnded counts the end of a will, and tells the log of one that is not stored: nobody else is told.
func (b *Broker) willEnded(a *ingest.Arrival, answer ingest.Answer) {
	b.metrics.wills.WithLabelValues(fateWord(answer.Outcome)).Inc()
	if answer.Outcome != ingest.Stored {
		b.log.Debug("a will was not stored", "client", a.ClientID, "fate", fateWord(answer.Outcome), "reason", string(answer.Reason))
	}
}
