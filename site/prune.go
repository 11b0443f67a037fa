package site

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"weir/auth"
	"weir/model"
	"weir/store/entity"
)

// pruneLeaves deletes rules, metrics, credentials and devices that are not declared.
func (t *inTenant) pruneLeaves() error {
	if list, ok := t.e.Lists["devices"]; ok {
		if err := pruneBelow(t, t.kinds.credential, t.registry.Credentials, list, "credentials", t.registry.Devices, "device_id"); err != nil {
			return err
		}
		if err := prune(t, t.kinds.device, t.registry.Devices, list); err != nil {
			return err
		}
	}
	profiles := t.e.Lists["deviceProfiles"]
	if err := pruneBelow(t, t.kinds.metric, t.registry.Metrics, profiles, "metricDefinitions", t.registry.Profiles, "profile_id"); err != nil {
		return err
	}
	return pruneBelow(t, t.kinds.rule, t.registry.Rules, profiles, "detectionRules", t.registry.Profiles, "profile_id")
}

// pruneRest deletes types and profiles that are not declared.
func (t *inTenant) pruneRest() error {
	if list, ok := t.e.Lists["deviceTypes"]; ok {
		if err := prune(t, t.kinds.deviceType, t.registry.Types, list); err != nil {
			return err
		}
	}
	if list, ok := t.e.Lists["deviceProfiles"]; ok {
		return prune(t, t.kinds.profile, t.registry.Profiles, list)
	}
	return nil
}

// prune deletes the rows of a kind that are not declared.
func prune[T any](t *inTenant, k *kind, live *entity.Kind[T], list []*Entity) error {
	keep := names(list)
	var gone []string
	if err := each(t, live, func(row *T) {
		if name := live.Values(row)["token"].(string); !keep[name] {
			gone = append(gone, name)
		}
	}); err != nil {
		return err
	}
	slices.Sort(gone)
	return remove(t, k, live, gone)
}

func remove[T any](t *inTenant, k *kind, live *entity.Kind[T], gone []string) error {
	for _, name := range gone {
		if _, err := live.Delete(t.ctx, t.by, name); err != nil {
			return unpruned(err)
		}
		t.plan.add(Change{Op: Delete, Kind: k.name, Tenant: t.e.Name, Name: name})
	}
	return nil
}

// pruneBelow deletes what stands inside of declared entities and is not declared, of those that have the list. What is
// declared inside of another one moves there instead.
func pruneBelow[T, O any](t *inTenant, k *kind, live *entity.Kind[T], outer []*Entity, list string, owners *entity.Kind[O], column string) error {
	keep, with := map[string]bool{}, []string{}
	for _, o := range outer {
		inner, ok := o.Lists[list]
		if ok {
			with = append(with, o.Name)
		}
		for _, e := range inner {
			keep[e.Name] = true
		}
	}
	if len(with) == 0 {
		return nil
	}
	rows, err := owners.ByToken(t.ctx, t.by, with)
	if err != nil {
		return err
	}
	ids := make([]any, len(rows))
	for i, row := range rows {
		ids[i] = owners.Table.Head(row).ID
	}
	inner, err := live.By(t.ctx, t.by, column, ids...)
	if err != nil {
		return err
	}
	var gone []string
	for _, row := range inner {
		if name := live.Values(row)["token"].(string); !keep[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return remove(t, k, live, gone)
}

func names(list []*Entity) map[string]bool {
	all := make(map[string]bool, len(list))
	for _, e := range list {
		all[e.Name] = true
	}
	return all
}

// unpruned says of a refusal that it was about what is not declared.
func unpruned(err error) error {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return err
	}
	told := *e
	told.Message, told.Hint = "deleting what is not declared: "+e.Message, "declare it, or leave --prune out; nothing was changed"
	return &told
}

// pruneInstance deletes identities, roles and tiers that are not declared, of those whose list the document has.
func (w *work) pruneInstance() error {
	if _, ok := w.doc.Lists["identities"]; ok {
		if err := w.pruneIdentities(); err != nil {
			return err
		}
	}
	if declared, ok := w.doc.Lists["roles"]; ok {
		all, err := w.auth.Roles(w.ctx, w.by, "")
		if err != nil {
			return err
		}
		for _, r := range all {
			if kept("roles", r.Token, declared) {
				continue
			}
			if _, err := w.auth.DeleteRole(w.ctx, w.by, r.Scope, r.Token); err != nil {
				return unpruned(err)
			}
			w.plan.add(Change{Op: Delete, Kind: w.kinds.role.name, Name: r.Token})
		}
	}
	if declared, ok := w.doc.Lists["tiers"]; ok {
		tiers, err := w.tiers()
		if err != nil {
			return err
		}
		for _, token := range slices.Sorted(maps.Keys(tiers)) {
			if kept("tiers", token, declared) {
				continue
			}
			if _, err := w.govern.DeleteTier(w.ctx, w.by, token); err != nil {
				return unpruned(err)
			}
			w.plan.add(Change{Op: Delete, Kind: w.kinds.tier.name, Name: token})
		}
	}
	return nil
}

// kept: what a first start has made was nobody's to declare, and stays.
func kept(list, name string, declared []*Entity) bool {
	return isDeclared(declared, name) || slices.Contains(seeded[list], name)
}

func isDeclared(list []*Entity, name string) bool {
	return slices.ContainsFunc(list, func(e *Entity) bool { return e.Name == name })
}

// pruneIdentities ends memberships that are not declared, of the people who have the list, and deletes people who are not.
func (w *work) pruneIdentities() error {
	have, err := w.auth.Identities(w.ctx, w.by)
	if err != nil {
		return err
	}
	slices.SortFunc(have, func(a, b *auth.Identity) int { return strings.Compare(a.Email, b.Email) })
	list := w.doc.Lists["identities"]
	for _, p := range have {
		i := slices.IndexFunc(list, func(e *Entity) bool { return e.Name == p.Email })
		if i < 0 {
			if _, err := w.auth.DeleteIdentity(w.ctx, w.by, p.Email); err != nil {
				return unpruned(err)
			}
			w.plan.add(Change{Op: Delete, Kind: w.kinds.identity.name, Name: p.Email})
			continue
		}
		keep, ok := list[i].Lists["memberships"]
		if !ok {
			continue
		}
		for _, m := range p.Memberships {
			if isDeclared(keep, m.Tenant) {
				continue
			}
			if _, err := w.auth.RemoveMembership(w.ctx, w.by, p.Email, m.Tenant); err != nil {
				return unpruned(err)
			}
			w.plan.add(Change{Op: Delete, Kind: kindMembership, Tenant: m.Tenant, Name: p.Email})
		}
	}
	return nil
}
