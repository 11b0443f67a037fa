package app

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"weir/ingest"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// DeviceQuery is a page of a tenant's devices.
type DeviceQuery struct {
	Tenant string `json:"tenant"`
	Type   string `json:"type,omitempty"`  // token of a device type
	Page   int    `json:"page,omitempty"`  // from 1
	Limit  int    `json:"limit,omitempty"` // at most MaxDevicePage
}

// MaxDevicePage is the most devices of one page.
const MaxDevicePage = store.MaxPageSize

// DeviceList is a page of devices, newest first.
type DeviceList struct {
	Total   int64           `json:"total"` // of all pages
	Devices []DeviceSummary `json:"devices"`
}

// DeviceSummary is a device in a list. The names are those of the API.
type DeviceSummary struct {
	Token      string  `json:"token"`
	Name       *string `json:"name"`
	Type       string  `json:"deviceTypeToken"`
	ExternalID *string `json:"externalId"`
	// Presence is a word of the presence states, "" for a device that was never heard.
	Presence string     `json:"presence,omitempty"`
	LastSeen *time.Time `json:"lastSeen,omitempty"`
}

// The words for how a device is. A device counts as present by what its transport says of its connection, or by having
// been heard lately.
const (
	Connected    = "connected"
	Disconnected = "disconnected"
	Active       = "active"
	Silent       = "silent"
)

// DeviceDetails is all that is known of a device but its secrets.
type DeviceDetails struct {
	DeviceSummary
	Description    *string         `json:"description"`
	Metadata       *string         `json:"metadata"`
	CreatedAt      time.Time       `json:"createdAt"`
	UpdatedAt      time.Time       `json:"updatedAt"`
	LastConnect    *time.Time      `json:"lastConnectTime,omitempty"`
	LastDisconnect *time.Time      `json:"lastDisconnectTime,omitempty"`
	Source         string          `json:"source,omitempty"` // event source that was heard last
	Credentials    []Credential    `json:"credentials"`
	Latest         []Latest        `json:"latest"`
	Location       *DevicePosition `json:"location,omitempty"`
	DeadLetters    []DeadLetter    `json:"deadLetters"` // the newest few that name the device
}

// Credential is a credential without its secrets.
type Credential struct {
	Token string `json:"token"`
	Type  string `json:"credentialType"`
	// ID is the user name or the certificate's hash; that of an access token is the secret itself and is not shown.
	ID        string     `json:"credentialId,omitempty"`
	Enabled   bool       `json:"enabled"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
}

// Latest is the newest value of a metric.
type Latest struct {
	Metric   string    `json:"name"`
	Value    float64   `json:"value"`
	Unit     string    `json:"unit,omitempty"`
	Occurred time.Time `json:"occurredTime"`
	Received time.Time `json:"receivedTime"`
}

// Place is the newest position.
type DevicePosition struct {
	Latitude  *float64  `json:"latitude"` // null where the device gave none
	Longitude *float64  `json:"longitude"`
	Occurred  time.Time `json:"occurredTime"`
}

// lives tells what is known of devices beside what was declared.
type lives interface {
	DeviceState(ctx context.Context, tenantID, deviceID int64) (*store.DeviceState, error)
	LatestMeasurements(ctx context.Context, deviceID int64) ([]store.LatestMeasurement, error)
	LatestLocations(ctx context.Context, devices []int64) ([]store.LatestLocation, error)
	DeadLetters(ctx context.Context, f store.DeadLetterFilter) ([]store.DeadLetter, error)
	// Active reports whether an inferred presence holds.
	Active(tenant, device string, d *store.DeviceState) bool
}

// liveLives are the lives in a running instance.
type liveLives struct{ in *Instance }

func (l liveLives) DeviceState(ctx context.Context, tenantID, deviceID int64) (*store.DeviceState, error) {
	return l.in.applier.DeviceState(ctx, tenantID, deviceID)
}

func (l liveLives) LatestMeasurements(ctx context.Context, deviceID int64) ([]store.LatestMeasurement, error) {
	return l.in.series.LatestMeasurements(ctx, deviceID)
}

func (l liveLives) LatestLocations(ctx context.Context, devices []int64) ([]store.LatestLocation, error) {
	return l.in.series.LatestLocations(ctx, devices)
}

func (l liveLives) DeadLetters(ctx context.Context, f store.DeadLetterFilter) ([]store.DeadLetter, error) {
	return storedLives{l.in.store}.DeadLetters(ctx, f)
}

func (l liveLives) Active(tenant, device string, d *store.DeviceState) bool {
	return ingest.Active(d, l.in.listen.Now(), l.in.applier.Silence(tenant, device, l.in.cfg.Presence.InactivityTimeout))
}

// storedLives are the lives as the store has them: where nothing runs, as of the last stop.
type storedLives struct{ store store.Store }

func (l storedLives) DeviceState(ctx context.Context, _, deviceID int64) (d *store.DeviceState, err error) {
	err = l.store.Read(ctx, func(tx store.Tx) (err error) {
		d, err = store.GetDeviceState(tx, deviceID)
		return err
	})
	return d, err
}

func (l storedLives) LatestMeasurements(ctx context.Context, deviceID int64) (out []store.LatestMeasurement, err error) {
	err = l.store.Read(ctx, func(tx store.Tx) (err error) {
		out, err = store.LatestMeasurements(tx, deviceID)
		return err
	})
	return out, err
}

func (l storedLives) LatestLocations(ctx context.Context, devices []int64) (out []store.LatestLocation, err error) {
	err = l.store.Read(ctx, func(tx store.Tx) (err error) {
		out, err = store.LatestLocations(tx, devices)
		return err
	})
	return out, err
}

func (l storedLives) DeadLetters(ctx context.Context, f store.DeadLetterFilter) (out []store.DeadLetter, err error) {
	err = l.store.Read(ctx, func(tx store.Tx) (err error) {
		out, err = store.DeadLetters(tx, f)
		return err
	})
	return out, err
}

// Active implements lives: nobody is present where nothing listens.
func (storedLives) Active(string, string, *store.DeviceState) bool { return false }

// ListDevices implements Operator.
func (r rooms) ListDevices(ctx context.Context, q DeviceQuery) (*DeviceList, error) {
	by, err := r.within(q.Tenant)
	if err != nil {
		return nil, err
	}
	if q.Limit < 0 || q.Limit > MaxDevicePage {
		return nil, model.Invalid("limit", "must lie in 1..%d", MaxDevicePage)
	}
	var filters []store.Filter
	if q.Type != "" {
		have, err := r.registry.Types.ByToken(ctx, by, []string{q.Type})
		if err == nil && len(have) == 0 {
			err = model.NotFound(r.registry.Types.Name(), q.Type)
		}
		if err != nil {
			return nil, err
		}
		filters = append(filters, store.RefersTo("type_id", "device_types", q.Type))
	}
	devices, total, err := r.registry.Devices.List(ctx, by, store.Page{Number: q.Page, Size: q.Limit}, filters...)
	if err != nil {
		return nil, err
	}
	types, err := r.typesOf(ctx, by, devices)
	if err != nil {
		return nil, err
	}
	list := &DeviceList{Total: total, Devices: make([]DeviceSummary, len(devices))}
	for i, d := range devices {
		if list.Devices[i], _, err = r.summary(ctx, by, d, types); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// typesOf returns the tokens of the devices' types by row id.
func (r rooms) typesOf(ctx context.Context, by *model.Principal, devices []*registry.Device) (map[int64]string, error) {
	ids := map[int64]bool{}
	for _, d := range devices {
		ids[d.TypeID] = true
	}
	types, err := r.registry.Types.ByID(ctx, by, slices.Collect(maps.Keys(ids)))
	tokens := map[int64]string{}
	for _, t := range types {
		tokens[t.ID] = t.Token
	}
	return tokens, err
}

// summary is a device as a list shows it, with its state, nil when it was never heard.
func (r rooms) summary(ctx context.Context, by *model.Principal, d *registry.Device, types map[int64]string) (DeviceSummary, *store.DeviceState, error) {
	s := DeviceSummary{Token: d.Token, Name: d.Name, Type: types[d.TypeID], ExternalID: d.ExternalID}
	state, err := r.life.DeviceState(ctx, by.TenantID, d.ID)
	if err != nil || state == nil {
		return s, nil, err
	}
	seen := max(state.LastActivity, state.LastConnect, state.LastDisconnect)
	s.LastSeen = timeOf(seen)
	switch {
	case state.Asserted && state.State == model.Connected:
		s.Presence = Connected
	case state.Asserted:
		s.Presence = Disconnected
	case r.life.Active(by.Tenant, d.Token, state):
		s.Presence = Active
	default:
		s.Presence = Silent
	}
	return s, state, nil
}

// timeOf is a stored time, nil for none.
func timeOf(m model.Micros) *time.Time {
	if m == 0 {
		return nil
	}
	return new(m.Time())
}

// shownDeadLetters is how many dead letters of a device are shown.
const shownDeadLetters = 5

// ShowDevice implements Operator.
func (r rooms) ShowDevice(ctx context.Context, q DeviceName) (*DeviceDetails, error) {
	by, err := r.within(q.Tenant)
	if err != nil {
		return nil, err
	}
	d, err := r.device(ctx, by, q.Token)
	if err != nil {
		return nil, err
	}
	types, err := r.typesOf(ctx, by, []*registry.Device{d})
	if err != nil {
		return nil, err
	}
	s, state, err := r.summary(ctx, by, d, types)
	if err != nil {
		return nil, err
	}
	out := &DeviceDetails{DeviceSummary: s, Description: d.Description, Metadata: d.Metadata, CreatedAt: d.CreatedAt.Time(), UpdatedAt: d.UpdatedAt.Time()}
	if state != nil {
		out.LastConnect, out.LastDisconnect, out.Source = timeOf(state.LastConnect), timeOf(state.LastDisconnect), state.MovedBy()
	}
	if out.Credentials, err = r.credentialsOf(ctx, by, d); err != nil {
		return nil, err
	}
	return out, r.heard(ctx, by, d, out)
}

// device returns a device that must exist.
func (r rooms) device(ctx context.Context, by *model.Principal, token string) (*registry.Device, error) {
	have, err := r.registry.Devices.ByToken(ctx, by, []string{token})
	if err != nil {
		return nil, err
	}
	if len(have) == 0 {
		e := model.NotFound(r.registry.Devices.Name(), token)
		e.Hint = fmt.Sprintf("see what there is with: weir device list %s", by.Tenant)
		return nil, e
	}
	return have[0], nil
}

// credentialsOf shows a device's credentials without their secrets.
func (r rooms) credentialsOf(ctx context.Context, by *model.Principal, d *registry.Device) ([]Credential, error) {
	have, err := r.registry.Credentials.By(ctx, by, "device_id", d.ID)
	if err != nil {
		return nil, err
	}
	out := []Credential{}
	for _, c := range have {
		shown := Credential{Token: c.Token, Type: c.Type, Enabled: c.Enabled, CreatedAt: c.CreatedAt.Time()}
		if c.ExpiresAt != nil {
			shown.ExpiresAt = new(c.ExpiresAt.Time())
		}
		if c.Type != registry.AccessToken {
			if shown.ID, err = r.registry.CredentialID(c); err != nil {
				return nil, err
			}
		}
		out = append(out, shown)
	}
	return out, nil
}

// heard adds what was heard of a device last.
func (r rooms) heard(ctx context.Context, by *model.Principal, d *registry.Device, out *DeviceDetails) error {
	out.Latest, out.DeadLetters = []Latest{}, []DeadLetter{}
	values, err := r.life.LatestMeasurements(ctx, d.ID)
	if err != nil {
		return err
	}
	for i := range values {
		v := &values[i]
		out.Latest = append(out.Latest, Latest{Metric: v.Metric, Value: v.Value, Unit: v.Unit, Occurred: v.Occurred.Time(), Received: v.Updated.Time()})
	}
	places, err := r.life.LatestLocations(ctx, []int64{d.ID})
	if err != nil {
		return err
	}
	if len(places) > 0 {
		l := &places[0]
		out.Location = &DevicePosition{Latitude: degrees(l.Location.Latitude), Longitude: degrees(l.Location.Longitude), Occurred: l.Occurred.Time()}
	}
	letters, err := r.life.DeadLetters(ctx, store.DeadLetterFilter{Tenant: &by.Tenant, Subject: &d.Token, Limit: shownDeadLetters})
	for i := range letters {
		out.DeadLetters = append(out.DeadLetters, deadLetter(&letters[i]))
	}
	return err
}

// degrees is a coordinate, nil for one that is absent.
func degrees(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}
