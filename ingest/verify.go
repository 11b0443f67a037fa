package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"weir/model"
	"weir/series"
	"weir/spool"
	"weir/store"
	"weir/store/erase"
)

// Verifier recounts what is on disk and compares it with what the transports and the applier counted. It reads one snapshot
// of the store, which is exact up to the offset of the checkpoint, and the log after it: what a running instance holds in
// memory besides that is made from the same log, so nothing needs to pause. A tenant that is being erased is left out.
type Verifier struct {
	Store store.Store
	// Batches calls its function for the batches of the log from the one that holds an offset on.
	Batches func(ctx context.Context, from model.Offset, f func(*spool.Batch) error) error
	// Tenants returns the tokens of the tenants by row id; nil: store.TenantTokens.
	Tenants func(store.Tx) (map[int64]string, error)
	// DeadSince is the first hour of which every dead letter must still be there.
	DeadSince int64
	// Progress, unless nil, gets how many rows of how many were read.
	Progress func(done, all int64)
}

// Verdict is what a Verifier has found.
type Verdict struct {
	Checkpoint model.Offset // what the store contains
	Last       model.Offset // newest record of the log, 0 when it holds none after the checkpoint
	Rows       int64        // chunks and runs of blocks that were read
	Messages   int64        // that are stored, recounted
	Readings   int64
	Waiting    int64 // messages in the log after the checkpoint
	Lines      int   // of the ledger
	Wrongs     []Wrong
	More       int // wrongs that are not listed
	// Removed is how many counted dead letters were removed since: for their age, because of the maximum, or from the
	// rejected-payload buffer.
	Removed int64
	// Expired is how many readings are short and were removed for their age: at most as many as retention
	// says it removed, which does not say whose they were.
	Expired int64
}

// Wrong is one thing that does not balance, and by how much.
type Wrong struct {
	Kind      string // WrongMessages, …
	Tenant    string
	Transport string
	Hour      int64 // since the epoch, 0 when it belongs to none
	Row       string
	Messages  int64 // missing when positive, too many when negative
	Readings  int64
	Text      string
}

// Kinds of what is wrong.
const (
	WrongMessages    = "messages"     // received and ended nowhere, or ended more often than received
	WrongStored      = "stored"       // counted as stored and not there, or there and not counted
	WrongDeadLetters = "dead-letters" // likewise
	WrongRow         = "row"          // a row that cannot be read, or holds a reading twice
	WrongGone        = "row-gone"     // no row has an id between two others, where readings are short
	WrongLog         = "log"          // the log does not begin after the store's checkpoint
)

// maxWrongs is how many wrongs a verdict lists.
const maxWrongs = 1000

// recounting is one verification under way.
type recounting struct {
	*Verifier
	out        *Verdict
	tokens     map[int64]string
	erasing    map[string]int64                      // tenants that are left out, by token
	counted    map[store.LedgerKey]store.LedgerCount // the ledger as of the checkpoint, and of the log after it
	stored     map[line]store.LedgerCount            // recounted
	reports    map[line]int64                        // counted: what a device report leaves is an attribute, which a later one replaces
	dead       map[deadLine]int64                    // recounted
	transports map[string]string                     // transport of each source, as the ledger has it
	trimmed    map[string]model.Micros               // up to when dead letters of a tenant went because there were too many
	gaps       []series.Gap
	names      map[int64]string // of the series around them
	removed    int64            // readings, locations and events that went because their time was over
}

type deadLine struct {
	line
	reason string
}

// Verify recounts. An error says that it could not; what it found is in the verdict.
func (v *Verifier) Verify(ctx context.Context) (*Verdict, error) {
	r := &recounting{
		Verifier:   v,
		out:        &Verdict{},
		counted:    map[store.LedgerKey]store.LedgerCount{},
		stored:     map[line]store.LedgerCount{},
		reports:    map[line]int64{},
		dead:       map[deadLine]int64{},
		transports: map[string]string{},
	}
	// One snapshot of the store, then the log after it. Nothing has to stop meanwhile.
	if err := v.Store.Read(ctx, func(tx store.Tx) error { return r.read(ctx, tx) }); err != nil {
		return nil, err
	}
	if err := r.readLog(ctx); err != nil {
		return nil, err
	}
	r.balance()
	return r.out, nil
}

// read recounts one snapshot of the store.
func (r *recounting) read(ctx context.Context, tx store.Tx) (err error) {
	tenants := r.Tenants
	if tenants == nil {
		tenants = store.TenantTokens
	}
	if r.tokens, err = tenants(tx); err != nil {
		return err
	}
	if r.erasing, err = erase.Incomplete(tx); err != nil {
		return err
	}
	for token, id := range r.erasing {
		r.tokens[id] = token // its row may be gone
	}
	removed, err := store.Removed(tx)
	if err != nil {
		return err
	}
	r.removed = removed[store.KeptReadings] + removed[store.KeptLocations] + removed[store.KeptEvents]
	var gen uint64
	if r.out.Checkpoint, gen, err = store.CheckpointState(tx); err != nil {
		return err
	}
	// What was counted, up to the checkpoint.
	if err := store.Ledger(tx, store.LedgerFilter{}, func(k store.LedgerKey, c store.LedgerCount) error { r.count(k, c); return nil }); err != nil {
		return err
	}
	// What is there: rows of events, dead letters, readings.
	if err := store.TallyRowEvents(tx, r.out.Checkpoint, r.tally); err != nil {
		return err
	}
	if err := store.TallyDeadLetters(tx, r.out.Checkpoint, func(t store.DeadTally) error {
		if r.leftOut(t.Tenant) {
			return nil
		}
		r.dead[deadLine{line{tenant: t.Tenant, source: t.Source, hour: t.Hour}, t.Reason}] += t.Count
		return nil
	}); err != nil {
		return err
	}
	if r.trimmed, err = store.DeadLettersTrimmed(tx); err != nil {
		return err
	}
	chunks, blocks, err := store.PackedRows(tx)
	if err != nil {
		return err
	}
	all := chunks + blocks
	rc := series.Recount{Tally: r.tally, Fault: r.fault, Row: func() {
		r.out.Rows++
		if r.Progress != nil {
			r.Progress(min(r.out.Rows, all), all)
		}
	}}
	if r.gaps, err = rc.Run(ctx, tx, gen); err != nil {
		return err
	}
	return r.nameSeries(tx, gen)
}

func (r *recounting) nameSeries(tx store.Tx, gen uint64) error {
	var ids []int64
	for _, g := range r.gaps {
		ids = append(ids, g.Before, g.Next)
	}
	rows, err := store.SeriesByID(tx, gen, ids)
	r.names = map[int64]string{0: "none"}
	for i := range rows {
		r.names[rows[i].ID] = rows[i].DeviceToken + " " + rows[i].Metric
	}
	return err
}

func (r *recounting) leftOut(tenant string) bool {
	_, out := r.erasing[tenant]
	return out
}

func (r *recounting) count(k store.LedgerKey, c store.LedgerCount) {
	if r.leftOut(k.Tenant) {
		return
	}
	if k.Outcome == store.OutcomeStored && k.Reason == string(ReasonReport) {
		r.reports[line{tenant: k.Tenant, source: k.Source, hour: k.Hour}] += c.Messages
	}
	have := r.counted[k]
	have.Add(c)
	r.counted[k] = have
	r.transports[k.Source] = k.Transport
}

func (r *recounting) tally(t store.RowTally) error {
	l := line{tenant: r.tenant(t.TenantID), source: t.Source, hour: t.Hour}
	if r.leftOut(l.tenant) {
		return nil
	}
	have := r.stored[l]
	have.Add(t.LedgerCount)
	r.stored[l] = have
	r.out.Messages += t.Messages
	r.out.Readings += t.Readings
	return nil
}

// transportOf is the transport of a source, the source itself where the ledger does not have it.
func (r *recounting) transportOf(source string) string { return cmp.Or(r.transports[source], source) }

func (r *recounting) tenant(id int64) string { return cmp.Or(r.tokens[id], fmt.Sprintf("#%d", id)) }

func (r *recounting) fault(f series.Fault) {
	if r.leftOut(r.tenant(f.TenantID)) {
		return
	}
	r.wrong(Wrong{Kind: WrongRow, Tenant: r.tenant(f.TenantID), Row: f.Row, Readings: f.Readings, Text: f.Text})
}

func (r *recounting) wrong(w Wrong) {
	if len(r.out.Wrongs) >= maxWrongs {
		r.out.More++
		return
	}
	r.out.Wrongs = append(r.out.Wrongs, w)
}

// readLog counts what the log holds after the checkpoint: what its batches carry from the transports, and each message as
// waiting.
func (r *recounting) readLog(ctx context.Context) error {
	next := r.out.Checkpoint + 1
	epoch := uint32(0)
	err := r.Batches(ctx, next, func(b *spool.Batch) error {
		// A new epoch may begin at any offset; within one there are no gaps.
		if b.First > next && (epoch == 0 || b.Epoch == epoch) {
			r.wrong(Wrong{Kind: WrongLog, Messages: int64(b.First - next),
				Text: fmt.Sprintf("the records %d to %d are neither in the store nor in the log", next, b.First-1)})
		}
		next, epoch = max(next, b.Last()+1), b.Epoch
		return r.batch(b)
	})
	// A damaged log is a finding, not a failure of the recount.
	damage, damaged := errors.AsType[*spool.DamageError](err)
	if damaged {
		r.wrong(Wrong{Kind: WrongLog, Text: damage.Error()})
		return nil
	}
	return err
}

func (r *recounting) batch(b *spool.Batch) error {
	// The counts of a batch that the checkpoint reaches into are in the store.
	if b.First > r.out.Checkpoint {
		meta, err := decodeMeta(b.Meta)
		if err != nil {
			return fmt.Errorf("batch at %d: %w", b.First, err)
		}
		for k, c := range meta.Counts {
			r.count(k, c)
		}
	}
	for i := range b.Records {
		off := b.First + model.Offset(i)
		if off <= r.out.Checkpoint {
			continue
		}
		rec, err := model.DecodeRecord(b.Records[i].Data)
		if err != nil {
			return fmt.Errorf("record at %d: %w", off, err)
		}
		r.out.Last = max(r.out.Last, off)
		if Counted(rec.Kind) {
			r.out.Waiting++
			r.count(lineOf(rec).key(store.OutcomeWaiting, ReasonNone), store.LedgerCount{Messages: 1, Readings: int64(rec.Readings())})
		}
	}
	return nil
}

// balance holds the counts against each other.
func (r *recounting) balance() {
	// Bring counted and found together by tenant, source and hour.
	lines := map[line]*LedgerLine{}
	for k, c := range r.counted {
		addToLine(lines, k, c)
	}
	r.out.Lines = len(lines)
	for l := range r.stored {
		if lines[l] == nil {
			lines[l] = &LedgerLine{Tenant: l.tenant, Source: l.source, Hour: l.hour}
		}
	}
	order := make([]line, 0, len(lines))
	for l := range lines {
		order = append(order, l)
	}
	// In one order, so that two recounts list the same.
	slices.SortFunc(order, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.source, b.source))
	})
	r.out.Expired = r.expired(lines)
	// Sum over all hours, for the case below.
	net := map[line]store.LedgerCount{}
	for l, ln := range lines {
		all := line{tenant: l.tenant, source: l.source}
		want := r.wanted(l, ln)
		have := r.stored[l]
		n := net[all]
		n.Add(store.LedgerCount{Messages: want.Messages - have.Messages, Readings: want.Readings - have.Readings})
		net[all] = n
	}
	short := map[string]bool{}
	for _, l := range order {
		r.balanceMessages(l, lines[l])
		// The ledger keeps the hour of a clock that proved wrong, what is stored bears the one that was found out later: then
		// only all hours together can be compared.
		if net[line{tenant: l.tenant, source: l.source}] == (store.LedgerCount{}) {
			continue
		}
		if r.balanceStored(l, lines[l]) {
			short[l.tenant] = true
		}
	}
	r.balanceDead()
	r.nameGaps(short)
}

func (r *recounting) balanceMessages(l line, ln *LedgerLine) {
	switch n := ln.Missing(); {
	case n > 0:
		r.wrong(Wrong{
			Kind:      WrongMessages,
			Tenant:    l.tenant,
			Transport: r.transportOf(l.source),
			Hour:      l.hour,
			Messages:  n,
			Text:      "received, and have no outcome",
		})
	case n < 0:
		r.wrong(Wrong{
			Kind:      WrongMessages,
			Tenant:    l.tenant,
			Transport: r.transportOf(l.source),
			Hour:      l.hour,
			Messages:  n,
			Text:      "have an outcome, and were not received",
		})
	}
}

// expired is how many readings are short in all, when retention has removed as many; else 0, and each line is reported.
func (r *recounting) expired(lines map[line]*LedgerLine) (short int64) {
	for l, ln := range lines {
		short += max(ln.Outcomes[store.OutcomeStored].Readings-r.stored[l].Readings, 0)
	}
	if short > r.removed {
		return 0
	}
	return short
}

// wanted is what of a line must be found on disk: what was stored but for device reports.
func (r *recounting) wanted(l line, ln *LedgerLine) store.LedgerCount {
	want := ln.Outcomes[store.OutcomeStored]
	want.Messages -= r.reports[l]
	return want
}

// balanceStored reports whether readings are short.
func (r *recounting) balanceStored(l line, ln *LedgerLine) bool {
	want := r.wanted(l, ln)
	have := r.stored[l]
	w := Wrong{
		Kind:      WrongStored,
		Tenant:    l.tenant,
		Transport: r.transportOf(l.source),
		Hour:      l.hour,
		Messages:  want.Messages - have.Messages,
		Readings:  want.Readings - have.Readings,
	}
	aged := r.out.Expired > 0 && w.Messages >= 0 && w.Readings > 0 || w.Readings == 0 && w.Messages > 0 && w.Messages <= r.removed // events without readings
	if w.Messages == 0 && w.Readings == 0 || aged {
		return false
	}
	w.Text = fmt.Sprintf("counted as stored: %d messages with %d readings; there are %d with %d", want.Messages, want.Readings, have.Messages, have.Readings)
	if r.removed > 0 {
		w.Text += fmt.Sprintf("; retention has removed %d readings, locations and events of all tenants", r.removed)
	}
	r.wrong(w)
	return w.Readings > 0
}

// balanceDead holds the dead letters against the ledger: more than were counted is always wrong, fewer only where none can
// have left.
func (r *recounting) balanceDead() {
	want := map[deadLine]int64{}
	for k, c := range r.counted {
		if k.Outcome == store.OutcomeDeadLetter {
			want[deadLine{line{tenant: k.Tenant, source: k.Source, hour: k.Hour}, k.Reason}] += c.Messages
		}
	}
	all := map[deadLine]bool{}
	for d := range want {
		all[d] = true
	}
	for d := range r.dead {
		all[d] = true
	}
	var order []deadLine
	for d := range all {
		order = append(order, d)
	}
	slices.SortFunc(order, func(a, b deadLine) int {
		return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.source, b.source), cmp.Compare(a.reason, b.reason))
	})
	// As for stored messages: hours of a wrong clock compare only in sum.
	net := map[deadLine]int64{}
	for d := range all {
		net[deadLine{line{tenant: d.tenant, source: d.source}, d.reason}] += want[d] - r.dead[d]
	}
	for _, d := range order {
		n := want[d] - r.dead[d]
		if net[deadLine{line{tenant: d.tenant, source: d.source}, d.reason}] == 0 {
			continue // as above
		}
		trimmed, some := r.trimmed[d.tenant]
		if n > 0 && (d.hour < r.DeadSince || some && d.hour <= trimmed.Nanos().Hour() || isRejectedPayload(d.tenant, Reason(d.reason))) {
			r.out.Removed += n
			continue
		}
		if n != 0 {
			r.wrong(Wrong{
				Kind:      WrongDeadLetters,
				Tenant:    d.tenant,
				Transport: r.transportOf(d.source),
				Hour:      d.hour,
				Messages:  n,
				Text:      fmt.Sprintf("counted as dead letters (%s): %d; there are %d", d.reason, want[d], r.dead[d]),
			})
		}
	}
}

// nameGaps names the rows that are not there, of tenants whose readings are short.
func (r *recounting) nameGaps(short map[string]bool) {
	for _, g := range r.gaps {
		tenant := r.tenant(g.TenantID)
		if !short[tenant] {
			continue
		}
		row := fmt.Sprintf("%s %d", g.Table, g.First)
		if g.Last > g.First {
			row += fmt.Sprintf(" to %d", g.Last)
		}
		r.wrong(Wrong{
			Kind:   WrongGone,
			Tenant: tenant,
			Row:    row,
			Text:   fmt.Sprintf("is not there; it stood between a row of %s and one of %s", r.names[g.Before], r.names[g.Next]),
		})
	}
}

// LogBatches calls f for the batches of an open log that are there when it is called, from the one that holds from on. The
// caller holds off trimming (spool.Log.HoldTrim) since before it learned of from.
func LogBatches(ctx context.Context, log spool.Log, from model.Offset, f func(*spool.Batch) error) error {
	// Batches that are appended meanwhile are left out.
	first, last := log.Bounds()
	r, err := log.Reader(max(from, first))
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		b, err := r.TryNext()
		if err != nil || b == nil || b.First > last {
			return err
		}
		if err := f(b); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
