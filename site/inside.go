package site

import (
	"weir/model"
	"weir/registry"
	"weir/store"
)

// inTenant is the part of an apply that concerns one tenant.
type inTenant struct {
	*work
	e  *Entity
	by *model.Principal // within the tenant
	// Tokens by row id, once the kind is as declared: what rows refer to.
	profiles, types, devices map[int64]string
}

func (w *work) enter(e *Entity) *inTenant {
	by := *w.by
	by.Tenant, by.TenantID = e.Name, w.tenants[e.Name].ID
	return &inTenant{work: w, e: e, by: &by, profiles: map[int64]string{}, types: map[int64]string{}, devices: map[int64]string{}}
}

func (t *inTenant) all() error {
	if t.opt.Prune {
		if err := t.pruneLeaves(); err != nil {
			return err
		}
	}
	for _, step := range []func() error{t.putProfiles, t.putTypes, t.putDevices, t.publish} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (t *inTenant) putProfiles() error {
	r := t.registry
	profiles := shelf[registry.DeviceProfile]{t: t, kind: t.kinds.profile, live: r.Profiles, values: r.Profiles.Values}
	declared := t.e.Lists["deviceProfiles"]
	if err := profiles.put(plain(declared)); err != nil {
		return err
	}
	if err := each(t, r.Profiles, func(p *registry.DeviceProfile) { t.profiles[p.ID] = p.Token }); err != nil {
		return err
	}
	metrics := shelf[registry.MetricDefinition]{t: t, kind: t.kinds.metric, live: r.Metrics, values: func(m *registry.MetricDefinition) store.Patch {
		v := r.Metrics.Values(m)
		token(v, "deviceProfileToken", t.profiles)
		return v
	}}
	if err := metrics.put(below(declared, "metricDefinitions", "deviceProfileToken")); err != nil {
		return err
	}
	rules := shelf[registry.DetectionRule]{t: t, kind: t.kinds.rule, live: r.Rules, values: func(d *registry.DetectionRule) store.Patch {
		v := r.Rules.Values(d)
		token(v, "deviceProfileToken", t.profiles)
		return v
	}}
	return rules.put(below(declared, "detectionRules", "deviceProfileToken"))
}

func (t *inTenant) putTypes() error {
	types := shelf[registry.DeviceType]{t: t, kind: t.kinds.deviceType, live: t.registry.Types, values: func(d *registry.DeviceType) store.Patch {
		v := t.registry.Types.Values(d)
		token(v, "profileToken", t.profiles)
		return v
	}}
	if err := types.put(plain(t.e.Lists["deviceTypes"])); err != nil {
		return err
	}
	return each(t, t.registry.Types, func(d *registry.DeviceType) { t.types[d.ID] = d.Token })
}

func (t *inTenant) putDevices() error {
	list := t.e.Lists["devices"]
	devices := shelf[registry.Device]{t: t, kind: t.kinds.device, live: t.registry.Devices, values: func(d *registry.Device) store.Patch {
		v := t.registry.Devices.Values(d)
		token(v, "deviceTypeToken", t.types)
		return v
	}, seen: func(d *registry.Device) { t.devices[d.ID] = d.Token }}
	if err := devices.put(plain(list)); err != nil {
		return err
	}
	return t.putCredentials(below(list, "credentials", "deviceToken"))
}
