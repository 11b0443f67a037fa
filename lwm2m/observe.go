package lwm2m

import (
	"context"
	"errors"
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
	path   content.Path
	token  []byte
	format uint16
	number uint32
	at     time.Time // of the newest notification
	values model.Micros
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

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// targets are the instances of a registration that are observed: those of the IPSO objects.
func (r *registration) targets() (all []content.Path) {
	for _, l := range r.links {
		if len(l.Path) == 2 && content.Observed(l.Path[0]) {
			all = append(all, l.Path)
		}
	}
	return all
}

// observe makes the observations of a registration over a session, those that are not there yet.
func (s *Server) observe(sess *session) {
	limit := s.settings.Load().MaxObservations
	s.mu.Lock()
	r := s.byDevice[sess.binding.DeviceID]
	if r == nil || r.session != sess || r.observing == sess {
		s.mu.Unlock()
		return
	}
	r.observing = sess
	targets, formats := r.targets(), r.formats()
	left := 0
	if len(targets) > limit {
		left = len(targets) - limit
		targets = targets[:limit]
	}
	s.mu.Unlock()
	if left > 0 {
		s.metrics.dropped("observations")
		s.log.Warn("a device has more to observe than lwm2m.max_observations", "device", sess.binding.Device, "tenant", sess.binding.Tenant, "left out", left)
	}
	for _, path := range targets {
		if err := s.observeOne(sess, r, path, formats); errors.Is(err, errEnded) {
			return
		}
	}
}

// observeOne observes a path. The first answer is a notification.
func (s *Server) observeOne(sess *session, r *registration, path content.Path, formats []uint16) error {
	ctx, cancel := context.WithTimeout(sess.ctx, observeTimeout)
	defer cancel()
	for i, format := range formats {
		o := &observation{path: path, token: newToken(), format: format}
		s.mu.Lock()
		r.observed[string(o.token)] = o
		s.mu.Unlock()
		m := &coap.Message{Code: coap.GET, Token: o.token}
		m.AddUint(coap.Observe, 0)
		m.AddPath(coap.URIPath, path.Segments()...)
		m.AddUint(coap.Accept, uint32(format))
		answer, err := sess.ask(ctx, m, int(s.settings.Load().MaxRead))
		_, observed := uint32(0), false
		if err == nil && answer.Code.Success() {
			_, observed = answer.Uint(coap.Observe)
		}
		if !observed {
			s.mu.Lock()
			delete(r.observed, string(o.token))
			s.mu.Unlock()
		}
		if err != nil {
			s.unobserved(r, path, err.Error())
			return err
		}
		empty := answer.Code.Success() && len(answer.Payload) == 0
		if (answer.Code == coap.NotAcceptable || answer.Code == coap.BadRequest || answer.Code == coap.BadFormat || empty) && i < len(formats)-1 {
			if observed { // 2.05 without a body: of a client that cannot write the format
				s.cancel(sess, r, o)
			}
			continue
		}
		if !answer.Code.Success() || !observed {
			s.unobserved(r, path, answer.Code.String())
		}
		if answer.Code.Success() {
			s.taken(sess, o, answer, func(bool) {})
		}
		return nil
	}
	return nil
}

// unobserved notes why something is not observed.
func (s *Server) unobserved(r *registration, path content.Path, why string) {
	s.metrics.observeRefused.Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.refusedAt[path.String()] = why
}

// cancel ends an observation.
func (s *Server) cancel(sess *session, r *registration, o *observation) {
	s.mu.Lock()
	delete(r.observed, string(o.token))
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(sess.ctx, 3*time.Second)
	defer cancel()
	m := &coap.Message{Code: coap.GET, Token: o.token}
	m.AddUint(coap.Observe, 1)
	m.AddPath(coap.URIPath, o.path.Segments()...)
	m.AddUint(coap.Accept, uint32(o.format))
	_, _ = sess.ask(ctx, m, int(s.settings.Load().MaxRead)) // the next notification is reset
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
		delete(r.observed, string(m.Token))
		r.refusedAt[o.path.String()] = m.Code.String()
		s.mu.Unlock()
		s.metrics.notification("ended")
		done(true)
		return
	}
	if !s.newer(o, m) {
		s.metrics.notification("stale")
		done(true)
		return
	}
	s.taken(sess, o, m, done)
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
	now := s.now()
	s.mu.Lock()
	o.at = now
	if number, ok := m.Uint(coap.Observe); ok {
		o.number = number
	}
	s.mu.Unlock()
	if len(m.Payload) == 0 {
		s.metrics.notification("empty")
		done(true)
		return
	}
	records, err := content.Decode(uint16(format), o.path, m.Payload, s.seconds())
	if err != nil {
		s.metrics.decodeErrors.WithLabelValues(content.Name(uint16(format))).Inc()
		s.metrics.notification("undecodable")
		a := &ingest.Arrival{Fault: "a notification of " + o.path.String() + " in " + content.Name(uint16(format)) + " cannot be decoded: " + err.Error()}
		s.arrive(sess, m, a, coap.Append(nil, m), 0, false)
		a.Body = m.Payload
		s.deps.Intake.Accept(sess.ctx, a, func(answer ingest.Answer) { done(answer.Outcome != ingest.Withheld) })
		return
	}
	s.mu.Lock()
	o.values = model.MicrosOf(now)
	s.mu.Unlock()
	s.ingest(sess, m, records, false, func(answer ingest.Answer) {
		switch answer.Outcome {
		case ingest.Stored:
			s.metrics.notification("stored")
		case ingest.Withheld:
			s.metrics.notification("withheld")
		default:
			s.metrics.notification("dropped")
			s.metrics.dropped(string(answer.Reason))
		}
		done(answer.Outcome != ingest.Withheld)
	})
}

// rest reads the blocks of a notification behind its first (RFC 7959 section 2.6).
func (s *Server) rest(sess *session, o *observation, first *coap.Message) (*coap.Message, error) {
	ctx, cancel := context.WithTimeout(sess.ctx, s.settings.Load().CommandTimeout)
	defer cancel()
	get := &coap.Message{Code: coap.GET, Token: newToken()}
	get.AddPath(coap.URIPath, o.path.Segments()...)
	get.AddUint(coap.Accept, uint32(o.format))
	whole, err := sess.ask(ctx, get, int(s.settings.Load().MaxRead))
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
