package registry

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"weir/model"
	"weir/store"
	"weir/store/entity"
	"weir/store/relations"
)

// What the resolution of messages reads of attributes, groups and fences: rows of the metadata view, which travel in the log with the
// change that makes them.

// numeric reports whether the value is a number.
func (a *Attribute) numeric() bool {
	return a.Number != nil && (a.Type == ValueLong || a.Type == ValueDouble)
}

func (a *Attribute) view() model.AttributeView {
	return relations.AttributeValue(a.Type, a.Text, a.Number)
}

// changed makes the value of an attribute effective where resolution reads it: the numbers of the scopes SERVER and SHARED of
// devices, and any value of the scope SHARED whose key a selector in use names. Others need no place in the log. old or a is nil where
// there is none.
func (as *Attributes) changed(c *store.Change, old, a *Attribute) error {
	row := a
	if a == nil {
		row = old
	}
	if row.EntityType != EntityDevice || row.Scope == ScopeClient {
		return nil
	}
	// Tell the device that reads it, also where resolution does not.
	if row.Scope == ScopeShared && (old == nil || a == nil || !reflect.DeepEqual(old.shared(), a.shared())) {
		as.sharedChanged(c, row.EntityID)
	}
	// Other values than numbers are read only where a selector names their key.
	named := false
	if row.Scope == ScopeShared && (old != nil && !old.numeric() || a != nil && !a.numeric()) {
		var err error
		if named, err = relations.KeyReaches(c, row.TenantID, row.Key, row.EntityID); err != nil {
			return err
		}
	}
	// Set, replace or end the row of the view, or leave it alone.
	read := func(a *Attribute) bool { return a != nil && (named || a.numeric()) }
	v := entity.View{Kind: model.ViewAttribute, Key: model.AttributeKey(row.EntityID, row.Scope, row.Key)}
	switch {
	case read(a) && read(old) && reflect.DeepEqual(a.view(), old.view()):
		return nil
	case read(a):
		v.Body = a.view()
	case !read(old):
		return nil
	}
	return entity.SetViews(c, v)
}

// groupVersion names a published version of a group.
type groupVersion struct {
	group   string
	version int64
}

func compareVersions(a, b groupVersion) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.version, b.version))
}

// inUse is what says which versions of a tenant's groups resolution needs: active versions of groups, and those of versions that enabled
// rules of active profile versions are scoped to.
type inUse struct {
	groups   map[string]*EntityGroup // with an active version, by token
	profiles map[int64]*Snapshot     // active versions, by the row id of the profile
}

// versions are the versions in use; the value says whether it is the group's active one.
func (u *inUse) versions() map[groupVersion]bool {
	used := map[groupVersion]bool{}
	for _, s := range u.profiles {
		for _, rule := range s.Rules {
			if rule.Enabled && rule.Group != "" {
				used[groupVersion{rule.Group, int64(rule.GroupVersion)}] = false
			}
		}
	}
	for token, g := range u.groups {
		used[groupVersion{token, *g.ActiveVersion}] = true
	}
	return used
}

// activate makes a version of a group the active one.
func (u *inUse) activate(g *EntityGroup, version int64) {
	active := *g
	active.ActiveVersion = &version
	u.groups[g.Token] = &active
}

// inUse is what is in use now.
func (gs *Groups) inUse(tx store.Tx, tenant int64) (*inUse, error) {
	groups, err := gs.Table.Select(tx, tenant, "id", store.NotNull("active_version"))
	if err != nil {
		return nil, err
	}
	u := &inUse{groups: make(map[string]*EntityGroup, len(groups))}
	for _, g := range groups {
		u.groups[g.Token] = g
	}
	u.profiles, err = gs.profiles.Effective(tx, tenant)
	return u, err
}

// useSelectors takes a step in what is in use, and makes the versions of groups effective that come into use by it. It refuses a step
// after which the tenant has more selectors in use than it may, unless it had as many before.
func (gs *Groups) useSelectors(c *store.Change, tenant int64, step func(*inUse)) error {
	u, err := gs.inUse(c, tenant)
	if err != nil {
		return err
	}
	// Take the step in memory, and compare what is in use before and after it.
	before := u.versions()
	known := maps.Clone(u.groups)
	step(u)
	after := u.versions()
	if maximum := gs.limits().SelectorsPerTenant; int64(len(after)) > maximum && len(after) > len(before) {
		return model.OverLimit("limits.selectors_per_tenant", "the tenant would have %d selectors in use, at most %d are allowed", len(after), maximum)
	}
	// Also groups that went with the step: their rows have to end.
	maps.Copy(known, u.groups)
	maps.DeleteFunc(after, notOfDevices(known))
	return gs.view(c, tenant, known, before, after)
}

// notOfDevices says of a version whether the members of its group are other entities than devices: messages are those of devices.
func notOfDevices(groups map[string]*EntityGroup) func(groupVersion, bool) bool {
	return func(v groupVersion, _ bool) bool {
		return groups[v.group] == nil || groups[v.group].MemberType != EntityDevice
	}
}

// view sets the rows of the versions of groups that come into use, ends those of the others, and sees to it that the attributes
// which their selectors name are read.
func (gs *Groups) view(c *store.Change, tenant int64, groups map[string]*EntityGroup, before, after map[groupVersion]bool) error {
	keys := map[string]bool{}
	for _, version := range slices.SortedFunc(maps.Keys(after), compareVersions) {
		g, active := groups[version.group], after[version]
		body, err := gs.versions.Body(c, g.ID, version.version)
		if err != nil {
			return err
		}
		if err := gs.addKeys(keys, body); err != nil {
			return err
		}
		// Only what changes makes a row.
		if was, used := before[version]; used && was == active {
			continue
		}
		if err := entity.SetViews(c, entity.View{Kind: model.ViewGroup, Key: g.viewKey(version.version), Body: model.GroupView{
			V:        1,
			Tenant:   tenant,
			Token:    g.Token,
			Version:  int(version.version),
			Selector: body.Selector,
			Active:   active,
		}}); err != nil {
			return err
		}
	}
	// Then end those that are not in use any more.
	for _, version := range slices.SortedFunc(maps.Keys(before), compareVersions) {
		g := groups[version.group]
		if _, used := after[version]; used || g == nil || g.MemberType != EntityDevice {
			continue
		}
		if err := entity.SetViews(c, entity.View{Kind: model.ViewGroup, Key: g.viewKey(version.version)}); err != nil {
			return err
		}
	}
	return gs.keys.use(c, tenant, keys)
}

func (g *EntityGroup) viewKey(version int64) string {
	return idKey(g.ID) + "/" + strconv.FormatInt(version, 10)
}

// setMemberships makes the memberships in static groups that devices have now effective for their messages.
func setMemberships(c *store.Change, tenant int64, devices ...int64) error {
	for _, id := range devices {
		groups, err := relations.Memberships(c, tenant, id)
		if err != nil {
			return err
		}
		v := entity.View{Kind: model.ViewMemberships, Key: idKey(id)}
		if len(groups) > 0 {
			v.Body = model.MembershipsView{V: 1, Tenant: tenant, Groups: groups}
		}
		if err := entity.SetViews(c, v); err != nil {
			return err
		}
	}
	return nil
}

// enlisted returns the devices whose memberships end with an entity.
func enlisted(tx store.Tx, tenant int64, entityType string, id int64) ([]int64, error) {
	switch entityType {
	case EntityGroups:
		return relations.DevicesIn(tx, tenant, id)
	case EntityDevice:
		groups, err := relations.Memberships(tx, tenant, id)
		if len(groups) > 0 {
			return []int64{id}, err
		}
		return nil, err
	}
	return nil, nil
}

// viewFence makes a fence and the version of the set that it changes effective; f is nil for one that goes.
func viewFence(c *store.Change, tenant int64, token string, f *GeoFence, version int64) error {
	v := entity.View{Kind: model.ViewFence, Key: idKey(tenant) + "/" + token}
	if f != nil {
		v.Body = model.FenceView{V: 1, Geometry: f.Geometry}
	}
	return entity.SetViews(c, v, entity.View{Kind: model.ViewFenceSet, Key: idKey(tenant), Body: model.FenceSetView{V: 1, Version: version}})
}
