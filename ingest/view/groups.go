package view

import (
	"errors"
	"slices"
	"strconv"

	"weir/model"
	"weir/registry/selector"
)

// groups are the published versions of dynamic groups of a tenant that are in use.
type groups struct {
	state    uint64 // changes with each of them; never the same again
	versions map[groupVersion]*group
	active   []*group // whose members bear them
}

type groupVersion struct {
	token   string
	version int
}

type group struct {
	model.GroupView
	condition model.Condition
}

// setGroup takes a version of a group in. What its row said before is found by its key.
func (v *View) setGroup(c *Change) error {
	if before := v.groupRows[c.Key]; before != nil {
		c.TenantID, c.Group = before.Tenant, before.Token
		t := v.groups[before.Tenant]
		delete(t.versions, groupVersion{before.Token, before.Version})
		delete(v.groupRows, c.Key)
		v.regroup(before.Tenant)
	}
	if c.Body == nil {
		return nil
	}
	g := new(group)
	if err := decode(c.Body, &g.GroupView, func() int { return g.V }); err != nil {
		return err
	}
	var err error
	if g.condition, err = v.selectors.Compile(g.Selector, "device"); err != nil {
		return err
	}
	c.TenantID, c.Group = g.Tenant, g.Token
	t := v.groups[g.Tenant]
	if t == nil {
		t = &groups{versions: map[groupVersion]*group{}}
		v.groups[g.Tenant] = t
	}
	t.versions[groupVersion{g.Token, g.Version}], v.groupRows[c.Key] = g, g
	v.regroup(g.Tenant)
	return nil
}

// regroup notes that the groups of a tenant are others now: what its devices bear is to be found again.
func (v *View) regroup(tenant int64) {
	t := v.groups[tenant]
	if len(t.versions) == 0 {
		delete(v.groups, tenant)
		return
	}
	v.states++
	t.state, t.active = v.states, t.active[:0]
	for _, g := range t.versions {
		if g.Active {
			t.active = append(t.active, g)
		}
	}
}

func (v *View) setMemberships(c *Change) (err error) {
	if c.ID, err = strconv.ParseInt(c.Key, 10, 64); err != nil {
		return err
	}
	var b model.MembershipsView
	if c.Body != nil {
		if err := decode(c.Body, &b, func() int { return b.V }); err != nil {
			return err
		}
		if len(b.Groups) == 0 {
			return errors.New("no groups")
		}
	}
	slices.Sort(b.Groups)
	d := v.device(c.ID)
	for _, token := range d.groups {
		if !slices.Contains(b.Groups, token) {
			c.Left = append(c.Left, model.Anchor{Type: model.GroupAnchor, Token: token})
		}
	}
	d.groups, d.as = slices.Compact(b.Groups), 0
	v.tidy(c.ID)
	return nil
}

// InGroup reports whether a device is a member of a published version of a dynamic group that is in use or, for version 0, of a static
// group. known is false when the view does not hold that version.
func (v *View) InGroup(tenant, device int64, token string, version int) (member, known bool) {
	if version == 0 {
		d := v.devices[device]
		if d == nil {
			return false, true
		}
		_, member = slices.BinarySearch(d.groups, token)
		return member, true
	}
	t := v.groups[tenant]
	if t == nil || t.versions[groupVersion{token, version}] == nil {
		return false, false
	}
	return v.holds(t.versions[groupVersion{token, version}], device), true
}

// Bears reports whether a device is at an anchor: what its events bear (Stamp) has it.
func (v *View) Bears(tenant, device int64, a model.Anchor) bool {
	if related := v.anchors[device]; related != nil && slices.Contains(related.Anchors, a) {
		return true
	}
	if a.Type != model.GroupAnchor {
		return false
	}
	if d := v.devices[device]; d != nil && slices.Contains(d.groups, a.Token) {
		return true
	}
	t := v.groups[tenant]
	return t != nil && slices.ContainsFunc(t.active, func(g *group) bool { return g.Token == a.Token && v.holds(g, device) })
}

func (v *View) holds(g *group, device int64) bool {
	return selector.Holds(g.condition, func(key string) (any, bool) { return v.attribute(device, scopeShared, key) })
}

// Stamp returns what the events of a device bear: the entities to which its tracked relationships lead, the static groups that it is a
// member of, and the dynamic ones whose active version selects it; nil for none. It remembers the answer until something that it
// follows from changes.
func (v *View) Stamp(tenant, id int64) *AnchorSet {
	related, d, t := v.anchors[id], v.devices[id], v.groups[tenant]
	if t == nil && (d == nil || len(d.groups) == 0 && d.stamped == nil) {
		return related
	}
	state := ownState
	if t != nil {
		state = t.state
	}
	if d != nil && d.as == state {
		return d.stamped
	}
	d = v.device(id)
	s := v.stamp(tenant, id, related, d, t)
	v.unstamp(d)
	if d.stamped, d.as = s, state; s != nil {
		s.devices++
	}
	return s
}

// ownState stands for the groups of a tenant that has no dynamic ones.
const ownState uint64 = 1

// stamp finds out what Stamp returns.
func (v *View) stamp(tenant, id int64, related *AnchorSet, d *device, t *groups) *AnchorSet {
	var more []model.Anchor
	for _, token := range d.groups {
		more = append(more, model.Anchor{Type: model.GroupAnchor, Token: token})
	}
	if t != nil {
		for _, g := range t.active {
			if v.holds(g, id) {
				more = append(more, model.Anchor{Type: model.GroupAnchor, Token: g.Token})
			}
		}
	}
	if len(more) == 0 {
		return related
	}
	if related != nil {
		more = append(more, related.Anchors...)
	}
	s := v.set(tenant, more)
	if s.bytes == 0 {
		s.bytes = stampedBytes + 3*int64(len(s.Members))
		v.stamped += s.bytes
	}
	return s
}

// stampedBytes is about how many bytes a set takes besides its anchors, which are there as texts and in two forms of JSON.
const stampedBytes = 256

// unstamp forgets what the events of a device bear.
func (v *View) unstamp(d *device) {
	if d.stamped != nil {
		d.stamped.devices--
	}
	d.stamped, d.as = nil, 0
}
