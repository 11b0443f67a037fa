// Package replay gives the stored history of a profile to an engine of its own, in the order of the log, as the applier gave it to the live one:
// what devices sent, what the registry said at each place, and how listening time went.
//
//	replay.go   a replay: what it is given, how it goes and where it ends
//	registry.go the metadata view as of then, and its changes
//	time.go     listening time as of then, starts, and stretches in which time stood still
//	samples.go  readings and events as samples
//	warm.go     the state of a live rule from a kept snapshot
package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"weir/ingest"
	"weir/ingest/view"
	"weir/model"
	"weir/rules"
	"weir/rules/preview"
	"weir/series"
	"weir/store"
	"weir/store/past"
)

// Deps are what replays read from.
type Deps struct {
	Series *series.Series
	// Applied is the newest record whose effects are committed, Heard the listening time that it brought at least.
	Applied func() model.Offset
	Heard   func() int64
	// Compiler has the limits of previews.
	Compiler *rules.Compiler
	// Watch is called with each sample before it is judged; nil: nothing is.
	Watch func(*rules.Input)
	Grace time.Duration // after a start, until the time of a device runs that is not heard
	// Damaged is called where a kept snapshot is damaged; nil: nothing is.
	Damaged func()
}

// Query is what a replay is about.
type Query struct {
	TenantID int64
	Tenant   string
	Profile  int64 // row id
	Rule     model.RuleView
	Window   preview.Window
	Lead     time.Duration // how long before the window it begins
	Bounds   preview.Bounds
	Explain  bool             // nothing is judged: the result says what would be read
	Scope    *model.GroupView // the version of a group that the rule is scoped to, where the view may lack it
}

// Run runs a rule over stored history. An error is one of the store, or that ctx has ended; at the end of its own time the result says so.
func Run(ctx context.Context, deps Deps, q Query) (*preview.Result, error) {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if q.Bounds.Time > 0 {
		limited, cancel = context.WithTimeout(ctx, q.Bounds.Time)
	}
	defer cancel()
	heard := rules.Listening(deps.Heard())
	upto := deps.Applied() // before the snapshot: what the records up to here came to is in it
	var r *run
	err := deps.Series.Past(store.ForTenant(limited, q.TenantID), q.TenantID, func(p *series.Past) error {
		r = newRun(limited, deps, q, p, upto, heard)
		return r.run()
	})
	switch {
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		if r == nil {
			r = newRun(limited, deps, q, nil, upto, heard)
		}
		r.degrade("time cap: the preview took longer than %s%s", q.Bounds.Time, r.reachedText())
	case errors.Is(err, errEnough):
	case err != nil:
		return nil, err
	}
	return r.result(), nil
}

// errEnough ends a replay that has reached one of its bounds.
var errEnough = errors.New("replay: a bound is reached")

// run is one replay.
type run struct {
	ctx  context.Context
	deps Deps
	q    Query
	past *series.Past

	upto      model.Offset // no record after it is looked at
	heard     rules.Listening
	engine    *rules.Engine
	key       rules.ProfileKey
	out       preview.Collector
	following ingest.Following
	registry  registry
	time      course
	life      life
	lead      model.Micros // what was received before it is not judged
	all       bool         // all is judged that lies after the place at which the replay begins
	now       model.Micros // receive time of the change that is made
	cold      string       // why the replay begins cold, where a live rule could begin warm
	until     model.Micros // no edge of the window can be stamped by a timer after it

	reel     *series.Reel
	senders  map[int64]*sender
	input    rules.Input
	readings []model.Reading
	occurred []model.Micros
	steps    int
	scanned  int64
	reached  model.Micros // receive time of the newest record that was judged
}

func newRun(ctx context.Context, deps Deps, q Query, p *series.Past, upto model.Offset, heard rules.Listening) *run {
	r := &run{ctx: ctx, deps: deps, q: q, past: p, upto: upto, heard: heard, engine: rules.NewEngine(deps.Compiler, nil), senders: map[int64]*sender{},
		key: rules.ProfileKey{Tenant: q.TenantID, Profile: q.Profile}, lead: q.Window.From - model.Micros(q.Lead/time.Microsecond)}
	r.out = preview.Collector{Window: q.Window, Max: q.Bounds.Firings}
	lateness := deps.Compiler.Limits().Lateness
	if def, err := deps.Compiler.Decode([]byte(q.Rule.Definition)); err == nil && def.Lateness != nil {
		lateness = *def.Lateness
	}
	r.until = q.Window.To + model.Micros((lateness+time.Second)/time.Microsecond)
	return r
}

func (r *run) degrade(format string, args ...any) { r.out.Result.Degrade(format, args...) }

// run replays the records up to the last one with an event of the window, and goes on while an edge of the window may still follow.
func (r *run) run() error {
	oldest, err := store.MetadataFrom(r.past.Tx())
	if err != nil {
		return err
	}
	if err := r.lived(oldest); err != nil {
		return err
	}
	begin, warm, err := r.warm(oldest)
	if err == nil && !warm {
		begin, err = r.coldly(oldest)
	}
	if err != nil {
		return err
	}
	end, err := r.past.LastWith(r.lead, r.q.Window.To)
	if err != nil {
		return err
	}
	end = max(begin, min(end, r.upto))
	if err := r.stretch(begin, end, false); err != nil {
		return err
	}
	if end < r.upto && r.waits() {
		if err := r.stretch(end, r.upto, true); err != nil {
			return err
		}
	}
	if r.waits() { // time has passed since the last record of the tenant
		r.engine.Advance(rules.Position{Offset: r.upto, Listening: max(r.time.last, r.heard+r.time.shift)}, r.out.Emit)
	}
	return nil
}

// coldly prepares the engine without a state, and returns the place at which the replay begins.
func (r *run) coldly(oldest model.Offset) (model.Offset, error) {
	if err := r.shorten(); err != nil {
		return 0, err
	}
	begin, err := past.Before(r.past.Tx(), r.lead)
	if err != nil {
		return 0, err
	}
	if begin > 0 && r.life.since <= begin {
		r.degrade("cold start: what the rule remembered from before %s is not known%s", r.lead.Time().UTC().Format(time.RFC3339), r.cold)
	}
	if oldest > begin {
		r.degrade("registry history aged out: the first events are judged by the oldest that is kept of it")
		begin = oldest
	}
	begin = min(begin, r.upto)
	if err := r.load(begin, r.lead); err != nil {
		return 0, err
	}
	r.begin(begin)
	return begin, nil
}

// load reads what held at a place, and what changed after it. received is the receive time of the place.
func (r *run) load(at model.Offset, received model.Micros) error {
	r.registry, r.time = registry{}, course{}
	if err := r.registry.load(r.past.Tx(), &r.q, at, r.upto); err != nil {
		return err
	}
	if err := r.time.load(r.past.Tx(), r.q.TenantID, at, r.upto, received); err != nil {
		return err
	}
	r.time.learn(r.registry.known)
	return nil
}

// waits reports whether an edge of the window may still come after the last event of the window.
func (r *run) waits() bool {
	change := r.registry.next()
	return change != nil && r.time.received(change.offset) <= r.until || r.engine.Waits(r.until, change != nil)
}

// shares are the parts of what may be read before the window: of the time, and of the bounds.
var shares = [...]int64{4, 24, 144}

// shorten lets the replay begin later where reading what came before the window would leave too little for the window.
func (r *run) shorten() error {
	full := r.q.Window.From - r.lead
	for _, share := range shares {
		n, err := r.past.Count(r.lead, r.q.Window.From)
		if err != nil || n <= r.mostBefore() {
			return err
		}
		r.lead = r.q.Window.From - full/model.Micros(share)
	}
	return nil
}

// mostBefore is how many readings before the window leave enough for the window.
func (r *run) mostBefore() int64 {
	return min(orMost(r.q.Bounds.Scanned), orMost(r.q.Bounds.Events)) / 2
}

// orMost is a bound, where 0 is none.
func orMost(n int64) int64 {
	if n == 0 {
		return math.MaxInt64
	}
	return n
}

// begin prepares the engine with what held where the replay begins.
func (r *run) begin(at model.Offset) {
	r.now = r.lead
	r.follow()
	r.engine.Advance(rules.Position{Offset: at, Listening: r.time.last}, r.out.Emit)
	r.time.start(r.engine, r.following.Grace)
	r.following.Enable()
	if r.registry.view.Profiles[r.q.Profile] != nil {
		r.following.Change(rules.Position{Offset: at, Received: r.lead.Nanos(), Listening: r.time.last}, &view.Change{Kind: model.ViewProfile, ID: r.q.Profile})
	}
}

// follow lets the engine follow the view as of then.
func (r *run) follow() {
	r.following = ingest.Following{Engine: r.engine, View: r.registry.view, Grace: rules.Listening(r.deps.Grace), Emit: r.out.Emit, Rules: r.rulesOf}
}

// stretch replays the records after one offset and up to another. In a tail it ends once no edge of the window can follow.
func (r *run) stretch(after, upto model.Offset, tail bool) error {
	s, err := newSamples(r, after, upto)
	if errors.Is(err, series.ErrManyRows) {
		r.degrade("scan cap: too many stored rows were to be read%s", r.reachedText())
		return errEnough
	}
	if err != nil {
		return err
	}
	r.reel = s.reel
	if r.out.Result.Reads == nil {
		r.out.Result.Reads = &preview.Reads{From: r.lead, Devices: len(r.registry.devices), Rows: s.reel.Rows(), Readings: s.reel.Readings()}
		if r.q.Explain {
			return errEnough
		}
	}
	for {
		rec, err := s.next()
		if err != nil {
			return err
		}
		if err := r.changes(rec, upto); err != nil || rec == nil {
			return err
		}
		if rec.received < r.lead && !r.all {
			continue
		}
		at := r.place(rec.offset, rec.received)
		r.engine.Advance(at, r.out.Emit)
		r.judge(at, rec)
		r.reached = rec.received
		if err := r.bounded(); err != nil {
			return err
		}
		if tail && r.steps%64 == 0 && !r.waits() {
			return nil
		}
	}
}

// changes makes the changes of the registry effective that come before a record, or with it; before the end of the stretch where there is none.
func (r *run) changes(rec *record, upto model.Offset) error {
	last := upto
	if rec != nil {
		last = rec.offset
	}
	for c := r.registry.next(); c != nil && c.offset <= last; c = r.registry.next() {
		received := r.time.received(c.offset)
		if rec != nil && rec.offset == c.offset {
			received = rec.received
		}
		at := r.place(c.offset, received)
		r.now = received
		r.engine.Advance(at, r.out.Emit)
		for i := range c.rows {
			made, err := r.registry.set(&c.rows[i])
			if err != nil {
				return err
			}
			if made == nil {
				continue
			}
			r.following.Change(at, made)
			if made.EndsDevice() {
				r.engine.RemoveDevice(at, made.ID, r.out.Emit)
			}
		}
		r.following.Settled(at)
		r.registry.passed()
	}
	return nil
}

// place is the position of a record, with the listening time that it brings.
func (r *run) place(offset model.Offset, received model.Micros) rules.Position {
	at := rules.Position{Offset: offset, Received: received.Nanos()}
	at.Listening = r.time.pass(r.engine, r.following.Grace, at, r.out.Emit)
	return at
}

// bounded ends the replay at its bounds.
func (r *run) bounded() error {
	if r.steps++; r.steps%1024 == 0 {
		if err := r.ctx.Err(); err != nil {
			return err
		}
	}
	b := &r.q.Bounds
	switch {
	case r.out.Full:
		r.degrade("firings cap: the draft fires more than %d times%s", b.Firings, r.reachedText())
	case b.Events > 0 && r.engine.Worked().InScope >= b.Events:
		r.degrade("read cap: %d events in scope were judged%s", b.Events, r.reachedText())
	case b.Scanned > 0 && r.scanned >= b.Scanned:
		r.degrade("scan cap: %d stored events were looked at%s", b.Scanned, r.reachedText())
	default:
		return nil
	}
	return errEnough
}

// reachedText names the time that was reached.
func (r *run) reachedText() string {
	if r.reached == 0 {
		return ", nothing was judged"
	}
	return ", up to what was received at " + r.reached.Time().UTC().Format(time.RFC3339)
}

// result is what came of it.
func (r *run) result() *preview.Result {
	out := &r.out.Result
	r.out.Sort()
	out.Events, out.Scanned = r.engine.Worked().InScope, r.scanned
	for _, h := range r.engine.Health(r.key) {
		out.EvalErrors, out.Late = h.EvalErrors, h.LateSamples
		if h.RefusedKeys > 0 {
			r.degradeBudget(h.RefusedKeys)
		}
	}
	if unread := r.registry.unread; len(unread) > 0 {
		r.degrade("geofence archive unreachable: what is stored of %s cannot be read; no position counts as within it", named(unread))
	}
	if out.EvalErrors > 0 {
		r.degrade("evaluation errors: %d samples could not be judged", out.EvalErrors)
	}
	if out.Late > 0 {
		r.degrade("late readings set aside: %d", out.Late)
	}
	return out
}

// maxNamed is how many of many names one line has.
const maxNamed = 5

// named lists names for a line, the first of them where they are many.
func named(names []string) string {
	quoted := make([]string, 0, maxNamed)
	for _, n := range names[:min(len(names), maxNamed)] {
		quoted = append(quoted, strconv.Quote(n))
	}
	if more := len(names) - maxNamed; more > 0 {
		quoted = append(quoted, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(quoted, ", ")
}

func (r *run) degradeBudget(n int64) {
	used := r.engine.UsedUp()
	switch {
	case len(used) == 0:
		r.degrade("key budget: %d samples were not judged", n)
	case used[0].Key == "detection.max_samples_per_tenant":
		r.degrade("sample budget: %d samples were not judged, %s is used up", n, used[0].Key)
	default:
		r.degrade("key budget: %d samples were not judged, %s is used up", n, used[0].Key)
	}
}
