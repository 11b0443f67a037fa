package registry

import (
	"context"
	"encoding/json"

	"weir/model"
	"weir/store"
)

// DeviceProfile is the draft of what devices of a type report and are judged by. Only what a publish froze of it counts.
type DeviceProfile struct {
	store.Row
	Token             string  `store:"token,token" gql:"token"`
	Name              *string `store:"name,clear,max=128" gql:"name"`
	Description       *string `store:"description,clear,max=1024" gql:"description"`
	Category          *string `store:"category,clear,max=128" gql:"category"`
	Metadata          *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
	Location          *string `store:"location,clear,json,max=1024" gql:"location"` // LocationDeclaration
	InactivityTimeout *int64  `store:"inactivity_timeout_seconds,clear,min=60" gql:"inactivityTimeoutSeconds"`
	ActiveVersion     *int64  `store:"active_version" gql:"activeVersion"` // moves by publish and rollback only
}

func (r *Registry) deviceProfiles() *Kind[DeviceProfile] {
	table := store.NewTable(store.Desc[DeviceProfile]{
		Kind:      "device profile",
		Name:      "device_profiles",
		Check:     func(_ store.Tx, p *DeviceProfile, _ store.Changed) error { return p.check() },
		Referrers: []store.Referrer{{Kind: "device type", Table: "device_types", Column: "profile_id"}},
	})
	return &Kind[DeviceProfile]{r: r, table: table, removing: r.removingProfile, changed: profileChanged}
}

func (p *DeviceProfile) check() error {
	d, err := p.Declaration()
	switch {
	case err != nil || d == nil:
		return err
	case d.ExpectedAccuracyMeters != nil && *d.ExpectedAccuracyMeters < 0:
		return model.Invalid("location", "expectedAccuracyMeters must not be below 0")
	case d.ExpectedUpdateIntervalSeconds != nil && *d.ExpectedUpdateIntervalSeconds < 0:
		return model.Invalid("location", "expectedUpdateIntervalSeconds must not be below 0")
	}
	return nil
}

// Declaration returns the draft's location declaration, nil when it has none.
func (p *DeviceProfile) Declaration() (*LocationDeclaration, error) {
	if p.Location == nil {
		return nil, nil
	}
	var d LocationDeclaration
	if err := json.Unmarshal([]byte(*p.Location), &d); err != nil {
		return nil, model.Invalid("location", "is no location declaration")
	}
	return &d, nil
}

// removingProfile removes what is part of the profile; whether it may go at all is judged before.
func (r *Registry) removingProfile(c *store.Change, p *DeviceProfile) error {
	metrics, err := r.Metrics.table.By(c, p.TenantID, "profile_id", p.ID)
	if err != nil {
		return err
	}
	for _, m := range metrics {
		if err := r.Metrics.table.Remove(c, m); err != nil {
			return err
		}
	}
	rules, err := r.Rules.table.By(c, p.TenantID, "profile_id", p.ID)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		if err := r.Rules.table.Remove(c, rule); err != nil {
			return err
		}
	}
	return removeVersions(c, p)
}

// profileChanged ends the view row of a profile that goes; publish and rollback set it.
func profileChanged(c *store.Change, old, p *DeviceProfile) error {
	if p == nil && old.ActiveVersion != nil {
		endView(c, model.ViewProfile, idKey(old.ID))
	}
	return nil
}

// RenameProfile gives a profile that was never published nor adopted another token. The present one is no change.
func (r *Registry) RenameProfile(ctx context.Context, by *model.Principal, token, newToken string) (*DeviceProfile, error) {
	var p *DeviceProfile
	err := r.mutate(ctx, by, func(c *store.Change) (err error) {
		if p, err = r.Profiles.must(c, c.By.TenantID, token); err != nil || token == newToken {
			return err
		}
		if err := model.CheckToken("newToken", newToken); err != nil {
			return err
		}
		if err := r.checkRenamable(c, p); err != nil {
			return err
		}
		p, err = r.Profiles.table.Rename(c, c.By.TenantID, token, newToken)
		return err
	})
	return orNil(p, err)
}

// checkRenamable: the token of a published profile is part of the ids of its rules, that of an adopted one may be known
// outside.
func (r *Registry) checkRenamable(tx store.Tx, p *DeviceProfile) error {
	if p.ActiveVersion != nil {
		return model.InUse(r.Profiles.Name(), p.Token, "published version")
	}
	n, err := r.Types.table.Count(tx, p.TenantID, store.Eq("profile_id", p.ID))
	if err == nil && n > 0 {
		err = model.InUse(r.Profiles.Name(), p.Token, r.Types.Name())
	}
	return err
}

// TypeCounts returns how many device types have adopted each of the profiles.
func (r *Registry) TypeCounts(ctx context.Context, by *model.Principal, profiles []int64) (map[int64]int64, error) {
	if err := needTenant(by); err != nil {
		return nil, err
	}
	counts := make(map[int64]int64, len(profiles))
	err := r.parts.Store.Read(ctx, func(tx store.Tx) (err error) {
		for _, id := range profiles {
			if counts[id], err = r.Types.table.Count(tx, by.TenantID, store.Eq("profile_id", id)); err != nil {
				return err
			}
		}
		return nil
	})
	return counts, err
}
