package lwm2m

import (
	"maps"
	"slices"
	"strings"

	"weir/lwm2m/content"
	"weir/model"
)

// Seen is a registration as people see it.
type Seen struct {
	Registration
	Awake        bool
	State        SessionState
	Security     string // of the session
	ConnectionID bool
	Address      string // "" without a session
	Expires      model.Micros
	Objects      []SeenObject
	Observed     []SeenObservation
	Refused      map[string]string // why, by path
}

// SessionState is how the session of a registration is.
type SessionState string

// The states of sessions.
const (
	SessionLive   SessionState = "LIVE"
	SessionParked SessionState = "PARKED"
	SessionNone   SessionState = "NONE"
)

// SeenObject is an object or an instance in the link list of a device.
type SeenObject struct {
	Path, Version string // "" for no version
}

// SeenObservation is an observation.
type SeenObservation struct {
	Paths     []string
	Format    string
	Confirmed bool         // the device has agreed to it in its session
	Value     model.Micros // of the newest value, 0: none
}

// Seen returns the registrations of a tenant: of some devices, or with nil of all, in no order.
func (s *Server) Seen(tenant int64, devices []int64) []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Seen
	if devices == nil {
		for _, r := range s.byLocation {
			if r.Binding.TenantID == tenant {
				all = append(all, s.seen(r))
			}
		}
		return all
	}
	for _, id := range devices {
		if r := s.byDevice[id]; r != nil && r.Binding.TenantID == tenant {
			all = append(all, s.seen(r))
		}
	}
	return all
}

// seen is a registration. It needs the lock.
func (s *Server) seen(r *registration) Seen {
	out := Seen{Registration: r.Registration, Awake: !r.sleeps(s.now(), s.settings.Load().Awake), State: SessionNone,
		Expires: model.MicrosOf(r.due.Add(-lifetimeGrace)), Refused: map[string]string{}}
	session := ""
	switch {
	case r.session != nil:
		session = r.session.named
		out.State, out.Security, out.Address = SessionLive, r.session.proof.kind(), r.session.conn.RemoteAddr().String()
		if p := r.session.peer; p != nil {
			out.ConnectionID = s.idOf(p) != ""
		}
	case r.parked != nil:
		session = r.parked.name
		out.State, out.Security, out.Address, out.ConnectionID = SessionParked, r.parked.proof.kind(), r.parked.from.String(), r.parked.id != ""
	}
	for _, l := range r.links {
		if len(l.Path) == 0 || len(l.Path) > 2 {
			continue
		}
		version, _ := l.Get("ver")
		out.Objects = append(out.Objects, SeenObject{Path: l.Path.String(), Version: version})
	}
	for _, o := range r.observed {
		seen := SeenObservation{Format: content.Name(o.format), Confirmed: o.session != "" && o.session == session, Value: o.values}
		for _, p := range o.paths {
			seen.Paths = append(seen.Paths, p.String())
		}
		out.Observed = append(out.Observed, seen)
	}
	slices.SortFunc(out.Observed, func(a, b SeenObservation) int { return strings.Compare(a.Paths[0], b.Paths[0]) })
	maps.Copy(out.Refused, r.refusedAt)
	return out
}
