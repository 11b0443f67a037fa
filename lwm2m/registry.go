package lwm2m

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"weir/lwm2m/content"
	"weir/model"
	"weir/presence"
)

// Times of registrations.
const (
	defaultLifetime = 86400 * time.Second
	minLifetime     = 60 * time.Second
	lifetimeGrace   = 30 * time.Second
	sameRegister    = 5 * time.Second // a Register within it of the last one returns the same location
	flushInterval   = time.Second     // of what is written behind
)

// registration is a registered device. The lock of the server guards it.
type registration struct {
	Registration
	links        []content.ObjectLink
	session      *session // nil: it is parked, or there is none
	parked       *parked  // nil: there is a session, or none
	stored       string   // name of the session in its row, "": there is none
	profile      *profile // nil: it was not read yet
	observing    bool     // the device is being asked for observations
	expiry       *time.Timer
	due          time.Time // when it ends
	asleep       bool      // it has not answered since it was last heard, or was not heard since the start
	observed     map[string]*observation
	refusedAt    map[string]string // observations that the device refused, with the code, by path
	refusedIn    map[string]string // the sessions in which it did, by path
	attributesOf string            // location of the registration whose attributes were read
	texts        map[string]string // attributes that it has reported
}

// awakeUntil is when a device in queue mode falls asleep.
func (r *registration) awakeUntil(awake time.Duration) time.Time { return r.Heard.Time().Add(awake) }

// sleeps reports whether the device cannot be reached now.
func (r *registration) sleeps(now time.Time, awake time.Duration) bool {
	return r.session == nil && r.parked == nil || r.Queue && (r.asleep || !now.Before(r.awakeUntil(awake)))
}

// lifetime is the time after which a registration that is not updated ends.
func (r *registration) lifetime() time.Duration { return time.Duration(r.Lifetime) * time.Second }

// newLocation returns the name of a registration.
func newLocation() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// accept is a Register or an Update that was read.
type accept struct {
	endpoint string
	version  string
	binds    *string
	queue    bool
	lifetime *int64
	links    string
	parsed   []content.ObjectLink
	hasLinks bool
}

// queueMode says whether a device sleeps: 1.0 says it in its binding mode, later versions by Q.
func (a *accept) queueMode(version string, before bool) bool {
	switch {
	case version != "1.0":
		return a.queue || a.binds != nil && strings.Contains(*a.binds, "Q")
	case a.binds != nil:
		return strings.Contains(*a.binds, "Q")
	}
	return before
}

// register makes or replaces the registration of a session's device and returns it once it is stored.
func (s *Server) register(sess *session, a *accept) (location string, err error) {
	now := s.now()
	s.mu.Lock()
	r := s.byDevice[sess.binding.DeviceID]
	fresh := r == nil
	if fresh {
		r = &registration{}
	}
	if r.Location == "" || now.Sub(r.Registered.Time()) >= sameRegister || r.Endpoint != a.endpoint {
		delete(s.byLocation, r.Location)
		r.Location = newLocation()
	}
	harvested := r.Harvested
	r.Registration = Registration{Binding: sess.binding, Location: r.Location, Endpoint: a.endpoint, Version: a.version, Lifetime: s.clamp(a.lifetime), Links: a.links,
		Session: r.Session, Registered: model.MicrosOf(now), Heard: model.MicrosOf(now), Harvested: harvested}
	if a.binds != nil {
		r.Binds = *a.binds
	}
	r.Queue = a.queueMode(a.version, false)
	r.links, r.asleep = a.parsed, false
	s.takeOver(r, sess)
	r.observed, r.refusedAt, r.refusedIn = map[string]*observation{}, map[string]string{}, map[string]string{}
	if r.texts == nil {
		r.texts = map[string]string{}
	}
	connected := r.Session != 0
	for o, of := range s.noted {
		if of == r {
			delete(s.noted, o)
		}
	}
	s.byDevice[sess.binding.DeviceID], s.byLocation[r.Location] = r, r
	s.mu.Unlock()
	stored := s.keep(sess.binding.DeviceID, sess)
	if !connected {
		session := s.tracker.Arrived(s.ctx, sess.binding)
		s.mu.Lock()
		r.Session = session
		s.mu.Unlock()
	}
	s.mu.Lock()
	row := r.Registration
	s.mu.Unlock()
	if err := s.deps.Store.Save(s.ctx, true, &Changes{Registrations: []Registration{row}, Forget: []int64{row.Binding.DeviceID}}); err != nil {
		return "", err
	}
	select {
	case err := <-stored:
		if err != nil {
			return "", err
		}
	case <-s.ctx.Done():
		return "", s.ctx.Err()
	}
	s.mu.Lock()
	s.schedule(r, r.lifetime()+lifetimeGrace)
	s.mu.Unlock()
	return row.Location, nil
}

func (s *Server) clamp(seconds *int64) int64 {
	life := defaultLifetime
	if seconds != nil {
		life = time.Duration(min(*seconds, int64(defaultLifetime/time.Second)*365)) * time.Second
	}
	return int64(min(max(life, minLifetime), s.settings.Load().MaxLifetime) / time.Second)
}

// schedule ends a registration after a time. It needs the lock.
func (s *Server) schedule(r *registration, after time.Duration) {
	if r.expiry != nil {
		r.expiry.Stop()
	}
	location := r.Location
	r.due = s.now().Add(after)
	r.expiry = time.AfterFunc(after, func() { s.expire(location) })
}

// expire ends a registration whose lifetime is over.
func (s *Server) expire(location string) {
	if s.closing.Load() {
		return
	}
	s.mu.Lock()
	r := s.byLocation[location]
	s.mu.Unlock()
	if r != nil {
		s.unregister(r, "lifetime-over")
	}
}

// unregister ends a registration. Its row stays without a location: it says when the device was harvested.
func (s *Server) unregister(r *registration, reason string) {
	s.mu.Lock()
	if s.byDevice[r.Binding.DeviceID] != r || s.byLocation[r.Location] != r {
		s.mu.Unlock()
		return
	}
	delete(s.byDevice, r.Binding.DeviceID)
	delete(s.byLocation, r.Location)
	delete(s.dirty, r)
	if r.expiry != nil {
		r.expiry.Stop()
	}
	if k := r.parked; k != nil {
		s.unpark(r, k)
	}
	for o := range s.noted {
		if s.noted[o] == r {
			delete(s.noted, o)
		}
	}
	over := r.session
	row := r.Registration
	session := row.Session
	row.Location, row.Session = "", 0
	s.mu.Unlock()
	s.keep(row.Binding.DeviceID, over)
	s.tracker.Left(s.ctx, row.Binding, session, reason, presence.ByDevice)
	if err := s.deps.Store.Save(s.ctx, true, &Changes{Registrations: []Registration{row}, Forget: []int64{row.Binding.DeviceID}}); err != nil && s.ctx.Err() == nil {
		s.log.Error("the end of a registration could not be stored", "device", row.Binding.Device, "tenant", row.Binding.Tenant, "error", err)
	}
}

// update takes an Update. ok is false when the registration is not one of the session's device.
func (s *Server) update(sess *session, location string, a *accept) (ok bool, err error) {
	s.mu.Lock()
	r := s.byLocation[location]
	if r == nil || r.Binding.DeviceID != sess.binding.DeviceID {
		s.mu.Unlock()
		return false, nil
	}
	before := r.Registration
	r.Binding = sess.binding
	if a.lifetime != nil {
		r.Lifetime = s.clamp(a.lifetime)
	}
	if a.binds != nil {
		r.Binds = *a.binds
		r.Queue = a.queueMode(r.Version, r.Queue)
	}
	if a.hasLinks {
		r.Links, r.links = a.links, a.parsed
	}
	s.takeOver(r, sess)
	r.Heard = model.MicrosOf(s.now())
	s.schedule(r, r.lifetime()+lifetimeGrace)
	row := r.Registration
	changed := before.Lifetime != row.Lifetime || before.Binds != row.Binds || before.Links != row.Links
	s.dirty[r] = struct{}{}
	s.mu.Unlock()
	if changed {
		err = s.deps.Store.Save(s.ctx, true, &Changes{Registrations: []Registration{row}})
	}
	return true, err
}

// takeOver makes sess the session of a registration. It needs the lock.
func (s *Server) takeOver(r *registration, sess *session) {
	if r.session == sess {
		return
	}
	r.session = sess
	if k := r.parked; k != nil {
		s.unpark(r, k)
	}
	s.keep(sess.binding.DeviceID, sess)
}

// unpark forgets the parked session of a registration. It needs the lock.
func (s *Server) unpark(r *registration, k *parked) {
	r.parked = nil
	delete(s.parked, k)
	if s.socket != nil {
		s.socket.forget(k)
	}
	k.over()
}

// heard notes that a device has sent something, and tells who waits for it to be awake.
func (s *Server) heard(sess *session) {
	now := model.MicrosOf(s.now())
	s.mu.Lock()
	r := s.byDevice[sess.binding.DeviceID]
	if r == nil {
		s.mu.Unlock()
		return
	}
	slept := r.asleep || r.sleeps(s.now(), s.settings.Load().Awake)
	s.takeOver(r, sess)
	r.Heard, r.asleep = now, false
	s.dirty[r] = struct{}{}
	s.mu.Unlock()
	if slept && s.carrier != nil {
		s.carrier.reachable(sess.binding.DeviceID)
	}
}

// flush writes behind what has changed.
func (s *Server) flush(ctx context.Context) {
	var c Changes
	heard := map[*session]Session{}
	s.mu.Lock()
	for r := range s.dirty {
		c.Registrations = append(c.Registrations, r.Registration)
		if sess := r.session; sess != nil && sess.dtls != nil && r.stored != "" && r.stored == sess.named {
			heard[sess] = Session{Binding: sess.binding, Name: r.stored, Heard: r.Heard}
		}
	}
	clear(s.dirty)
	for o, r := range s.noted {
		c.Observations = append(c.Observations, o.row(r.Binding))
	}
	clear(s.noted)
	s.mu.Unlock()
	for sess, row := range heard {
		if received, ok := receivedBy(sess.dtls); ok {
			row.Received, row.Address = received, sess.conn.RemoteAddr().String()
			c.Progress = append(c.Progress, row)
		}
	}
	for i := 0; i < max(len(c.Registrations), len(c.Observations), len(c.Progress)); i += flushed {
		part := Changes{Registrations: window(c.Registrations, i), Observations: window(c.Observations, i), Progress: window(c.Progress, i)}
		if err := s.deps.Store.Save(ctx, false, &part); err != nil && ctx.Err() == nil {
			s.metrics.rowsBehind.Inc()
			s.again(&part)
			s.log.Warn("registrations could not be stored; they are stored again", "registrations", len(part.Registrations), "error", err)
		}
	}
}

// flushed is how many rows of a kind are written at once.
const flushed = 256

// window is what of all lies in the window of flushed that begins at i.
func window[T any](all []T, i int) []T {
	return all[min(i, len(all)):min(i+flushed, len(all))]
}

// again notes what could not be stored.
func (s *Server) again(part *Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range part.Registrations {
		if r := s.byLocation[row.Location]; r != nil {
			s.dirty[r] = struct{}{}
		}
	}
	for _, row := range part.Observations {
		if r := s.byDevice[row.Binding.DeviceID]; r != nil {
			if o := r.observed[string(row.Token)]; o != nil {
				s.noted[o] = r
			}
		}
	}
}

// restore takes over what was stored before the start. The timers of registrations go on with what was left, and have the grace of a start at least.
func (s *Server) restore(ctx context.Context) error {
	now := s.now()
	grace := s.tracker.Timing().Grace
	return s.deps.Store.Restore(ctx, uint64(s.settings.Load().Reserve), Restored{
		Registration: func(row Registration) {
			r := &registration{Registration: row, asleep: true, observed: map[string]*observation{}, refusedAt: map[string]string{}, refusedIn: map[string]string{}, texts: map[string]string{}}
			if row.Location == "" {
				s.mu.Lock()
				s.harvests.remember(row.Binding.DeviceID, row.Harvested)
				s.mu.Unlock()
				return
			}
			r.links, _ = content.ParseLinks([]byte(row.Links)) // it was read before
			left := r.lifetime() + lifetimeGrace - now.Sub(row.Heard.Time())
			left = max(min(left, r.lifetime()+lifetimeGrace), grace)
			s.mu.Lock()
			s.byDevice[row.Binding.DeviceID], s.byLocation[row.Location] = r, r
			s.schedule(r, left)
			s.mu.Unlock()
			s.tracker.Restored(row.Binding, row.Session)
		},
		Session: func(row Session) bool { return s.restoreSession(&row) },
		Observation: func(row Observation) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if r := s.byDevice[row.Binding.DeviceID]; r != nil {
				if o := restoredObservation(&row); o != nil {
					r.observed[string(o.token)] = o
				}
			}
		},
		Firmware: s.restoreUpdate,
	})
}

// registered returns the registration of a device, nil for none.
func (s *Server) registered(device int64) *registration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byDevice[device]
}
