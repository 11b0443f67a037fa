package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/model"
	"weir/registry"
	"weir/rules"
	"weir/store"
	"weir/store/entity"
)

// A Weir above says what the platform at a site is to know of the site's devices as a document of the site format: ForEdge makes it above, Follow
// makes the site what it says.

// MaxFollowed is how many devices an edge may be told of.
const MaxFollowed = 20_000

// followed are the kinds that a document for an edge has, in their order.
var followed = []string{tableProfiles, tableTypes, tableFences, tableDevices}

// ForEdge returns what the edge edge is to know of its tenant: its devices, their types, the published profiles of these as far as they concern the
// site, and geofences. Every field of an entity is named, those without a value with null. The error is registry.ErrNoEdge, CodeLimitExceeded for more
// devices than MaxFollowed, or a fault of the store.
func (s *Site) ForEdge(ctx context.Context, edge model.Binding) (*Document, error) {
	by := model.Service("edge", edge.Tenant, edge.TenantID, model.DeviceRead, model.DeviceWrite, model.LocationRead)
	d := &Document{Files: []File{}, Lists: map[string][]*Entity{}, format: s.format}
	tenant := &Entity{Name: edge.Tenant, Lists: map[string][]*Entity{}}
	d.Lists[s.format.tenant.list] = []*Entity{tenant}
	err := s.parts.Store.Read(ctx, func(tx store.Tx) error {
		clear(tenant.Lists)
		scope, err := s.parts.Registry.Edges.ScopeOf(tx, edge)
		if err != nil {
			return err
		}
		c := &store.Change{Tx: tx, By: by}
		l := &level{work: s.work(c, by, d, Options{}, &passwords{}), kind: s.format.tenant, tenant: edge.Tenant, lists: tenant.Lists, by: by}
		return l.forEdge(scope)
	})
	if err != nil {
		return nil, err
	}
	s.format.root.sort(d.Lists)
	return d, nil
}

func (l *level) forEdge(scope *registry.EdgeScope) error {
	for _, table := range followed {
		k := l.format.of(table)
		l.lists[k.list] = []*Entity{}
		if err := l.each(k, func(r row) error {
			id := k.live.Head(r.row).ID
			if table == tableDevices {
				if in, err := scope.Speaks(id); err != nil || !in {
					return err
				}
				if len(l.lists[k.list]) >= MaxFollowed {
					return model.OverLimit("edge.sync", "the edge speaks for more than %d devices, of which it cannot be told all", MaxFollowed)
				}
			}
			e := add(l.lists, k, r.name, r.values)
			k.nullAll(e)
			if table != tableProfiles {
				return nil
			}
			return l.published(k, e, scope.Active[id])
		}); err != nil {
			return err
		}
	}
	if scope.All {
		return nil
	}
	l.onlyNamed(tableDevices, "deviceTypeToken", tableTypes)
	l.onlyNamed(tableTypes, "profileToken", tableProfiles)
	return nil
}

// onlyNamed leaves of a kind those that another one names.
func (l *level) onlyNamed(by, field, of string) {
	named := map[string]bool{}
	for _, e := range l.lists[l.format.of(by).list] {
		if token, ok := e.Fields[field].(string); ok {
			named[token] = true
		}
	}
	list := l.format.of(of).list
	l.lists[list] = slices.DeleteFunc(l.lists[list], func(e *Entity) bool { return !named[e.Name] })
}

// nullAll names each field of an entity that has no value, so that one which is taken away above is taken away below.
func (k *kind) nullAll(e *Entity) {
	for i := range k.fields {
		f := &k.fields[i]
		if _, ok := e.Fields[f.name]; !ok && !f.own && !f.secret && !f.required {
			e.Fields[f.name] = nil
		}
	}
}

// published puts what the effective version of a profile holds in place of the draft: its metrics, its commands, and its rules for the site. A profile
// without one has nothing inside, and is not published below either.
func (l *level) published(k *kind, e *Entity, v *registry.Snapshot) error {
	metrics, commands, detections := l.format.of(tableMetrics), l.format.of(tableCommands), l.format.of(tableRules)
	for _, inner := range []*kind{metrics, commands, detections} {
		e.Lists[inner.list] = []*Entity{}
	}
	if v == nil {
		e.Fields[keyPublish] = false
		return nil
	}
	e.Fields["inactivityTimeoutSeconds"], e.Fields["location"], e.Fields["lwm2m"] = nil, nil, nil
	if v.InactivityTimeout > 0 {
		e.Fields["inactivityTimeoutSeconds"] = int64(v.InactivityTimeout)
	}
	if v.LwM2M != nil {
		e.Fields["lwm2m"] = string(v.LwM2M)
	}
	if v.Location != nil {
		text, err := json.Marshal(v.Location)
		if err != nil {
			return err
		}
		e.Fields["location"] = string(text)
	}
	for _, m := range v.Metrics {
		p := store.Patch{"metricKey": m.Key, "name": orNil(m.Name), "description": orNil(m.Description), "dataType": m.DataType, "unit": orNil(m.Unit),
			"minValue": pointed(m.Min), "maxValue": pointed(m.Max), "outOfRange": m.OutOfRange, "descriptor": orNil(m.Descriptor)}
		if m.OutOfRange == "" {
			p["outOfRange"] = model.OutOfRangeRefuse
		}
		if len(m.Enum) > 0 {
			text, err := json.Marshal(m.Enum)
			if err != nil {
				return err
			}
			p["enum"] = string(text)
		}
		if len(m.SourceNames) > 0 {
			p["sourceNames"] = m.SourceNames
		}
		metrics.nullAll(add(e.Lists, metrics, m.Token, p))
	}
	for _, c := range v.Commands {
		commands.nullAll(add(e.Lists, commands, c.Token, store.Patch{"commandKey": c.Key, "name": pointed(c.Name), "description": pointed(c.Description), "parameterSchema": pointed(c.Parameters)}))
	}
	for _, r := range v.Rules {
		if !r.Enabled || r.Placement != model.PlacementEdge {
			continue
		}
		definition, err := atSite(r.Definition)
		if err != nil {
			return fmt.Errorf("rule %q of the published profile %q: %w", r.Token, e.Name, err)
		}
		detections.nullAll(add(e.Lists, detections, r.Token, store.Patch{"name": orNil(r.Name), "description": orNil(r.Description), "definition": definition, "enabled": true,
			"placement": model.PlacementEdge}))
	}
	return nil
}

// atSite is the definition of a rule with the actions that are performed where it is judged. Calls, messages and what people are told are done once,
// above.
func atSite(definition string) (string, error) {
	d, err := rules.Decode([]byte(definition))
	if err != nil {
		return "", err
	}
	d.Actions = slices.DeleteFunc(d.Actions, func(a rules.Action) bool { return !a.Type.AtSite() })
	return string(d.Canonical()), nil
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func pointed[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// Followed is what came of following.
type Followed struct {
	Plan     *Plan
	Released int // rows that are managed no more
}

// Follow makes a tenant what a Weir above says of it, in one transaction: what ForEdge has made. The tenant is made where it is missing. What is declared
// is managed from then on, and what was and is not any more may be changed again. edge is the device as which this instance signs in there. A document with
// anything else in it is refused.
func (s *Site) Follow(ctx context.Context, tenant, edge string, d *Document) (*Followed, error) {
	if err := s.mayFollow(tenant, d); err != nil {
		return nil, err
	}
	by := &model.Principal{Kind: model.LocalOperator, Subject: "edge:" + edge}
	out := &Followed{}
	declared := d.Lists[s.format.tenant.list][0]
	err := s.parts.Writer.Mutate(entity.Managing(ctx), by, func(c *store.Change) (err error) {
		if out.Plan, err = s.Apply(c.Context(), by, d, Options{Parts: true}); err != nil {
			return err
		}
		w := s.work(c, by, d, Options{}, &passwords{})
		l, err := w.enter(declared)
		if err != nil {
			return err
		}
		return s.parts.Writer.Mutate(c.Context(), l.by, func(c *store.Change) (err error) {
			out.Released, err = s.parts.Registry.Manage(c, edge, registry.ManagedTokens{Types: l.tokens(tableTypes), Profiles: l.tokens(tableProfiles), Devices: l.tokens(tableDevices),
				Fences: l.tokens(tableFences)})
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (l *level) tokens(table string) (tokens []string) {
	for _, e := range l.lists[l.format.of(table).list] {
		tokens = append(tokens, e.Name)
	}
	return tokens
}

// errNotFollowed refuses a document that no ForEdge has made.
var errNotFollowed = errors.New("the document of the Weir above declares what this version does not follow: update the older of the two, or set edge.uplink.sync: false")

// mayFollow refuses a document that declares anything but what ForEdge declares.
func (s *Site) mayFollow(tenant string, d *Document) error {
	list := s.format.tenant.list
	if len(d.Lists) != 1 || len(d.Lists[list]) != 1 || d.Lists[list][0].Name != tenant || len(d.Lists[list][0].Fields) > 0 {
		return errNotFollowed
	}
	lists := map[string][]string{}
	for _, table := range followed {
		lists[s.format.of(table).list] = nil
	}
	profiles := s.format.of(tableProfiles)
	for _, table := range []string{tableMetrics, tableCommands, tableRules} {
		lists[profiles.list] = append(lists[profiles.list], s.format.of(table).list)
	}
	for name, all := range d.Lists[list][0].Lists {
		inner, ok := lists[name]
		if !ok || len(all) > MaxFollowed {
			return errNotFollowed
		}
		for _, e := range all {
			if e == nil || len(e.Secrets) > 0 || strings.Contains(e.Name, "/") {
				return errNotFollowed
			}
			for part, parts := range e.Lists {
				if len(parts) > 0 && !slices.Contains(inner, part) || slices.ContainsFunc(parts, func(p *Entity) bool { return p == nil || len(p.Secrets)+len(p.Lists) > 0 }) {
					return errNotFollowed
				}
			}
		}
	}
	return nil
}
