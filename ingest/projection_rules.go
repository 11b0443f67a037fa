package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/ingest/links"
	"weir/ingest/view"
	"weir/internal/faults"
	"weir/model"
	"weir/rules"
	"weir/spool"
	"weir/store"
	"weir/store/alarms"
	"weir/store/outbox"
	"weir/store/past"
)

// ruleProjection keeps the state of the rules as pages, and the edges that they fire. It alone calls the engine.
type ruleProjection struct {
	ProjectionBase
	metadata *metadataProjection

	mu     sync.Mutex // of the engine: held over a record, and by a caller that looks at a rule's health
	engine *rules.Engine
	input  rules.Input // of the record; the engine keeps a pointer to it
	out    *Effects    // of the record
	emit   rules.Emit  // adds an edge to out
	alarms Alarms      // nil: no action is performed
	acted  int64       // what actions have cost so far
	grace  rules.Listening

	unknownFirings prometheus.Counter // of sites, by rules that the active version does not have

	following Following

	snapshot *rules.Snapshot // that is not encoded in whole; nil for none
	frozen   []rules.Page    // what is
	gen      uint64
	newest   Checkpoint // that is published
	at       Checkpoint // that is being written
	begun    bool       // the store may have pages of an attempt that did not end
	stale    bool       // the store may have pages that newer ones replace, besides those that frozen replaces

	setBack DeviceClocks // of this process
}

// DeviceClocks are clocks of devices that were set back, since the process started.
type DeviceClocks struct {
	SetBack int64        // keys of rules that began again
	Device  string       // the last one
	At      model.Micros // receive time
}

// HeldTenant is a tenant whose time stands still because messages of it are turned away or wait.
type HeldTenant struct {
	Tenant string
	For    time.Duration // listening time
}

// deviceClocks takes in what the engine has noticed since the last call.
func (p *ruleProjection) deviceClocks(now model.Nanos) DeviceClocks {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The engine reports what it noticed once; the sum is kept here.
	if n, device := p.engine.SetBack(); n > 0 {
		p.setBack = DeviceClocks{p.setBack.SetBack + n, device, now.Micros()}
	}
	return p.setBack
}

// held lists the tenants whose time stands still, by token.
func (p *ruleProjection) held() (all []HeldTenant) {
	// The lock of the metadata comes before that of the engine.
	p.metadata.mu.RLock()
	defer p.metadata.mu.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, token := range slices.Sorted(maps.Keys(p.metadata.view.Tenants)) {
		if d, away := p.engine.Held(p.metadata.view.Tenants[token].ID); away {
			all = append(all, HeldTenant{token, d})
		}
	}
	return all
}

// UsedUp is a budget of a tenant's rules that is used up.
type UsedUp struct {
	Tenant string // "": all tenants together
	Key    string // of the setting
}

// usedUp lists the budgets of rules that are used up, by tenant.
func (p *ruleProjection) usedUp() (all []UsedUp) {
	p.metadata.mu.RLock()
	defer p.metadata.mu.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	budgets := p.engine.UsedUp()
	if len(budgets) > 0 && budgets[0].Tenant == 0 {
		all = append(all, UsedUp{"", budgets[0].Key})
	}
	for token, t := range p.metadata.view.Tenants {
		for _, b := range budgets {
			if b.Tenant == t.ID {
				all = append(all, UsedUp{token, b.Key})
			}
		}
	}
	slices.SortFunc(all, func(a, b UsedUp) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Key, b.Key)) })
	return all
}

func newRuleProjection(deps *ApplyDeps, metadata *metadataProjection, alarms Alarms, grace time.Duration, m *applyMetrics) *ruleProjection {
	p := &ruleProjection{
		unknownFirings: m.firings.WithLabelValues("unknown-rule"),
		engine:         deps.Rules,
		metadata:       metadata,
		alarms:         alarms,
		grace:          rules.Listening(grace),
		begun:          true,
		stale:          true,
	}
	// One closure for all records; p.out says where edges go.
	p.emit = func(e model.Edge) { p.out.Edge(e) }
	p.following = Following{Engine: p.engine, Grace: p.grace, Emit: p.emit}
	p.engine.FollowSites(func(tenant int64, link, profile string) bool {
		return p.metadata.view.JudgedAtSite(tenant, link, 0, profile)
	})
	return p
}

// Load implements Projection: it fills the engine and installs the versions that were active at the checkpoint.
func (p *ruleProjection) Load(tx store.Tx, at Checkpoint) error {
	p.newest = at
	var pages []rules.Page
	err := store.RulePages(tx, at.Generation, func(p store.RulePage) error {
		pages = append(pages, rules.Page{Tenant: p.TenantID, ID: p.Page, Data: p.Body})
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.engine.Load(pages); err != nil {
		return err
	}
	// Tenants before their profiles: a disabled tenant's rules do not run.
	p.follow().Enable()
	// Install what was active at the checkpoint. Its state is loaded, so nothing may fire here.
	position := rules.Position{Offset: at.Offset, Listening: at.Listening}
	for _, id := range slices.Sorted(maps.Keys(p.metadata.view.Profiles)) {
		p.follow().Install(position, id, p.metadata.view.Profiles[id], func(e model.Edge) {
			err = errors.Join(err, fmt.Errorf("rule %s fired while its state was loaded", e.ID.Rule))
		})
	}
	if p.alarms != nil { // what was installed has acted before
		p.engine.Perform(p)
	}
	return err
}

// Advance implements Timed: timers that are due before the record fire.
func (p *ruleProjection) Advance(at rules.Position, out *Effects) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setEffects(out)
	before := len(out.edges)
	if p.engine.Advance(at, p.emit); len(out.edges) > before {
		faults.Point("timer.fired")
	}
}

// Due implements Timed.
func (p *ruleProjection) Due() rules.Listening { return p.engine.Due() } // the applier alone changes it

// boot says of which start the records are from here on.
func (p *ruleProjection) boot(boot uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engine.Boot(boot, p.grace)
}

// moved lets the time of tenants, and of devices behind links, stand still and run again.
func (p *ruleProjection) moved(m links.Moves) {
	if len(m.Holds)+len(m.Turns) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A tenant that is gone by now has no time to hold.
	for _, h := range m.Holds {
		switch t := p.metadata.view.Tenants[h.Tenant]; {
		case t == nil || t.ID == 0:
		case h.Ends:
			p.engine.Release(t.ID, rules.Listening(h.At))
		default:
			p.engine.Hold(t.ID, rules.Listening(h.At))
		}
	}
	for _, t := range m.Turns {
		p.engine.Link(t.Link, t.Up, rules.Listening(t.At))
	}
}

// expect lets the engine fetch the state of the devices of the next records, which are decoded where a transport has just handed them over.
func (p *ruleProjection) expect(records []spool.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// One record alone gains nothing.
	if len(records) < 2 || !p.engine.Expects() {
		return
	}
	var ids [rules.Group]int64
	for i := range records {
		if r, ok := records[i].Value.(*model.Record); ok && r.Kind == model.KindMessage {
			ids[i] = p.metadata.view.Resolve(r.Tenant, r.Device).Device.ID
		}
	}
	p.engine.Expect(&ids)
}

// linkOf is the link that a record came over. The engine takes a source that no link is named after for the transports together.
func linkOf(r *model.Record) string {
	if r.Relay != nil {
		return r.Relay.Link
	}
	return r.Source
}

// Record implements Projection.
func (p *ruleProjection) Record(_ context.Context, e *Event, out *Effects) error {
	switch {
	case e.kept() != nil:
		p.message(e, out)
	case e.firing:
		p.firing(e, out)
	case e.Transition != nil:
		p.begin(e, out, rules.Transition)
		p.input.Presence, p.input.Reason = e.Record.Presence.State, e.Record.Presence.Reason
		p.apply(0, e.Transition.Row.Occurred)
		p.mu.Unlock()
	case e.Change != nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.setEffects(out)
		p.change(e.At, e.Change)
	}
	return nil
}

// begin locks the engine and prepares its input for a record.
func (p *ruleProjection) begin(e *Event, out *Effects, kind rules.InputKind) {
	// The caller unlocks, after the rules have judged.
	p.mu.Lock()
	p.setEffects(out)
	p.input = rules.Input{
		Position: e.At,
		Kind:     kind,
		Device:   rules.Device{ID: e.DeviceID, Type: e.DeviceType, Token: e.Record.Device},
		Link:     linkOf(e.Record),
		AtSite:   p.judgedAtSite(e),
		Profile:  rules.ProfileKey{Tenant: e.TenantID, Profile: e.ProfileID},
		Facts:    p.metadata.view,
	}
	if e.anchors != nil {
		p.input.Anchors = e.anchors.Anchors
	}
}

// judgedAtSite reports whether the site of an edge has judged a record by the rules with placement EDGE.
func (p *ruleProjection) judgedAtSite(e *Event) bool {
	r := e.Record.Relay
	return r != nil && e.profile != nil && p.metadata.view.JudgedAtSite(e.TenantID, r.Link, r.Number, e.profile.Token)
}

// firing takes in an edge of a rule that a site has judged.
func (p *ruleProjection) firing(e *Event, out *Effects) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setEffects(out)
	// The site may have judged by a profile or a rule that this instance does not have any more.
	taken := e.profile != nil && e.profile.Token == e.Record.Firing.Profile &&
		p.engine.Foreign(e.At, rules.ProfileKey{Tenant: e.TenantID, Profile: e.ProfileID}, rules.Device{ID: e.DeviceID, Type: e.DeviceType, Token: e.Record.Device}, e.Record.Firing, p.emit)
	if !taken {
		p.unknownFirings.Inc()
	}
}

// apply lets the rules judge the prepared input. A device without a profile has none.
func (p *ruleProjection) apply(index int, occurred model.Micros) {
	if p.input.Profile.Profile != 0 {
		p.input.Index = uint32(index)
		p.input.Occurred = occurred
		p.engine.Apply(&p.input, p.emit)
	}
}

func (p *ruleProjection) message(e *Event, out *Effects) {
	switch m := e.Record.Message; m.Type {
	case model.MeasurementEvent:
		p.begin(e, out, rules.Measurement)
		p.measurements(m.Measurements, e.Occurred)
		p.mu.Unlock()
	case model.LocationEvent:
		p.begin(e, out, rules.Location)
		for i := range m.Locations {
			where := store.StoredLocation(m.Locations[i]) // a preview judges what is stored
			p.input.Where = &where
			p.apply(i, e.Occurred[i])
		}
		p.mu.Unlock()
	case model.AlertEvent:
		p.begin(e, out, rules.Bare)
		p.apply(0, e.Occurred[0])
		p.mu.Unlock()
	}
}

// measurements judges the samples of a message.
func (p *ruleProjection) measurements(ms []model.Reading, occurred []model.Micros) {
	for from := 0; from < len(ms); {
		to := SampleEnd(ms, occurred, from)
		p.input.Readings = ms[from:to]
		p.apply(from, occurred[from])
		faults.Point("apply.entry")
		from = to
	}
}

// Following lets the rules of an engine follow what the metadata says. Live detection has one; a preview has one of its own, over the view as
// of then. It belongs to whom the engine belongs to.
type Following struct {
	Engine *rules.Engine
	View   *view.View // changed already where it is told of a change
	Grace  rules.Listening
	Emit   rules.Emit
	// Rules returns the rules of the version of a profile, and whether the engine runs any; nil: those that are published.
	Rules func(profile int64, v *view.Profile) (rs []model.RuleView, runs bool)

	left []movedScope // by the change of the metadata that is being applied
}

// Enable lets the time of each tenant stand still or run, as the view has it.
func (f *Following) Enable() {
	tenants := f.View.Tenants
	for _, token := range slices.Sorted(maps.Keys(tenants)) {
		switch t := tenants[token]; {
		case t.ID == 0:
		case t.Enabled:
			f.Engine.Enable(t.ID, f.Grace)
		default:
			f.Engine.Disable(t.ID)
		}
	}
}

// Change applies a change of the metadata to the rules and devices of the engine. Settled is called when all rows of the change are effective.
func (f *Following) Change(at rules.Position, c *view.Change) {
	v := f.View
	switch c.Kind {
	case model.ViewTenant:
		f.Enable()
	case model.ViewProfile:
		f.changeProfile(at, c)
	case model.ViewDeviceType:
		// Devices leave the rules of the old profile before they join the new one.
		before := c.DeviceType.Profile
		if old := v.Profiles[before]; before != 0 && v.Types[c.ID].Profile != before && old != nil {
			if t := v.Tenants[old.Tenant]; t != nil {
				f.Engine.Detach(at, rules.ProfileKey{Tenant: t.ID, Profile: before}, c.ID, f.Emit)
			}
		}
		f.enrollAll(at, v.Types[c.ID].Profile)
	case model.ViewDevice:
		if c.Body != nil {
			f.changeDevice(at, c)
		}
	case model.ViewAttribute:
		f.left = append(f.left, movedScope{device: c.ID})
	case model.ViewGroup:
		f.left = append(f.left, movedScope{tenant: c.TenantID, group: c.Group})
	case model.ViewAnchors, model.ViewMemberships:
		for _, a := range c.Left {
			f.Engine.Leave(at, c.ID, a, f.Emit)
		}
	case model.ViewSite:
		f.Engine.LeaveToSites(at, c.TenantID, f.Emit)
	}
}

// movedScope is a device whose attributes have changed, or a dynamic group of which a version has: devices may have left.
type movedScope struct {
	device int64
	tenant int64
	group  string
}

// Settled is called when all rows of a change of the metadata are effective: between two of them a device may seem to have left a
// group of which the next row is another version.
func (f *Following) Settled(at rules.Position) {
	v := f.View
	for i, m := range f.left {
		// Several rows may name the same scope: look at it once.
		switch {
		case slices.Contains(f.left[:i], m):
		case m.device != 0:
			f.Engine.Rescope(at, m.device, v, f.Emit)
			f.Engine.Regroup(at, m.device, v.Bears, f.Emit)
		default:
			f.Engine.RegroupAll(at, m.tenant, model.Anchor{Type: model.GroupAnchor, Token: m.group}, v.Bears, f.Emit)
		}
	}
	f.left = f.left[:0]
}

// changeDevice lets a device that came to a profile be known to it, and one that changed its type leave the one before.
func (f *Following) changeDevice(at rules.Position, c *view.Change) {
	// The old type may have had another profile.
	if c.Device.ID != 0 && c.DeviceNow.Type != c.Device.Type {
		f.Engine.RemoveDevice(at, c.ID, f.Emit)
	}
	tenant, token, _ := strings.Cut(c.Key, "/")
	t := f.View.Tenants[tenant]
	profile := f.View.Types[c.DeviceNow.Type].Profile
	if t != nil && profile != 0 {
		f.Engine.Enroll(at, rules.ProfileKey{Tenant: t.ID, Profile: profile}, rules.Device{ID: c.ID, Type: c.DeviceNow.Type, Token: token}, f.Emit)
	}
}

// enrollAll makes the devices of a profile known to its rules that miss devices.
func (f *Following) enrollAll(at rules.Position, profile int64) {
	v := f.View.Profiles[profile]
	if v == nil || f.View.Tenants[v.Tenant] == nil {
		return
	}
	k := rules.ProfileKey{Tenant: f.View.Tenants[v.Tenant].ID, Profile: profile}
	// Only rules about missing devices need to know all of them.
	if !f.Engine.Enrolls(k) {
		return
	}
	for _, d := range f.View.Roster(profile) {
		f.Engine.Enroll(at, k, rules.Device{ID: d.ID, Type: d.Type, Token: d.Token}, f.Emit)
	}
}

// Reload lets the rules follow a view that was read again, after the changes of its profiles.
func (f *Following) Reload(at rules.Position) {
	f.Enable()
	f.Engine.RescopeAll(at, f.View, f.Emit)
	f.Engine.RegroupAll(at, 0, model.Anchor{}, f.View.Bears, f.Emit)
}

func (f *Following) changeProfile(at rules.Position, c *view.Change) {
	if now := f.View.Profiles[c.ID]; now != nil {
		f.Install(at, c.ID, now, f.Emit)
		f.enrollAll(at, c.ID)
		return
	}
	if c.Profile == nil {
		return
	}
	if t := f.View.Tenants[c.Profile.Tenant]; t != nil {
		f.Engine.Remove(at, rules.ProfileKey{Tenant: t.ID, Profile: c.ID}, f.Emit)
	}
}

// Install makes the version of a profile the one that the engine runs.
func (f *Following) Install(at rules.Position, id int64, v *view.Profile, emit rules.Emit) {
	rs, runs := v.Rules, true
	if f.Rules != nil {
		rs, runs = f.Rules(id, v)
	}
	if t := f.View.Tenants[v.Tenant]; t != nil && runs {
		f.Engine.Install(at, rules.ProfileRef{
			ProfileKey:  rules.ProfileKey{Tenant: t.ID, Profile: id},
			TenantToken: v.Tenant,
			Token:       v.Token,
			Version:     v.Version,
		}, rs, emit)
	}
}

// SampleEnd returns where the sample ends that begins at a reading of a message: it is the readings of one event time that follow one another,
// no metric twice. Stored readings tell as much, so that a preview judges the samples that were judged.
func SampleEnd(ms []model.Reading, occurred []model.Micros, from int) int {
	to := from + 1
	var seen map[string]struct{}
	for ; to < len(ms) && occurred[to] == occurred[from]; to++ {
		name := ms[to].Metric
		// Small samples are compared directly; a map costs more than it saves.
		switch {
		case to-from < mapFrom:
			for i := from; i < to; i++ {
				if ms[i].Metric == name {
					return to
				}
			}
			continue
		case seen == nil:
			seen = make(map[string]struct{}, 2*mapFrom)
			for i := from; i < to; i++ {
				seen[ms[i].Metric] = struct{}{}
			}
		}
		if _, twice := seen[name]; twice {
			return to
		}
		seen[name] = struct{}{}
	}
	return to
}

// mapFrom is the size of a sample from which its metrics are looked up in a map.
const mapFrom = 24

// change applies a change of the metadata to the rules and devices of the engine. The view is changed already.
func (p *ruleProjection) change(at rules.Position, c *MetadataChange) {
	p.follow().Change(at, &c.Change)
}

// settled is called when all rows of a change of the metadata are effective.
func (p *ruleProjection) settled(at rules.Position, out *Effects) {
	if len(p.following.left) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setEffects(out)
	p.follow().Settled(at)
}

// reloaded lets the rules follow a view that was read again, after the changes of its profiles.
func (p *ruleProjection) reloaded(at rules.Position, out *Effects) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setEffects(out)
	p.follow().Reload(at)
}

// follow returns what lets the engine follow the present view.
func (p *ruleProjection) follow() *Following {
	p.following.View = p.metadata.view
	return &p.following
}

// RemoveDevice implements Projection: what the device has raised resolves, and its alarms go.
func (p *ruleProjection) RemoveDevice(_ context.Context, e *Event, out *Effects) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setEffects(out)
	// Edges that resolve come first, then alarms of the device go as a whole.
	p.engine.RemoveDevice(e.At, e.DeviceID, p.emit)
	if p.alarms != nil {
		p.Contribute(model.Contribution{
			Kind:     model.ContributeGone,
			Edge:     model.EdgeID{Epoch: e.At.Epoch, Offset: e.At.Offset},
			TenantID: e.TenantID,
			DeviceID: e.DeviceID,
			Occurred: e.At.Received.Micros(),
			Received: e.At.Received,
		})
	}
	return nil
}

// Freeze implements Projection. The state is encoded by Write, or by the applier where it is about to change.
func (p *ruleProjection) Freeze(at Checkpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Cut is cheap: pages are encoded later, or when they are about to change.
	p.gen, p.at, p.snapshot = at.Generation, at, p.engine.Cut()
	p.frozen = slices.Concat(p.engine.FreezeCeilings(at.Listening), p.engine.FreezeOwed(), p.engine.FreezeClocks())
}

// encode encodes what Freeze has left, in steps between which the applier may have the engine.
func (p *ruleProjection) encode() {
	for more := p.snapshot != nil; more; runtime.Gosched() {
		// Give the engine back between two steps.
		p.mu.Lock()
		var pages []rules.Page
		if pages, more = p.snapshot.Next(); !more {
			p.snapshot = nil
		}
		p.mu.Unlock()
		p.frozen = append(p.frozen, pages...)
	}
}

// Write implements Projection.
func (p *ruleProjection) Write(_ context.Context, write WriteFunc) error {
	p.encode()
	// Pages of an attempt that failed have the same generation: remove them first.
	if p.begun {
		if err := sweepPages(write, p.gen-1, store.SweepUnpublishedRulePages); err != nil {
			return err
		}
	}
	p.begun = true
	if err := inPageSlices(write, p.frozen, func(tx store.Tx, page *rules.Page) error {
		return store.PutRulePage(tx, p.gen, store.RulePage{Page: page.ID, TenantID: page.Tenant, Body: page.Data})
	}); err != nil {
		return err
	}
	faults.Point("head.rules")
	return nil
}

// Publish implements Projection: the first checkpoint after a midnight (UTC) keeps the state of the one before it, for previews. Nothing is
// written where no record comes.
func (p *ruleProjection) Publish(tx store.Tx) error {
	last := &p.newest
	if last.Generation == 0 || dayOf(last.Received) == dayOf(p.at.Received) {
		return nil
	}
	return past.Keep(tx, past.Snapshot{
		Generation: last.Generation,
		Offset:     last.Offset,
		Received:   last.Received.Micros(),
		Listening:  int64(last.Listening),
	})
}

func dayOf(at model.Nanos) int64 { return int64(at) / int64(snapshotEvery) }

// snapshotEvery is how far the times are apart over which a snapshot is kept.
var snapshotEvery = faults.Wait("rules.snapshot", 24*time.Hour)

// Release implements Projection. Each page that was written replaces one; others are left where a process ended in between.
func (p *ruleProjection) Release(_ context.Context, write WriteFunc) error {
	frozen, stale := p.frozen, p.stale
	p.frozen, p.begun, p.stale, p.newest = nil, false, true, p.at
	// Remove what each page replaced.
	err := inPageSlices(write, frozen, func(tx store.Tx, page *rules.Page) error { return store.DropRulePages(tx, p.gen, page.ID) })
	// A sweep finds the rest, after a process that ended in between.
	if err == nil && stale {
		err = sweepPages(write, p.gen, store.SweepRulePages)
	}
	p.stale = err != nil
	return err
}

// sweepPages goes through all pages with a sweep, which looks at some of them in each transaction.
func sweepPages(write WriteFunc, gen uint64, sweep func(tx store.Tx, gen uint64, after string) (last string, err error)) error {
	for after, more := "", true; more; {
		if err := write(func(tx store.Tx) (err error) {
			after, err = sweep(tx, gen, after)
			return err
		}); err != nil {
			return err
		}
		more = after != ""
	}
	return nil
}

// sliceBytes is how much of pages one transaction of a checkpoint writes, or removes, unless a page is larger.
const sliceBytes = 256 << 10

// inPageSlices does something with each page, in transactions that hold the writer for a few milliseconds.
func inPageSlices(write WriteFunc, pages []rules.Page, do func(store.Tx, *rules.Page) error) error {
	for from := 0; from < len(pages); {
		// Take pages up to the bound, one at the least.
		to, size := from, 0
		for to < len(pages) && to < from+sliceRows && (to == from || size+len(pages[to].Data) <= sliceBytes) {
			size += len(pages[to].Data)
			to++
		}
		part := pages[from:to]
		if err := write(func(tx store.Tx) error {
			for i := range part {
				if err := do(tx, &part[i]); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// RuleHealth is what is known of a live rule: how it runs and how often it fired.
type RuleHealth struct {
	rules.Health
	store.RuleFires
	StaleActions int64
	ClockHeld    bool
}

// health returns a row for each rule of the active version of a tenant's profile, by rule token; none when the profile has
// no published version.
func (p *ruleProjection) health(ctx context.Context, st store.Store, tenant, profile string) ([]RuleHealth, error) {
	tenantID, id, ok := p.metadata.profileOf(tenant, profile)
	if !ok {
		return nil, nil
	}
	// Do not hold the engine while the store is read.
	p.mu.Lock()
	health := p.engine.Health(rules.ProfileKey{Tenant: tenantID, Profile: id})
	held, _ := p.engine.Held(tenantID)
	p.mu.Unlock()
	if len(health) == 0 {
		return nil, nil
	}
	var fires map[string]store.RuleFires
	err := st.Read(ctx, func(tx store.Tx) (err error) {
		fires, err = store.Fires(tx, tenantID, profile+"/")
		return err
	})
	out := make([]RuleHealth, len(health))
	for i, h := range health {
		out[i] = RuleHealth{Health: h, RuleFires: fires[h.StableID], StaleActions: fires[h.StableID].Stale, ClockHeld: held > 0}
	}
	return out, err
}

// Detections returns a page of past detections, newest first, and how many there are in all.
func (a *Applier) Detections(ctx context.Context, f store.DetectionFilter, page store.Page) (found []store.Detection, total int64, err error) {
	err = a.deps.Queries.Read(ctx, func(tx store.Tx) error {
		if found, err = store.Detections(tx, f, page); err == nil {
			total, err = store.CountDetections(tx, f)
		}
		return err
	})
	return found, total, err
}

// DetectionAt returns the position of a tenant's detection in the list of detections, nil when it has none in this row.
func (a *Applier) DetectionAt(ctx context.Context, tenantID, row int64) (at *store.DetectionPosition, err error) {
	err = a.deps.Queries.Read(ctx, func(tx store.Tx) (err error) {
		at, err = store.DetectionAt(tx, tenantID, row)
		return err
	})
	return at, err
}

// flapped returns how many edges were over a ceiling since the last call, and the runtime id of a rule that fired some of them.
func (p *ruleProjection) flapped() (n int64, rule string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.Flapped()
}

// cost is what judging has cost so far, in the unit of workMeter. Only the applier calls it.
func (p *ruleProjection) cost() int64 {
	w := p.engine.Worked()
	return w.Judged*costJudgement + w.Edges*costEdge + p.acted
}

func (p *ruleProjection) stats() rules.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.Stats()
}

func (p *ruleProjection) unhealthy() []rules.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.Unhealthy()
}

// Alarms folds what rules contribute to the alarms of devices, in the transaction of their edges.
type Alarms interface {
	// Fold returns what has happened to alarms. It is called again with the same contributions when the transaction is tried again.
	Fold(tx store.Tx, cs []model.Contribution) ([]model.AlarmEvent, error)
	// Publish gets that once it is committed.
	Publish(...model.AlarmEvent)
}

// AlarmResults returns the projection of alarms: what actions of rules contribute is folded by all, in the transaction of the edges.
func AlarmResults(all Alarms) Projection { return &alarmProjection{all: all} }

// alarmProjection has the rules perform their actions. At most one is among the projections.
type alarmProjection struct {
	ProjectionBase
	all Alarms
}

// Fold implements Alarms in part: tests fold by hand.
func (p *alarmProjection) Fold(tx store.Tx, cs []model.Contribution) ([]model.AlarmEvent, error) {
	return p.all.Fold(tx, cs)
}

// alarmsOf returns what folds the contributions of rules, nil where nothing does.
func alarmsOf(all []Projection) (found Alarms) {
	for _, p := range all {
		if p, ok := p.(*alarmProjection); ok {
			found = p.all
		}
	}
	return found
}

// acts is what the actions of a batch's edges come to. It is stored in the transaction of the edges, once: what is at the offset
// up to which it is known, or before, was stored before.
type acts struct {
	alarms        Alarms
	contributions []model.Contribution
	orders        []model.Order
	stale         []staleAction
	ordered       bool               // the newest attempt has written orders
	moves         []model.AlarmEvent // what the contributions came to, in the newest attempt
}

// staleAction is an action that was left out for the age of its edge.
type staleAction struct {
	tenant int64
	edge   model.EdgeID
}

func (a *acts) empty() bool { return len(a.contributions)+len(a.orders)+len(a.stale) == 0 }

// last is the offset of the newest of them.
func (a *acts) last() (at model.Offset) {
	if n := len(a.contributions); n > 0 {
		at = a.contributions[n-1].Edge.Offset
	}
	if n := len(a.orders); n > 0 {
		at = max(at, a.orders[n-1].Edge.Offset)
	}
	if n := len(a.stale); n > 0 {
		at = max(at, a.stale[n-1].edge.Offset)
	}
	return at
}

// write runs inside the transaction, again when an attempt before it failed.
func (a *acts) write(tx store.Tx) error {
	// An attempt before this one may have set them.
	a.moves, a.ordered = nil, false
	if a.empty() {
		return nil
	}
	// A replay comes here again: what was done up to this offset stays done.
	known, err := alarms.Acted(tx)
	if err != nil || a.last() <= known {
		return err
	}
	for i := range a.orders {
		if o := &a.orders[i]; o.Edge.Offset > known && err == nil {
			a.ordered, err = true, outbox.Add(tx, o)
		}
	}
	for _, s := range a.stale {
		if s.edge.Offset > known && err == nil {
			err = alarms.CountStale(tx, s.tenant, s.edge.Rule, 1)
		}
	}
	faults.Point("apply.fold")
	// Alarms see only contributions that are new.
	fresh := a.contributions
	for len(fresh) > 0 && fresh[0].Edge.Offset <= known {
		fresh = fresh[1:]
	}
	if err == nil && len(fresh) > 0 {
		a.moves, err = a.alarms.Fold(tx, fresh)
	}
	if err == nil {
		// Noted in the same transaction, so that each action is done once.
		err = alarms.SetActed(tx, a.last())
	}
	return err
}

// setEffects says where the edges of what comes next go.
func (p *ruleProjection) setEffects(out *Effects) {
	p.out, out.acts.alarms = out, p.alarms
}

// Contribute implements rules.Acts.
func (p *ruleProjection) Contribute(c model.Contribution) {
	p.out.acts.contributions = append(p.out.acts.contributions, c)
	p.acted += costFold * int64(max(len(c.Keys), 1))
}

// Order implements rules.Acts.
func (p *ruleProjection) Order(o model.Order) {
	p.out.acts.orders = append(p.out.acts.orders, o)
	p.acted += costOrder
}

// Stale implements rules.Acts.
func (p *ruleProjection) Stale(tenant int64, edge model.EdgeID) {
	p.out.acts.stale = append(p.out.acts.stale, staleAction{tenant, edge})
}
