package registry

import (
	"context"
	"encoding/json"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/store"
	"weir/store/entity"
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
	Lwm2m             *string `store:"lwm2m,clear,json,max=65536" gql:"lwm2m"`      // model.LwM2MProfile
	InactivityTimeout *int64  `store:"inactivity_timeout_seconds,clear,min=60" gql:"inactivityTimeoutSeconds"`
	ActiveVersion     *int64  `store:"active_version" gql:"activeVersion"` // moves by publish and rollback only
	// ManagedBy is the device as which this instance signs in at the Weir above that manages the row, nil for none.
	ManagedBy *string `store:"managed_by" gql:"managedBy"`
}

// Profiles are the device profiles of all tenants with their parts, and the versions that were published of them.
type Profiles struct {
	*entity.Kind[DeviceProfile]
	metrics   *entity.Kind[MetricDefinition]
	commands  *entity.Kind[CommandDefinition]
	rules     *entity.Kind[DetectionRule]
	versions  *entity.Versions[DeviceProfile, Snapshot]
	store     store.Store
	bounds    profileBounds
	limits    func() *DeviceSettings
	validator Validator
	publishes *prometheus.CounterVec // by outcome
	pruned    prometheus.Counter     // versions that a publish removed
	// What profiles are tied to: the types that adopt them, and what their rules name.
	types  *entity.Kind[DeviceType]
	groups *Groups
	fences *Fences
	keys   *AttributeKeys
}

// profileBounds are how many there may be: of a profile, and of the rules that run for a tenant.
type profileBounds struct {
	metrics, commands, rules, versions int64
	rulesOfTenant                      int64
}

// describe makes the kinds.
func (ps *Profiles) describe(b entity.Base) {
	ps.versions = ps.describeVersions()
	ps.metrics = ps.describeMetrics(b)
	ps.commands = ps.describeCommands(b)
	ps.rules = ps.describeRules(b)
	ps.Kind = entity.New(b, entity.Desc[DeviceProfile]{
		Kind:     "device profile",
		Type:     "DeviceProfile",
		Plural:   "deviceProfiles",
		Area:     area,
		Table:    "device_profiles",
		Read:     mayRead,
		Write:    mayWrite,
		Rename:   ps.checkRenamable,
		Versions: ps.versions,
		Valid:    (*DeviceProfile).check,
		Ceiling: &entity.Ceiling{
			Key:  "limits.device_profiles_per_tenant",
			Rows: func() int64 { return ps.limits().ProfilesPerTenant },
		},
		Views:    profileViews,
		Removing: ps.removing,
	})
}

func (p *DeviceProfile) check() error {
	if p.Lwm2m != nil {
		if _, err := model.ParseLwM2MProfile([]byte(*p.Lwm2m)); err != nil {
			return model.Invalid("lwm2m", "%v", err)
		}
	}
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

// profileViews ends the view row of a profile that goes; publish and rollback set it.
func profileViews(_ *store.Change, old, p *DeviceProfile) []entity.View {
	if p == nil && old.ActiveVersion != nil {
		return []entity.View{{Kind: model.ViewProfile, Key: idKey(old.ID)}}
	}
	return nil
}

// checkRenamable: the token of a published profile is part of the ids of its rules, that of an adopted one may be known
// outside.
func (ps *Profiles) checkRenamable(tx store.Tx, p *DeviceProfile) error {
	if p.ActiveVersion != nil {
		return model.InUse(ps.Name(), p.Token, "published version")
	}
	n, err := ps.types.Table.Count(tx, p.TenantID, store.Eq("profile_id", p.ID))
	if err == nil && n > 0 {
		err = model.InUse(ps.Name(), p.Token, ps.types.Name())
	}
	return err
}

// TypeCounts returns how many device types have adopted each of the profiles; those that none has are left out.
func (ps *Profiles) TypeCounts(ctx context.Context, by *model.Principal, profiles []int64) (counts map[int64]int64, err error) {
	tenant, err := entity.TenantOf(by)
	if err != nil {
		return nil, err
	}
	err = store.Read(ctx, ps.store, func(tx store.Tx) (err error) {
		counts, err = ps.types.Table.CountBy(tx, tenant, "profile_id", profiles...)
		return err
	})
	return counts, err
}
