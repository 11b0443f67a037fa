package lwm2m

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/ingest"
	"weir/lwm2m/coap"
	"weir/lwm2m/content"
	"weir/model"
)

// Times of observations.
const (
	observeTimeout = 5 * time.Second
	numberExpires  = 128 * time.Second // RFC 7641 section 3.4
)

// observation is something of a device that is observed. The lock of the server guards it.
type observation struct {
	target
	token   []byte
	format  uint16
	session string // name of the session in which the device agreed to it, "" before
	number  uint32
	at      time.Time // of the newest notification
	stored  uint32    // number of the newest notification that was stored
	kept    model.Micros
	values  model.Micros // time of the newest value
}

// target is what is to be observed, and how it is asked for. Its JSON is stored.
type target struct {
	paths      []content.Path
	Ordered    bool                `json:"ordered,omitempty"`    // by a command
	Composite  bool                `json:"composite,omitempty"`  // all paths at once
	Format     *uint16             `json:"format,omitempty"`     // asked for first
	Attributes map[string][]string `json:"attributes,omitempty"` // notification attributes that are written before, by path
}

// same reports whether a target is asked for as another one is.
func (t *target) same(as *target) bool {
	return t.Composite == as.Composite && (t.Format == nil) == (as.Format == nil) && (t.Format == nil || *t.Format == *as.Format) &&
		maps.EqualFunc(t.Attributes, as.Attributes, slices.Equal[[]string])
}

// formats are those in which a target is asked for, the best first.
func (t *target) formats(all []uint16) []uint16 {
	if t.Format != nil {
		all = append([]uint16{*t.Format}, slices.DeleteFunc(slices.Clone(all), func(f uint16) bool { return f == *t.Format })...)
	}
	if t.Composite {
		all = slices.DeleteFunc(slices.Clone(all), func(f uint16) bool { return f != content.SenMLCBOR && f != content.SenMLJSON })
	}
	return all
}

// base is the path that values of the target are read by, nil for a composite one, whose values name theirs.
func (t *target) base() content.Path {
	if t.Composite {
		return nil
	}
	return t.paths[0]
}

// name is what the paths of a target are stored and shown as.
func (t *target) name() string {
	all := make([]string, len(t.paths))
	for i, p := range t.paths {
		all[i] = p.String()
	}
	return strings.Join(all, " ")
}

// row is an observation as it is stored.
func (o *observation) row(of model.Binding) Observation {
	settings, _ := json.Marshal(struct { // plain fields
		target
		Got uint16 `json:"got"`
	}{o.target, o.format})
	return Observation{Binding: of, Token: o.token, Paths: o.name(), Settings: string(settings), Session: o.session, Number: o.stored, Heard: o.kept, Value: o.values}
}

// restoredObservation is an observation of before the start, nil where it cannot be read.
func restoredObservation(row *Observation) *observation {
	o := &observation{token: row.Token, session: row.Session, number: row.Number, stored: row.Number, kept: row.Heard, values: row.Value}
	settings := struct {
		*target
		Got *uint16 `json:"got"`
	}{&o.target, &o.format}
	if err := json.Unmarshal([]byte(row.Settings), &settings); err != nil {
		return nil
	}
	for text := range strings.FieldsSeq(row.Paths) {
		p, ok := content.ParsePath(text)
		if !ok {
			return nil
		}
		o.paths = append(o.paths, p)
	}
	if row.Heard > 0 {
		o.at = row.Heard.Time()
	}
	if len(o.paths) == 0 {
		return nil
	}
	return o
}

// formats are the content formats in which values are asked for, the best first.
func (r *registration) formats() []uint16 {
	if r.Version == "1.0" {
		return []uint16{content.TLV, content.JSON, content.SenMLJSON}
	}
	best := []uint16{content.SenMLCBOR, content.SenMLJSON, content.TLV}
	for _, l := range r.links {
		if list, ok := l.Get("ct"); ok {
			names := map[string]uint16{"112": content.SenMLCBOR, "110": content.SenMLJSON, "11542": content.TLV}
			offered := []uint16{}
			for number := range strings.FieldsSeq(list) {
				if format, known := names[number]; known {
					offered = append(offered, format)
				}
			}
			slices.SortStableFunc(best, func(a, b uint16) int {
				return boolInt(slices.Contains(offered, b)) - boolInt(slices.Contains(offered, a))
			})
		}
	}
	return best
}

// formats are those in which values of a registration are asked for: what the configuration names comes first.
func (s *Server) formats(r *registration) []uint16 {
	all := r.formats()
	first, named := content.Named(s.settings.Load().NotificationFormat)
	if !named {
		return all
	}
	return append([]uint16{first}, slices.DeleteFunc(all, func(f uint16) bool { return f == first })...)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// targets are what is observed of a registration: what its profile says, else the instances of the IPSO objects, and what commands have asked for.
// absent is what the profile says and the device does not have. It needs the lock.
func (r *registration) targets() (all []target, absent []string) {
	if p := r.profile; p != nil && p.observes {
		all, absent = p.targets(r)
	} else {
		for _, l := range r.links {
			if len(l.Path) == 2 && content.Observed(l.Path[0]) {
				all = append(all, target{paths: []content.Path{l.Path}})
			}
		}
	}
	for _, o := range r.observed {
		if o.Ordered {
			all = append(all, o.target)
		}
	}
	return all, absent
}

// observe makes the observations of a registration over a session, those that the device has not agreed to in this session. They are stored before
// the device is asked, so that their notifications are known whatever happens.
func (s *Server) observe(sess *session) {
	limit := s.settings.Load().MaxObservations
	s.readProfile(sess)
	s.mu.Lock()
	r := s.byDevice[sess.binding.DeviceID]
	if r == nil || r.session != sess || r.observing {
		s.mu.Unlock()
		return
	}
	targets, absent := r.targets()
	formats := s.formats(r)
	for _, path := range absent {
		r.refusedAt[path] = "the device does not list it"
	}
	left := 0
	if len(targets) > limit {
		left = len(targets) - limit
		for i := range targets[limit:] {
			r.refusedAt[targets[limit+i].name()] = fmt.Sprintf("lwm2m.max_observations is %d", limit)
		}
		targets = targets[:limit]
	}
	var c Changes
	var missing []*observation
	wanted := map[string]bool{}
	for _, t := range targets {
		wanted[t.name()] = true
		o := r.observes(t.name())
		if o != nil && !o.same(&t) {
			delete(r.refusedIn, t.name())
			delete(r.observed, string(o.token))
			c.Unobserved = append(c.Unobserved, o.row(r.Binding))
			o = nil
		}
		if o != nil && o.session == sess.named || r.refusedIn[t.name()] == sess.named {
			continue
		}
		if o == nil || o.session != "" { // in another session the device knows nothing of it
			if o != nil {
				delete(r.observed, string(o.token))
				c.Unobserved = append(c.Unobserved, o.row(r.Binding))
			}
			o = &observation{target: t, token: newToken()}
			r.observed[string(o.token)] = o
		}
		missing = append(missing, o)
		c.Observations = append(c.Observations, o.row(r.Binding))
	}
	for _, o := range r.observed { // its instance is gone
		if !wanted[o.name()] {
			delete(r.observed, string(o.token))
			c.Unobserved = append(c.Unobserved, o.row(r.Binding))
		}
	}
	r.observing = len(missing) > 0
	s.mu.Unlock()
	if len(missing) == 0 && len(c.Unobserved) == 0 {
		return
	}
	defer func() {
		s.mu.Lock()
		r.observing = false
		s.mu.Unlock()
	}()
	if left > 0 {
		s.metrics.dropped("observations")
		s.log.Warn("a device has more to observe than lwm2m.max_observations", "device", sess.binding.Device, "tenant", sess.binding.Tenant, "left out", left)
	}
	if err := s.deps.Store.Save(sess.ctx, true, &c); err != nil {
		if sess.ctx.Err() == nil {
			s.metrics.rowsBehind.Inc()
			s.log.Warn("observations could not be stored; they are made when the device is back", "device", sess.binding.Device, "tenant", sess.binding.Tenant, "error", err)
		}
		return
	}
	for _, o := range missing {
		if err := s.observeOne(sess, r, o, formats); errors.Is(err, errEnded) {
			return
		}
	}
}

// observeOne asks the device for an observation. The values of its answer are taken as those of a notification, but for its number: a device that is
// asked again, after a restart of ours, may hold a notification which is older than the answer and was not acknowledged.
func (s *Server) observeOne(sess *session, r *registration, o *observation, formats []uint16) error {
	ctx, cancel := context.WithTimeout(sess.ctx, observeTimeout)
	defer cancel()
	if err := s.writeTargetAttributes(ctx, sess, r, o); err != nil {
		return err
	}
	formats = o.formats(formats)
	for i, format := range formats {
		s.mu.Lock()
		o.format = format
		s.mu.Unlock()
		m := o.request(0)
		answer, err := sess.ask(ctx, m, int(s.settings.Load().MaxRead))
		observed := false
		if err == nil && answer.Code.Success() {
			_, observed = answer.Uint(coap.Observe)
		}
		if err != nil {
			if !errors.Is(err, errEnded) { // a device that has gone meanwhile is asked again
				s.unobserved(r, o, err.Error())
			}
			return err
		}
		empty := answer.Code.Success() && len(answer.Payload) == 0
		if (answer.Code == coap.NotAcceptable || answer.Code == coap.BadRequest || answer.Code == coap.BadFormat || empty) && i < len(formats)-1 {
			if observed { // 2.05 without a body: of a client that cannot write the format
				s.askCancel(sess, o)
			}
			continue
		}
		if !answer.Code.Success() || !observed {
			s.mu.Lock()
			r.refusedIn[o.name()] = sess.named
			s.mu.Unlock()
			s.unobserved(r, o, answer.Code.String())
		} else {
			s.mu.Lock()
			o.session = sess.named
			delete(r.refusedAt, o.name())
			if r.observed[string(o.token)] == o {
				s.noted[o] = r
			}
			s.mu.Unlock()
		}
		if answer.Code.Success() && answer.Type == coap.Acknowledgement { // else it is taken as a notification
			s.taken(sess, o, answer, func(bool) {})
		}
		return nil
	}
	return nil
}

// writeTargetAttributes writes the notification attributes of an observation. What the device refuses is noted, and it is observed all the same.
func (s *Server) writeTargetAttributes(ctx context.Context, sess *session, r *registration, o *observation) error {
	for _, path := range o.paths {
		queries := o.Attributes[path.String()]
		if len(queries) == 0 {
			continue
		}
		m := &coap.Message{Code: coap.PUT}
		m.AddPath(coap.URIPath, path.Segments()...)
		for _, q := range queries {
			m.Add(coap.URIQuery, []byte(q))
		}
		answer, err := sess.ask(ctx, m, int(s.settings.Load().MaxRead))
		if err != nil {
			if !errors.Is(err, errEnded) {
				s.unobserved(r, o, err.Error())
			}
			return err
		}
		s.mu.Lock()
		name := path.String() + "?" + strings.Join(queries, "&")
		delete(r.refusedAt, name)
		if !answer.Code.Success() {
			r.refusedAt[name] = answer.Code.String()
		}
		s.mu.Unlock()
	}
	return nil
}

// request asks the device to begin (0) or to end (1) an observation.
func (o *observation) request(observe uint32) *coap.Message {
	m := o.asks()
	m.Token = o.token
	m.AddUint(coap.Observe, observe)
	return m
}

// asks is the request for the values of an observation.
func (o *observation) asks() *coap.Message {
	m := &coap.Message{Code: coap.GET}
	if o.Composite {
		m.Code, m.Payload = coap.FETCH, content.EncodePaths(o.format, o.paths)
		m.AddUint(coap.ContentFormat, uint32(o.format))
	} else {
		m.AddPath(coap.URIPath, o.paths[0].Segments()...)
	}
	m.AddUint(coap.Accept, uint32(o.format))
	return m
}

// unobserved notes why something is not observed.
func (s *Server) unobserved(r *registration, o *observation, why string) {
	s.metrics.observeRefused.Inc()
	s.mu.Lock()
	r.refusedAt[o.name()] = why
	s.mu.Unlock()
	s.forgetObservation(r, o)
}

// forgetObservation removes an observation.
func (s *Server) forgetObservation(r *registration, o *observation) {
	s.mu.Lock()
	delete(r.observed, string(o.token))
	delete(s.noted, o)
	row := o.row(r.Binding)
	s.mu.Unlock()
	if err := s.deps.Store.Save(s.ctx, false, &Changes{Unobserved: []Observation{row}}); err != nil && s.ctx.Err() == nil {
		s.metrics.rowsBehind.Inc() // its next notification is reset
	}
}

// cancel ends an observation.
func (s *Server) cancel(sess *session, r *registration, o *observation) {
	s.forgetObservation(r, o)
	s.askCancel(sess, o)
}

// askCancel asks the device to end an observation. Where it does not, the next notification is reset.
func (s *Server) askCancel(sess *session, o *observation) {
	ctx, cancel := context.WithTimeout(sess.ctx, 3*time.Second)
	defer cancel()
	_, _ = sess.ask(ctx, o.request(1), int(s.settings.Load().MaxRead))
}

// observes reports whether a token is that of an observation of the session's device.
func (s *Server) observes(sess *session, token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byDevice[sess.binding.DeviceID]
	return r != nil && r.observed[token] != nil
}

// notified takes a notification. done is called once: with true when it is to be acknowledged.
func (s *Server) notified(sess *session, m *coap.Message, done func(ack bool)) {
	s.mu.Lock()
	var o *observation
	r := s.byDevice[sess.binding.DeviceID]
	if r != nil {
		o = r.observed[string(m.Token)]
	}
	s.mu.Unlock()
	if o == nil {
		done(true)
		return
	}
	if !m.Code.Success() { // the end of the observation (RFC 7641 section 3.2)
		s.mu.Lock()
		r.refusedAt[o.name()] = m.Code.String()
		s.mu.Unlock()
		s.forgetObservation(r, o)
		s.metrics.notification("ended")
		done(true)
		return
	}
	if !s.newer(o, m) {
		s.metrics.notification("stale")
		done(true)
		return
	}
	s.taken(sess, o, m, func(ack bool) {
		if ack {
			s.storedUpTo(sess, o, m)
		} else { // its repeat is not older than itself
			s.mu.Lock()
			o.at = time.Time{}
			s.mu.Unlock()
		}
		done(ack)
	})
}

// newer reports whether a notification is newer than those before it.
func (s *Server) newer(o *observation, m *coap.Message) bool {
	number, ok := m.Uint(coap.Observe)
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok && !o.at.IsZero() && now.Sub(o.at) < numberExpires && !coap.Newer(o.number, number) {
		return false
	}
	o.number, o.at = number, now
	return true
}

// taken hands the values of a notification, or of the first answer, to the intake.
func (s *Server) taken(sess *session, o *observation, m *coap.Message, done func(ack bool)) {
	format, ok := m.Uint(coap.ContentFormat)
	if !ok {
		format = uint32(o.format)
	}
	if block, has := m.Block(coap.Block2); has && block.More {
		whole, err := s.rest(sess, o, m)
		if err != nil {
			s.metrics.notification("incomplete")
			done(false)
			return
		}
		m = whole
	}
	if len(m.Payload) == 0 {
		s.metrics.notification("empty")
		done(true)
		return
	}
	records, err := s.models(sess.binding.DeviceID).Decode(uint16(format), o.base(), m.Payload, s.seconds())
	if err != nil {
		s.metrics.decodeErrors.WithLabelValues(content.Name(uint16(format))).Inc()
		s.metrics.notification("undecodable")
		a := &ingest.Arrival{Fault: "a notification of " + o.name() + " in " + content.Name(uint16(format)) + " cannot be decoded: " + err.Error()}
		s.arrive(sess, m, a, coap.Append(nil, m), 0, false)
		a.Body = m.Payload
		s.deps.Intake.Accept(sess.ctx, a, func(answer ingest.Answer) { done(acknowledged(answer)) })
		return
	}
	s.mu.Lock()
	o.values = model.MicrosOf(s.now())
	s.mu.Unlock()
	s.ingest(sess, m, records, false, func(answer ingest.Answer) {
		switch answer.Outcome {
		case ingest.Stored:
			s.metrics.notification("stored")
		case ingest.Dropped:
			s.metrics.notification("dropped")
			s.metrics.dropped(string(answer.Reason))
		default:
			s.metrics.notification("withheld")
		}
		done(acknowledged(answer))
	})
}

// storedUpTo notes that a notification is stored: after a restart older ones are stale.
func (s *Server) storedUpTo(sess *session, o *observation, m *coap.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, ok := m.Uint(coap.Observe)
	if r := s.byDevice[sess.binding.DeviceID]; r != nil && r.observed[string(o.token)] == o && ok {
		o.stored, o.kept = number, model.MicrosOf(s.now())
		s.noted[o] = r
	}
}

// acknowledged reports whether a notification with this end is acknowledged. One that the intake could not take for another reason than its
// bounds is not: the device sends it again.
func acknowledged(a ingest.Answer) bool {
	return a.Outcome == ingest.Stored || a.Outcome == ingest.Dropped
}

// rest reads the blocks of a notification behind its first (RFC 7959 section 2.6).
func (s *Server) rest(sess *session, o *observation, first *coap.Message) (*coap.Message, error) {
	ctx, cancel := context.WithTimeout(sess.ctx, s.settings.Load().CommandTimeout)
	defer cancel()
	whole, err := sess.ask(ctx, o.asks(), int(s.settings.Load().MaxRead))
	if err != nil {
		return nil, err
	}
	if !whole.Code.Success() {
		return nil, errors.New(whole.Code.String())
	}
	out := *first
	out.Payload = whole.Payload
	return &out, nil
}
