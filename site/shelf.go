package site

import (
	"maps"

	"weir/store"
	"weir/store/entity"
)

// declared is an entity to be made or changed, with the fields that follow from where it stands.
type declared struct {
	*Entity
	implied store.Patch
}

func plain(list []*Entity) []declared {
	out := make([]declared, len(list))
	for i, e := range list {
		out[i].Entity = e
	}
	return out
}

// below gathers what is declared inside entities; field is what refers to the outer one.
func below(outer []*Entity, list, field string) []declared {
	var out []declared
	for _, o := range outer {
		for _, e := range o.Lists[list] {
			out = append(out, declared{e, store.Patch{field: o.Name}})
		}
	}
	return out
}

// shelf is how one kind of the registry is put into its place.
type shelf[T any] struct {
	t      *inTenant
	kind   *kind
	live   *entity.Kind[T]
	values func(*T) store.Patch // with tokens for row ids
	// create and update complete a patch; update also says what it changes of the secrets.
	create func(d *declared, patch store.Patch) error
	update func(d *declared, row *T, patch store.Patch) ([]FieldChange, error)
	seen   func(*T) // called with each row that is declared
}

// batch is how many rows are read at once.
const batch = 256

// put makes and changes what is declared. Rows are read some at a time, and what is as declared costs no more than that.
func (s *shelf[T]) put(list []declared) error {
	for len(list) > 0 {
		some := list[:min(batch, len(list))]
		list = list[len(some):]
		names := make([]string, len(some))
		for i := range some {
			names[i] = some[i].Name
		}
		rows, err := s.live.ByToken(s.t.ctx, s.t.by, names)
		if err != nil {
			return err
		}
		have := make(map[string]*T, len(rows))
		for _, row := range rows {
			have[s.live.Values(row)["token"].(string)] = row
		}
		for i := range some {
			if err := s.one(&some[i], have[some[i].Name]); err != nil {
				return at(some[i].Entity, err)
			}
		}
	}
	return nil
}

func (s *shelf[T]) one(d *declared, row *T) error {
	if row == nil {
		return s.made(d)
	}
	have := s.values(row)
	patch, fields := s.kind.diff(have, d.Fields)
	for name, v := range d.implied {
		if have[name] != v {
			patch[name] = v
			fields = append(fields, FieldChange{Name: name, Old: have[name], New: v})
		}
	}
	if s.update != nil {
		more, err := s.update(d, row, patch)
		if err != nil {
			return err
		}
		fields = append(fields, more...)
	}
	if len(patch) == 0 {
		s.noted(row)
		return nil
	}
	if _, err := s.live.Update(s.t.ctx, s.t.by, d.Name, patch); err != nil {
		return err
	}
	s.noted(row)
	s.t.plan.add(Change{Op: Update, Kind: s.kind.name, Tenant: s.t.e.Name, Name: d.Name, Fields: fields})
	return nil
}

func (s *shelf[T]) made(d *declared) error {
	patch := named(d.Entity)
	maps.Copy(patch, d.implied)
	delete(patch, keyPublish)
	if f := s.kind.field("enabled"); f != nil {
		if _, ok := patch["enabled"]; !ok {
			patch["enabled"] = true
		}
	}
	if s.create != nil {
		if err := s.create(d, patch); err != nil {
			return err
		}
	}
	row, err := s.live.Create(s.t.ctx, s.t.by, patch)
	if err != nil {
		return err
	}
	s.noted(row)
	s.t.plan.add(Change{Op: Create, Kind: s.kind.name, Tenant: s.t.e.Name, Name: d.Name})
	return nil
}

func (s *shelf[T]) noted(row *T) {
	if s.seen != nil {
		s.seen(row)
	}
}

// each calls f for every row of a kind.
func each[T any](t *inTenant, k *entity.Kind[T], f func(*T)) error {
	for page, seen := 1, int64(0); ; page++ {
		rows, total, err := k.List(t.ctx, t.by, store.Page{Number: page, Size: store.MaxPageSize})
		if err != nil {
			return err
		}
		for _, row := range rows {
			f(row)
		}
		if seen += int64(len(rows)); seen >= total || len(rows) == 0 {
			return nil
		}
	}
}

// token replaces the row id of a reference by its token.
func token(p store.Patch, field string, of map[int64]string) {
	if id, ok := p[field].(int64); ok {
		p[field] = of[id]
	}
}
