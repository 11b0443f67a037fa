package ingest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/ingest/links"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// appendControl appends a control record as the controller would, in parts.
func (w *world) appendControl(seq uint64, parts int, vs ...model.ViewChange) {
	w.t.Helper()
	body, err := store.EncodeViewChanges(vs)
	w.must(err)
	size := (len(body) + parts - 1) / parts
	for i := range parts {
		part := body[min(i*size, len(body)):min((i+1)*size, len(body))]
		r := &model.Record{Kind: model.KindControl, Received: w.clock.stamp(),
			Control: &model.Control{Sequence: seq, Part: uint16(i), Parts: uint16(parts), Body: part}}
		w.must(w.log.Append(context.Background(), spool.Entry{Data: model.AppendRecord(nil, r), Value: r, Done: func(model.Offset, error) {}}))
		w.must(w.log.Sync(context.Background())) // a batch each
	}
}

func TestAChangeThatIsAppendedTwiceHoldsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1) // sequence 1
	w.appendControl(2, 1, w.profile(2, thresholdRule("hot", "temp", "gt", 60)))
	w.appendControl(3, 1, w.profile(3, thresholdRule("hot", "temp", "gt", 80)))
	w.appendControl(2, 1, w.profile(2, thresholdRule("hot", "temp", "gt", 60))) // a crash lay between its append and its removal
	w.send(w.arrival(1, temp(70)))
	w.apply()
	if len(w.edges) != 0 {
		t.Errorf("an old version came back: %+v", w.edges)
	}
}

func TestAChangeInPartsIsInForceFromTheLastAndNoHeadIsCutInBetween(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.cfg.ReplayBytes = 64 })
	w.furnish(1)
	var many []model.RuleView
	for i := range 40 {
		many = append(many, thresholdRule(fmt.Sprintf("r%d", i), "temp", "gt", 60))
	}
	w.apply()
	w.appendControl(2, 5, w.profile(2, many...))
	r, err := w.log.Reader(w.applier.Applied() + 1)
	w.must(err)
	for range 3 { // the process ends in the middle of the change
		b, err := r.TryNext()
		w.must(err)
		w.must(w.applier.apply(context.Background(), b))
	}
	r.Close()
	w.must(w.applier.checkpoints.await())
	w.restart()
	w.send(w.arrival(1, temp(70)))
	w.apply()
	if len(w.edges) != 40 {
		t.Errorf("%d rules fired, want 40", len(w.edges))
	}
}

func TestACredentialOfADeviceThatIsGoneProvesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	a := w.arrival(1, temp(1))
	a.Conn.DeviceID = 99 // the d1 of before: deleted, and made again
	w.send(a)
	w.apply()
	if l := w.ledger(); l[store.OutcomeDeadLetter] != 1 || l[store.OutcomeStored] != 0 {
		t.Errorf("ledger: %v", l)
	}
}

func TestTheFutureIsStoredAtReceiptPlusTheSkew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	received := w.clock.stamp().Wall
	w.send(w.arrival(1, measurement("temp", 1, `,"occurredTime":"9999-01-01T00:00:00Z"`)))
	w.apply()
	ms, err := w.applier.deps.Series.LatestMeasurements(context.Background(), 1)
	if want := (received + model.Nanos(5*time.Minute)).Micros(); err != nil || len(ms) != 1 || ms[0].Occurred != want {
		t.Errorf("got %+v, %v; want %v", ms, err, want)
	}
}

func TestListeningTimeOfARecordFollowsFromItsStamp(t *testing.T) {
	t.Parallel()
	c := &testClock{wall: time.Now()}
	l := links.New(c.elapsed)
	c.advance(time.Second)
	if l.Now() != 0 {
		t.Errorf("closed transports hear: %d", l.Now())
	}
	l.Resume(int64(time.Hour))
	l.Open()
	span := l.Span()
	c.advance(3 * time.Second)
	if got, want := span.At(int64(c.elapsed())), int64(time.Hour+3*time.Second); got != want || l.Now() != want {
		t.Errorf("got %d and %d, want %d", got, l.Now(), want)
	}
	if got := span.At(0); got != int64(time.Hour) {
		t.Errorf("before the span: %d", got)
	}
	l.Shut()
	c.advance(time.Second)
	if l.Now() != int64(time.Hour+3*time.Second) || l.Span().At(int64(c.elapsed())) != l.Now() {
		t.Errorf("after the transports were closed: %d", l.Now())
	}
	l.Resume(1)
	if l.Now() != int64(time.Hour+3*time.Second) {
		t.Error("listening time went back")
	}
}

func TestAnAltIDIsForgottenAfterItsWindowOrForWantOfRoom(t *testing.T) {
	t.Parallel()
	hour := model.Nanos(time.Hour)
	s := newSeen(10*time.Hour, 1<<20, 0)
	key := func(n int64) []byte { return appendAltIDKey(nil, 1, n, &model.Message{AltID: "a"}) }
	has := func(s *seen, n int64) bool { _, ok := s.altIDs[altIDHash(key(n))]; return ok }
	s.addAltID(key(1), 1*hour)
	s.freeze(2 * hour)
	s.addAltID(key(2), 8*hour)
	s.freeze(9 * hour)
	if before := s.freeze(12 * hour).dropBefore; !has(s, 2) || has(s, 1) || before < (2*hour).Micros() {
		t.Errorf("at 12 h: %v %v, pages before %v go", has(s, 2), has(s, 1), before)
	}
	small := newSeen(1000*time.Hour, 2*altIDCost, 0)
	for n := int64(1); n <= 4; n++ {
		small.addAltID(key(n), model.Nanos(n)*hour)
		small.freeze(model.Nanos(n) * hour)
	}
	if has(small, 1) || has(small, 2) || !has(small, 3) || !has(small, 4) {
		t.Error("the bound of bytes does not evict the oldest")
	}
}

func TestRepeatsOfAllClientsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	s := newSeen(time.Hour, 1<<20, 0)
	r := func(client string, id uint16) *model.Record {
		return &model.Record{ClientID: client, PacketID: id, Dup: true, Hash: [16]byte{1}}
	}
	for i := range 200_000 {
		s.addRepeat(r(fmt.Sprintf("c%d", i), 1))
	}
	if s.clientBytes > repeatsBytes || s.evicted == 0 {
		t.Errorf("%d bytes are held, %d clients evicted", s.clientBytes, s.evicted)
	}
	if !s.isRepeat(r("c199999", 1)) || s.isRepeat(r("c0", 1)) {
		t.Error("not the least recently active client was evicted")
	}
	for id := range uint16(2000) {
		s.addRepeat(r("busy", id+1))
	}
	if s.isRepeat(r("busy", 900)) || !s.isRepeat(r("busy", 1000)) || !s.isRepeat(r("busy", 2000)) {
		t.Error("a client's last 1,024 are not what is remembered")
	}
}

func TestPagesOfRepeatsDoNotPileUp(t *testing.T) {
	t.Parallel()
	s := newSeen(time.Hour, 1<<20, 0)
	var kept []store.SeenPage
	var id uint16
	for head := range 300 {
		for range 500 {
			id++
			s.addRepeat(&model.Record{ClientID: fmt.Sprintf("c%d", id%7), PacketID: id, Hash: [16]byte{byte(head)}})
		}
		f := s.freeze(model.Nanos(head))
		if f.renew {
			kept = nil
		}
		kept = append(kept, f.pages()...)
		if n := pageBytes(kept); n > 2*s.clientBytes+2*repeatsPage || n != s.written {
			t.Fatalf("after %d heads %d bytes are in the store, %d are counted, %d in memory", head+1, n, s.written, s.clientBytes)
		}
	}
	again := newSeen(time.Hour, 1<<20, 0)
	for _, p := range kept {
		if err := again.load(p); err != nil {
			t.Fatal(err)
		}
	}
	if again.written != s.written || len(again.clients) != len(s.clients) {
		t.Errorf("loaded %d bytes of %d clients, want %d of %d", again.written, len(again.clients), s.written, len(s.clients))
	}
	for client, c := range s.clients {
		if got := again.clients[client]; !slices.Equal(got.last(len(got.ring)), c.last(len(c.ring))) {
			t.Errorf("%s remembers something else", client)
		}
	}
}

func TestTheHeadIsWrittenBeforeLoneRecordsHaveTakenTheLog(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]func(*ApplyConfig){
		"bytes, pages included": func(c *ApplyConfig) { c.LogBytes = 8 << 10 },
		"records":               func(c *ApplyConfig) { c.LogRecords = 20 },
	} {
		w := newWorld(t, func(w *world) { w.cfg.ReplayBytes = 64 << 20; bound(&w.cfg) })
		w.furnish(1)
		var most, records int64
		for i := range 200 {
			w.send(w.arrival(1, temp(float64(i)))) // a batch each
			w.apply()
			w.must(w.applier.checkpoints.await())
			s := w.log.Stats()
			most, records = max(most, s.Bytes), max(records, int64(s.Last+1-s.First))
		}
		if w.cfg.LogBytes > 0 && most > 16<<10 || w.cfg.LogRecords > 0 && records > 30 {
			t.Errorf("%s: the log has held %d bytes and %d records", name, most, records)
		}
	}
}
