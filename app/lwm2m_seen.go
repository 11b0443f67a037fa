package app

import (
	"maps"
	"slices"
	"sync/atomic"

	"weir/gql"
	"weir/lwm2m"
	"weir/model"
)

// registeredDevices are the LwM2M devices that are registered, for the API. There are none while the server does not run.
type registeredDevices struct{ server atomic.Pointer[lwm2m.Server] }

var _ gql.Lwm2mReader = (*registeredDevices)(nil)

// Registrations implements gql.Lwm2mReader.
func (d *registeredDevices) Registrations(tenantID int64, devices []int64) []gql.Lwm2mRegistration {
	s := d.server.Load()
	if s == nil {
		return nil
	}
	var all []gql.Lwm2mRegistration
	for _, r := range s.Seen(tenantID, devices) {
		all = append(all, shownRegistration(&r))
	}
	return all
}

func shownRegistration(r *lwm2m.Seen) gql.Lwm2mRegistration {
	out := gql.Lwm2mRegistration{
		DeviceToken:  r.Binding.Device,
		Endpoint:     r.Endpoint,
		Version:      r.Version,
		Lifetime:     int(r.Lifetime),
		Binding:      r.Binds,
		QueueMode:    r.Queue,
		Awake:        r.Awake,
		Session:      string(r.State),
		ConnectionID: r.ConnectionID,
		Registered:   r.Registered,
		Heard:        r.Heard,
		Expires:      r.Expires,
		Objects:      []gql.Lwm2mObject{},
		Observations: []gql.Lwm2mObservation{},
		Refused:      []gql.Lwm2mRefusal{},
	}
	// Without a session there is no address to show.
	if r.State != lwm2m.SessionNone {
		out.Security, out.Address = &r.Security, &r.Address
	}
	for _, o := range r.Objects {
		object := gql.Lwm2mObject{Path: o.Path}
		if o.Version != "" {
			object.Version = new(o.Version)
		}
		out.Objects = append(out.Objects, object)
	}
	for _, o := range r.Observed {
		observation := gql.Lwm2mObservation{Paths: o.Paths, Format: o.Format, Confirmed: o.Confirmed}
		if o.Value > 0 {
			observation.Value = new(model.Micros(o.Value))
		}
		out.Observations = append(out.Observations, observation)
	}
	// Sorted, so that two answers to one query are equal.
	for _, path := range slices.Sorted(maps.Keys(r.Refused)) {
		out.Refused = append(out.Refused, gql.Lwm2mRefusal{Path: path, Reason: r.Refused[path]})
	}
	return out
}
