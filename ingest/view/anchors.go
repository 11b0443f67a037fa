package view

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"weir/model"
)

// AnchorSet is what some devices of a tenant belong to. Devices with the same anchors share one.
type AnchorSet struct {
	TenantID int64
	Members  string         // JSON: the anchors, sorted, each once; with the tenant it names the set
	Anchors  []model.Anchor // the same
	// Number is that of the set in the store, 0 as long as no event bears it.
	Number int64

	devices int // that have it
}

func (v *View) setAnchors(c *Change) (err error) {
	if c.ID, err = strconv.ParseInt(c.Key, 10, 64); err != nil {
		return err
	}
	if c.Body == nil {
		v.anchor(c.ID, nil)
		return nil
	}
	var b model.AnchorsView
	if err := decode(c.Body, &b, func() int { return b.V }); err != nil {
		return err
	}
	if len(b.Anchors) == 0 {
		return errors.New("no anchors")
	}
	set, err := v.set(b.Tenant, b.Anchors)
	if err == nil {
		v.anchor(c.ID, set)
	}
	return err
}

// set returns the one set of these anchors.
func (v *View) set(tenant int64, anchors []model.Anchor) (*AnchorSet, error) {
	anchors = slices.Clone(anchors)
	slices.SortFunc(anchors, func(a, b model.Anchor) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Token, b.Token)) })
	anchors = slices.Compact(anchors)
	members, err := json.Marshal(anchors)
	if err != nil {
		return nil, err
	}
	key := strconv.FormatInt(tenant, 10) + string(members)
	s := v.sets[key]
	if s == nil {
		s = &AnchorSet{TenantID: tenant, Members: string(members), Anchors: anchors}
		v.sets[key] = s
	}
	return s, nil
}

// anchor gives a device another set, nil for none. A set that no device has stays until DropAnchorSets: its number may not
// be committed yet.
func (v *View) anchor(device int64, s *AnchorSet) {
	if old := v.anchors[device]; old != nil {
		old.devices--
	}
	if s == nil {
		delete(v.anchors, device)
		return
	}
	s.devices++
	v.anchors[device] = s
}

// AnchorSets calls f for each set, in no promised order.
func (v *View) AnchorSets(f func(*AnchorSet)) {
	for _, s := range v.sets {
		f(s)
	}
}

// DropAnchorSets removes the sets that no device has. What they were numbered with must be committed.
func (v *View) DropAnchorSets() {
	for key, s := range v.sets {
		if s.devices == 0 {
			delete(v.sets, key)
		}
	}
}
