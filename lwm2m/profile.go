package lwm2m

import (
	"slices"

	"weir/lwm2m/content"
	"weir/model"
)

// profile is what the profile of a device says about LwM2M.
type profile struct {
	observes   bool // it says what is observed
	list       []model.LwM2MObserve
	attributes []content.Path
	location   bool
	kinds      map[string]content.Kind // of the resources that are metrics of the profile, by path
}

// kindsOf are the types that metrics say for resources: their key, or one of their other names, is the path.
func kindsOf(metrics []model.MetricView) map[string]content.Kind {
	kinds := map[string]content.Kind{}
	for i := range metrics {
		m := &metrics[i]
		for _, name := range append([]string{m.Key}, m.SourceNames...) {
			path, ok := content.ParsePath(name)
			if !ok || len(path) != 3 {
				continue
			}
			switch m.DataType {
			case "DOUBLE":
				kinds[path.String()] = content.Float
			case "INT":
				kinds[path.String()] = content.Integer
			case "BOOLEAN":
				kinds[path.String()] = content.Boolean
			case "STRING":
				kinds[path.String()] = content.String
			}
		}
	}
	return kinds
}

// models are the objects that are known for a device: besides those that are built in, those of definition files, and the metrics of its profile.
func (s *Server) models(device int64) *content.Models {
	known := s.known.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byDevice[device]; r != nil && r.profile != nil {
		return known.With(r.profile.kinds)
	}
	return known
}

// readProfile reads the profile of a session's device. Where it cannot be read, that of before counts.
func (s *Server) readProfile(sess *session) {
	said, metrics, err := s.deps.Profile(sess.ctx, sess.binding)
	if err != nil {
		if sess.ctx.Err() == nil {
			s.log.Warn("the profile of an LwM2M device cannot be read; it is read again with its next registration", "device", sess.binding.Device, "tenant", sess.binding.Tenant, "error", err)
		}
		return
	}
	p := &profile{kinds: kindsOf(metrics)}
	if said != nil {
		p.observes, p.list, p.location = true, said.Observe, said.Location
		for _, text := range said.Attributes {
			if path, ok := content.ParsePath(text); ok {
				p.attributes = append(p.attributes, path)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byDevice[sess.binding.DeviceID]; r != nil {
		r.profile = p
	}
}

// has reports whether a registration lists an object, or the instance that a path is in.
func (r *registration) has(p content.Path) bool {
	return slices.ContainsFunc(r.links, func(l content.ObjectLink) bool {
		return len(l.Path) > 0 && (p.Within(l.Path) && len(l.Path) == 2 || l.Path.Within(p) || len(p) > 1 && len(l.Path) == 1 && l.Path[0] == p[0] && !r.instances(p[0]))
	})
}

// instances reports whether a registration lists instances of an object.
func (r *registration) instances(object uint16) bool {
	return slices.ContainsFunc(r.links, func(l content.ObjectLink) bool { return len(l.Path) == 2 && l.Path[0] == object })
}

// targets are what the profile observes of a registration, and what of it the device does not have.
func (p *profile) targets(r *registration) (all []target, absent []string) {
	together := target{Composite: true, Attributes: map[string][]string{}}
	for i := range p.list {
		o := &p.list[i]
		path, _ := content.ParsePath(o.Path) // it was checked
		if !r.has(path) {
			absent = append(absent, o.Path)
			continue
		}
		var format *uint16
		if f, ok := content.Named(o.Format); ok {
			format = &f
		}
		queries := o.Queries()
		if o.Composite && r.Version != "1.0" {
			together.paths = append(together.paths, path)
			if together.Format == nil {
				together.Format = format
			}
			if len(queries) > 0 {
				together.Attributes[o.Path] = queries
			}
			continue
		}
		t := target{paths: []content.Path{path}, Format: format}
		if len(queries) > 0 {
			t.Attributes = map[string][]string{o.Path: queries}
		}
		all = append(all, t)
	}
	if len(together.paths) > 0 {
		all = append(all, together)
	}
	if !p.location {
		return all, absent
	}
	for _, l := range r.links {
		if len(l.Path) != 2 || !content.Locates(l.Path[0]) {
			continue
		}
		if !slices.ContainsFunc(all, func(t target) bool {
			return slices.ContainsFunc(t.paths, func(p content.Path) bool { return l.Path.Within(p) })
		}) {
			all = append(all, target{paths: []content.Path{l.Path}})
		}
	}
	return all, absent
}

// attribute reports whether the value at a path is an attribute of the device, and no reading.
func (p *profile) attribute(path content.Path) bool {
	return p != nil && slices.ContainsFunc(p.attributes, path.Within)
}

// readAttributes reads the attributes that the profile names and nothing observes, once a registration.
func (s *Server) readAttributes(sess *session) {
	s.mu.Lock()
	r := s.byDevice[sess.binding.DeviceID]
	if r == nil || r.session != sess || r.profile == nil || r.attributesOf == r.Location {
		s.mu.Unlock()
		return
	}
	r.attributesOf = r.Location
	formats := r.formats()
	var paths []content.Path
	for _, p := range r.profile.attributes {
		observed := false
		for _, o := range r.observed {
			observed = observed || slices.ContainsFunc(o.paths, p.Within)
		}
		if !observed && r.has(p) {
			paths = append(paths, p)
		}
	}
	s.mu.Unlock()
	for _, p := range paths {
		records, code, err := s.read(sess, p, formats)
		if err != nil { // it has gone: with its next registration
			return
		}
		if code.Success() {
			s.report(sess, records)
		}
	}
}
