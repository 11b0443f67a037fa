package gql

import (
	"context"
	"strconv"
	"time"

	"weir/gql/engine"
	"weir/ingest"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// StateReader reads the live state of devices.
type StateReader interface {
	DeviceStates(ctx context.Context, tenantID int64) ([]*store.DeviceState, error)
	DeviceState(ctx context.Context, tenantID, deviceID int64) (*store.DeviceState, error)
	// Silence is how long the device may be silent before its inferred presence ends.
	Silence(tenant, device string, standard time.Duration) time.Duration
}

// LatestReader reads the latest values of a device.
type LatestReader interface {
	LatestMeasurements(ctx context.Context, deviceID int64) ([]store.LatestMeasurement, error)
	LatestLocations(ctx context.Context, devices []int64) ([]store.LatestLocation, error)
}

// ExternalFinder finds devices by their external ids.
type ExternalFinder interface {
	DevicesByExternalID(ctx context.Context, by *model.Principal, externalIDs []string) ([]*registry.Device, error)
}

// StateDeps are the collaborators of the device-state area.
type StateDeps struct {
	AsOf      AsOf
	States    StateReader
	Latest    LatestReader
	Devices   DeviceFinder
	External  ExternalFinder
	Listening func() int64         // listening time now, in nanoseconds
	Silence   func() time.Duration // presence.inactivity_timeout
}

// RegisterState registers the queries of the device-state area.
func RegisterState(a *Area, d StateDeps) {
	s := &stateResolvers{d}
	a.Type("SearchResultsPagination", searchPage{})
	a.Type("DeviceState", stateView{})
	a.Type("DeviceStateSearchResults", eventPage[stateView]{})
	a.Type("LatestMeasurement", latestMeasurementView{})
	a.Type("LatestLocation", latestLocationView{})

	state, location := Requires(model.StateRead), Requires(model.LocationRead)
	a.Query("deviceStates", state, s.list)
	a.Query("deviceStatesByDeviceToken", state, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		ds, err := s.Devices.ByToken(ctx, PrincipalFrom(ctx), args.Strings("deviceTokens"))
		return s.of(ctx, ds, err)
	})
	a.Query("deviceStatesByExternalId", state, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		ds, err := s.External.DevicesByExternalID(ctx, PrincipalFrom(ctx), args.Strings("externalIds"))
		return s.of(ctx, ds, err)
	})
	a.Query("assertedDeviceStates", state, s.asserted)
	a.Query("latestMeasurements", state, s.measurements)
	a.Query("latestLocation", location, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		ds, err := s.device(ctx, args.String("deviceToken"))
		ls, err := s.locations(ctx, ds, err)
		if err != nil || len(ls) == 0 {
			return nil, err
		}
		return ls[0], nil
	})
	a.Query("latestLocations", location, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		ds, err := s.Devices.ByToken(ctx, PrincipalFrom(ctx), args.Strings("deviceTokens"))
		return s.locations(ctx, ds, err)
	})
}

type stateResolvers struct{ StateDeps }

// ActiveDevices returns the row ids of the tenant's devices that deviceStates shows as active.
func (d StateDeps) ActiveDevices(ctx context.Context, by *model.Principal) ([]int64, error) {
	rows, err := d.States.DeviceStates(ctx, by.TenantID)
	if err != nil {
		return nil, err
	}
	now, standard := d.Listening(), d.Silence()
	var active, unsure []int64
	states := map[int64]*store.DeviceState{}
	for _, row := range rows {
		switch {
		case row.Asserted, ingest.Active(row, now, min(standard, shortestSilence)):
			if ingest.Active(row, now, standard) {
				active = append(active, row.DeviceID)
			}
		case row.HasActivity: // the profile of the device decides
			unsure, states[row.DeviceID] = append(unsure, row.DeviceID), row
		}
	}
	devices, err := d.Devices.ByID(ctx, by, unsure)
	for _, dev := range devices {
		if ingest.Active(states[dev.ID], now, d.States.Silence(by.Tenant, dev.Token, standard)) {
			active = append(active, dev.ID)
		}
	}
	return active, err
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

// all returns the states of the tenant's devices, in order of device row ids.
func (s *stateResolvers) all(ctx context.Context) ([]stateView, error) {
	by := PrincipalFrom(ctx)
	rows, err := s.States.DeviceStates(ctx, by.TenantID)
	if err != nil {
		return nil, err
	}
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
		if dev := byID[r.DeviceID]; dev != nil {
			out = append(out, s.show(by.Tenant, dev, r))
		}
	}
	return out, nil
}

func (s *stateResolvers) list(ctx context.Context, _ any, args engine.Args) (any, error) {
	c, asOf := args.Object("criteria"), s.AsOf.now()
	all, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	if c.Has("active") && !c.IsNull("active") {
		kept := all[:0]
		for _, v := range all {
			if v.Active == c.Bool("active") {
				kept = append(kept, v)
			}
		}
		all = kept
	}
	page := store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}.Norm()
	from := min((page.Number-1)*page.Size, len(all))
	rows := all[from:min(from+page.Size, len(all))]
	return eventPage[stateView]{Results: rows, Pagination: pageOf(page.Number, page.Size, len(rows), int64(len(all))), AsOf: asOf}, nil
}

// of shows the states of some devices; a device without a state is left out.
func (s *stateResolvers) of(ctx context.Context, ds []*registry.Device, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	by := PrincipalFrom(ctx)
	out := make([]stateView, 0, len(ds))
	for _, dev := range ds {
		d, err := s.States.DeviceState(ctx, by.TenantID, dev.ID)
		if err != nil {
			return nil, err
		}
		if d != nil {
			out = append(out, s.show(by.Tenant, dev, d))
		}
	}
	return out, nil
}

func (s *stateResolvers) asserted(ctx context.Context, _ any, args engine.Args) (any, error) {
	size := args.Int("pageSize")
	if size < 1 || size > 1000 {
		return nil, model.Invalid("pageSize", "must lie in 1..1000")
	}
	after := int64(0)
	if id := args.String("afterId"); id != "" {
		var err error
		if after, err = strconv.ParseInt(id, 10, 64); err != nil {
			return nil, model.Invalid("afterId", "%q is not a row id", id)
		}
	}
	all, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	out := []stateView{}
	for _, v := range all {
		id, err := strconv.ParseInt(v.ID, 10, 64)
		if err == nil && id > after && v.PresenceSource == store.PresenceAsserted && v.Source != nil && *v.Source == args.String("source") &&
			(v.Active || !args.Bool("activeOnly")) && len(out) < size {
			out = append(out, v)
		}
	}
	return out, nil
}

// device returns the device of a token, or none and a hint.
func (s *stateResolvers) device(ctx context.Context, token string) ([]*registry.Device, error) {
	ds, err := s.Devices.ByToken(ctx, PrincipalFrom(ctx), []string{token})
	if err == nil && len(ds) == 0 {
		hintNone(ctx, "deviceToken", "device", token)
	}
	return ds, err
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
}

func (s *stateResolvers) measurements(ctx context.Context, _ any, args engine.Args) (any, error) {
	ds, err := s.device(ctx, args.String("deviceToken"))
	if err != nil || len(ds) == 0 {
		return []latestMeasurementView{}, err
	}
	ms, err := s.Latest.LatestMeasurements(ctx, ds[0].ID)
	out := make([]latestMeasurementView, len(ms))
	for i := range ms {
		m := &ms[i]
		out[i] = latestMeasurementView{ID: strconv.FormatInt(m.ID, 10), CreatedAt: m.Created, UpdatedAt: m.Updated, Device: ds[0].Token,
			Name: m.Metric, Value: m.Value, Unit: textOrNil(m.Unit), DataType: textOrNil(m.DataType), OutOfRange: textOrNil(m.Mark.String()),
			Occurred: m.Occurred}
		if m.HasClassifier {
			out[i].Classifier = &m.Classifier
		}
	}
	return out, err
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
func (s *stateResolvers) locations(ctx context.Context, ds []*registry.Device, err error) ([]latestLocationView, error) {
	if err != nil || len(ds) == 0 {
		return []latestLocationView{}, err
	}
	ids, names := make([]int64, len(ds)), make(map[int64]string, len(ds))
	for i, d := range ds {
		ids[i], names[d.ID] = d.ID, d.Token
	}
	ls, err := s.Latest.LatestLocations(ctx, ids)
	out := make([]latestLocationView, len(ls))
	for i := range ls {
		l := &ls[i].Location
		out[i] = latestLocationView{ID: strconv.FormatInt(ls[i].Device, 10), CreatedAt: ls[i].Created, UpdatedAt: ls[i].Updated, Device: names[ls[i].Device],
			Latitude: numberOrNil(l.Latitude), Longitude: numberOrNil(l.Longitude), Elevation: numberOrNil(l.Elevation), Accuracy: numberOrNil(l.Accuracy),
			Speed: numberOrNil(l.Speed), Heading: numberOrNil(l.Heading), Occurred: ls[i].Occurred}
	}
	return out, err
}
