package gql

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"weir/gql/engine"
	"weir/ingest"
	"weir/model"
	"weir/presence"
	"weir/registry"
	"weir/store"
)

// StateReader reads the live state of devices.
type StateReader interface {
	DeviceStates(ctx context.Context, tenantID int64) ([]*store.DeviceState, error)
	DeviceStatesOf(ctx context.Context, tenantID int64, devices []int64) (map[int64]*store.DeviceState, error)
	// Silence is how long the device may be silent before its inferred presence ends.
	Silence(tenant, device string, standard time.Duration) time.Duration
}

// LatestReader reads the latest values of a device.
type LatestReader interface {
	LatestMeasurementsOf(ctx context.Context, devices []int64) (map[int64][]store.LatestMeasurement, error)
	LatestLocations(ctx context.Context, devices []int64) ([]store.LatestLocation, error)
}

// ExternalFinder finds devices by their external ids.
type ExternalFinder interface {
	ByExternalID(ctx context.Context, by *model.Principal, externalIDs []string) ([]*registry.Device, error)
}

// StateDeps are the collaborators of the device-state area.
type StateDeps struct {
	AsOf      AsOf
	States    StateReader
	Latest    LatestReader
	Devices   DeviceFinder
	Tokens    func(ctx context.Context, by *model.Principal) (map[int64]string, error) // of all devices of a tenant, by row id
	External  ExternalFinder
	Listening func() int64         // listening time now, in nanoseconds
	Silence   func() time.Duration // presence.inactivity_timeout
	// Demoter returns devices to inferred presence; nil: nothing does.
	Demoter Demoter
}

// Demoter returns devices to inferred presence.
type Demoter interface {
	// Now is the time by which a presence time lies ahead.
	Now() model.Micros
	// Demote ends the presence that an event source asserts of devices of the caller's tenant, all of them or, with an error,
	// those that come first.
	Demote(ctx context.Context, by *model.Principal, source, reason string, devices []presence.Asserted) error
}

// RegisterState registers the operations of the device-state area.
func RegisterState(a *Area, d StateDeps) {
	s := newStateResolvers(d)
	a.Type("SearchResultsPagination", searchPage{})
	a.Type("DeviceState", stateView{})
	a.Type("DeviceStateSearchResults", eventPage[stateView]{})
	a.Type("LatestMeasurement", latestMeasurementView{})
	a.Type("LatestLocation", latestLocationView{})

	a.Type("PresenceDemotionResult", demotionView{})
	a.Mutation("demoteAssertedPresence", Requires(model.StateDemote), s.demote)

	state, location := Requires(model.StateRead), Requires(model.LocationRead)
	a.Query("deviceStates", state, s.list)
	a.Query("deviceStatesByDeviceToken", state, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return s.devices(ctx, args.Strings("deviceTokens"), func(ds []*registry.Device) (any, error) { return s.of(ctx, ds), nil }), nil
	})
	a.Query("deviceStatesByExternalId", state, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		ds, err := s.External.ByExternalID(ctx, PrincipalFrom(ctx), args.Strings("externalIds"))
		if err != nil {
			return nil, err
		}
		return s.of(ctx, ds), nil
	})
	a.Query("assertedDeviceStates", state, s.asserted)
	a.Query("latestMeasurements", state, s.measurements)
	a.Field("LatestMeasurement", "stale", engine.On(func(_ context.Context, v latestMeasurementView, _ engine.Args) (any, error) {
		return v.stale()
	}))
	a.Query("latestLocation", location, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return s.device(ctx, args.String("deviceToken"), func(dev *registry.Device) (any, error) {
			if dev == nil {
				return nil, nil
			}
			return s.positions.Then(ctx, dev.ID, func(l store.LatestLocation, ok bool) (any, error) {
				if !ok {
					return nil, nil
				}
				return showPosition(dev.Token, &l), nil
			}), nil
		}), nil
	})
	a.Query("latestLocations", location, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return s.devices(ctx, args.Strings("deviceTokens"), func(ds []*registry.Device) (any, error) { return s.locations(ctx, ds), nil }), nil
	})
}

type stateResolvers struct {
	StateDeps
	byToken   *engine.Loader[string, *registry.Device]
	states    *engine.Loader[int64, *store.DeviceState]
	latest    *engine.Loader[int64, []store.LatestMeasurement]
	positions *engine.Loader[int64, store.LatestLocation]
}

func newStateResolvers(d StateDeps) *stateResolvers {
	return &stateResolvers{d,
		engine.NewLoader(func(ctx context.Context, tokens []string) (map[string]*registry.Device, error) {
			ds, err := d.Devices.ByToken(ctx, PrincipalFrom(ctx), tokens)
			found := make(map[string]*registry.Device, len(ds))
			for _, dev := range ds {
				found[dev.Token] = dev
			}
			return found, err
		}),
		engine.NewLoader(func(ctx context.Context, ids []int64) (map[int64]*store.DeviceState, error) {
			return d.States.DeviceStatesOf(ctx, PrincipalFrom(ctx).TenantID, ids)
		}),
		engine.NewLoader(func(ctx context.Context, ids []int64) (map[int64][]store.LatestMeasurement, error) {
			return d.Latest.LatestMeasurementsOf(ctx, ids)
		}),
		engine.NewLoader(func(ctx context.Context, ids []int64) (map[int64]store.LatestLocation, error) {
			ls, err := d.Latest.LatestLocations(ctx, ids)
			found := make(map[int64]store.LatestLocation, len(ls))
			for _, l := range ls {
				found[l.Device] = l
			}
			return found, err
		})}
}

// devices calls then with the devices of some tokens, in the order of row ids; those of several fields are read together.
func (s *stateResolvers) devices(ctx context.Context, tokens []string, then func([]*registry.Device) (any, error)) engine.Thunk {
	thunks := make([]engine.Thunk, len(tokens))
	for i, token := range tokens {
		thunks[i] = s.byToken.Load(ctx, token)
	}
	return func() (any, error) {
		ds := make([]*registry.Device, 0, len(tokens))
		for _, load := range thunks {
			row, err := load()
			if err != nil {
				return nil, err
			}
			if row != nil {
				ds = append(ds, row.(*registry.Device))
			}
		}
		slices.SortFunc(ds, func(a, b *registry.Device) int { return cmp.Compare(a.ID, b.ID) })
		return then(slices.CompactFunc(ds, func(a, b *registry.Device) bool { return a.ID == b.ID }))
	}
}

// ActiveDevices returns the row ids of the tenant's devices that deviceStates shows as active.
func (d StateDeps) ActiveDevices(ctx context.Context, by *model.Principal) ([]int64, error) {
	rows, err := d.States.DeviceStates(ctx, by.TenantID)
	if err != nil {
		return nil, err
	}
	now, standard := d.Listening(), d.Silence()
	var active []int64
	var unsure []*store.DeviceState
	for _, row := range rows {
		switch {
		case row.Asserted, ingest.Active(row, now, min(standard, shortestSilence)):
			if ingest.Active(row, now, standard) {
				active = append(active, row.DeviceID)
			}
		case row.HasActivity: // the profile of the device decides
			unsure = append(unsure, row)
		}
	}
	if len(unsure) == 0 {
		return active, nil
	}
	tokens, err := d.Tokens(ctx, by)
	if err != nil {
		return nil, err
	}
	for _, row := range unsure {
		if token, ok := tokens[row.DeviceID]; ok && ingest.Active(row, now, d.States.Silence(by.Tenant, token, standard)) {
			active = append(active, row.DeviceID)
		}
	}
	return active, nil
}

// shortestSilence is the shortest inactivity time-out that a profile can have.
const shortestSilence = time.Minute

type stateView struct {
	ID             string        `gql:"id"`
	CreatedAt      model.Micros  `gql:"createdAt"`
	UpdatedAt      model.Micros  `gql:"updatedAt"`
	DeletedAt      *model.Micros `gql:"deletedAt"`
	Device         string        `gql:"deviceToken"`
	Active         bool          `gql:"active"`
	LastConnect    *model.Micros `gql:"lastConnectTime"`
	LastDisconnect *model.Micros `gql:"lastDisconnectTime"`
	LastActivity   *model.Micros `gql:"lastActivityTime"`
	Alarm          *model.Micros `gql:"inactivityAlarmTime"`
	Timeout        int           `gql:"inactivityTimeout"`
	ExternalID     *string       `gql:"externalId"`
	Source         *string       `gql:"source"`
	PresenceSource string        `gql:"presenceSource"`
	Session        string        `gql:"sessionId"`
	PresenceTime   *model.Micros `gql:"presenceTime"`
}

func (s *stateResolvers) show(tenant string, dev *registry.Device, d *store.DeviceState) stateView {
	silence := s.States.Silence(tenant, dev.Token, s.Silence())
	v := stateView{ID: strconv.FormatInt(d.DeviceID, 10), CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt, Device: dev.Token,
		Active: ingest.Active(d, s.Listening(), silence), LastConnect: timeOrNil(d.LastConnect, d.LastConnect != 0),
		LastDisconnect: timeOrNil(d.LastDisconnect, d.LastDisconnect != 0), LastActivity: timeOrNil(d.LastActivity, d.HasActivity),
		Timeout: int(silence / time.Second), ExternalID: dev.ExternalID, Source: textOrNil(d.MovedBy()), PresenceSource: store.PresenceInferred,
		Session: strconv.FormatUint(d.Session, 10), PresenceTime: timeOrNil(d.PresenceTime, d.HasPresence)}
	if d.Asserted {
		v.PresenceSource = store.PresenceAsserted
	}
	return v
}

func timeOrNil(m model.Micros, has bool) *model.Micros {
	if !has {
		return nil
	}
	return &m
}

// all returns the states of the tenant's devices that exist, in order of device row ids, those that keep lets through.
func (s *stateResolvers) all(ctx context.Context, keep func(d *store.DeviceState, active func() bool) bool) ([]*store.DeviceState, error) {
	by := PrincipalFrom(ctx)
	rows, err := s.States.DeviceStates(ctx, by.TenantID)
	if err != nil {
		return nil, err
	}
	tokens, err := s.Tokens(ctx, by)
	now, standard := s.Listening(), s.Silence()
	return slices.DeleteFunc(rows, func(d *store.DeviceState) bool {
		token, exists := tokens[d.DeviceID]
		return !exists || !keep(d, func() bool { return ingest.Active(d, now, s.States.Silence(by.Tenant, token, standard)) })
	}), err
}

// shown shows states; only their devices are read.
func (s *stateResolvers) shown(ctx context.Context, rows []*store.DeviceState) ([]stateView, error) {
	by := PrincipalFrom(ctx)
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.DeviceID
	}
	ds, err := s.Devices.ByID(ctx, by, ids)
	if err != nil {
		return nil, err
	}
	byID := make(map[int64]*registry.Device, len(ds))
	for _, d := range ds {
		byID[d.ID] = d
	}
	out := make([]stateView, 0, len(rows))
	for _, r := range rows {
		if dev := byID[r.DeviceID]; dev != nil { // it has been removed since
			out = append(out, s.show(by.Tenant, dev, r))
		}
	}
	return out, nil
}

func (s *stateResolvers) list(ctx context.Context, _ any, args engine.Args) (any, error) {
	c, asOf := args.Object("criteria"), s.AsOf.now()
	filtered := c.Has("active") && !c.IsNull("active")
	all, err := s.all(ctx, func(_ *store.DeviceState, active func() bool) bool { return !filtered || active() == c.Bool("active") })
	if err != nil {
		return nil, err
	}
	page := store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}.Norm()
	from := page.First(len(all))
	rows, err := s.shown(ctx, all[from:min(from+page.Size, len(all))])
	if err != nil {
		return nil, err
	}
	return eventPage[stateView]{Results: rows, Pagination: pageOf(page.Number, page.Size, len(rows), int64(len(all))), AsOf: asOf}, nil
}

// of shows the states of some devices; a device without a state is left out. Those of several fields are read together.
func (s *stateResolvers) of(ctx context.Context, ds []*registry.Device) engine.Thunk {
	tenant := PrincipalFrom(ctx).Tenant
	return ofDevices(ctx, s.states, ds, func(dev *registry.Device, d *store.DeviceState) stateView { return s.show(tenant, dev, d) })
}

// ofDevices shows what is loaded of some devices; a device of which there is nothing is left out.
func ofDevices[V, View any](ctx context.Context, of *engine.Loader[int64, V], ds []*registry.Device, show func(*registry.Device, V) View) engine.Thunk {
	thunks := make([]engine.Thunk, len(ds))
	for i, dev := range ds {
		thunks[i] = of.Load(ctx, dev.ID)
	}
	return func() (any, error) {
		out := make([]View, 0, len(ds))
		for i, dev := range ds {
			v, err := thunks[i]()
			if err != nil {
				return nil, err
			}
			if v != nil {
				out = append(out, show(dev, v.(V)))
			}
		}
		return out, nil
	}
}

func (s *stateResolvers) asserted(ctx context.Context, _ any, args engine.Args) (any, error) {
	size := args.Int("pageSize")
	if size < 1 || size > 1000 {
		return nil, model.Invalid("pageSize", "must lie in 1..1000")
	}
	after, err := afterOf(args)
	if err != nil {
		return nil, err
	}
	all, err := s.all(ctx, func(d *store.DeviceState, active func() bool) bool {
		return d.DeviceID > after && d.Asserted && d.MovedBy() == args.String("source") && d.MovedBy() != "" && (!args.Bool("activeOnly") || active())
	})
	if err != nil {
		return nil, err
	}
	return s.shown(ctx, all[:min(size, len(all))])
}

// afterOf is the row id after which a list goes on.
func afterOf(args engine.Args) (after int64, err error) {
	if id := args.String("afterId"); id != "" {
		if after, err = strconv.ParseInt(id, 10, 64); err != nil {
			return 0, model.Invalid("afterId", "%.40q is not a row id", id)
		}
	}
	return after, nil
}

type demotionView struct {
	Scanned int     `gql:"scanned"`
	Demoted int     `gql:"demoted"`
	Skipped int     `gql:"skipped"`
	LastID  *string `gql:"lastId"`
}

// maxDemotionReason is the maximum length of the reason of a demotion in characters.
const maxDemotionReason = 256

func (s *stateResolvers) demote(ctx context.Context, _ any, args engine.Args) (any, error) {
	source, reason, limit := args.String("source"), args.String("reason"), args.Int("limit")
	after, err := afterOf(args)
	switch {
	case strings.TrimSpace(source) == "":
		return nil, model.Invalid("source", "must not be empty")
	case strings.TrimSpace(reason) == "":
		return nil, model.Invalid("reason", "must not be empty")
	case utf8.RuneCountInString(reason) > maxDemotionReason:
		return nil, model.Invalid("reason", "is longer than %d characters", maxDemotionReason)
	case limit < 1 || limit > 1000:
		return nil, model.Invalid("limit", "must lie in 1..1000")
	case err != nil:
		return nil, err
	case s.Demoter == nil:
		return nil, model.Errorf(model.CodeUnavailable, "unavailable: presence changes on a running instance only")
	}
	rows, err := s.assertedBy(ctx, source, after, limit, args)
	if err != nil {
		return nil, err
	}
	return s.demoteRows(ctx, source, reason, rows)
}

// assertedBy returns the first states after a row id that a source asserts: of the devices that the arguments name or, where they name
// none, of all.
func (s *stateResolvers) assertedBy(ctx context.Context, source string, after int64, limit int, args engine.Args) ([]*store.DeviceState, error) {
	by := PrincipalFrom(ctx)
	all := !args.Has("deviceTokens") || args.IsNull("deviceTokens")
	named := map[int64]bool{}
	if !all {
		devices, err := s.Devices.ByToken(ctx, by, args.Strings("deviceTokens"))
		if err != nil {
			return nil, err
		}
		for _, d := range devices {
			named[d.ID] = true
		}
	}
	rows, err := s.States.DeviceStates(ctx, by.TenantID)
	if err != nil {
		return nil, err
	}
	var found []*store.DeviceState
	for _, row := range rows { // in the order of their ids
		if len(found) < limit && row.DeviceID > after && row.Asserted && row.Source == source && (all || named[row.DeviceID]) {
			found = append(found, row)
		}
	}
	return found, nil
}

// demoteRows demotes devices by their states. One without a presence time, or with one that lies ahead of the clock, is skipped: its claim
// would lose.
func (s *stateResolvers) demoteRows(ctx context.Context, source, reason string, rows []*store.DeviceState) (out demotionView, err error) {
	by := PrincipalFrom(ctx)
	out.Scanned = len(rows)
	if len(rows) == 0 {
		return out, nil
	}
	ids := make([]int64, len(rows))
	for i, row := range rows {
		ids[i] = row.DeviceID
	}
	out.LastID = new(strconv.FormatInt(ids[len(ids)-1], 10))
	devices, err := s.Devices.ByID(ctx, by, ids)
	if err != nil {
		return out, err
	}
	tokens := make(map[int64]string, len(devices))
	for _, d := range devices {
		tokens[d.ID] = d.Token
	}
	var demoted []presence.Asserted
	for _, row := range rows {
		token, known := tokens[row.DeviceID]
		if !known || !row.HasPresence || row.PresenceTime >= s.Demoter.Now() {
			out.Skipped++
			continue
		}
		demoted = append(demoted, presence.Asserted{Session: row.Session, Connected: row.State == model.Connected,
			Binding: model.Binding{Tenant: by.Tenant, TenantID: by.TenantID, Device: token, DeviceID: row.DeviceID}})
	}
	if out.Demoted = len(demoted); out.Demoted == 0 {
		return out, nil
	}
	return out, s.Demoter.Demote(ctx, by, source, reason, demoted)
}

// device calls then with the device of a token; without one with nil, after a hint.
func (s *stateResolvers) device(ctx context.Context, token string, then func(*registry.Device) (any, error)) engine.Thunk {
	return s.byToken.Then(ctx, token, func(dev *registry.Device, ok bool) (any, error) {
		if !ok {
			hintNone(ctx, "deviceToken", "device", token)
		}
		return then(dev)
	})
}

type latestMeasurementView struct {
	ID         string        `gql:"id"`
	CreatedAt  model.Micros  `gql:"createdAt"`
	UpdatedAt  model.Micros  `gql:"updatedAt"`
	DeletedAt  *model.Micros `gql:"deletedAt"`
	Device     string        `gql:"deviceToken"`
	Name       string        `gql:"name"`
	Value      float64       `gql:"value"`
	Classifier *int32        `gql:"classifier"`
	Unit       *string       `gql:"unit"`
	DataType   *string       `gql:"dataType"`
	OutOfRange *string       `gql:"outOfRange"`
	Occurred   model.Micros  `gql:"occurredTime"`

	stale func() (bool, error) // one of all values of a device
}

// isStale returns a function that reports whether a device is absent by assertion. It asks once, when it is called first.
func (s *stateResolvers) isStale(ctx context.Context, device int64) func() (bool, error) {
	return sync.OnceValues(func() (bool, error) {
		found, err := s.States.DeviceStatesOf(ctx, PrincipalFrom(ctx).TenantID, []int64{device})
		st := found[device]
		return st != nil && st.Asserted && st.State == model.Disconnected, err
	})
}

func (s *stateResolvers) measurements(ctx context.Context, _ any, args engine.Args) (any, error) {
	return s.device(ctx, args.String("deviceToken"), func(dev *registry.Device) (any, error) {
		if dev == nil {
			return []latestMeasurementView{}, nil
		}
		return s.latest.Then(ctx, dev.ID, func(ms []store.LatestMeasurement, _ bool) (any, error) {
			out := make([]latestMeasurementView, len(ms))
			stale := s.isStale(ctx, dev.ID)
			for i := range ms {
				out[i] = showLatest(dev.Token, &ms[i])
				out[i].stale = stale
			}
			return out, nil
		}), nil
	}), nil
}

func showLatest(device string, m *store.LatestMeasurement) latestMeasurementView {
	v := latestMeasurementView{ID: strconv.FormatInt(m.ID, 10), CreatedAt: m.Created, UpdatedAt: m.Updated, Device: device,
		Name: m.Metric, Value: m.Value, Unit: textOrNil(m.Unit), DataType: textOrNil(m.DataType), OutOfRange: textOrNil(m.Mark.String()),
		Occurred: m.Occurred}
	if m.HasClassifier {
		v.Classifier = &m.Classifier
	}
	return v
}

type latestLocationView struct {
	ID        string        `gql:"id"`
	CreatedAt model.Micros  `gql:"createdAt"`
	UpdatedAt model.Micros  `gql:"updatedAt"`
	DeletedAt *model.Micros `gql:"deletedAt"`
	Device    string        `gql:"deviceToken"`
	Latitude  *float64      `gql:"latitude"`
	Longitude *float64      `gql:"longitude"`
	Elevation *float64      `gql:"elevation"`
	Accuracy  *float64      `gql:"accuracy"`
	Speed     *float64      `gql:"speed"`
	Heading   *float64      `gql:"heading"`
	Occurred  model.Micros  `gql:"occurredTime"`
}

// locations shows the latest positions of some devices; a device without one is left out.
func (s *stateResolvers) locations(ctx context.Context, ds []*registry.Device) engine.Thunk {
	return ofDevices(ctx, s.positions, ds, func(dev *registry.Device, l store.LatestLocation) latestLocationView {
		return showPosition(dev.Token, &l)
	})
}

func showPosition(device string, latest *store.LatestLocation) latestLocationView {
	l := &latest.Location
	return latestLocationView{ID: strconv.FormatInt(latest.Device, 10), CreatedAt: latest.Created, UpdatedAt: latest.Updated, Device: device,
		Latitude: numberOrNil(l.Latitude), Longitude: numberOrNil(l.Longitude), Elevation: numberOrNil(l.Elevation), Accuracy: numberOrNil(l.Accuracy),
		Speed: numberOrNil(l.Speed), Heading: numberOrNil(l.Heading), Occurred: latest.Occurred}
}
