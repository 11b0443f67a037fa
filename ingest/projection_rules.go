package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"weir/ingest/view"
	"weir/internal/faults"
	"weir/model"
	"weir/rules"
	"weir/store"
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

	frozen []rules.Page
	gen    uint64
}

func newRuleProjection(engine *rules.Engine, metadata *metadataProjection) *ruleProjection {
	p := &ruleProjection{engine: engine, metadata: metadata}
	p.emit = func(e model.Edge) { p.out.Edge(e) }
	return p
}

// Load implements Projection: it fills the engine and installs the versions that were active at the checkpoint.
func (p *ruleProjection) Load(tx store.Tx, at Checkpoint) error {
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
	position := rules.Position{Offset: at.Offset, Listening: at.Listening}
	for _, id := range slices.Sorted(maps.Keys(p.metadata.view.Profiles)) {
		p.install(position, id, p.metadata.view.Profiles[id], func(e model.Edge) {
			err = errors.Join(err, fmt.Errorf("rule %s fired while its state was loaded", e.ID.Rule))
		})
	}
	return err
}

// Advance implements Timed: timers that are due before the record fire.
func (p *ruleProjection) Advance(at rules.Position, out *Effects) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = out
	p.engine.Advance(at, p.emit)
}

// Record implements Projection.
func (p *ruleProjection) Record(_ context.Context, e *Event, out *Effects) error {
	switch {
	case e.Stored():
		p.message(e, out)
	case e.Transition != nil:
		p.begin(e, out, rules.Transition)
		p.input.Presence = e.Record.Presence.State
		p.apply(0, e.Transition.Row.Occurred)
		p.mu.Unlock()
	case e.Change != nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.out = out
		p.change(e.At, e.Change)
	}
	return nil
}

// begin locks the engine and prepares its input for a record.
func (p *ruleProjection) begin(e *Event, out *Effects, kind rules.InputKind) {
	p.mu.Lock()
	p.out = out
	p.input = rules.Input{Position: e.At, Kind: kind, Device: rules.Device{ID: e.DeviceID, Type: e.DeviceType, Token: e.Record.Device},
		Profile: rules.ProfileKey{Tenant: e.TenantID, Profile: e.ProfileID}}
	if e.anchors != nil {
		p.input.Anchors = e.anchors.Anchors
	}
}

// apply lets the rules judge the prepared input. A device without a profile has none.
func (p *ruleProjection) apply(index int, occurred model.Micros) {
	if p.input.Profile.Profile != 0 {
		p.input.Index, p.input.Occurred = uint32(index), occurred
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
			p.apply(i, e.Occurred[i])
		}
		p.mu.Unlock()
	case model.AlertEvent:
		p.begin(e, out, rules.Bare)
		p.apply(0, e.Occurred[0])
		p.mu.Unlock()
	}
}

// measurements judges each entry: its values are one sample.
func (p *ruleProjection) measurements(ms []model.Reading, occurred []model.Micros) {
	for from := 0; from < len(ms); {
		to := from + 1
		for to < len(ms) && ms[to].Entry == ms[from].Entry {
			to++
		}
		p.input.Readings = ms[from:to]
		p.apply(from, occurred[from])
		faults.Point("apply.entry")
		from = to
	}
}

// change applies a change of the metadata to the rules and devices of the engine. The view is changed already.
func (p *ruleProjection) change(at rules.Position, c *MetadataChange) {
	v := p.metadata.view
	switch c.Kind {
	case model.ViewProfile:
		p.changeProfile(at, c)
	case model.ViewDeviceType:
		before := c.DeviceType.Profile
		if old := v.Profiles[before]; before != 0 && v.Types[c.ID].Profile != before && old != nil {
			if t := v.Tenants[old.Tenant]; t != nil {
				p.engine.Detach(at, rules.ProfileKey{Tenant: t.ID, Profile: before}, c.ID, p.emit)
			}
		}
	case model.ViewDevice:
		if c.Body != nil && c.Device.ID != 0 && c.DeviceNow.Type != c.Device.Type {
			p.engine.RemoveDevice(at, c.ID, p.emit)
		}
	}
}

func (p *ruleProjection) changeProfile(at rules.Position, c *MetadataChange) {
	v := p.metadata.view
	if now := v.Profiles[c.ID]; now != nil {
		p.install(at, c.ID, now, p.emit)
		return
	}
	if c.Profile == nil {
		return
	}
	if t := v.Tenants[c.Profile.Tenant]; t != nil {
		p.engine.Remove(at, rules.ProfileKey{Tenant: t.ID, Profile: c.ID}, p.emit)
	}
}

func (p *ruleProjection) install(at rules.Position, id int64, v *view.Profile, emit rules.Emit) {
	if t := p.metadata.view.Tenants[v.Tenant]; t != nil {
		p.engine.Install(at, rules.ProfileRef{ProfileKey: rules.ProfileKey{Tenant: t.ID, Profile: id}, TenantToken: v.Tenant, Token: v.Token,
			Version: v.Version}, v.Rules, emit)
	}
}

// RemoveDevice implements Projection: what the device has raised resolves.
func (p *ruleProjection) RemoveDevice(_ context.Context, e *Event, out *Effects) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = out
	p.engine.RemoveDevice(e.At, e.DeviceID, p.emit)
	return nil
}

// Freeze implements Projection.
func (p *ruleProjection) Freeze(at Checkpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen, p.gen = append(p.engine.Freeze(), p.engine.FreezeCeilings(at.Listening)...), at.Generation
}

// Write implements Projection.
func (p *ruleProjection) Write(_ context.Context, write WriteFunc) error {
	if err := write(func(tx store.Tx) error { return store.SweepUnpublishedRulePages(tx, p.gen-1) }); err != nil {
		return err
	}
	if err := inSlices(write, p.frozen, func(tx store.Tx, page rules.Page) error {
		return store.PutRulePage(tx, p.gen, store.RulePage{Page: page.ID, TenantID: page.Tenant, Body: page.Data})
	}); err != nil {
		return err
	}
	faults.Point("head.rules")
	return nil
}

// Release implements Projection.
func (p *ruleProjection) Release(_ context.Context, write WriteFunc) error {
	p.frozen = nil
	return write(func(tx store.Tx) error { return store.SweepRulePages(tx, p.gen) })
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
	p.mu.Lock()
	health := p.engine.Health(rules.ProfileKey{Tenant: tenantID, Profile: id})
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
		out[i] = RuleHealth{Health: h, RuleFires: fires[h.StableID]}
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
	return w.Judged*costJudgement + w.Edges*costEdge
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
