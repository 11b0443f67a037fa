package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/store"
)

// Bounds of the tap.
const (
	// maxWatchers is how many there are at a time, of one tenant no more than maxTenantWatchers: a tenant's consoles cannot keep
	// the operator or another tenant from watching.
	maxWatchers       = 64
	maxTenantWatchers = 16

	watchQueue  = 256 // messages that a watcher has not fetched; what comes beyond them is counted and left out
	shownValues = 4   // of a message
	shownFired  = 4   // rules that a message made fire
)

// ErrWatchEnded is returned when the watcher was closed.
var ErrWatchEnded = errors.New("ingest: the watch has ended")

// Sighting is what a watcher sees of a message: which one it was and its outcome. It holds no credential, and of a message
// of an unauthenticated sender neither values nor ids.
type Sighting struct {
	Received, Ended model.Nanos
	// Connection says that this is no message but a connection that a transport refused.
	Connection bool
	Tenant     string // whose ledger counts it; "" for unauthenticated senders and unknown tenants
	Named      string // tenant as the sender named it
	Transport  string
	Source     string
	Device     string // as named, or that of the credential; "" when nothing names one
	Outcome    store.Outcome
	Reason     Reason
	Why        string
	Bytes      uint32
	Offset     model.Offset // 0: it did not enter the log

	Type     string // of the event, "" when it did not decode or its sender is unauthenticated
	AltID    string
	Occurred model.Nanos // as sent; 0 when the event gives none
	Values   []string    // the first few, as text
	Readings int         // how many there are in all
	Fired    []Firing    // the first few

	OutOfRange int      // stored readings that were outside their range
	Marked     []Marked // the first few of them
}

// Marked is a stored reading that was outside its range.
type Marked struct {
	Metric string
	Mark   model.RangeMark
	Stored float64 // the bound, for model.Clamped
}

// Firing is a rule that a message made fire.
type Firing struct {
	Rule     string // token
	Signal   model.EdgeSignal
	Severity string // "" when the rule declares none
}

// Watch selects what a watcher sees. An empty field restricts nothing.
type Watch struct {
	Tenant    *string // "" is unauthenticated senders and unknown tenants
	Device    string
	Unnamed   bool // besides those of Device also messages that name no device: they may be of this one
	Transport string
	Outcome   store.Outcome
}

// Tap lets the operator watch messages as they end. The flow never waits for it: a watcher that is too slow gets the number
// of those that it missed. Without a watcher it costs one atomic load per message.
type Tap struct {
	// Unproven keeps the senders that are not known, watched or not; nil: none are kept. It is set before the first message.
	Unproven *UnprovenSenders

	now     func() model.Nanos
	leftOut prometheus.Counter

	mu       sync.Mutex                 // guards changes of watchers
	watchers atomic.Pointer[[]*Watcher] // copied on change, so that show takes no common lock
}

// NewTap returns a tap without watchers. now is the clock of the receive stamps.
func NewTap(now func() model.Nanos, reg prometheus.Registerer) *Tap {
	t := &Tap{now: now, leftOut: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_tail_dropped_messages_total",
		Help: "Messages not sent to a watcher because its queue was full."})}
	t.watchers.Store(new([]*Watcher))
	if reg != nil {
		reg.MustRegister(t.leftOut, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_tail_watchers", Help: "Open watchers of message outcomes (weir tail)."},
			func() float64 { return float64(len(*t.watchers.Load())) }))
	}
	return t
}

// Busy reports whether there is a watcher. A nil tap has none.
func (t *Tap) Busy() bool { return t != nil && len(*t.watchers.Load()) > 0 }

// Watch returns a watcher of what w selects, from now on. The caller closes it.
func (t *Tap) Watch(w Watch) (*Watcher, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	have := *t.watchers.Load()
	if len(have) >= maxWatchers {
		return nil, &model.Error{Code: model.CodeLimitExceeded, Message: fmt.Sprintf("%d others watch already, which is the maximum", len(have)),
			Hint: "end one of them and try again"}
	}
	if n := watchersOf(have, w.Tenant); n >= maxTenantWatchers {
		return nil, &model.Error{Code: model.CodeLimitExceeded, Message: fmt.Sprintf("%d others watch the tenant already, which is the maximum", n),
			Hint: "end one of them and try again"}
	}
	watcher := &Watcher{tap: t, wants: w, wake: make(chan struct{}, 1)}
	// Copy on change: show reads the list without a lock.
	all := append(slices.Clone(have), watcher)
	t.watchers.Store(&all)
	return watcher, nil
}

// watchersOf counts those that watch one tenant alone; nil, which is every tenant, has no share.
func watchersOf(all []*Watcher, tenant *string) (n int) {
	for _, w := range all {
		if tenant != nil && w.wants.Tenant != nil && *w.wants.Tenant == *tenant {
			n++
		}
	}
	return n
}

func (t *Tap) remove(w *Watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(*t.watchers.Load()), func(x *Watcher) bool { return x == w })
	t.watchers.Store(&left)
}

// ending is a message with its outcome.
type ending struct {
	rec        *model.Record
	outcome    store.Outcome
	reason     Reason
	why        string
	offset     model.Offset
	connection bool
	fired      []model.Edge // what it made rules fire
	outOfRange int          // readings with a mark
	marked     []model.Reading
}

// show shows an ending to the watchers that select it. It never blocks.
func (t *Tap) show(e ending) {
	for _, w := range *t.watchers.Load() {
		if w.wants.takes(&e) {
			w.offer(t, &e)
		}
	}
}

// ConnectionRefused shows a connection that a transport refused before it could bring a message. tenant and device are
// what it claimed; known says that the tenant exists.
func (t *Tap) ConnectionRefused(transport, source, tenant, device, why, mistake string, known bool) {
	if t == nil {
		return
	}
	if t.Unproven != nil {
		t.Unproven.note(t.now(), transport, tenant, device, why, mistake)
	}
	if !t.Busy() {
		return
	}
	r := &model.Record{
		Transport: transport,
		Source:    source,
		Tenant:    tenant,
		Device:    device,
		Received:  model.Stamp{Wall: t.now()},
		Verdict:   model.VerdictBad,
	}
	if known {
		r.Account = tenant
	}
	t.show(ending{rec: r, outcome: store.OutcomeRefused, reason: Reason(why), why: mistake, connection: true})
}

// ended notes a message that ended, where its sender is not known.
func (t *Tap) ended(r *model.Record, o store.Outcome, reason Reason, why string) {
	if o != store.OutcomeStored && o != store.OutcomeDuplicate {
		t.noteUnproven(r.Account, r.Received.Wall, r.Transport, r.Tenant, r.Device, reason, why)
	}
}

// noteUnproven notes a message that was not stored, where no tenant accounts for it or its sender is not known.
func (t *Tap) noteUnproven(account string, at model.Nanos, transport, tenant, device string, reason Reason, why string) {
	if t != nil && t.Unproven != nil && (account == "" || unproven(reason)) {
		t.Unproven.note(at, transport, tenant, device, string(reason), why)
	}
}

func (w *Watch) takes(e *ending) bool {
	device := w.Device == "" || e.rec.Device == w.Device || w.Unnamed && e.rec.Device == ""
	return device && (w.Tenant == nil || *w.Tenant == e.rec.Account) && (w.Transport == "" || w.Transport == e.rec.Transport) &&
		(w.Outcome == "" || w.Outcome == e.outcome)
}

// sighting is what may be shown of an ending.
func (t *Tap) sighting(e *ending) Sighting {
	r := e.rec
	s := Sighting{
		Received:   r.Received.Wall,
		Ended:      max(t.now(), r.Received.Wall),
		Connection: e.connection,
		Tenant:     r.Account,
		Named:      r.Tenant,
		Transport:  r.Transport,
		Source:     r.Source,
		Device:     r.Device,
		Outcome:    e.outcome,
		Reason:     e.reason,
		Why:        e.why,
		Bytes:      r.Bytes,
		Offset:     e.offset,
	}
	// Nothing of the content is shown of a sender that has not proven itself.
	if r.Account == "" || r.Verdict != model.VerdictOK {
		return s
	}
	m := r.Message
	if r.Report != nil {
		s.Type, s.Values = typeReport, firstReported(r.Report)
	}
	if r.Response != nil {
		s.Type, s.Values = model.CommandResponse.String(), []string{describeResponse(r.Response)}
	}
	if m == nil {
		return s
	}
	s.Type, s.AltID, s.Readings, s.Values = m.Type.String(), m.AltID, m.Readings(), firstValues(m)
	if m.HasOccurred {
		s.Occurred = m.Occurred
	}
	for _, f := range e.fired[:min(len(e.fired), shownFired)] {
		s.Fired = append(s.Fired, Firing{f.Rule, f.Signal, f.Severity})
	}
	s.OutOfRange = e.outOfRange
	for _, v := range e.marked {
		if v.Mark != model.InRange && len(s.Marked) < shownValues {
			s.Marked = append(s.Marked, Marked{v.Metric, v.Mark, v.Value})
		}
	}
	return s
}

// typeReport is what a watcher sees as the type of a device report.
const typeReport = "DeviceReport"

// firstReported shows the first attributes of a device report, one text each.
func firstReported(r *model.Report) []string {
	var out []string
	for i := range r.Attributes[:min(len(r.Attributes), shownValues)] {
		out = append(out, describeReported(&r.Attributes[i]))
	}
	return out
}

// firstValues shows the first readings of a message, one text each.
func firstValues(m *model.Message) []string {
	var out []string
	for _, v := range m.Measurements[:min(len(m.Measurements), shownValues)] {
		out = append(out, fmt.Sprintf("%s=%v", v.Metric, v.Value))
	}
	for _, l := range m.Locations[:min(len(m.Locations), shownValues)] {
		out = append(out, fmt.Sprintf("(%v, %v)", l.Latitude, l.Longitude))
	}
	for _, a := range m.Alerts[:min(len(m.Alerts), shownValues)] {
		out = append(out, fmt.Sprintf("%q level %d", a.Type, a.Level))
	}
	return out
}

// Watcher is a client that follows outcomes live. One goroutine fetches; Close may be called from any.
type Watcher struct {
	tap   *Tap
	wants Watch
	wake  chan struct{}

	mu    sync.Mutex
	queue []Sighting
	left  int64 // left out since the queue is full
	ended bool
}

// offer queues a sighting. It is created only when the queue has space, so that a flood costs ingest next to nothing.
func (w *Watcher) offer(t *Tap, e *ending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
		return
	case len(w.queue) >= watchQueue:
		w.left++
		t.leftOut.Inc()
		return
	}
	// Built only for a watcher with space.
	w.queue = append(w.queue, t.sighting(e))
	w.signal()
}

func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Next waits for something to show and returns all there is: what was seen, and how many that came after it were left
// out. The error is ErrWatchEnded after Close, or that of ctx.
func (w *Watcher) Next(ctx context.Context) (seen []Sighting, leftOut int64, err error) {
	for {
		w.mu.Lock()
		seen, leftOut, w.queue, w.left = w.queue, w.left, nil, 0
		ended := w.ended
		w.mu.Unlock()
		switch {
		case len(seen) > 0:
			return seen, leftOut, nil
		case ended:
			return nil, 0, ErrWatchEnded
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// Close ends the watcher and drops what was queued.
func (w *Watcher) Close() {
	w.tap.remove(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue, w.ended = nil, true
	w.signal()
}
