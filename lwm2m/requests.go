package lwm2m

import (
	"strconv"
	"strings"

	"weir/ingest"
	"weir/lwm2m/coap"
	"weir/lwm2m/content"
)

// request answers what a device asks. It returns nil for a request that is answered later or not at all.
func (s *Server) request(sess *session, m *coap.Message) *coap.Message {
	if m.Unknown(coap.URIHost, coap.URIPort, coap.URIPath, coap.URIQuery, coap.ContentFormat, coap.Accept, coap.Block1, coap.Block2) != 0 {
		return &coap.Message{Code: coap.BadOption}
	}
	if s.bootstraps() {
		return s.boot.request(sess, m)
	}
	path := m.Texts(coap.URIPath)
	switch {
	case len(path) == 1 && path[0] == "rd":
		if m.Code != coap.POST {
			return &coap.Message{Code: coap.MethodNotAllowed}
		}
		return s.onRegister(sess, m)
	case len(path) == 2 && path[0] == "rd":
		switch m.Code {
		case coap.POST, coap.PUT: // PUT is what clients of the drafts of 1.0 send
			return s.onUpdate(sess, path[1], m)
		case coap.DELETE:
			return s.onDeregister(sess, path[1])
		}
		return &coap.Message{Code: coap.MethodNotAllowed}
	case len(path) == 1 && path[0] == "dp":
		if m.Code != coap.POST {
			return &coap.Message{Code: coap.MethodNotAllowed}
		}
		return s.onSend(sess, m)
	case len(path) == 2 && path[0] == firmwarePath:
		if m.Code != coap.GET {
			return &coap.Message{Code: coap.MethodNotAllowed}
		}
		return s.onFirmware(sess, path[1], m)
	}
	return &coap.Message{Code: coap.NotFound}
}

// Bounds of what a device says of itself.
const (
	maxEndpoint = 256
	maxQuery    = 64
	maxKeptLink = 16 << 10 // of the link list of a registration
)

// read reads the parameters of a Register or an Update; code is not 0 for what is refused. Unknown parameters are passed over.
func readParameters(m *coap.Message) (a accept, code coap.Code) {
	a.version = "1.0"
	for _, q := range m.Texts(coap.URIQuery) {
		name, value, has := strings.Cut(q, "=")
		switch name {
		case "ep":
			if len(value) > maxEndpoint {
				return a, coap.BadRequest
			}
			a.endpoint = strings.ToValidUTF8(value, "?")
		case "lt":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 {
				return a, coap.BadRequest
			}
			a.lifetime = &n
		case "lwm2m":
			if a.version = value; value != "1.0" && value != "1.1" && value != "1.2" {
				return a, coap.PreconditionFailed
			}
		case "b":
			if len(value) > maxQuery {
				return a, coap.BadRequest
			}
			binds := strings.ToValidUTF8(value, "?")
			a.binds = &binds
		case "Q":
			a.queue = true
			_ = has // Q=1 of early clients means the same
		}
	}
	if len(m.Payload) == 0 {
		return a, 0
	}
	if format, ok := m.Uint(coap.ContentFormat); ok && format != uint32(content.LinkList) {
		return a, coap.BadFormat
	}
	if len(m.Payload) > maxKeptLink {
		return a, coap.TooLarge
	}
	var err error
	if a.parsed, err = content.ParseLinks(m.Payload); err != nil {
		return a, coap.BadRequest
	}
	a.links, a.hasLinks = string(m.Payload), true
	return a, 0
}

func (s *Server) onRegister(sess *session, m *coap.Message) *coap.Message {
	a, code := readParameters(m)
	if code == 0 && !a.hasLinks {
		code = coap.BadRequest
	}
	if code != 0 {
		return &coap.Message{Code: code}
	}
	location, err := s.register(sess, &a)
	if err != nil {
		s.log.Error("a registration could not be stored", "device", sess.binding.Device, "tenant", sess.binding.Tenant, "error", err)
		return &coap.Message{Code: coap.Unavailable, Options: []coap.Option{{Number: coap.MaxAge, Value: []byte{10}}}}
	}
	s.metrics.registrations.Inc()
	if s.deps.Registered != nil {
		s.begin(func() {
			if err := s.deps.Registered(s.ctx, sess.binding); err != nil && s.ctx.Err() == nil {
				s.log.Warn("the keys that a bootstrap has replaced could not be removed; they are with the next registration", "device", sess.binding.Device, "tenant", sess.binding.Tenant, "error", err)
			}
		})
	}
	answer := &coap.Message{Code: coap.Created}
	answer.AddPath(coap.LocationPath, "rd", location)
	s.checkedIn(sess)
	return answer
}

func (s *Server) onUpdate(sess *session, location string, m *coap.Message) *coap.Message {
	a, code := readParameters(m)
	if code != 0 && code != coap.PreconditionFailed { // an Update names no version
		return &coap.Message{Code: code}
	}
	ok, err := s.update(sess, location, &a)
	switch {
	case !ok:
		return &coap.Message{Code: coap.NotFound}
	case err != nil:
		s.log.Error("an update of a registration could not be stored", "device", sess.binding.Device, "tenant", sess.binding.Tenant, "error", err)
		return &coap.Message{Code: coap.Unavailable, Options: []coap.Option{{Number: coap.MaxAge, Value: []byte{10}}}}
	}
	s.checkedIn(sess)
	return &coap.Message{Code: coap.Changed}
}

func (s *Server) onDeregister(sess *session, location string) *coap.Message {
	s.mu.Lock()
	r := s.byLocation[location]
	s.mu.Unlock()
	if r == nil || r.Binding.DeviceID != sess.binding.DeviceID {
		return &coap.Message{Code: coap.NotFound}
	}
	s.unregister(r, "de-registered")
	return &coap.Message{Code: coap.Deleted}
}

// checkedIn follows a Register or an Update: what is observed, what the device says of itself, and commands that wait for it. None of it delays
// the answer.
func (s *Server) checkedIn(sess *session) {
	if s.carrier != nil {
		s.carrier.reachable(sess.binding.DeviceID)
	}
	s.begin(func() {
		s.observe(sess)
		s.harvest(sess)
		s.readAttributes(sess)
	})
}

// onSend takes what a device sends unasked (LwM2M 1.1).
func (s *Server) onSend(sess *session, m *coap.Message) *coap.Message {
	if s.registered(sess.binding.DeviceID) == nil {
		return &coap.Message{Code: coap.NotFound}
	}
	format, ok := m.Uint(coap.ContentFormat)
	if f := content.Canonical(uint16(format)); !ok || f != content.SenMLJSON && f != content.SenMLCBOR && f != content.LwM2MCBOR {
		return &coap.Message{Code: coap.BadFormat}
	}
	records, err := s.models(sess.binding.DeviceID).Decode(uint16(format), nil, m.Payload, s.seconds())
	if err != nil {
		s.metrics.decodeErrors.WithLabelValues(content.Name(uint16(format))).Inc()
		s.metrics.notification("undecodable")
	}
	answer := make(chan ingest.Answer, 1)
	if err != nil { // refused, and counted as such
		a := &ingest.Arrival{Fault: "a Send in " + content.Name(uint16(format)) + " cannot be decoded: " + err.Error()}
		s.arrive(sess, m, a, m.Payload, 0, true)
		s.deps.Intake.Accept(sess.ctx, a, func(a ingest.Answer) { answer <- a })
	} else {
		s.ingest(sess, m, records, true, func(a ingest.Answer) { answer <- a })
	}
	select {
	case a := <-answer:
		return sendAnswer(a)
	case <-sess.ctx.Done():
		return nil
	}
}

// sendAnswer is the answer to a Send.
func sendAnswer(a ingest.Answer) *coap.Message {
	later := func(code coap.Code) *coap.Message {
		m := &coap.Message{Code: code}
		m.AddUint(coap.MaxAge, uint32(max(a.RetryAfter, 1)))
		return m
	}
	switch {
	case a.Outcome == ingest.Stored:
		return &coap.Message{Code: coap.Changed}
	case a.Outcome == ingest.Withheld:
		return nil
	case a.Reason == ingest.ReasonCeiling:
		return later(coap.TooManyRequests)
	case a.Reason == ingest.ReasonBackpressure || a.Reason == ingest.ReasonUnavailable || a.Reason == ingest.ReasonBusy:
		return later(coap.Unavailable)
	}
	return &coap.Message{Code: coap.BadRequest}
}
