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

	devices int   // that have it
	bytes   int64 // that it takes beyond the rows that it follows from
}

func (v *View) setAnchors(c *Change) (err error) {
	if c.ID, err = strconv.ParseInt(c.Key, 10, 64); err != nil {
		return err
	}
	var before []model.Anchor
	if old := v.anchors[c.ID]; old != nil {
		before = old.Anchors
	}
	if c.Body == nil {
		v.anchor(c.ID, nil)
		c.Left = before
		return nil
	}
	var b model.AnchorsView
	if err := decode(c.Body, &b, func() int { return b.V }); err != nil {
		return err
	}
	if len(b.Anchors) == 0 {
		return errors.New("no anchors")
	}
	now := v.set(b.Tenant, b.Anchors)
	v.anchor(c.ID, now)
	for _, a := range before {
		if !slices.Contains(now.Anchors, a) {
			c.Left = append(c.Left, a)
		}
	}
	return nil
}

// set returns the one set of these anchors.
func (v *View) set(tenant int64, anchors []model.Anchor) *AnchorSet {
	anchors = slices.Clone(anchors)
	slices.SortFunc(anchors, func(a, b model.Anchor) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Token, b.Token)) })
	anchors = slices.Compact(anchors)
	members, _ := json.Marshal(anchors) // strings can always be encoded
	key := strconv.FormatInt(tenant, 10) + string(members)
	s := v.sets[key]
	if s == nil {
		s = &AnchorSet{TenantID: tenant, Members: string(members), Anchors: anchors}
		v.sets[key] = s
	}
	return s
}

// anchor gives a device another set, nil for none. A set that no device has stays until DropAnchorSets: its number may not
// be committed yet.
func (v *View) anchor(device int64, s *AnchorSet) {
	if d := v.devices[device]; d != nil {
		d.as = 0
	}
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

// DropAnchorSets removes the sets that no device has. What they were numbered with must be committed. When the sets that groups make
// take too much memory none is remembered: each is made again for the next event that bears it.
func (v *View) DropAnchorSets() {
	if v.StampsAreMany() {
		for _, d := range v.devices {
			v.unstamp(d)
		}
	}
	for key, s := range v.sets {
		if s.devices == 0 {
			v.stamped -= s.bytes
			delete(v.sets, key)
		}
	}
}

// maxStamped bounds the memory of the sets that groups make.
const maxStamped = 8 << 20

// StampsAreMany reports whether the sets that groups make take so much memory that DropAnchorSets is due.
func (v *View) StampsAreMany() bool { return v.stamped > maxStamped }
