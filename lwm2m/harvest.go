package lwm2m

import (
	"context"
	"time"

	"weir/ingest"
	"weir/lwm2m/coap"
	"weir/lwm2m/content"
	"weir/model"
)

// harvestInterval is how often a device is asked about itself, at most.
const harvestInterval = time.Hour

// about are the resources of the device object that are read, with the names of their attributes.
var about = []struct {
	resource uint16
	key      string
}{{0, "manufacturer"}, {1, "modelNumber"}, {2, "serialNumber"}, {3, "firmwareVersion"}, {9, "batteryLevel"}}

// deviceObject is the only instance of the device object.
var deviceObject = content.Path{3, 0}

// maxHarvests bounds the devices that are not registered and of which it is remembered when they were asked.
const maxHarvests = 100_000

// harvests remembers when devices were asked about themselves, for those whose registration has ended. The lock of the server guards it.
type harvests map[int64]model.Micros

func (h harvests) remember(device int64, at model.Micros) {
	if len(h) < maxHarvests {
		h[device] = max(h[device], at)
	}
}

// harvest reads what a device says about itself and reports it as its attributes, at most once an hour.
func (s *Server) harvest(sess *session) {
	now := model.MicrosOf(s.now())
	s.mu.Lock()
	r := s.byDevice[sess.binding.DeviceID]
	if r == nil || r.session != sess {
		s.mu.Unlock()
		return
	}
	before := max(r.Harvested, s.harvests[sess.binding.DeviceID])
	if age := now.Time().Sub(before.Time()); before > 0 && age >= 0 && age < harvestInterval {
		s.mu.Unlock()
		return
	}
	r.Harvested = now
	s.dirty[r] = struct{}{}
	s.harvests.remember(sess.binding.DeviceID, now)
	formats := r.formats()
	s.mu.Unlock()
	found, _, err := s.readAbout(sess, formats)
	if err != nil || len(found) == 0 {
		return
	}
	report := &model.Report{}
	for _, a := range about {
		v, ok := found[a.key]
		if !ok {
			continue
		}
		typ := model.ReportedString
		if v.Kind == content.Integer {
			typ = model.ReportedLong
		}
		report.Attributes = append(report.Attributes, model.Reported{Key: a.key, Type: typ, Value: content.FormatText(v)})
	}
	arrival := &ingest.Arrival{Report: report}
	s.arrive(sess, &coap.Message{Type: coap.NonConfirmable}, arrival, nil, 0, false)
	s.deps.Intake.Accept(sess.ctx, arrival, func(ingest.Answer) {})
}

// readAbout reads what a device says about itself, by attribute, and which resources it does not have.
func (s *Server) readAbout(sess *session, formats []uint16) (found map[string]content.Value, missing []content.Path, err error) {
	found = map[string]content.Value{}
	for _, a := range about {
		path := content.Path{deviceObject[0], deviceObject[1], a.resource}
		records, code, err := s.read(sess, path, formats)
		if err != nil {
			return nil, nil, err
		}
		if !code.Success() || len(records) == 0 {
			missing = append(missing, path)
			continue
		}
		v := records[0].Value
		if v.Kind == content.Float {
			v, _ = content.As(content.Integer, v)
		}
		found[a.key] = v
	}
	return found, missing, nil
}

// read reads a path in the first of the formats that the device can write.
func (s *Server) read(sess *session, path content.Path, formats []uint16) (records []content.Record, code coap.Code, err error) {
	answer, format, err := s.get(sess, path, formats)
	if err != nil || !answer.Code.Success() {
		if err == nil {
			code = answer.Code
		}
		return nil, code, err
	}
	if len(answer.Payload) == 0 {
		return nil, answer.Code, nil
	}
	records, err = s.models(sess.binding.DeviceID).Decode(format, path, answer.Payload, s.seconds())
	return records, answer.Code, err
}

// get asks for a path and returns the answer with its format.
func (s *Server) get(sess *session, path content.Path, formats []uint16) (answer *coap.Message, format uint16, err error) {
	ctx, cancel := context.WithTimeout(sess.ctx, s.settings.Load().CommandTimeout)
	defer cancel()
	for i, accept := range formats {
		m := &coap.Message{Code: coap.GET}
		m.AddPath(coap.URIPath, path.Segments()...)
		m.AddUint(coap.Accept, uint32(accept))
		if answer, err = sess.ask(ctx, m, int(s.settings.Load().MaxRead)); err != nil {
			return nil, 0, err
		}
		if answer.Code == coap.NotAcceptable && i < len(formats)-1 {
			continue
		}
		format = accept
		if given, ok := answer.Uint(coap.ContentFormat); ok {
			format = uint16(given)
		}
		return answer, format, nil
	}
	return answer, format, nil
}
