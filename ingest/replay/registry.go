package replay

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"weir/ingest/view"
	"weir/model"
	"weir/store"
	"weir/store/past"
)

// registry is the metadata of a tenant as of a place of the log, and how it changes after it.
type registry struct {
	view    *view.View
	changes []change // that are still to come, in the order of the log
	known   []past.Place
	devices map[int64]bool   // that had the profile, at one time or another
	tokens  map[int64]string // of devices, as of the place
	moves   uint64           // changes so far

	tenantID int64
	profile  int64
	types    map[string]bool // that had the profile: keys of their rows
	unread   []string        // geofences that cannot be read, in the order in which they were met
}

// change is what changes with one record.
type change struct {
	offset model.Offset
	rows   []past.Change
}

// kinds are those of the view, in the order in which the rows of one change become effective.
var kinds = [...]model.ViewKind{model.ViewTenant, model.ViewDeviceType, model.ViewProfile, model.ViewDevice, model.ViewAnchors, model.ViewAttribute,
	model.ViewMemberships, model.ViewGroup, model.ViewFence, model.ViewFenceSet}

// load reads the view as of an offset, and its changes up to another.
func (g *registry) load(tx store.Tx, q *Query, at, upto model.Offset) error {
	g.view, g.devices, g.tokens, g.types = view.New(), map[int64]bool{}, map[int64]string{}, map[string]bool{}
	g.tenantID, g.profile = q.TenantID, q.Profile
	id, profile := strconv.FormatInt(q.TenantID, 10), strconv.FormatInt(q.Profile, 10)
	later := map[model.Offset]map[rowKey]past.Change{}
	for _, kind := range kinds {
		prefix, exact := "", false
		switch kind {
		case model.ViewTenant:
			prefix, exact = q.Tenant, true
		case model.ViewDevice:
			prefix = q.Tenant + "/"
		case model.ViewProfile:
			prefix, exact = profile, true
		case model.ViewFence:
			prefix = id + "/"
		case model.ViewFenceSet:
			prefix, exact = id, true
		}
		err := past.View(tx, kind, prefix, at, upto, func(p past.Place) { g.known = append(g.known, p) }, func(c past.Change) error {
			switch {
			case exact && c.Key != prefix || !g.concerns(&c):
			case c.From == 0:
				_, err := g.set(&c)
				return err
			default:
				if later[c.From] == nil {
					later[c.From] = map[rowKey]past.Change{}
				}
				k := rowKey{c.Kind, c.Key}
				if before, known := later[c.From][k]; !known || before.Body == nil { // a row that another one replaces does not end
					later[c.From][k] = c
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if q.Scope != nil {
		if err := g.scope(q.Scope); err != nil {
			return err
		}
	}
	for offset, rows := range later {
		c := change{offset: offset}
		for _, row := range rows {
			c.rows = append(c.rows, row)
		}
		slices.SortFunc(c.rows, func(a, b past.Change) int {
			return cmp.Or(cmp.Compare(slices.Index(kinds[:], a.Kind), slices.Index(kinds[:], b.Kind)), strings.Compare(a.Key, b.Key))
		})
		g.changes = append(g.changes, c)
	}
	slices.SortFunc(g.changes, func(a, b change) int { return cmp.Compare(a.offset, b.offset) })
	return nil
}

type rowKey struct {
	kind model.ViewKind
	key  string
}

// concerns reports whether a row concerns the profile and its devices, and notes these.
func (g *registry) concerns(c *past.Change) bool {
	switch c.Kind {
	case model.ViewDeviceType:
		var t model.DeviceTypeView
		if c.Body != nil && json.Unmarshal(c.Body, &t) == nil && t.Profile == g.profile {
			g.types[c.Key] = true
		}
	case model.ViewDevice:
		var d model.DeviceView
		if c.Body != nil && json.Unmarshal(c.Body, &d) == nil && g.types[strconv.FormatInt(d.Type, 10)] {
			g.devices[d.ID] = true
		}
	case model.ViewAnchors, model.ViewMemberships, model.ViewAttribute:
		id, _, _ := strings.Cut(c.Key, "/")
		device, err := strconv.ParseInt(id, 10, 64)
		return err == nil && g.devices[device]
	case model.ViewGroup:
		var v model.GroupView
		return c.Body == nil || json.Unmarshal(c.Body, &v) == nil && v.Tenant == g.tenantID
	}
	return true
}

// scope lets the view know a version of a group that no rule is scoped to.
func (g *registry) scope(v *model.GroupView) error {
	if _, known := g.view.InGroup(v.Tenant, 0, v.Token, v.Version); known {
		return nil
	}
	body, err := json.Marshal(v)
	if err == nil {
		_, err = g.view.Set(model.ViewGroup, "preview", body)
	}
	return err
}

// set makes a row effective. A geofence that cannot be read, of a damaged page of the store, ends no preview: nothing is
// within it, and it is one of unread. The returned change is nil then.
func (g *registry) set(c *past.Change) (*view.Change, error) {
	g.moves++
	made, err := g.view.Set(c.Kind, c.Key, c.Body)
	if err != nil && (c.Kind == model.ViewFence || c.Kind == model.ViewFenceSet) {
		_, name, _ := strings.Cut(c.Key, "/")
		if name == "" {
			name = "the set of geofences"
		}
		if !slices.Contains(g.unread, name) {
			g.unread = append(g.unread, name)
		}
		return nil, nil
	}
	if err == nil && c.Kind == model.ViewDevice && c.Body != nil {
		_, token, _ := strings.Cut(c.Key, "/")
		g.tokens[made.ID] = token
	}
	return made, err
}

// next returns the next change, nil when there is none.
func (g *registry) next() *change {
	if len(g.changes) == 0 {
		return nil
	}
	return &g.changes[0]
}

// passed removes it.
func (g *registry) passed() { g.changes = g.changes[1:] }
