package gql

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"weir/gql/engine"
	"weir/ingest"
	"weir/internal/hub"
	"weir/model"
	"weir/registry"
	"weir/series"
	"weir/store"
)

// EventReader is the part of series that the event-management area uses.
type EventReader interface {
	Events(ctx context.Context, q series.Query) (*series.Result, error)
	Buckets(ctx context.Context, q series.BucketQuery) ([]series.Bucket, error)
}

// DeviceFinder finds devices of the caller's tenant by their tokens.
type DeviceFinder interface {
	ByToken(ctx context.Context, by *model.Principal, tokens []string) ([]*registry.Device, error)
	ByID(ctx context.Context, by *model.Principal, ids []int64) ([]*registry.Device, error)
}

// LedgerReader reads the ledger.
type LedgerReader interface {
	Lines(ctx context.Context, f store.LedgerFilter) ([]ingest.LedgerLine, error)
}

// EventDeps are the collaborators of the event-management area.
type EventDeps struct {
	AsOf     AsOf
	Events   EventReader
	Devices  DeviceFinder
	Ledger   LedgerReader
	Readings *hub.Hub[series.Point]
	Anchors  anchorFinder
	Messages MessageDeps
	Trace    Tracer
	Message  MessageFinder
	// Rates are those of the last hour, by Clock; nil: there are none.
	Rates RateReader
	Clock func() model.Nanos
}

// maxLedgerEntries is the maximum number of entries that ingestLedger returns.
const maxLedgerEntries = 10_000

// RegisterEvents registers the operations of the event-management area.
func RegisterEvents(a *Area, d EventDeps) {
	e := &eventResolvers{d}
	a.Type("SearchResultsPagination", searchPage{})
	a.Type("EventAnchorRef", model.Anchor{})
	a.Type("Event", eventView{})
	a.Type("LocationEvent", locationView{})
	a.Type("MeasurementEvent", measurementView{})
	a.Type("AlertEvent", alertView{})
	a.Type("EventSearchResults", eventPage[eventView]{})
	a.Type("LocationEventSearchResults", eventPage[locationView]{})
	a.Type("MeasurementEventSearchResults", eventPage[measurementView]{})
	a.Type("AlertEventSearchResults", eventPage[alertView]{})
	a.Type("MeasurementBucket", bucketView{})
	a.Type("IngestLedgerEntry", ledgerView{})
	a.Type("IngestLedgerReason", ledgerReasonView{})
	a.Type("IngestRatePoint", ratePoint{})

	event, location := Requires(model.EventRead), Requires(model.LocationRead)
	a.Field("Event", "anchors", e.anchors())
	a.Query("events", event, eventsOf(e, nil, showEvent))
	a.Query("locationEvents", location, eventsOf(e, []model.EventType{model.LocationEvent}, showLocation))
	a.Query("measurementEvents", event, eventsOf(e, []model.EventType{model.MeasurementEvent}, showMeasurement))
	a.Query("alertEvents", event, eventsOf(e, []model.EventType{model.AlertEvent}, showAlert))
	a.Query("bucketedMeasurements", event, e.buckets)
	a.Query("ingestLedger", event, e.ledger)
	a.Query("ingestRates", event, e.rates)
	a.Mutation("_empty", Anonymous(), always(nil))
	a.Subscription("measurementStream", event, e.stream)
	registerMessages(a, d.Messages)
	reading := make(chan struct{}, traces)
	registerTrace(a, d.Trace, reading)
	registerMessage(a, d.Message, reading)
}

type eventResolvers struct{ EventDeps }

type eventView struct {
	ID        string       `gql:"id"`
	Device    string       `gql:"deviceToken"`
	Type      int          `gql:"eventType"`
	Occurred  model.Micros `gql:"occurredTime"`
	Processed model.Micros `gql:"processedTime"`
	Source    string       `gql:"source"`
	AltID     *string      `gql:"altId"`
	anchors   int64        // set, 0 for none
}

type locationView struct {
	ID        string       `gql:"id"`
	Device    string       `gql:"deviceToken"`
	Type      int          `gql:"eventType"`
	Occurred  model.Micros `gql:"occurredTime"`
	Latitude  *float64     `gql:"latitude"`
	Longitude *float64     `gql:"longitude"`
	Elevation *float64     `gql:"elevation"`
	Accuracy  *float64     `gql:"accuracy"`
	Speed     *float64     `gql:"speed"`
	Heading   *float64     `gql:"heading"`
}

type measurementView struct {
	ID         string       `gql:"id"`
	Device     string       `gql:"deviceToken"`
	Type       int          `gql:"eventType"`
	Occurred   model.Micros `gql:"occurredTime"`
	Name       string       `gql:"name"`
	Value      float64      `gql:"value"`
	Classifier *string      `gql:"classifier"`
	Unit       *string      `gql:"unit"`
	DataType   *string      `gql:"dataType"`
	OutOfRange *string      `gql:"outOfRange"`
}

type alertView struct {
	ID       string       `gql:"id"`
	Device   string       `gql:"deviceToken"`
	Type     int          `gql:"eventType"`
	Occurred model.Micros `gql:"occurredTime"`
	Kind     string       `gql:"type"`
	Level    int32        `gql:"level"`
	Message  *string      `gql:"message"`
	Source   *string      `gql:"source"`
}

type eventPage[T any] struct {
	Results    []T           `gql:"results"`
	Pagination searchPage    `gql:"pagination"`
	AsOf       *model.Micros `gql:"asOf"`
}

func showEvent(e *series.Event) eventView {
	return eventView{ID: e.ID(), Device: e.DeviceToken, Type: int(e.Type), Occurred: e.Occurred, Processed: e.Received, Source: e.Source,
		AltID: textOrNil(e.AltID), anchors: e.Anchors}
}

func showLocation(e *series.Event) locationView {
	l := &e.Location
	return locationView{ID: e.ID(), Device: e.DeviceToken, Type: int(e.Type), Occurred: e.Occurred, Latitude: numberOrNil(l.Latitude),
		Longitude: numberOrNil(l.Longitude), Elevation: numberOrNil(l.Elevation), Accuracy: numberOrNil(l.Accuracy), Speed: numberOrNil(l.Speed),
		Heading: numberOrNil(l.Heading)}
}

func showMeasurement(e *series.Event) measurementView {
	v := measurementView{ID: e.ID(), Device: e.DeviceToken, Type: int(e.Type), Occurred: e.Occurred, Name: e.Metric, Value: e.Value,
		Unit: textOrNil(e.Unit), DataType: textOrNil(e.DataType), OutOfRange: textOrNil(e.Mark.String())}
	if e.HasClassifier {
		v.Classifier = new(strconv.Itoa(int(e.Classifier)))
	}
	return v
}

func showAlert(e *series.Event) alertView {
	return alertView{ID: e.ID(), Device: e.DeviceToken, Type: int(e.Type), Occurred: e.Occurred, Kind: e.Alert.Type, Level: e.Alert.Level,
		Message: textOrNil(e.Alert.Message), Source: textOrNil(e.Alert.Source)}
}

func showPoint(p series.Point) any {
	return showMeasurement(&series.Event{Type: model.MeasurementEvent, DeviceToken: p.DeviceToken, Occurred: p.Occurred, Offset: p.Offset,
		Index: p.Index, Metric: p.Metric, Value: p.Value, Classifier: p.Classifier, HasClassifier: p.HasClassifier, Unit: p.Unit, DataType: p.DataType, Mark: p.Mark})
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func numberOrNil(f float64) *float64 {
	if math.IsNaN(f) {
		return nil
	}
	return &f
}

func finiteOrNil(f float64) *float64 {
	if math.IsInf(f, 0) {
		return nil
	}
	return numberOrNil(f)
}

// eventsOf returns the resolver of an event query. fixed is the only type of its results, nil for all types.
func eventsOf[T any](e *eventResolvers, fixed []model.EventType, show func(*series.Event) T) engine.Resolver {
	return func(ctx context.Context, _ any, args engine.Args) (any, error) {
		c := args.Object("criteria")
		scope, err := e.scope(ctx, c, fixed)
		if err != nil {
			return nil, err
		}
		page := series.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}
		asOf := e.AsOf.now()
		if scope == nil {
			return eventPage[T]{Results: []T{}, AsOf: asOf}, nil
		}
		r, err := e.Events.Events(ctx, series.Query{TenantID: PrincipalFrom(ctx).TenantID, Device: scope.device, Start: scope.start, End: scope.end,
			Types: scope.types, Anchors: scope.anchors, Metric: args.String("name"), Page: page, Before: c.String("before")})
		if err != nil {
			return nil, err
		}
		out := eventPage[T]{Results: make([]T, len(r.Events)), Pagination: pageOf(r.Page.Number, r.Page.Size, len(r.Events), r.Total), AsOf: asOf}
		for i := range r.Events {
			out.Results[i] = show(&r.Events[i])
		}
		return out, nil
	}
}

// anchorFinder knows the sets of entities that devices belonged to when they sent.
type anchorFinder interface {
	// AnchorsOf returns the anchors of some of a tenant's sets, by their number.
	AnchorsOf(ctx context.Context, tenantID int64, sets []int64) (map[int64][]model.Anchor, error)
	// AnchorSetsWith returns the numbers of a tenant's sets that an anchor is in, sorted.
	AnchorSetsWith(ctx context.Context, tenantID int64, anchor model.Anchor) ([]int64, error)
}

// anchors resolves the anchors of an event; those of all events of a page are read in one batch.
func (e *eventResolvers) anchors() engine.Resolver {
	sets := engine.NewLoader(func(ctx context.Context, sets []int64) (map[int64][]model.Anchor, error) {
		return e.Anchors.AnchorsOf(ctx, PrincipalFrom(ctx).TenantID, sets)
	})
	return func(ctx context.Context, src any, _ engine.Args) (any, error) {
		set := src.(eventView).anchors
		if set == 0 {
			return []model.Anchor{}, nil
		}
		return sets.Load(ctx, set), nil
	}
}

// pageOf is the position of a page of n rows.
func pageOf(number, size, n int, total int64) searchPage {
	if n == 0 {
		return searchPage{Total: total}
	}
	start := (number-1)*size + 1
	return searchPage{Start: start, End: start + n - 1, Total: total}
}

// eventScope is the selection of a criteria input.
type eventScope struct {
	device     *int64
	start, end *model.Micros
	types      []model.EventType
	anchors    []int64 // nil: of any
}

// scope reads a criteria input; nil when it can select nothing: an unknown device, an anchor that no event bears, or types
// without the only possible one.
func (e *eventResolvers) scope(ctx context.Context, c engine.Args, fixed []model.EventType) (*eventScope, error) {
	s := &eventScope{types: fixed}
	var err error
	if s.start, err = instant(c, "startTime", false); err != nil {
		return nil, err
	}
	if s.end, err = instant(c, "endTime", true); err != nil {
		return nil, err
	}
	if c.Has("anchor") && !c.IsNull("anchor") {
		a := c.Object("anchor")
		s.anchors, err = e.Anchors.AnchorSetsWith(ctx, PrincipalFrom(ctx).TenantID, model.Anchor{Type: a.String("type"), Token: a.String("token")})
		if err != nil || len(s.anchors) == 0 {
			return nil, err
		}
	}
	if possible, err := s.restrict(c); err != nil || !possible {
		return nil, err
	}
	if c.Has("deviceToken") && !c.IsNull("deviceToken") {
		ds, err := e.Devices.ByToken(ctx, PrincipalFrom(ctx), []string{c.String("deviceToken")})
		if err == nil && len(ds) == 0 {
			hintNone(ctx, "deviceToken", "device", c.String("deviceToken"))
		}
		if err != nil || len(ds) == 0 {
			return nil, err
		}
		s.device = &ds[0].ID
	}
	return s, nil
}

// restrict returns the types that are both in the criteria's eventTypes and fixed.
func (s *eventScope) restrict(c engine.Args) (possible bool, err error) {
	var in struct {
		Types []int `gql:"eventTypes"`
	}
	if err := c.Decode(&in); err != nil || len(in.Types) == 0 {
		return true, err
	}
	var types []model.EventType
	for _, n := range in.Types {
		if n < 0 || n > int(model.CommandResponse) {
			return false, model.Invalid("eventTypes", "%d is no event type; they are 0 to %d", n, model.CommandResponse)
		}
		types = append(types, model.EventType(n))
	}
	if len(s.types) == 0 {
		s.types = types
		return true, nil
	}
	if slices.Contains(types, s.types[0]) {
		return true, nil
	}
	return false, nil
}

// instant reads an RFC 3339 time. A bound between two stored microseconds is rounded inwards: the end down,
// the start up.
func instant(c engine.Args, name string, end bool) (*model.Micros, error) {
	if !c.Has(name) || c.IsNull(name) {
		return nil, nil
	}
	t, err := model.ParseTime(c.String(name))
	if err != nil {
		return nil, model.Invalid(name, "%q is not an RFC 3339 time", c.String(name))
	}
	n := model.NanosOf(t)
	m := n.Micros()
	if !end && m.Nanos() < n {
		m++
	}
	return &m, nil
}

type bucketView struct {
	Start model.Micros `gql:"bucketStart"`
	Name  string       `gql:"name"`
	Avg   *float64     `gql:"avg"` // null when the sum is outside the range of float64
	Min   float64      `gql:"min"`
	Max   float64      `gql:"max"`
	Sum   *float64     `gql:"sum"`
	Count int64        `gql:"count"`
}

func (e *eventResolvers) buckets(ctx context.Context, _ any, args engine.Args) (any, error) {
	c := args.Object("criteria")
	if c.Int("intervalSeconds") < 1 {
		return nil, model.Invalid("intervalSeconds", "must be at least 1")
	}
	scope, err := e.scope(ctx, c, []model.EventType{model.MeasurementEvent})
	if err != nil || scope == nil {
		return []bucketView{}, err
	}
	bs, err := e.Events.Buckets(ctx, series.BucketQuery{TenantID: PrincipalFrom(ctx).TenantID, Device: scope.device, Metric: c.String("name"),
		Start: scope.start, End: scope.end, Anchors: scope.anchors, IntervalSeconds: int64(c.Int("intervalSeconds"))})
	if err != nil {
		return nil, err
	}
	out := make([]bucketView, len(bs))
	for i := range bs {
		b := &bs[i]
		out[i] = bucketView{b.Start, b.Metric, finiteOrNil(b.Avg()), b.Min, b.Max, finiteOrNil(b.Sum), clampInt(b.Count)}
	}
	return out, nil
}

// clampInt keeps a counter inside the API's 32-bit Int.
func clampInt(n int64) int64 { return min(n, math.MaxInt32) }

type ledgerView struct {
	Hour       string             `gql:"hour"`
	Transport  string             `gql:"transport"`
	Received   int64              `gql:"received"`
	Stored     int64              `gql:"stored"`
	Duplicate  int64              `gql:"duplicate"`
	DeadLetter int64              `gql:"deadLetter"`
	Refused    int64              `gql:"refused"`
	Dropped    int64              `gql:"dropped"`
	Waiting    int64              `gql:"waiting"`
	Readings   int64              `gql:"readings"`
	OutOfRange int64              `gql:"outOfRange"`
	Reasons    []ledgerReasonView `gql:"reasons"`
}

type ledgerReasonView struct {
	Outcome string `gql:"outcome"`
	Reason  string `gql:"reason"`
	Count   int64  `gql:"count"`
}

func (e *eventResolvers) ledger(ctx context.Context, _ any, args engine.Args) (any, error) {
	c := args.Object("criteria")
	start, err := instant(c, "startTime", false)
	if err != nil {
		return nil, err
	}
	end, err := instant(c, "endTime", true)
	if err != nil {
		return nil, err
	}
	f := store.LedgerFilter{Tenant: &PrincipalFrom(ctx).Tenant, Transport: c.String("transport"), From: hourOf(start), To: hourOf(end)}
	lines, err := e.Ledger.Lines(ctx, f)
	if err != nil {
		return nil, err
	}
	if len(lines) > maxLedgerEntries {
		return nil, model.Errorf(model.CodeLimitExceeded, "ingestLedger would return more than %d entries; narrow the time", maxLedgerEntries)
	}
	out := make([]ledgerView, len(lines))
	for i := range lines {
		out[i] = showLedger(&lines[i])
	}
	return out, nil
}

func hourOf(m *model.Micros) *int64 {
	if m == nil {
		return nil
	}
	return new(m.Nanos().Hour())
}

func showLedger(l *ingest.LedgerLine) ledgerView {
	n := func(h store.Outcome) int64 { return clampInt(l.Outcomes[h].Messages) }
	v := ledgerView{Hour: time.Unix(l.Hour*3600, 0).UTC().Format(time.RFC3339), Transport: l.Transport, Received: clampInt(l.Received.Messages),
		Stored: n(store.OutcomeStored), Duplicate: n(store.OutcomeDuplicate), DeadLetter: n(store.OutcomeDeadLetter), Refused: n(store.OutcomeRefused),
		Dropped: n(store.OutcomeDropped), Waiting: n(store.OutcomeWaiting), Readings: clampInt(l.Readings()), OutOfRange: clampInt(l.OutOfRange), Reasons: []ledgerReasonView{}}
	for _, r := range l.Reasons {
		v.Reasons = append(v.Reasons, ledgerReasonView{string(r.Outcome), r.Reason, clampInt(r.Count.Messages)})
	}
	return v
}

func (e *eventResolvers) stream(ctx context.Context, args engine.Args) (engine.Stream, error) {
	tenant, device, name := PrincipalFrom(ctx).TenantID, args.String("deviceToken"), args.String("name")
	return engine.StreamOf(e.Readings.Subscribe(func(p series.Point) bool {
		return p.TenantID == tenant && (device == "" || p.DeviceToken == device) && (name == "" || p.Metric == name)
	}, engine.SubscriptionBuffer), showPoint), nil
}
