package series

import (
	"context"
	"math"
	"slices"

	"weir/internal/pack"
	"weir/model"
	"weir/store"
)

// Query selects events. Nil and empty restrict nothing.
type Query struct {
	TenantID int64
	Device   *int64 // row id
	// Start and End bound the event time, both inclusive.
	Start, End *model.Micros
	// Types, of Events only.
	Types []model.EventType
	// Metric, unless "", selects the readings of one metric; rows of other types are not affected.
	Metric string
	// Anchors, unless nil, lists the selected anchor sets, sorted.
	Anchors []int64
	Page    Page
	// Before is the id of an event; it selects only events strictly older in list order, and only page 1 is allowed.
	Before string
}

// Page is a page of a list, from 1. A number below 1 means 1, a size below 1 means 100, one above 1000 means 1000.
type Page struct{ Number, Size int }

func (p Page) normal() Page {
	p.Number = max(p.Number, 1)
	if p.Size < 1 {
		p.Size = 100
	}
	p.Size = min(p.Size, 1000)
	return p
}

func (p Page) skip() int64 { return int64(p.Number-1) * int64(p.Size) }

// Event is an event of the API. Only the fields of its type are set.
type Event struct {
	Type        model.EventType
	Device      int64 // row id
	DeviceToken string
	Source      string // event source id
	AltID       string
	Anchors     int64
	Occurred    model.Micros
	Received    model.Micros
	Offset      model.Offset
	Index       uint32

	// Of a measurement.
	Metric        string
	Value         float64
	Classifier    int32
	HasClassifier bool
	Unit          string
	DataType      string
	Mark          model.RangeMark

	Location model.Location // absent coordinates are NaN
	Alert    model.Alert
	State    store.StateChange

	series int64
}

// ID is the event's id, opaque to clients.
func (e *Event) ID() string { return EventID(e.DeviceToken, e.Type, e.Occurred, e.Offset, e.Index) }

func rowEvent(r *store.EventRow) Event {
	return Event{Type: r.Type, Device: r.Device, DeviceToken: r.DeviceToken, Source: r.Source, AltID: r.AltID, Anchors: r.Anchors,
		Occurred: r.Occurred, Received: r.Received, Offset: r.Offset, Index: r.Index, Location: r.Location, Alert: r.Alert, State: r.State}
}

// Result is a page of events, newest first.
type Result struct {
	Events []Event
	Total  int64 // events that the query selects, on all pages
	Page   Page  // after its defaults and bounds
}

// Measurements returns a page of measurements.
func (s *Series) Measurements(ctx context.Context, q Query) (*Result, error) {
	q.Types = []model.EventType{model.MeasurementEvent}
	return s.Events(ctx, q)
}

// Locations returns a page of location events.
func (s *Series) Locations(ctx context.Context, q Query) (*Result, error) {
	q.Types = []model.EventType{model.LocationEvent}
	return s.Events(ctx, q)
}

// Alerts returns a page of alert events.
func (s *Series) Alerts(ctx context.Context, q Query) (*Result, error) {
	q.Types = []model.EventType{model.AlertEvent}
	return s.Events(ctx, q)
}

// rowTypes are the types whose events are rows of their own.
var rowTypes = [...]model.EventType{model.NewRelationship, model.LocationEvent, model.AlertEvent, model.StateChange, model.CommandResponse}

// Events returns a page of events of the selected types.
func (s *Series) Events(ctx context.Context, q Query) (*Result, error) {
	sel, err := q.selection()
	if err != nil {
		return nil, err
	}
	res := &Result{Page: q.Page.normal()}
	if sel.from > sel.to {
		return res, nil
	}
	err = s.read(ctx, func(tx store.Tx, snap snapshot) error {
		// fn may run again: results of the last run must not remain.
		res.Events, res.Total = nil, 0
		w := new(snap.walk(ctx, tx, sel))
		skip := res.Page.skip()
		if q.wants(model.MeasurementEvent) {
			pieces, err := s.capture(snap, sel)
			if err != nil {
				return err
			}
			if res.Total, err = w.measurements(pieces); err != nil {
				return err
			}
			if len(q.Types) == 1 && skip < res.Total {
				if w, skip, err = w.leap(pieces, skip); err != nil {
					return err
				}
			}
		}
		for _, t := range rowTypes {
			if q.wants(t) {
				scope := sel.rows(t)
				n, err := w.countRowEvents(scope)
				if err != nil {
					return err
				}
				res.Total += n
				w.push(&rowCursor{scope: scope})
			}
		}
		if res.Page.skip() >= res.Total {
			return nil
		}
		if res.Events, err = w.page(skip, res.Page.Size); err != nil {
			return err
		}
		return identify(tx, snap.gen, res.Events)
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (q *Query) wants(t model.EventType) bool {
	return len(q.Types) == 0 || slices.Contains(q.Types, t)
}

func (q *Query) selection() (*selection, error) {
	sel := &selection{tenantID: q.TenantID, metric: q.Metric, anchors: q.Anchors, from: math.MinInt64, to: math.MaxInt64}
	if q.Device != nil {
		if sel.device = *q.Device; sel.device == 0 {
			sel.from, sel.to = 1, 0 // no device has this id
			return sel, nil
		}
	}
	if q.Start != nil {
		sel.from = *q.Start
	}
	if q.End != nil {
		sel.to = *q.End
	}
	if q.Before != "" {
		p, err := parseEventID(q.Before)
		if err != nil {
			return nil, err
		}
		if q.Page.normal().Number > 1 {
			return nil, model.Invalid("before", "only page 1 can be asked for with it")
		}
		sel.before, sel.to = &p, min(sel.to, p.at)
	}
	return sel, nil
}

func (q *selection) rows(t model.EventType) store.EventScope {
	scope := store.EventScope{TenantID: q.tenantID, Device: q.device, Type: t, From: q.from, To: q.to, Anchors: q.anchors}
	if q.before != nil {
		scope.Before = &store.EventPosition{Occurred: q.before.at, Offset: q.before.offset, Index: q.before.index}
	}
	return scope
}

// scope is a range of packed rows for a selection; series 0 means the whole tenant.
func (q *selection) scope(gen uint64, series int64) store.PackedScope {
	return store.PackedScope{TenantID: q.tenantID, Series: series, Gen: gen, From: q.from, To: q.to}
}

// measurements adds cursors for the selected measurements to the walk, those of the heads' pieces included, and returns
// how many there are.
func (w *walk) measurements(pieces []piece) (int64, error) {
	total, err := w.countPieces(pieces)
	if err != nil {
		return 0, err
	}
	for _, p := range pieces {
		w.push(&pieceCursor{piece: p})
	}
	scopes, only, err := w.scopes()
	if err != nil {
		return 0, err
	}
	for _, sc := range scopes.chunks {
		if err := w.spend(1); err != nil {
			return 0, err
		}
		n, err := w.countChunks(sc)
		if err != nil {
			return 0, err
		}
		total += n
		if n > 0 {
			w.push(&chunkCursor{scope: sc, limit: firstBatch})
		}
	}
	for _, sc := range scopes.blocks {
		n, err := w.countBlocks(sc, only)
		if err != nil {
			return 0, err
		}
		total += n
		if n > 0 {
			w.push(&blockCursor{scope: sc, only: only})
		}
	}
	return total, nil
}

// scopes are the walks over rows that together meet a selection.
type scopes struct{ chunks, blocks []store.PackedScope }

// scopes returns the scopes of the selection, and the series that it selects in blocks, nil for all.
func (w *walk) scopes() (scopes, map[int64]bool, error) {
	var rows []store.SeriesRow
	if w.q.device != 0 || w.q.metric != "" {
		var err error
		if rows, err = w.selectedSeries(); err != nil {
			return scopes{}, nil, err
		}
	}
	sc, only := w.scopesOf(rows)
	return sc, only, nil
}

func (w *walk) scopesOf(rows []store.SeriesRow) (scopes, map[int64]bool) {
	if w.q.device == 0 && w.q.metric == "" {
		all := []store.PackedScope{w.q.scope(w.gen, 0)}
		return scopes{all, all}, nil
	}
	var out scopes
	only, groups := make(map[int64]bool, len(rows)), map[int64]int{}
	for i := range rows {
		id := rows[i].ID
		sc := w.q.scope(w.gen, id)
		only[id] = true
		out.chunks = append(out.chunks, sc)
		g := store.SeriesGroup(id)
		if at, ok := groups[g]; ok {
			b := &out.blocks[at]
			b.Series, b.LastSeries = min(b.Series, id), max(b.LastSeries, id)
			continue
		}
		groups[g] = len(out.blocks)
		sc.LastSeries = id
		out.blocks = append(out.blocks, sc)
	}
	return out, only
}

// selectedSeries returns the series of the selection's device or metric, of its tenant only.
func (w *walk) selectedSeries() ([]store.SeriesRow, error) {
	if w.q.device == 0 {
		return store.SeriesOfMetric(w.tx, w.gen, w.q.tenantID, w.q.metric)
	}
	rows, err := store.SeriesOfDevice(w.tx, w.gen, w.q.device)
	return slices.DeleteFunc(rows, func(r store.SeriesRow) bool {
		return r.TenantID != w.q.tenantID || w.q.metric != "" && r.Metric != w.q.metric
	}), err
}

// identify adds the series' names to the measurements of a page.
func identify(tx store.Tx, gen uint64, events []Event) error {
	var ids []int64
	for i := range events {
		if e := &events[i]; e.series != 0 && e.Metric == "" {
			ids = append(ids, e.series)
		}
	}
	slices.Sort(ids)
	rows, err := store.SeriesByID(tx, gen, slices.Compact(ids))
	if err != nil {
		return err
	}
	byID := make(map[int64]*store.SeriesRow, len(rows))
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	for i := range events {
		e := &events[i]
		if e.series == 0 || e.Metric != "" {
			continue
		}
		r := byID[e.series]
		if r == nil {
			return damaged("series", pack.ErrForm)
		}
		e.Device, e.DeviceToken, e.Metric = r.Device, r.DeviceToken, r.Metric
	}
	return nil
}
