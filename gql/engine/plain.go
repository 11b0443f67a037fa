package engine

import (
	"reflect"
	"slices"

	"github.com/vektah/gqlparser/v2/ast"
)

// Most queries are plain: their root fields select Go fields of objects, of lists of objects and of leaves at every
// level, and references from the rows of a list. The plain path writes JSON while it reads the values. The executor
// would first make a path, a map entry and two deferred functions for each value, which costs ten times as much. When a
// step turns out not to be plain (a null in a non-null field, an error, a Thunk other than a reference, a limit), the
// executor runs it with the values that the root fields already have, so that only one place decides how an error
// changes a response.

// plain is a field of a plain selection.
type plain struct {
	start []byte // "key":
	typ   *ast.Type
	read  map[reflect.Type]accessor
	leaf  func(any) (any, error) // nil for an object
	fixed []byte                 // of __typename
	refer *field                 // reads rows that the object refers to, see refers
	below []plain                // of an object
}

// plainRoot is a root field of a plain selection.
type plainRoot struct {
	plain
	key   string
	field *ast.Field
	reg   *field
}

// shownField is how a field that no resolver is registered for is read, and how its leaves are shown.
type shownField struct {
	read map[reflect.Type]accessor
	leaf func(any) (any, error)
}

// plainRoots returns the root fields of a query, nil unless all of them are plain.
func (c *converter) plainRoots(set ast.SelectionSet) []plainRoot {
	fields, ok := flat(set, c.engine.schema.Query.Name, nil)
	if !ok {
		return nil
	}
	var roots []plainRoot
	for _, f := range fields {
		if asksSchema(f) {
			continue
		}
		reg := c.engine.registered(f)
		if reg == nil {
			return nil
		}
		p := plain{start: jsonKey(f.Alias), typ: f.Definition.Type}
		if !c.complete(&p, f, true) {
			return nil
		}
		roots = append(roots, plainRoot{plain: p, key: f.Alias, field: f, reg: reg})
	}
	return roots
}

// flat returns the fields of a selection on an object type, fragments spread; ok is false when the selection
// depends on variables or on a value's type, or a response key has several fields.
func flat(set ast.SelectionSet, object string, into []*ast.Field) (out []*ast.Field, ok bool) {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			if len(s.Directives) > 0 || slices.ContainsFunc(into, func(f *ast.Field) bool { return f.Alias == s.Alias }) {
				return nil, false
			}
			into = append(into, s)
		case *ast.InlineFragment:
			if len(s.Directives) > 0 || s.TypeCondition != "" && s.TypeCondition != object {
				return nil, false
			}
			if into, ok = flat(s.SelectionSet, object, into); !ok {
				return nil, false
			}
		case *ast.FragmentSpread:
			if len(s.Directives) > 0 || len(s.Definition.Directives) > 0 || s.Definition.TypeCondition != object {
				return nil, false
			}
			if into, ok = flat(s.Definition.SelectionSet, object, into); !ok {
				return nil, false
			}
		}
	}
	return into, true
}

// complete fills in the selection below a field; false when it is not plain. A referred object may not refer further: its
// references would be read row by row, where the executor reads them in one batch.
func (c *converter) complete(p *plain, f *ast.Field, mayRefer bool) bool {
	def := c.engine.schema.Types[f.Definition.Type.Name()]
	if def.IsLeafType() {
		if p.leaf == nil { // of a root field
			p.leaf = c.engine.leaves[def.Name]
		}
		return p.leaf != nil
	}
	if def.Kind != ast.Object {
		return false
	}
	fields, ok := flat(f.SelectionSet, def.Name, nil)
	if !ok {
		return false
	}
	for _, below := range fields {
		q := plain{start: jsonKey(below.Alias), typ: below.Definition.Type}
		if !c.inside(&q, def.Name, below, mayRefer) {
			return false
		}
		p.below = append(p.below, q)
	}
	return true
}

// inside fills in one field of an object.
func (c *converter) inside(q *plain, object string, f *ast.Field, mayRefer bool) bool {
	if f.Name == "__typename" {
		q.fixed = appendString(nil, object)
		return true
	}
	if shown, ok := c.engine.shown[object+"."+f.Name]; ok {
		q.read, q.leaf = shown.read, shown.leaf
		return c.complete(q, f, mayRefer)
	}
	q.refer = c.engine.registered(f)
	return mayRefer && q.refer != nil && q.refer.refers && c.complete(q, f, false)
}

// jsonKey is the key of an object's member with its colon. A GraphQL name needs no escaping.
func jsonKey(name string) []byte { return []byte(`"` + name + `":`) }

// encoded is a part of a response that is JSON already.
type encoded []byte

// outcome is the result of a root field, with which the executor continues.
type outcome struct {
	value any
	err   error
}

// runPlain answers a plain step. False means that the executor has to run it.
func (sc *scope) runPlain(roots []plainRoot, resp *Response) bool {
	sc.ahead = make(map[string]outcome, len(roots))
	w := &plainWriter{sc: sc, jsonWriter: jsonWriter{limit: sc.engine.limits.ResponseBytes}}
	values, ok := sc.rootValues(roots)
	if !ok {
		return false
	}
	w.wantAll(roots, values)
	done := make([]int, 0, len(roots)) // where each root field ends
	for i := range roots {
		if !w.root(&roots[i], values[i]) {
			w.giveBack()
			return false
		}
		done = append(done, len(w.buf))
	}
	if !w.report() {
		w.giveBack()
		return false
	}
	start := 0
	for i, end := range done {
		resp.data[roots[i].key] = encoded(w.buf[start:end:end])
		start = end
	}
	return true
}

// rootValues resolves the root fields; what several of them load is read together.
func (sc *scope) rootValues(roots []plainRoot) (values []any, ok bool) {
	values = make([]any, len(roots))
	later := 0 // values that are Thunks
	put := func(i int, v any, err error) bool {
		values[i], sc.ahead[roots[i].key] = v, outcome{v, err}
		if _, thunk := v.(Thunk); thunk {
			later++
		}
		return err == nil
	}
	for i := range roots {
		v, err := sc.resolve(roots[i].reg, roots[i].reg.String(), nil, sc.args[roots[i].field])
		if !put(i, v, err) {
			return nil, false
		}
	}
	for later > 0 { // the value of a Thunk may be one again
		later = 0
		for i := range values {
			if fn, thunk := values[i].(Thunk); thunk {
				v, err := fn()
				if !put(i, v, err) {
					return nil, false
				}
			}
		}
	}
	return values, true
}

// wantAll loads the references of the rows of all root fields.
func (w *plainWriter) wantAll(roots []plainRoot, values []any) {
	if len(roots) < 2 {
		return
	}
	for i := range roots {
		if v := pointed(reflect.ValueOf(values[i])); roots[i].typ.Elem != nil && v.IsValid() && v.Kind() == reflect.Slice {
			w.want(&roots[i].plain, v)
		}
	}
}

// plainWriter writes plain values and counts their size as the executor does.
type plainWriter struct {
	jsonWriter
	sc                *scope
	counted, reported int64
}

// reportBytes are counted locally before they are added to the bytes of all results.
const reportBytes = 4096

func (w *plainWriter) count(v any) bool {
	w.counted += 8
	if s, ok := v.(string); ok {
		w.counted += int64(len(s))
	}
	return w.counted < reportBytes || w.report()
}

// report adds the counted bytes to those of the response and of all results; false when one of the limits is reached.
func (w *plainWriter) report() bool {
	room, size := w.sc.engine.results.add(w.counted), w.sc.bytes.Add(w.counted)
	w.reported, w.counted = w.reported+w.counted, 0
	return room && size <= int64(w.limit)
}

// giveBack subtracts everything that was counted: the executor counts again.
func (w *plainWriter) giveBack() {
	w.sc.engine.results.give(w.reported)
	w.sc.bytes.Add(-w.reported)
}

// root writes the value of a root field. A value that panics here does so in the executor too,
// which turns it into an error.
func (w *plainWriter) root(r *plainRoot, v any) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return w.show(&r.plain, v) && !w.over && len(w.buf) <= w.limit
}

// show writes a value of a field's type.
func (w *plainWriter) show(p *plain, v any) bool {
	if p.leaf != nil && p.typ.Elem == nil {
		return w.showLeaf(p, p.typ, v)
	}
	return w.showAs(p, p.typ, reflect.ValueOf(v))
}

func (w *plainWriter) showLeaf(p *plain, t *ast.Type, v any) bool {
	shown, err := p.leaf(v)
	if err != nil || shown == nil && t.NonNull {
		return false
	}
	w.value(shown, nil)
	return !w.over
}

// showAs writes a value of type t: a field's type or the element type of its list.
func (w *plainWriter) showAs(p *plain, t *ast.Type, v reflect.Value) bool {
	v = pointed(v)
	switch {
	case !v.IsValid():
		w.value(nil, nil)
		return !t.NonNull && !w.over
	case t.Elem != nil:
		return w.list(p, t.Elem, v)
	case p.leaf != nil:
		return w.showLeaf(p, t, v.Interface())
	}
	return w.fields(p, v)
}

func (w *plainWriter) list(p *plain, elem *ast.Type, v reflect.Value) bool {
	if v.Kind() != reflect.Slice && v.Kind() != reflect.Array {
		return false
	}
	w.buf = append(w.buf, '[')
	w.want(p, v)
	for i := range v.Len() {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		if !w.showAs(p, elem, v.Index(i)) {
			return false
		}
	}
	w.buf = append(w.buf, ']')
	return true
}

// want loads the references of all rows of a list, so that one batch reads them when the first row is written.
func (w *plainWriter) want(p *plain, list reflect.Value) {
	for i := range p.below {
		if p.below[i].refer == nil {
			continue
		}
		for n := range list.Len() {
			if row := pointed(list.Index(n)); row.CanAddr() {
				_, _ = p.below[i].refer.resolve(w.sc.ctx, row.Addr().Interface(), Args{}) // an error is returned again when the row is written
			}
		}
	}
}

// referred returns the target of a row's reference.
func (w *plainWriter) referred(f *field, row reflect.Value) (any, bool) {
	if !row.CanAddr() {
		return nil, false
	}
	v, err := f.resolve(w.sc.ctx, row.Addr().Interface(), Args{})
	if later, ok := v.(Thunk); ok && err == nil {
		v, err = later()
	}
	return v, err == nil
}

// pointed removes an interface and a pointer; the result is not valid for nil.
func pointed(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}

func (w *plainWriter) fields(p *plain, v reflect.Value) bool {
	t := v.Type()
	w.buf = append(w.buf, '{')
	for i := range p.below {
		f := &p.below[i]
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.buf = append(w.buf, f.start...)
		if f.fixed != nil {
			w.buf = append(w.buf, f.fixed...)
			continue
		}
		x, ok := w.read(f, t, v)
		if !ok {
			return false
		}
		if !w.count(x) || !w.show(f, x) {
			return false
		}
	}
	w.buf = append(w.buf, '}')
	return true
}

// read reads a field of an object.
func (w *plainWriter) read(f *plain, t reflect.Type, object reflect.Value) (any, bool) {
	if f.refer != nil {
		return w.referred(f.refer, object)
	}
	read := f.read[t]
	if read == nil {
		return nil, false
	}
	return read(object), true
}
