package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/model"
	"weir/store"
)

// publishTries is how often a publish begins anew because the draft was changed while its rules were validated.
const publishTries = 3

// errDraftMoved: the draft is not the one that was validated.
var errDraftMoved = errors.New("registry: the draft changed during the publish")

// draft is what a publish would freeze, as one snapshot of the store showed it.
type draft struct {
	profile  *DeviceProfile
	metrics  []*MetricDefinition
	rules    []*DetectionRule
	revision string
}

// Publish freezes the draft of a profile as its next version and makes that the active one. The enabled draft rules pass
// the validator first, outside of the transaction, since compiling takes longer than the one writer may be held; the
// transaction then makes sure that the draft is still the one that was validated. Any refused rule refuses the publish,
// and nothing is written.
func (r *Registry) Publish(ctx context.Context, by *model.Principal, token string, label, description *string) (*ProfileVersion, error) {
	v, err := r.publish(ctx, by, token, label, description)
	result := "published"
	switch {
	case model.CodeOf(err) == model.CodeInvalidInput:
		result = "refused"
	case err != nil:
		result = "failed"
	}
	count := r.m.publishes.WithLabelValues(result).Inc
	if r.within != nil && err == nil {
		r.within.OnCommit(count)
	} else {
		count()
	}
	return v, err
}

func (r *Registry) publish(ctx context.Context, by *model.Principal, token string, label, description *string) (*ProfileVersion, error) {
	if err := cmp.Or(needTenant(by), checkMax("label", label, 128), checkMax("description", description, 1024)); err != nil {
		return nil, err
	}
	for range publishTries {
		d, err := r.readDraft(ctx, by, token)
		if err != nil {
			return nil, err
		}
		if err := r.validate(ctx, by, d); err != nil {
			return nil, err
		}
		v, err := r.freeze(ctx, by, d, label, description)
		if !errors.Is(err, errDraftMoved) {
			return v, err
		}
	}
	return nil, &model.Error{Code: model.CodeConflict, Reason: model.ReasonStaleWrite,
		Message: fmt.Sprintf("conflict: the draft of device profile %q keeps changing, publish it again", token)}
}

func (r *Registry) readDraft(ctx context.Context, by *model.Principal, token string) (*draft, error) {
	var d draft
	err := r.parts.Store.Read(ctx, func(tx store.Tx) (err error) {
		if d.profile, err = r.Profiles.must(tx, by.TenantID, token); err != nil {
			return err
		}
		if d.metrics, err = r.Metrics.table.By(tx, by.TenantID, "profile_id", d.profile.ID); err != nil {
			return err
		}
		if d.rules, err = r.Rules.table.By(tx, by.TenantID, "profile_id", d.profile.ID); err != nil {
			return err
		}
		d.revision, err = revision(tx, d.profile.ID)
		return err
	})
	slices.SortFunc(d.metrics, func(a, b *MetricDefinition) int { return strings.Compare(a.MetricKey, b.MetricKey) })
	slices.SortFunc(d.rules, func(a, b *DetectionRule) int { return strings.Compare(a.Token, b.Token) })
	return &d, err
}

// revision names the state of a profile's draft: row ids are never used twice and updated_at strictly increases, so that
// equal revisions are equal drafts.
func revision(tx store.Tx, profile int64) (string, error) {
	rows, err := tx.Query(`SELECT 0 AS part, id, updated_at FROM device_profiles WHERE id = ?
		UNION ALL SELECT 1, id, updated_at FROM metric_definitions WHERE profile_id = ?
		UNION ALL SELECT 2, id, updated_at FROM detection_rules WHERE profile_id = ?
		ORDER BY part, id`, profile, profile, profile)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var part, id, at int64
		if err := rows.Scan(&part, &id, &at); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%d.%d.%d ", part, id, at)
	}
	return b.String(), rows.Err()
}

// validate submits the enabled rules as a service of the tenant, and makes one refusal of what the validator says.
func (r *Registry) validate(ctx context.Context, by *model.Principal, d *draft) error {
	var candidates []Candidate
	for _, rule := range d.rules {
		if rule.Enabled {
			candidates = append(candidates, Candidate{Token: rule.Token, Definition: rule.Definition, GroupScoped: rule.GroupToken != nil})
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	service := model.Service("device-management", by.Tenant, by.TenantID, model.DeviceRead)
	refused, err := r.parts.Validator.Validate(ctx, service, candidates)
	switch {
	case err != nil:
		return &model.Error{Code: model.CodeUnavailable, Err: err,
			Message: fmt.Sprintf("unavailable: the rules of device profile %q could not be validated, nothing was published", d.profile.Token)}
	case len(refused) == 0:
		return nil
	}
	reasons, all := make([]string, len(refused)), make([]*model.Error, len(refused))
	for i, f := range refused {
		reasons[i] = strconv.Quote(f.Token) + ": " + f.Message
		all[i] = &model.Error{Code: model.CodeInvalidInput, Kind: r.Rules.Name(), Token: f.Token, Message: f.Message}
	}
	e := model.Invalid("detectionRules", "%s", strings.Join(reasons, "; "))
	e.All = all
	return e
}

// freeze writes the validated draft as a version and makes it the active one.
func (r *Registry) freeze(ctx context.Context, by *model.Principal, d *draft, label, description *string) (*ProfileVersion, error) {
	s, err := d.snapshot()
	if err != nil {
		return nil, err
	}
	var v *ProfileVersion
	err = r.mutate(ctx, by, func(c *store.Change) error {
		now, err := revision(c, d.profile.ID)
		if err != nil {
			return err
		}
		if now != d.revision {
			return errDraftMoved
		}
		p := *d.profile
		if v, err = insertVersion(c, &p, s, label, description); err != nil {
			return err
		}
		return r.activate(c, &p, s, v.Version)
	})
	return orNil(v, err)
}

// activate makes a version the active one, from the change's place in the log on.
func (r *Registry) activate(c *store.Change, p *DeviceProfile, s *Snapshot, version int64) error {
	if err := r.roomForRules(c, p, s); err != nil {
		return err
	}
	p.ActiveVersion = &version
	if err := r.Profiles.table.Save(c, p, "active_version"); err != nil {
		return err
	}
	return setView(c, model.ViewProfile, idKey(p.ID), s.view(c.By.Tenant, p.Token, int(version)))
}

// roomForRules refuses a version with which the tenant would have more rules run than it may. A version with fewer rules
// than the active one is let through whatever the others have: it is a step towards the limit.
func (r *Registry) roomForRules(c *store.Change, p *DeviceProfile, s *Snapshot) error {
	active, err := activeSnapshots(c, p.TenantID)
	if err != nil {
		return err
	}
	before := active[p.ID].enabledRules()
	active[p.ID] = s
	var all int64
	for _, a := range active {
		all += a.enabledRules()
	}
	if all <= r.config.RulesPerTenant || s.enabledRules() < before {
		return nil
	}
	return model.OverLimit("detection.max_rules_per_tenant", "the tenant would have %d enabled rules, at most %d may run", all, r.config.RulesPerTenant)
}

// Rollback makes an existing version of a profile the active one. The active one is no change.
func (r *Registry) Rollback(ctx context.Context, by *model.Principal, token string, version int64) (*DeviceProfile, error) {
	var p *DeviceProfile
	err := r.mutate(ctx, by, func(c *store.Change) (err error) {
		if p, err = r.Profiles.must(c, c.By.TenantID, token); err != nil {
			return err
		}
		s, err := snapshotOf(c, p.ID, version)
		if err != nil {
			return err
		}
		if s == nil {
			return model.NotFound("device profile version", fmt.Sprintf("%s@%d", token, version))
		}
		if p.ActiveVersion != nil && *p.ActiveVersion == version {
			return nil
		}
		return r.activate(c, p, s, version)
	})
	return orNil(p, err)
}

// Unpublished reports whether the draft of a profile would freeze as something else than its active version, and what
// version a publish would make.
func (r *Registry) Unpublished(ctx context.Context, by *model.Principal, token string) (differs bool, next int64, err error) {
	if err := needTenant(by); err != nil {
		return false, 0, err
	}
	d, err := r.readDraft(ctx, by, token)
	if err != nil {
		return false, 0, err
	}
	frozen, err := d.snapshot()
	if err != nil {
		return false, 0, err
	}
	var active *Snapshot
	err = r.parts.Store.Read(ctx, func(tx store.Tx) (err error) {
		if v := d.profile.ActiveVersion; v != nil {
			if active, err = snapshotOf(tx, d.profile.ID, *v); err != nil {
				return err
			}
		}
		next, err = nextVersion(tx, d.profile.ID)
		return err
	})
	if err != nil {
		return false, 0, err
	}
	return active == nil || !frozen.equal(active), next, nil
}

func (d *draft) snapshot() (*Snapshot, error) {
	s := &Snapshot{V: snapshotFormat}
	for _, m := range d.metrics {
		frozen, err := m.frozen()
		if err != nil {
			return nil, err
		}
		s.Metrics = append(s.Metrics, frozen)
	}
	for _, rule := range d.rules {
		s.Rules = append(s.Rules, rule.frozen())
	}
	if t := d.profile.InactivityTimeout; t != nil {
		s.InactivityTimeout = int(*t)
	}
	var err error
	s.Location, err = d.profile.Declaration()
	return s, err
}
