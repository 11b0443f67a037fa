package lwm2m

import (
	"context"

	"weir/model"
)

// makeDevice makes the device of a proven key that is not there yet.
func (p *proof) makeDevice(ctx context.Context) error {
	if p.key.Make == nil {
		return nil
	}
	b, err := p.key.Make(ctx)
	if err != nil {
		p.failed = err
		return err
	}
	p.key.Binding = b
	return nil
}

// endOrphans ends the registrations of before the start whose devices no credential has proven and whose identity is gone since.
func (s *Server) endOrphans(ctx context.Context) {
	if s.deps.Orphaned == nil {
		return
	}
	s.mu.Lock()
	var suspects []*registration
	for _, r := range s.byLocation {
		if r.Binding.Credential == 0 {
			suspects = append(suspects, r)
		}
	}
	s.mu.Unlock()
	for _, r := range suspects {
		gone, err := s.deps.Orphaned(ctx, s.bindingOf(r))
		if err != nil {
			if ctx.Err() == nil {
				s.log.Error("it could not be looked up whether a registered device still has its identity", "device", r.Binding.Device, "tenant", r.Binding.Tenant, "error", err)
			}
			continue
		}
		if gone {
			s.unregister(r, "reconstruct-orphan")
		}
	}
}

// bindingOf is the device of a registration.
func (s *Server) bindingOf(r *registration) model.Binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.Binding
}
