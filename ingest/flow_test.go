package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/model"
	"weir/series"
	"weir/store"
)

func (w *world) measurements(device int64) []string {
	w.t.Helper()
	page, err := w.applier.deps.Series.Measurements(context.Background(), series.Query{TenantID: 1, Device: &device, Page: series.Page{Number: 1, Size: 1000}})
	w.must(err)
	var out []string
	for _, e := range page.Events {
		out = append(out, fmt.Sprintf("%s=%v", e.Metric, e.Value))
	}
	return out
}

func TestAReadingIsKeptAndJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1, thresholdRule("hot", "temp", "gt", 90))
	for _, v := range []float64{20, 95.5, 96, 30} {
		if an := w.send(w.arrival(1, temp(v))); an.Outcome != Stored || an.Offset == 0 {
			t.Fatalf("%v: %+v", v, an)
		}
		w.clock.advance(time.Second)
	}
	w.apply()
	if got := strings.Join(w.measurements(1), " "); got != "temp=30 temp=96 temp=95.5 temp=20" {
		t.Errorf("measurements: %s", got)
	}
	if len(w.edges) != 2 || w.edges[0].Signal != model.Raised || w.edges[0].Value != 95.5 || w.edges[1].Signal != model.Resolved {
		t.Errorf("edges: %+v", w.edges)
	}
	h, err := w.applier.RuleHealth(context.Background(), "acme", "boiler")
	if err != nil || len(h) != 1 || h[0].Fires != 2 || h[0].LastSignal != model.Resolved || h[0].RuntimeID != "acme/boiler@1/hot" {
		t.Errorf("health: %+v, %v", h, err)
	}
	if l := w.ledger(); l[store.OutcomeReceived] != 4 || l[store.OutcomeStored] != 4 {
		t.Errorf("ledger: %v", l)
	}
}

func TestEveryUnfitMessageEndsAsADeadLetterThatNamesItsReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(2)
	http := func(tenant, body string) *Arrival {
		return &Arrival{Transport: TransportHTTP, Source: "http1", Tenant: tenant, Body: []byte(body)}
	}
	token := `,"credentialType":"ACCESS_TOKEN","credentialId":"token-1"`
	mute := func(a *Arrival) *Arrival { a.CannotRefuse = true; return a }
	for _, c := range []struct {
		a      *Arrival
		reason Reason
	}{
		{http("nobody", measurement("temp", 1, `,"device":"d1"`)), ReasonUnknownTenant},
		{http("acme", measurement("temp", 1, `,"device":"d1"`)), ReasonBadCredential},
		{http("acme", measurement("temp", 1, `,"device":"d2"`+token)), ReasonBadCredential},
		{http("acme", measurement("temp", 1, `,"credentialType":"ACCESS_TOKEN","credentialId":"wrong"`)), ReasonBadCredential},
		{http("acme", measurement("temp", 1, `,"device":"d1","credentialType":"X509_CERTIFICATE","credentialId":"ab"`)), ReasonBadCredential},
		{mute(w.arrival(9, temp(1))), ReasonUnknownDevice},
		{mute(w.arrival(1, "garbage")), ReasonUndecodable},
		{mute(w.arrival(1, measurement("temp", 1, `,"device":"d2"`))), ReasonBadCredential},
		{w.arrival(1, measurement("temp", 501, "")), ReasonInvalidValue},
		{w.arrival(1, measurement("n", 1.5, "")), ReasonInvalidValue},
		{w.arrival(1, measurement("temp", 1, `,"occurredTime":"2025-02-01T00:00:00Z"`)), ReasonBadTime},
		{w.arrival(1, `{"eventType":"NewRelationship","payload":{"relationshipType":"in","targetType":"area","target":"a"}}`), ReasonNoConsumer},
	} {
		if an := w.send(c.a); an.Outcome != Stored {
			t.Errorf("%s: the intake says %+v", c.reason, an)
			continue
		}
		w.apply()
		var dead []store.DeadLetter
		w.must(w.db.Read(context.Background(), func(tx store.Tx) (err error) {
			dead, err = store.DeadLetters(tx, store.DeadLetterFilter{Limit: 1})
			return err
		}))
		if len(dead) != 1 || dead[0].Reason != string(c.reason) || dead[0].Summary == "" {
			t.Errorf("%s: got %+v", c.reason, dead)
		}
	}
	if l := w.ledger(); l[store.OutcomeDeadLetter] != 12 || l[store.OutcomeReceived] != 12 || len(w.measurements(1)) != 0 {
		t.Errorf("ledger: %v", l)
	}
}

func TestWhatATransportRejectsIsCountedAndNotStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	if an := w.send(w.arrival(1, "garbage")); an.Outcome != Refused || an.Reason != ReasonUndecodable || an.Text == "" {
		t.Errorf("undecodable: %+v", an)
	}
	if an := w.send(w.arrival(1, measurement("temp", 1, `,"device":"d2"`))); an.Outcome != Refused || an.Reason != ReasonNotAuthorized {
		t.Errorf("another device: %+v", an)
	}
	w.ceiling.left = 0
	if an := w.send(w.arrival(1, temp(1))); an.Outcome != Refused || an.Reason != ReasonCeiling || an.RetryAfter != 1 {
		t.Errorf("ceiling: %+v", an)
	}
	mute := w.arrival(1, temp(1))
	mute.CannotRefuse = true
	if an := w.send(mute); an.Outcome != Dropped || an.Reason != ReasonCeiling {
		t.Errorf("ceiling, mute: %+v", an)
	}
	w.ceiling.left, w.ceiling.unauthenticated = -1, 0
	if an := w.send(&Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "nobody", Body: []byte(measurement("temp", 1, `,"device":"d"`))}); an.Reason != ReasonUnauthenticated {
		t.Errorf("unauthenticated: %+v", an)
	}
	w.apply()
	l := w.ledger()
	if l[store.OutcomeRefused] != 4 || l[store.OutcomeDropped] != 1 || l[store.OutcomeStored] != 0 || l[store.OutcomeReceived] != 5 {
		t.Errorf("ledger: %v", l)
	}
}

func TestARetryWithAltIDIsKeptOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(2)
	body := measurement("temp", 21, `,"altId":"a1","occurredTime":"2026-03-01T11:00:00Z"`)
	send := func(device int) {
		if an := w.send(w.arrival(device, body)); an.Outcome != Stored {
			t.Fatalf("%+v", an)
		}
	}
	send(1)
	send(1)
	send(2) // another device's altId is another event
	w.apply()
	w.must(w.applier.checkpoint(context.Background(), w.applier.Applied()))
	w.applier.checkpoints.start()
	w.must(w.applier.checkpoints.await())
	w.restart()
	send(1)
	w.apply()
	if l := w.ledger(); l[store.OutcomeStored] != 2 || l[store.OutcomeDuplicate] != 2 {
		t.Errorf("ledger: %v", l)
	}
	if got := w.measurements(1); len(got) != 1 {
		t.Errorf("measurements: %v", got)
	}
}

func TestARepeatOfTheTransportIsTheSameMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	send := func(id uint16, dup bool, v float64) {
		a := w.arrival(1, temp(v))
		a.PacketID, a.Dup = id, dup
		if an := w.send(a); an.Outcome != Stored {
			t.Fatalf("%+v", an)
		}
		w.clock.advance(time.Second)
	}
	send(5, false, 1)
	send(5, true, 1)  // sent again
	send(5, true, 2)  // the id again, with another payload: another message
	send(6, true, 1)  // a DUP of what never came
	send(5, false, 1) // not a repeat: the sender says so
	w.apply()
	if l := w.ledger(); l[store.OutcomeStored] != 4 || l[store.OutcomeDuplicate] != 1 {
		t.Errorf("ledger: %v", l)
	}
}

// A client that takes the lowest free identifier uses the same one again and again: what it sent before the newest message with it
// was acknowledged to it, and cannot be what it repeats.
func TestARepeatIsComparedWithTheNewestMessageOfItsIdentifier(t *testing.T) {
	t.Parallel()
	s := newSeen(time.Hour, 1<<20, 0)
	r := func(id uint16, payload byte) *model.Record {
		return &model.Record{ClientID: "c", PacketID: id, Dup: true, Hash: [16]byte{payload}}
	}
	for _, payload := range []byte{20, 21} {
		s.addRepeat(r(1, payload))
		s.addRepeat(r(2, payload))
	}
	for id := range uint16(2) {
		if s.isRepeat(r(id+1, 20)) || !s.isRepeat(r(id+1, 21)) {
			t.Errorf("identifier %d: the newest message is not what a repeat is compared with", id+1)
		}
	}
	if s.isRepeat(r(3, 21)) {
		t.Error("a message with an identifier that was not used is a repeat")
	}
}

// Pages of version 1 are read for ever: what they hold is known until the client has sent as much as it can have in flight.
func TestRepeatsOfAnEarlierVersionAreKnown(t *testing.T) {
	t.Parallel()
	r := func(id uint16) *model.Record {
		return &model.Record{ClientID: "c", PacketID: id, Dup: true, Hash: [16]byte{1, 2, 3, 4, 5, 6, 7, 8}}
	}
	page := []byte{1, 1, 'c', 14, 2} // version, client, time 7, two messages
	for id := range uint16(2) {
		page = binary.LittleEndian.AppendUint64(page, legacyHash(r(id+1)))
	}
	s := newSeen(time.Hour, 1<<20, 0)
	if err := s.load(store.SeenPage{Kind: seenRepeats, Body: page}); err != nil {
		t.Fatal(err)
	}
	if !s.isRepeat(r(1)) || !s.isRepeat(r(2)) || s.isRepeat(r(3)) {
		t.Error("what a page of version 1 holds is not known")
	}
	s.written = 1 << 20 // all pages are written again
	again := newSeen(time.Hour, 1<<20, 0)
	f := s.freeze(8)
	for _, p := range f.pages() {
		if err := again.load(p); err != nil {
			t.Fatal(err)
		}
	}
	if !again.isRepeat(r(1)) || !again.isRepeat(r(2)) {
		t.Error("it is gone after a checkpoint")
	}
	for id := range uint16(legacyFor) {
		again.addRepeat(r(id + 100))
	}
	if again.isRepeat(r(1)) || again.clients["c"].legacy != nil {
		t.Error("it is kept for ever")
	}
}

func TestNothingIsAnsweredBeforeTheSyncReturns(t *testing.T) {
	t.Parallel()
	hold, held := make(chan struct{}), make(chan struct{}, 100)
	var armed atomic.Bool
	w := newWorld(t, func(w *world) {
		w.sync = func(sync func() error) error {
			if armed.Load() {
				held <- struct{}{}
				<-hold
			}
			return sync()
		}
	})
	w.furnish(1)
	armed.Store(true)
	done := make(chan Answer, 1)
	w.intake.Accept(context.Background(), w.arrival(1, temp(1)), func(an Answer) { done <- an })
	<-held
	select {
	case an := <-done:
		t.Fatalf("answered before the sync: %+v", an)
	default:
	}
	armed.Store(false)
	close(hold)
	if an := <-done; an.Outcome != Stored {
		t.Errorf("after the sync: %+v", an)
	}
}

func TestAFailingSyncAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	w := newWorld(t, func(w *world) {
		w.sync = func(sync func() error) error {
			if failing.Load() {
				return errors.New("the disk is gone")
			}
			return sync()
		}
	})
	w.furnish(1)
	w.apply()
	failing.Store(true)
	if an := w.send(w.arrival(1, temp(1))); an.Outcome != Withheld {
		t.Errorf("MQTT: %+v", an)
	}
	if an := w.send(&Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "acme",
		Body: []byte(measurement("temp", 1, `,"credentialType":"ACCESS_TOKEN","credentialId":"token-1"`))}); an.Outcome != Refused || an.Reason != ReasonUnavailable || an.RetryAfter != 0 {
		t.Errorf("HTTP: %+v", an)
	}
	if l := w.ledger(); l[store.OutcomeRefused] != 2 || l[store.OutcomeReceived] != 2 || l[store.OutcomeStored] != 0 {
		t.Errorf("ledger: %v", l)
	}
}

func TestAMessageLostInsideApplyIsNamedByTheBalance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	for range 5 {
		w.send(w.arrival(1, temp(1)))
	}
	_, last := w.log.Bounds()
	w.applier.wrap(losing(last - 2))
	w.apply()
	lines, err := w.applier.Ledger().Lines(context.Background(), store.LedgerFilter{})
	w.must(err)
	if len(lines) != 1 || lines[0].Missing() != 1 || lines[0].Tenant != "acme" || lines[0].Transport != TransportMQTT {
		t.Errorf("the balance does not name the loss: %+v", lines)
	}
}

func TestAnArrayIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	send := func(bodies ...string) (Answer, int) {
		var as []*Arrival
		for _, b := range bodies {
			as = append(as, &Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "acme", Body: []byte(b)})
		}
		type end struct {
			an Answer
			i  int
		}
		done := make(chan end, 1)
		w.intake.AcceptAll(context.Background(), as, func(an Answer, i int) { done <- end{an, i} })
		e := <-done
		return e.an, e.i
	}
	good := measurement("temp", 1, `,"credentialType":"ACCESS_TOKEN","credentialId":"token-1"`)
	if an, i := send(good, good, "x"); an.Outcome != Refused || an.Reason != ReasonUndecodable || i != 2 {
		t.Errorf("one bad: %+v at %d", an, i)
	}
	w.ceiling.left = 1
	if an, i := send(good, good); an.Reason != ReasonCeiling || i != 0 {
		t.Errorf("ceiling: %+v at %d", an, i)
	}
	w.ceiling.left = -1
	if an, i := send(good, good); an.Outcome != Stored || i != -1 {
		t.Errorf("all good: %+v at %d", an, i)
	}
	w.apply()
	if l := w.ledger(); l[store.OutcomeReceived] != 7 || l[store.OutcomeRefused] != 5 || l[store.OutcomeStored] != 2 {
		t.Errorf("ledger: %v", l)
	}
}

func TestPresenceIsFoldedAndAReplayMeetsItsOwnWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	claim := func(s model.PresenceState, session uint64) {
		w.claim(1, s, session)
		w.clock.advance(time.Second)
	}
	claim(model.Connected, 10)
	claim(model.Disconnected, 10)
	claim(model.Connected, 11)
	claim(model.Disconnected, 10) // of a session that is over
	for range 2 {
		w.apply()
		all, err := w.applier.DeviceStatesOf(context.Background(), 1, []int64{1})
		d := all[1]
		if err != nil || d == nil || d.State != model.Connected || d.Session != 11 || !d.Asserted {
			t.Fatalf("state: %+v, %v", d, err)
		}
		var n int
		w.must(w.db.Read(context.Background(), func(tx store.Tx) error {
			return tx.QueryRow(`SELECT COUNT(*) FROM row_events WHERE type = 4`).Scan(&n)
		}))
		if n != 3 {
			t.Errorf("%d state changes", n)
		}
		w.restart()
	}
}
