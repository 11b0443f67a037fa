package gql

import (
	"cmp"
	"context"
	"slices"

	"weir/gql/engine"
	"weir/model"
	"weir/registry"
)

// Lwm2mRegistration is a device as the LwM2M server knows it.
type Lwm2mRegistration struct {
	DeviceToken  string             `gql:"deviceToken"`
	Endpoint     string             `gql:"endpoint"`
	Version      string             `gql:"version"`
	Lifetime     int                `gql:"lifetime"` // seconds
	Binding      string             `gql:"binding"`
	QueueMode    bool               `gql:"queueMode"`
	Awake        bool               `gql:"awake"`
	Session      string             `gql:"session"`
	Security     *string            `gql:"security"`
	ConnectionID bool               `gql:"connectionId"`
	Address      *string            `gql:"address"`
	Registered   model.Micros       `gql:"registeredTime"`
	Heard        model.Micros       `gql:"lastHeardTime"`
	Expires      model.Micros       `gql:"expiresTime"`
	Objects      []Lwm2mObject      `gql:"objects"`
	Observations []Lwm2mObservation `gql:"observations"`
	Refused      []Lwm2mRefusal     `gql:"refused"`
}

// Lwm2mObject is an object or an instance of one that a device has.
type Lwm2mObject struct {
	Path    string  `gql:"path"`
	Version *string `gql:"version"`
}

// Lwm2mObservation is something of a device that is observed.
type Lwm2mObservation struct {
	Paths     []string      `gql:"paths"`
	Format    string        `gql:"format"`
	Confirmed bool          `gql:"confirmed"`
	Value     *model.Micros `gql:"lastValueTime"`
}

// Lwm2mRefusal is something of a device that is not observed, with the reason.
type Lwm2mRefusal struct {
	Path   string `gql:"path"`
	Reason string `gql:"reason"`
}

// Lwm2mReader knows the devices that are registered.
type Lwm2mReader interface {
	// Registrations returns those of a tenant: of some devices, or with nil of all.
	Registrations(tenantID int64, devices []int64) []Lwm2mRegistration
}

// maxLwm2mListed is how many registrations are listed of a tenant at once.
const maxLwm2mListed = 1000

// RegisterLwm2m registers the queries about LwM2M devices.
func RegisterLwm2m(a *Area, r *registry.Registry, known Lwm2mReader) {
	a.Type("Lwm2mRegistration", Lwm2mRegistration{})
	a.Type("Lwm2mObject", Lwm2mObject{})
	a.Type("Lwm2mObservation", Lwm2mObservation{})
	a.Type("Lwm2mRefusal", Lwm2mRefusal{})
	a.Query("lwm2mRegistrations", Requires(model.DeviceRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		by := PrincipalFrom(ctx)
		var ids []int64
		if args.Has("deviceTokens") && !args.IsNull("deviceTokens") {
			devices, err := r.Devices.Rows.ByToken(ctx, by, args.Strings("deviceTokens"))
			if err != nil || len(devices) == 0 {
				return []Lwm2mRegistration{}, err
			}
			for _, d := range devices {
				ids = append(ids, d.ID)
			}
		}
		all := known.Registrations(by.TenantID, ids)
		slices.SortFunc(all, func(a, b Lwm2mRegistration) int { return cmp.Compare(a.DeviceToken, b.DeviceToken) })
		return append([]Lwm2mRegistration{}, all[:min(len(all), maxLwm2mListed)]...), nil
	})
}
