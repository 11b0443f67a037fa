package site

import (
	"slices"

	"weir/model"
	"weir/store"
)

// level is the instance or one tenant: where entities are declared in lists, and what is inside of them.
type level struct {
	*work
	kind   *kind  // the root or the tenant
	tenant string // "" for the instance
	lists  map[string][]*Entity
	by     *model.Principal
}

func (w *work) top() *level {
	return &level{work: w, kind: w.format.root, lists: w.doc.Lists, by: w.by}
}

// enter is the level of a tenant, which exists.
func (w *work) enter(e *Entity) (*level, error) {
	rows, err := w.format.tenant.live.ByToken(w.ctx, w.by, []string{e.Name})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, model.NotFound(w.format.tenant.name, e.Name)
	}
	by := *w.by
	by.Tenant, by.TenantID = e.Name, w.format.tenant.live.Head(rows[0]).ID
	if w.parts.Govern.Deleted(by.TenantID) {
		return nil, model.Errorf(model.CodeConflict, "conflict: the tenant %s is deleted and its data is being erased; take it out of the files", e.Name)
	}
	return &level{work: w, kind: w.format.tenant, tenant: e.Name, lists: e.Lists, by: &by}, nil
}

// kinds are those of the level, parts too; what is referred to comes first.
func (l *level) kinds() (ks []*kind) {
	for _, k := range l.format.kinds {
		top := k
		for top.parent != nil {
			top = top.outer
		}
		if top.outer == l.kind {
			ks = append(ks, k)
		}
	}
	return ks
}

// declared is an entity to be made or changed, with the fields that follow from where it stands.
type declared struct {
	*Entity
	implied store.Patch
}

// declared gathers the entities of a kind.
func (l *level) declared(k *kind) (all []declared) {
	if k.parent == nil {
		for _, e := range l.lists[k.list] {
			all = append(all, declared{Entity: e})
		}
		return all
	}
	for _, o := range l.declared(k.outer) {
		for _, e := range o.Lists[k.list] {
			all = append(all, declared{e, store.Patch{k.parent.Name: o.Name}})
		}
	}
	return all
}

// row is a row with its values as a file would give them.
type row struct {
	row    any
	name   string
	values store.Patch
}

func (l *level) rows(k *kind, of []any) ([]row, error) {
	values, err := k.live.Values(l.ctx, l.by, of...)
	if err == nil && k.values != nil {
		err = k.values(l, k, of, values)
	}
	rows := make([]row, len(values))
	for i, v := range values {
		rows[i] = row{of[i], k.named(of[i]), v}
	}
	return rows, err
}

// each calls f for every row of a kind.
func (l *level) each(k *kind, f func(row) error) error {
	for page, seen := 1, int64(0); ; page++ {
		some, total, err := k.live.List(l.ctx, l.by, store.Page{Number: page, Size: store.MaxPageSize})
		if err != nil {
			return err
		}
		rows, err := l.rows(k, some)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := f(row); err != nil {
				return err
			}
		}
		if seen += int64(len(rows)); seen >= total || len(rows) == 0 {
			return nil
		}
	}
}

// batch is how many rows are read at once.
const batch = 256

// put creates and changes the declared entities. It reads rows in groups; an entity that is as declared costs no more than
// that.
func (l *level) put() error {
	for _, k := range l.kinds() {
		for some := range slices.Chunk(l.declared(k), batch) {
			if err := l.putSome(k, some); err != nil {
				return err
			}
		}
		if k.first {
			if err := l.publishKind(k); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *level) putSome(k *kind, some []declared) error {
	names := make([]string, len(some))
	for i := range some {
		names[i] = some[i].Name
	}
	found, err := k.find(l, k, names)
	if err != nil {
		return err
	}
	rows, err := l.rows(k, found)
	if err != nil {
		return err
	}
	have := make(map[string]*row, len(rows))
	for i := range rows {
		have[rows[i].name] = &rows[i]
	}
	for i := range some {
		d := &some[i]
		if l.followsLost(k, d) {
			l.lose(l.tenant, k.list, d.Name)
			continue
		}
		if r := have[d.Name]; r != nil {
			err = l.change(k, d, r)
		} else {
			err = l.make(k, d)
		}
		if err != nil {
			l.lose(l.tenant, k.list, d.Name)
			if err := l.refuse(d.Entity, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// followsLost reports whether an entity is a part of, or refers to, one that was refused.
func (l *level) followsLost(k *kind, d *declared) bool {
	if len(l.lost) == 0 {
		return false
	}
	if k.parent != nil && l.isLost(l.tenant, k.outer.list, d.implied[k.parent.Name].(string)) {
		return true
	}
	if k.mentions != nil && slices.ContainsFunc(k.mentions(d.Entity), func(m mention) bool { return l.isLost(l.tenant, m.list, m.name) }) {
		return true
	}
	return slices.ContainsFunc(k.fields, func(f field) bool {
		name, ok := d.Fields[f.name].(string)
		return ok && f.ref != "" && l.isLost(l.tenant, f.ref, name)
	})
}

func (l *level) change(k *kind, d *declared, have *row) error {
	patch, fields := k.diff(have.values, d.Fields)
	for name, v := range d.implied {
		if have.values[name] != v {
			patch[name] = v
			fields = append(fields, FieldChange{Name: name, Old: have.values[name], New: v})
		}
	}
	more, err := k.secrets(l, k, d, have.row, patch)
	if err != nil || len(patch) == 0 {
		return err
	}
	if err := k.write(l, k, d.Name, false, patch); err != nil {
		return err
	}
	l.plan.add(Change{Op: Update, Kind: k.name, Tenant: l.tenant, Name: d.Name, Fields: append(fields, more...)})
	return nil
}

func (l *level) make(k *kind, d *declared) error {
	patch := k.naming(d.Name)
	for i := range k.fields {
		if f := &k.fields[i]; f.fresh != nil {
			patch[f.name] = f.fresh
		}
	}
	for _, from := range []store.Patch{d.Fields, d.implied} {
		for name, v := range from {
			if name != keyPublish {
				patch[name] = v
			}
		}
	}
	if _, err := k.secrets(l, k, d, nil, patch); err != nil {
		return err
	}
	if err := k.write(l, k, d.Name, true, patch); err != nil {
		return err
	}
	l.plan.add(Change{Op: Create, Kind: k.name, Tenant: l.tenant, Name: d.Name})
	return nil
}

func plainFind(l *level, k *kind, names []string) ([]any, error) {
	return k.live.ByToken(l.ctx, l.by, names)
}

func plainRemove(l *level, k *kind, name string) error {
	_, err := k.live.Delete(l.ctx, l.by, name)
	return err
}

// plainWrite makes or updates a row by the verbs of its kind.
func plainWrite(l *level, k *kind, name string, fresh bool, patch store.Patch) (err error) {
	if fresh {
		_, err = k.live.Create(l.ctx, l.by, patch)
	} else {
		_, err = k.live.Update(l.ctx, l.by, name, patch)
	}
	return err
}

// plainSecrets puts the secrets that the file gives into a patch, where they are others than those stored.
func plainSecrets(_ *level, k *kind, d *declared, row any, patch store.Patch) (fields []FieldChange, err error) {
	for i := range k.fields {
		f := &k.fields[i]
		if !f.secret {
			continue
		}
		var want any
		given, ok := d.Secrets[f.name]
		if ok {
			want = given
		}
		if _, null := d.Fields[f.name]; !ok && !null || row != nil && k.live.Value(row, f.column) == want {
			continue
		}
		patch[f.name] = want
		fields = append(fields, FieldChange{Name: f.name, Secret: true})
	}
	return fields, nil
}
