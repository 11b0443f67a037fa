package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"weir/model"
	"weir/registry/shared"
	"weir/store"
	"weir/store/entity"
)

// Scopes of attributes.
const (
	ScopeClient = "CLIENT" // reported by the device
	ScopeServer = "SERVER" // of the platform alone
	ScopeShared = "SHARED" // the device may read it
)

// Types of the value of an attribute.
const (
	ValueString  = "STRING"
	ValueLong    = "LONG"
	ValueDouble  = "DOUBLE"
	ValueBoolean = "BOOLEAN"
	ValueJSON    = "JSON"
)

// Bounds of an attribute.
const (
	maxAttributeKey   = 128      // characters
	maxAttributeValue = 16 << 10 // bytes
)

// EntityKind returns the kind whose rows an entity type names, nil for none.
func (r *Registry) EntityKind(entityType string) entity.Any {
	return r.Kinds.Of(entityTypes()[entityType])
}

// Attribute is a value that an entity has under a key, in a scope. The columns are read by group selectors, too: a text is in
// text_value, numbers and truth values (1 and 0) are in number_value; a null value is in neither.
type Attribute struct {
	store.Row
	EntityType string   `store:"entity_type"`
	EntityID   int64    `store:"entity_id"`
	Scope      string   `store:"scope"`
	Key        string   `store:"key"`
	Type       string   `store:"value_type"`
	Text       *string  `store:"text_value"`
	Number     *float64 `store:"number_value"`
	Literal    *string  `store:"literal"` // a number or a JSON document as it was sent

	entity string // token of the entity, for the journal
}

// Value returns the value as text, nil for null.
func (a *Attribute) Value() *string {
	switch {
	case a.Text != nil:
		return a.Text
	case a.Literal != nil || a.Number == nil:
		return a.Literal
	}
	return new(strconv.FormatBool(*a.Number != 0))
}

// Attributes are what the entities of all tenants are known by. It is safe for concurrent use.
type Attributes struct {
	access
	rows     *store.Table[Attribute]
	limits   func() *DeviceSettings
	watchers watchers
	sharing  chan struct{} // held while SharedSets reads
}

func newAttributes(a access, limits func() *DeviceSettings) *Attributes {
	return &Attributes{
		access: a,
		rows: store.NewTable(store.Desc[Attribute]{
			Kind:  "attribute",
			Name:  "attributes",
			Order: "created_at DESC, id",
			Label: func(a *Attribute) string {
				return fmt.Sprintf("%s %s %s %s", a.EntityType, a.entity, a.Scope, a.Key)
			},
		}),
		limits:  limits,
		sharing: make(chan struct{}, 1),
	}
}

// AttributeRef names an attribute.
type AttributeRef struct {
	EntityType string `gql:"entityType"`
	Entity     string `gql:"entity"` // token
	Scope      string `gql:"scope"`
	Key        string `gql:"attrKey"`
}

// AttributeSet is a value for an attribute. A nil Value is kept as null.
type AttributeSet struct {
	AttributeRef
	Type  string  `gql:"valueType"`
	Value *string `gql:"value"`
}

// check refuses what no attribute can be named.
func (q *AttributeRef) check() error {
	switch {
	case entityTypes()[q.EntityType] == "":
		return model.Invalid("entityType", "%.40q is no type of entities with attributes", q.EntityType)
	case !slices.Contains([]string{ScopeClient, ScopeServer, ScopeShared}, q.Scope):
		return model.Invalid("scope", "%.40q is none of CLIENT, SERVER, SHARED", q.Scope)
	case strings.TrimSpace(q.Key) == "":
		return model.Invalid("attrKey", "must not be empty")
	case utf8.RuneCountInString(q.Key) > maxAttributeKey:
		return model.Invalid("attrKey", "is longer than %d characters", maxAttributeKey)
	case !storable(q.Key):
		return model.Invalid("attrKey", "holds a character that cannot be stored")
	}
	return nil
}

func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// put sets the value of a row, or refuses it by its type.
func (q *AttributeSet) put(a *Attribute) error {
	// A value of another type leaves nothing of the one before.
	a.Type, a.Text, a.Number, a.Literal = q.Type, nil, nil, nil
	if !slices.Contains([]string{ValueString, ValueLong, ValueDouble, ValueBoolean, ValueJSON}, q.Type) {
		return model.Invalid("valueType", "%.40q is none of STRING, LONG, DOUBLE, BOOLEAN, JSON", q.Type)
	}
	if q.Value == nil {
		return nil
	}
	// Bound the size before anything is parsed.
	v := *q.Value
	switch {
	case len(v) > maxAttributeValue:
		return model.OverLimit("value", "is larger than %d bytes", maxAttributeValue)
	case !storable(v):
		return model.Invalid("value", "holds a character that cannot be stored")
	}
	bad := func(what string) error { return model.Invalid("value", "%.40q is no %s", v, what) }
	switch q.Type {
	case ValueString:
		a.Text = &v
	case ValueLong:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return bad("whole number of 64 bits")
		}
		a.Number = new(float64(n))
		a.Literal = &v
	case ValueDouble:
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsInf(n, 0) || strings.Trim(v, "+-.0123456789eE") != "" {
			return bad("finite decimal number")
		}
		a.Number, a.Literal = &n, &v
	case ValueBoolean:
		if v != "true" && v != "false" {
			return bad("truth value: true or false")
		}
		a.Number = new(0.0)
		if v == "true" {
			*a.Number = 1
		}
	case ValueJSON:
		if !json.Valid([]byte(v)) || strings.TrimSpace(v) == "null" {
			return bad("JSON document other than null")
		}
		a.Literal = &v
	}
	return nil
}

// Check refuses what no attribute can be, whatever is stored.
func (q *AttributeSet) Check() error {
	if err := q.check(); err != nil {
		return err
	}
	return q.put(&Attribute{})
}

// Set gives an attribute a value, whether there is one or not.
func (as *Attributes) Set(ctx context.Context, by *model.Principal, q AttributeSet) (a *Attribute, err error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	err = as.mutate(ctx, by, func(c *store.Change) error {
		// The entity is looked up in the change: it may be deleted meanwhile.
		id, err := q.holder(c, c.By.TenantID)
		if err != nil {
			return err
		}
		if id == 0 {
			return model.Invalid("entity", "%s %.40q does not exist", q.EntityType, q.Entity)
		}
		a, err = as.put(c, id, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Delete removes an attribute; false says that there was none.
func (as *Attributes) Delete(ctx context.Context, by *model.Principal, q AttributeRef) (deleted bool, err error) {
	if err := q.check(); err != nil {
		return false, err
	}
	err = as.mutate(ctx, by, func(c *store.Change) error {
		id, err := q.holder(c, c.By.TenantID)
		if err != nil || id == 0 {
			return err
		}
		a, err := as.rows.First(c, c.By.TenantID, q.filters(id)...)
		if err != nil || a == nil {
			return err
		}
		deleted = true
		return as.take(c, a, q.Entity)
	})
	return deleted && err == nil, err
}

// holder returns the row id of the entity that an attribute is of, 0 when there is none.
func (q *AttributeRef) holder(tx store.Tx, tenant int64) (int64, error) {
	ids, err := store.IDs(tx, entityTypes()[q.EntityType], tenant, []string{q.Entity})
	return ids[q.Entity], err
}

func (q *AttributeRef) filters(id int64) []store.Filter {
	return []store.Filter{store.Eq("entity_type", q.EntityType), store.Eq("entity_id", id), store.Eq("scope", q.Scope), store.Eq("key", q.Key)}
}

// put writes an attribute of the entity with a row id. It is the one place where attributes get values;
// take is the one where they go.
func (as *Attributes) put(c *store.Change, id int64, q AttributeSet) (*Attribute, error) {
	a, err := as.rows.First(c, c.By.TenantID, q.filters(id)...)
	if err != nil {
		return nil, err
	}
	fresh := a == nil
	if fresh {
		if err := as.admit(c, id, q.EntityType); err != nil {
			return nil, err
		}
		a = &Attribute{Row: store.Row{TenantID: c.By.TenantID}, EntityType: q.EntityType, EntityID: id, Scope: q.Scope, Key: q.Key}
	}
	old := *a
	a.entity = q.Entity
	if err := q.put(a); err != nil {
		return nil, err
	}
	if fresh {
		return a, cmp.Or(as.rows.Insert(c, a), as.changed(c, nil, a))
	}
	return a, cmp.Or(as.rows.Save(c, a, "value_type", "text_value", "number_value", "literal"), as.changed(c, &old, a))
}

// take removes an attribute, whose entity has the token.
func (as *Attributes) take(c *store.Change, a *Attribute, entity string) error {
	a.entity = entity
	return cmp.Or(as.rows.Remove(c, a), as.changed(c, a, nil))
}

// admit refuses one more attribute of an entity that has as many as it may.
func (as *Attributes) admit(c *store.Change, id int64, entityType string) error {
	have, err := as.rows.Count(c, c.By.TenantID, store.Eq("entity_type", entityType), store.Eq("entity_id", id))
	if maximum := as.limits().AttributesPerEntity; err == nil && have >= maximum {
		err = model.OverLimit("limits.attributes_per_entity", "a %s has at most %d attributes", entityType, maximum)
	}
	return err
}

// takeAll removes the attributes of an entity that goes.
func (as *Attributes) takeAll(c *store.Change, entityType string, row store.Row, token string) error {
	all, err := as.rows.Select(c, row.TenantID, "scope, key", store.Eq("entity_type", entityType), store.Eq("entity_id", row.ID))
	for _, a := range all {
		if err := as.take(c, a, token); err != nil {
			return err
		}
	}
	return err
}

// Of returns the attributes of entities of a type by their row ids.
func (as *Attributes) Of(ctx context.Context, by *model.Principal, entityType string, ids []int64) (all []*Attribute, err error) {
	if err := mayReadDevices(by); err != nil {
		return nil, err
	}
	values := make([]any, len(ids))
	for i, id := range ids {
		values[i] = id
	}
	err = store.Read(ctx, as.store, func(tx store.Tx) (err error) {
		all, err = as.rows.Select(tx, by.TenantID, "entity_id, scope, key", store.Eq("entity_type", entityType), store.In("entity_id", values...))
		return err
	})
	return all, err
}

// AttributeFilter restricts a list of attributes; nil and no keys restrict nothing.
type AttributeFilter struct {
	EntityType *string  `gql:"entityType"`
	Entity     *string  `gql:"entity"` // token; needs EntityType
	Scope      *string  `gql:"scope"`
	Keys       []string `gql:"attrKeys"`
}

// List returns a page of attributes, newest first, and the number of all that match.
func (as *Attributes) List(ctx context.Context, by *model.Principal, page store.Page, f AttributeFilter) (rows []*Attribute, total int64, err error) {
	if err := mayReadDevices(by); err != nil {
		return nil, 0, err
	}
	if f.Entity != nil && f.EntityType == nil {
		return nil, 0, model.Invalid("entity", "needs entityType")
	}
	var filters []store.Filter
	if f.Scope != nil {
		filters = append(filters, store.Eq("scope", *f.Scope))
	}
	if len(f.Keys) > 0 {
		keys := make([]any, len(f.Keys))
		for i, key := range f.Keys {
			keys[i] = key
		}
		filters = append(filters, store.In("key", keys...))
	}
	if f.EntityType != nil {
		filters = append(filters, store.Eq("entity_type", *f.EntityType))
	}
	err = store.Read(ctx, as.store, func(tx store.Tx) error {
		// The token is resolved in the same snapshot as the list.
		if f.Entity != nil {
			of := AttributeRef{EntityType: *f.EntityType, Entity: *f.Entity}
			if entityTypes()[of.EntityType] == "" {
				return nil
			}
			id, err := of.holder(tx, by.TenantID)
			if err != nil || id == 0 {
				return err
			}
			filters = append(filters, store.Eq("entity_id", id).Narrow())
		}
		rows, total, err = as.rows.List(tx, by.TenantID, page, filters...)
		return err
	})
	return rows, total, err
}

// watchers are those who are told of devices whose attributes of the scope SHARED have changed.
type watchers struct {
	mu  sync.Mutex
	all []func(device int64)
}

// OnShared has f called with the row id of each device whose attributes of the scope SHARED have changed, after the commit and
// possibly several times for one. f must not block, and calls nothing of the store.
func (as *Attributes) OnShared(f func(device int64)) {
	as.watchers.mu.Lock()
	defer as.watchers.mu.Unlock()
	as.watchers.all = append(as.watchers.all, f)
}

// sharedChanged tells the watchers of a device once the change is committed.
func (as *Attributes) sharedChanged(c *store.Change, device int64) {
	c.OnCommit(func() {
		// Call them without the lock: they may be added meanwhile.
		as.watchers.mu.Lock()
		all := as.watchers.all
		as.watchers.mu.Unlock()
		for _, f := range all {
			f(device)
		}
	})
}

// SharedSets returns what devices may read of themselves, in the order of the argument; of a Binding it reads TenantID and DeviceID. The
// set of a device that does not exist is empty. Calls wait for one another: no credential is checked the later because a device asks often.
func (as *Attributes) SharedSets(ctx context.Context, devices ...model.Binding) ([]shared.Set, error) {
	select {
	case as.sharing <- struct{}{}:
		defer func() { <-as.sharing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	sets := make([]shared.Set, len(devices))
	err := as.waiting.Read(ctx, func(tx store.Tx) error {
		for i, d := range devices {
			// All in one snapshot, in the order of the callers.
			rows, err := as.rows.Select(tx, d.TenantID, "key", store.Eq("entity_type", EntityDevice), store.Eq("entity_id", d.DeviceID), store.Eq("scope", ScopeShared))
			if err != nil {
				return err
			}
			all := make([]shared.Attribute, len(rows))
			for i, a := range rows {
				all[i] = a.shared()
			}
			sets[i] = shared.SetOf(all)
		}
		return nil
	})
	return sets, err
}

// shared is the attribute as its device reads it.
func (a *Attribute) shared() shared.Attribute {
	to := shared.Attribute{Key: a.Key, Text: a.Text, Literal: a.Literal}
	if a.Type == ValueBoolean && a.Number != nil {
		to.Bool = new(*a.Number != 0)
	}
	return to
}
