package ingest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"weir/model"
	"weir/rules"
	"weir/store"
)

// RuleHealth is what is known of a live rule: how it runs and how often it fired.
type RuleHealth struct {
	rules.Health
	store.RuleFires
	StaleActions int64
	ClockHeld    bool
}

// RuleHealth returns a row for each rule of the active version of a tenant's profile, by rule token; none when the
// profile has no published version.
func (a *Applier) RuleHealth(ctx context.Context, tenant, profile string) ([]RuleHealth, error) {
	tenantID, health := a.health(tenant, profile)
	if len(health) == 0 {
		return nil, nil
	}
	var fires map[string]store.RuleFires
	err := a.Store.Read(ctx, func(tx store.Tx) (err error) {
		fires, err = store.Fires(tx, tenantID, profile+"/")
		return err
	})
	out := make([]RuleHealth, len(health))
	for i, h := range health {
		out[i] = RuleHealth{Health: h, RuleFires: fires[h.StableID]}
	}
	return out, err
}

func (a *Applier) health(tenant, profile string) (tenantID int64, health []rules.Health) {
	key, ok := a.profileKey(tenant, profile)
	if !ok {
		return 0, nil
	}
	a.rulesMu.Lock()
	defer a.rulesMu.Unlock()
	return key.Tenant, a.Rules.Health(key)
}

// profileKey finds the active version of a tenant's profile.
func (a *Applier) profileKey(tenant, profile string) (key rules.ProfileKey, ok bool) {
	a.viewMu.RLock()
	defer a.viewMu.RUnlock()
	t := a.view.tenants[tenant]
	if t == nil {
		return key, false
	}
	for id, p := range a.view.profiles {
		if p.Tenant == tenant && p.Token == profile {
			return rules.ProfileKey{Tenant: t.ID, Profile: id}, true
		}
	}
	return key, false
}

// RuleStats are the figures of the engine.
func (a *Applier) RuleStats() rules.Stats {
	a.rulesMu.Lock()
	defer a.rulesMu.Unlock()
	return a.Rules.Stats()
}

// AilingRules are the rules that do not run or could not judge everything they were given.
func (a *Applier) UnhealthyRules() []rules.Health {
	a.rulesMu.Lock()
	defer a.rulesMu.Unlock()
	return a.Rules.Unhealthy()
}

// HeadSince is the receive time of the oldest record whose results are in memory only, 0 when there is none.
func (a *Applier) HeadSince() model.Nanos { return model.Nanos(a.headSince.Load()) }

// Silence is how long a device may be silent before its inferred presence ends: what its profile says, else standard.
func (a *Applier) Silence(tenant, device string, standard time.Duration) time.Duration {
	a.viewMu.RLock()
	defer a.viewMu.RUnlock()
	what, _ := a.view.resolve(tenant, device)
	if what.profile == nil || what.profile.InactivityTimeout == 0 {
		return standard
	}
	return time.Duration(what.profile.InactivityTimeout) * time.Second
}

// DeviceState returns what is known of a device's life, what memory knows laid over the stored row; nil when nothing is.
func (a *Applier) DeviceState(ctx context.Context, tenantID, deviceID int64) (*store.DeviceState, error) {
	var row *store.DeviceState
	err := a.Store.Read(ctx, func(tx store.Tx) (err error) {
		row, err = store.GetDeviceState(tx, deviceID)
		return err
	})
	if err != nil || row != nil && row.TenantID != tenantID {
		return nil, err
	}
	return a.activity.overlay(tenantID, deviceID, row), nil
}

// DeviceStates returns the states of a tenant's devices in order of device row ids.
func (a *Applier) DeviceStates(ctx context.Context, tenantID int64) ([]*store.DeviceState, error) {
	fresh := a.activity.devices(tenantID)
	var rows []*store.DeviceState
	err := a.Store.Read(ctx, func(tx store.Tx) (err error) {
		rows, err = store.DeviceStates(tx, tenantID)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, r := range rows {
		delete(fresh, r.DeviceID)
		rows[i] = a.activity.overlay(tenantID, r.DeviceID, r)
	}
	for id := range fresh {
		if r := a.activity.overlay(tenantID, id, nil); r != nil {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(x, y *store.DeviceState) int { return cmp.Compare(x.DeviceID, y.DeviceID) })
	return rows, nil
}

// Active reports whether a device counts as present: what its transport says, else whether it was heard in the last
// stretch of listening time.
func Active(d *store.DeviceState, now int64, silence time.Duration) bool {
	if d.Asserted {
		return d.State == model.Connected
	}
	return d.HasActivity && now-d.ActivityListen < int64(silence)
}
