package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// idKey is the key of the view row of a kind that is named by row ids.
func idKey(id int64) string { return strconv.FormatInt(id, 10) }

// describeVersions describes what a publish of a profile freezes and what follows from it.
func (ps *Profiles) describeVersions() *entity.Versions[DeviceProfile, Snapshot] {
	return &entity.Versions[DeviceProfile, Snapshot]{
		Kind:         "device profile version",
		Table:        "device_profile_versions",
		Owner:        "profile_id",
		Max:          ps.bounds.versions,
		Pruned:       func(n int64) { ps.pruned.Add(float64(n)) },
		Freeze:       ps.freeze,
		Validate:     ps.validateRules,
		Encode:       (*Snapshot).encode,
		Decode:       decodeSnapshot,
		Active:       func(p *DeviceProfile) **int64 { return &p.ActiveVersion },
		ActiveColumn: "active_version",
		Prepare:      ps.prepareScopes,
		Activate:     ps.checkTenantRules,
		Views: func(c *store.Change, p *DeviceProfile, s *Snapshot, version int64) []entity.View {
			return []entity.View{{Kind: model.ViewProfile, Key: idKey(p.ID), Body: s.view(c.By.Tenant, p.Token, int(version))}}
		},
		Done: ps.countPublish,
	}
}

// freeze is what a publish of the draft would freeze.
func (ps *Profiles) freeze(tx store.Tx, p *DeviceProfile) (*Snapshot, error) {
	metrics, err := ps.metrics.Table.By(tx, p.TenantID, "profile_id", p.ID)
	if err != nil {
		return nil, err
	}
	rules, err := ps.rules.Table.By(tx, p.TenantID, "profile_id", p.ID)
	if err != nil {
		return nil, err
	}
	commands, err := ps.commands.Table.By(tx, p.TenantID, "profile_id", p.ID)
	if err != nil {
		return nil, err
	}
	// In one order, so that the same draft freezes to the same bytes.
	slices.SortFunc(metrics, func(a, b *MetricDefinition) int { return strings.Compare(a.MetricKey, b.MetricKey) })
	slices.SortFunc(rules, func(a, b *DetectionRule) int { return strings.Compare(a.Token, b.Token) })
	slices.SortFunc(commands, func(a, b *CommandDefinition) int { return strings.Compare(a.CommandKey, b.CommandKey) })
	// The format is the oldest that can hold it: an upgrade leaves nothing unpublished.
	s := &Snapshot{V: snapshotFormat}
	for _, m := range metrics {
		frozen, err := m.frozen()
		if err != nil {
			return nil, err
		}
		s.Metrics = append(s.Metrics, frozen)
	}
	for _, rule := range rules {
		s.Rules = append(s.Rules, rule.frozen())
	}
	for _, command := range commands {
		s.V, s.Commands = snapshotFormatCommands, append(s.Commands, command.frozen())
	}
	if t := p.InactivityTimeout; t != nil {
		s.InactivityTimeout = int(*t)
	}
	if p.Lwm2m != nil {
		s.V, s.LwM2M = snapshotFormatLwM2M, json.RawMessage(*p.Lwm2m)
	}
	if slices.ContainsFunc(s.Rules, func(r SnapshotRule) bool { return r.Placement != "" }) {
		s.V = snapshotFormatPlaced
	}
	s.Location, err = p.Declaration()
	return s, err
}

// validateRules submits the enabled rules as a service of the tenant, and makes one refusal of what the validator says.
func (ps *Profiles) validateRules(ctx context.Context, by *model.Principal, p *DeviceProfile, s *Snapshot) ([]entity.Remark, error) {
	var candidates []Candidate
	for _, rule := range s.Rules {
		if rule.Enabled {
			candidates = append(candidates, Candidate{
				Token:       rule.Token,
				Definition:  rule.Definition,
				GroupScoped: rule.Group != "",
				AtSite:      rule.Placement == model.PlacementEdge,
			})
		}
	}
	if len(candidates) == 0 {
		return nil, nil
	}
	// Rules are judged against the names that this version brings.
	there, err := ps.vocabulary(ctx, by.TenantID, s)
	if err != nil {
		return nil, err
	}
	service := model.Service("device-management", by.Tenant, by.TenantID, model.DeviceRead)
	refused, remarks, err := ps.validator.Validate(ctx, service, candidates, there)
	switch {
	case err != nil:
		return nil, &model.Error{Code: model.CodeUnavailable, Err: err,
			Message: fmt.Sprintf("unavailable: the rules of device profile %q could not be validated, nothing was published", p.Token)}
	case len(refused) == 0:
		return remarks, nil
	}
	// One error for all rules, with each of them as its part.
	reasons := make([]string, len(refused))
	all := make([]*model.Error, len(refused))
	for i, f := range refused {
		reasons[i] = strconv.Quote(f.Token) + ": " + f.Message
		all[i] = &model.Error{
			Code:    model.CodeInvalidInput,
			Kind:    ps.rules.Name(),
			Token:   f.Token,
			Field:   "definition",
			Message: f.Message,
		}
	}
	e := model.Invalid("detectionRules", "%s", strings.Join(reasons, "; "))
	e.All = all
	return nil, e
}

// vocabulary is what the rules of a profile may speak of.
func (ps *Profiles) vocabulary(ctx context.Context, tenant int64, s *Snapshot) (there Vocabulary, err error) {
	there.Commands = []string{}
	for _, m := range s.Metrics {
		there.Metrics = append(there.Metrics, m.Key)
		for _, name := range m.SourceNames {
			if there.SourceNames == nil {
				there.SourceNames = map[string]string{}
			}
			there.SourceNames[name] = m.Key
		}
		if m.Min == nil && m.Max == nil {
			continue
		}
		if there.Ranges == nil {
			there.Ranges = map[string]Range{}
		}
		there.Ranges[m.Key] = Range{m.Min, m.Max, m.OutOfRange}
	}
	for _, c := range s.Commands {
		there.Commands = append(there.Commands, c.Key)
	}
	there.Fences, err = ps.fences.tokensOf(ctx, tenant)
	return there, err
}

// prepareScopes brings in the attributes that the groups which rules are scoped to select by.
func (ps *Profiles) prepareScopes(ctx context.Context, by *model.Principal, p *DeviceProfile, s *Snapshot) (done func(), err error) {
	// Bring the attributes in before the publish: that change must stay small.
	keys := map[string]bool{}
	err = store.Read(ctx, ps.store, func(tx store.Tx) error {
		for _, rule := range s.Rules {
			if !rule.Enabled || rule.Group == "" {
				continue
			}
			body, err := ps.groups.published(tx, p.TenantID, "entityGroupToken", rule.Group, int64(rule.GroupVersion))
			if err == nil {
				err = ps.groups.addKeys(keys, body)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ps.keys.prepare(ctx, by, keys)
}

// checkTenantRules refuses a version with which the tenant would have more rules run than it may. A version with fewer
// rules than the active one is let through whatever the others have: it is a step towards the limit.
func (ps *Profiles) checkTenantRules(c *store.Change, p *DeviceProfile, s *Snapshot, _ int64) error {
	active, err := ps.versions.Effective(c, p.TenantID)
	if err != nil {
		return err
	}
	if err := ps.checkScopes(c, p, active[p.ID], s); err != nil {
		return err
	}
	// Count as if the version were active.
	before := active[p.ID].enabledRules()
	active[p.ID] = s
	var all int64
	for _, a := range active {
		all += a.enabledRules()
	}
	if all <= ps.bounds.rulesOfTenant || s.enabledRules() < before {
		return nil
	}
	return model.OverLimit("detection.max_rules_per_tenant", "the tenant would have %d enabled rules, at most %d may run", all, ps.bounds.rulesOfTenant)
}

func (ps *Profiles) countPublish(err error) {
	result := "published"
	switch {
	case model.CodeOf(err) == model.CodeInvalidInput:
		result = "refused"
	case err != nil:
		result = "failed"
	}
	ps.publishes.WithLabelValues(result).Inc()
}
