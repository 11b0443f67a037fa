package edge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/model"
	"weir/spool"
)

// Beside is what an uplink needs that stands beside the applier of a platform, as a second reader of one log. What it forwards are the messages
// of devices in that log, each as the ingest event, report or answer that the platform has read it as. The log holds other records, too: so
// messages are counted, and a number is the place of a message among them instead of an offset.
type Beside struct {
	// Unseal opens a body that did not decode, and which the intake has sealed.
	Unseal func(tenant string, sealed []byte) ([]byte, error)
	// Done is up to where the applier needs the log no more.
	Done func() model.Offset
	// Platform is followed and fires; nil: it is neither.
	Platform Platform
	// Repeats learn of each record that is applied: nothing goes up before.
	Repeats *Repeats
}

// place is an offset, and the number of the newest message up to it.
type place struct {
	At     model.Offset `json:"at"`
	Number uint64       `json:"number"`
}

// Bounds of the places that are remembered, so that a message can be found by its number.
const (
	maxMarks   = 256
	markEvery  = 64 // messages, at first
	dropBeside = 20 // a twentieth of the log's budget before new messages are refused
)

// marks are places behind which the log may still be read. The distance between them doubles when there are too many.
type marks struct {
	all   []place
	every uint64
}

func (m *marks) add(p place) {
	m.every = max(m.every, markEvery)
	if n := len(m.all); n > 0 && p.Number < m.all[n-1].Number+m.every {
		return
	}
	m.all = append(m.all, p)
	if len(m.all) <= maxMarks {
		return
	}
	m.every *= 2
	kept := m.all[:0]
	for i, p := range m.all {
		if i%2 == 0 {
			kept = append(kept, p)
		}
	}
	m.all = kept
}

// trimmed forgets the places behind which the log no longer begins; first is its oldest record.
func (m *marks) trimmed(first model.Offset) {
	m.all = slices.DeleteFunc(m.all, func(p place) bool { return p.At+1 < first })
	if len(m.all) == 0 {
		m.every = markEvery
	}
}

// rewound forgets the places after one.
func (m *marks) rewound(to place) {
	m.all = slices.DeleteFunc(m.all, func(p place) bool { return p.At > to.At })
}

// reads decodes a record of the log. forwards is false for one that does not go up.
func (e *Edge) reads(at model.Offset, data []byte) (r record, forwards bool, err error) {
	if e.deps.Beside == nil {
		r, err = decodeRecord(data)
		return r, true, err
	}
	rec, err := model.DecodeRecord(data)
	if err != nil {
		return record{}, false, err
	}
	if rec.Kind == model.KindControl {
		return record{control: rec.Control}, false, nil
	}
	if !e.goesUp(rec) || e.deps.Beside.Repeats.has(at) {
		return record{}, false, nil
	}
	r = recordOf(rec)
	if rec.Kind != model.KindRaw {
		r.kind, r.payload, err = bodyOf(rec)
		return r, true, err
	}
	if r.payload, err = e.deps.Beside.Unseal(rec.Tenant, rec.Raw); err != nil { // the root key is another one: it is not readable at this site either
		r.payload, err = nil, nil
	}
	return r, true, err
}

// goesUp reports whether a record of a platform is forwarded. It follows from the record and what is configured alone: the numbers depend on it.
func (e *Edge) goesUp(r *model.Record) bool {
	switch r.Kind {
	case model.KindMessage, model.KindRaw, model.KindDeviceReport, model.KindCommandResponse:
	default:
		return false
	}
	if r.Verdict != model.VerdictOK || r.Account == "" || r.Device == "" || !model.ValidToken(r.Device) { // it is not proven here, and above it would be the edge that vouches for it
		return false
	}
	own, _, named := cutTenant(e.cfg.Uplink.Username)
	return !named || r.Tenant == own
}

// forwardsWhat says of which records goesUp is true: another answer is another numbering.
func (e *Edge) forwardsWhat() string {
	tenant, _, _ := cutTenant(e.cfg.Uplink.Username)
	return "messages of " + tenant
}

// recordOf is a record of a platform as one of an edge, without its body.
func recordOf(r *model.Record) record {
	return record{transport: r.Transport, tenant: r.Tenant, device: r.Device, wall: r.Received.Wall, doubtful: r.Received.Clock == model.ClockUnset, boot: r.Received.Boot, mono: r.Received.Mono}
}

// resume takes over the place of a state in a log that goes on. Where the log does not go on there, or other records are forwarded than before,
// the numbers do not either: the installation begins as another one. It reports whether it does.
func (e *Edge) resume(saved *saved, fresh bool) (renewed bool) {
	first, last := e.spool.Bounds()
	what := e.forwardsWhat()
	if fresh && saved.Position == 0 {
		saved.Position, saved.AcceptedThrough = first-1, first-1
		saved.Forwards = what
		return false
	}
	goesOn := saved.Position+1 >= first && saved.Position <= last
	if goesOn && saved.AcceptedThrough <= last && saved.AcceptedThrough >= saved.Position && saved.Forwards == what {
		return false
	}
	if !goesOn {
		e.log.Warn("the log does not go on where the uplink was: what it no longer holds is not forwarded", "position", saved.Position, "first", first, "last", last)
		saved.Position = min(max(saved.Position, first-1), last)
	}
	saved.AcceptedThrough, saved.Tally, saved.Counted, saved.Marks, saved.Forwards = saved.Position, saved.Number, saved.Position, nil, what
	saved.Beyond = nil
	for i := range saved.Lines { // what waits is counted again
		l := &saved.Lines[i]
		l.Accepted -= l.waiting()
		l.Received = l.Accepted
		for _, n := range l.Turned {
			l.Received += n
		}
	}
	return true
}

// newInstall returns the id of another installation.
func newInstall() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// RunTally counts what the log of a platform holds for the uplink, as it comes, until ctx ends.
func (e *Edge) RunTally(ctx context.Context) error {
	_, upTo := e.spool.Bounds()
	e.book.mu.Lock()
	from := e.book.through + 1
	e.book.mu.Unlock()
	known := func(at model.Offset) {
		if at >= upTo {
			e.tallied.Do(func() { close(e.counted) })
		}
	}
	known(from - 1)
	for {
		next, err := e.tally(ctx, from, known)
		damage, damaged := errors.AsType[*spool.DamageError](err)
		switch {
		case ctx.Err() != nil || errors.Is(err, spool.ErrClosed):
			return nil
		case errors.Is(err, spool.ErrTrimmed): // by what is forwarded, and so counted below
			from, _ = e.spool.Bounds()
		case damaged && damage.Next > 0:
			from = damage.Next
			known(from - 1)
		default:
			return fmt.Errorf("counting the log: %w", err)
		}
		from = max(from, next)
	}
}

func (e *Edge) tally(ctx context.Context, from model.Offset, known func(model.Offset)) (next model.Offset, err error) {
	r, err := e.spool.Reader(from)
	if err != nil {
		return from, err
	}
	defer r.Close()
	for next = from; ; {
		b, err := r.Next(ctx)
		if err == nil {
			err = e.applied(ctx, b)
		}
		if err != nil {
			return next, err
		}
		for i, raw := range b.Records {
			at := b.First + model.Offset(i)
			if at < next {
				continue
			}
			rec, err := model.DecodeRecord(raw.Data)
			switch {
			case err != nil:
				e.book.unreadable(at)
			case e.goesUp(rec) && !e.deps.Beside.Repeats.has(at):
				r := recordOf(rec)
				e.clock.saw(&r)
				e.metrics.received.Inc()
				e.book.tallied(lineOf(&r), at)
			default:
				if rec.Kind == model.KindPresence {
					r := recordOf(rec)
					e.comesOrGoes(model.Binding{Tenant: rec.Tenant, Device: rec.Device}, rec.Presence, &r)
				}
				e.book.passed(at)
			}
		}
		next = b.Last() + 1
		known(next - 1)
	}
}

// applied waits until the applier of a platform has applied the messages of a batch: then it is known which of them are repeats.
func (e *Edge) applied(ctx context.Context, b *spool.Batch) error {
	if e.deps.Beside == nil {
		return nil
	}
	for i, raw := range slices.Backward(b.Records) {
		if r, err := model.DecodeRecord(raw.Data); err == nil && e.goesUp(r) {
			return e.deps.Beside.Repeats.await(ctx, b.First+model.Offset(i))
		}
	}
	return nil
}

// counting waits until everything is counted that the log held at the start: an uplink says above which numbers it has given.
func (e *Edge) counting(ctx context.Context, fed <-chan error) (bool, error) {
	if e.deps.Beside == nil {
		return true, nil
	}
	select {
	case <-e.counted:
		return true, nil
	case <-ctx.Done():
		return false, nil
	case err := <-fed:
		return false, err
	}
}

// makesRoom drops the oldest messages where the log of a platform fills for want of the uplink, and the operator wants that.
func (e *Edge) makesRoom() error {
	b := e.deps.Beside
	if b == nil || e.cfg.WhenFull != dropOldest {
		return nil
	}
	s := e.spool.Stats()
	limit := s.MaxBytes - s.MaxBytes/10 - s.MaxBytes/dropBeside // before ingest.Gauge refuses
	many := s.MaxRecords > 0 && int64(s.Last+1-s.First) >= s.MaxRecords-s.MaxRecords/10-s.MaxRecords/dropBeside
	if s.Bytes < limit && !many || b.Done() <= e.forward.at() {
		return nil
	}
	if err := e.forward.drop(max(s.MaxBytes/dropAtOnce, minDrop), limit); err != nil {
		e.log.Error("the oldest messages cannot be dropped", "error", err)
		return err
	}
	return e.keep()
}

// tallied counts a message that the log of a platform holds.
func (b *book) tallied(key lineKey, at model.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.at(key)
	l.Received++
	l.Accepted++
	b.through, b.tally = at, b.tally+1
}

// passed notes a record that is not forwarded.
func (b *book) passed(at model.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.through = at
}

// unreadable counts a record that does not decode: the forwarder makes a dead letter of it.
func (b *book) unreadable(at model.Offset) { b.tallied(lineKey{}, at) }

// reached is the newest record that was counted.
func (b *book) reached() model.Offset {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.through
}

// numbered is the number of the newest message that was counted.
func (b *book) numbered() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tally
}

// Totals are the outcomes of all messages by the ledger of the uplink: stored, dead-letter, dropped, waiting.
func (e *Edge) Totals() map[string]int64 {
	lines, _ := e.book.copy(false)
	sum := map[string]int64{}
	for _, l := range lines {
		if n := l.waiting(); n != 0 {
			sum["waiting"] += n
		}
		for word, n := range l.Ended {
			outcome, _, _ := strings.Cut(word, ":")
			sum[outcome] += n
		}
	}
	return sum
}

// IsBeside reports whether the uplink is that of a platform.
func (e *Edge) IsBeside() bool { return e.deps.Beside != nil }
