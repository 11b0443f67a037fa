package site

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/internal/yamldoc"
	"weir/model"
	"weir/store"
)

// diff is what the file declares otherwise than it is: the patch of an update, and what it changes. Fields that are
// implied, secret or no field of the API are the caller's.
func (k *kind) diff(have store.Patch, want store.Patch) (patch store.Patch, changes []FieldChange) {
	patch = store.Patch{}
	for i := range k.fields {
		f := &k.fields[i]
		v, named := want[f.name]
		if !named || f.secret || f.own || f.same(have[f.name], v) {
			continue
		}
		patch[f.name] = v
		change := FieldChange{Name: f.name, Old: f.shown(have[f.name]), New: f.shown(v)}
		if f.typ == documentField {
			change.Inside = insideDocument(f.name, change.Old, change.New)
		}
		changes = append(changes, change)
	}
	return patch, changes
}

// insideDocument is what differs between two JSON documents, by path; nil where one of them is none.
func insideDocument(name string, before, after any) []FieldChange {
	a, okA := before.(string)
	b, okB := after.(string)
	if !okA || !okB {
		return nil
	}
	x, errX := decodeJSON(a)
	y, errY := decodeJSON(b)
	if errX != nil || errY != nil {
		return nil
	}
	return differences(name, x, y)
}

// differences descends into objects and into lists of one length.
func differences(path string, a, b any) (out []FieldChange) {
	if sameValue(a, b) {
		return nil
	}
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := slices.AppendSeq(slices.Collect(maps.Keys(x)), maps.Keys(y))
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			v, had := x[key]
			w, has := y[key]
			switch at := yamldoc.Join(path, key); {
			case had && has:
				out = append(out, differences(at, v, w)...)
			default:
				out = append(out, FieldChange{Name: at, Old: v, New: w})
			}
		}
		return out
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			out = append(out, differences(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])...)
		}
		return out
	}
	return []FieldChange{{Name: path, Old: a, New: b}}
}

// shown is a value of a plan.
func (f *field) shown(v any) any {
	if m, ok := v.(model.Micros); ok {
		return m.Time().UTC().Format(time.RFC3339Nano)
	}
	return v
}

// same reports whether two values mean the same. have is the row's, want the file's.
func (f *field) same(have, want any) bool {
	if f.emptyClears && want == "" {
		want = nil
	}
	if text, ok := want.(string); ok && f.normal != nil {
		if normal, err := f.normal(text); err == nil {
			want = normal
		}
	}
	if list := texts(want); list != nil && f.normalList != nil {
		if normal, err := f.normalList(list); err == nil {
			want = normal
		}
	}
	if text, ok := want.(string); ok && f.emptyIsNone && sameJSON(text, "{}") {
		want = nil
	}
	if have == nil || want == nil {
		return have == nil && want == nil || f.typ >= listField && f.typ != documentField && emptyList(have) && emptyList(want)
	}
	switch f.typ {
	case documentField:
		a, okA := have.(string)
		b, okB := want.(string)
		return okA && okB && sameJSON(a, b)
	case instantField:
		return micros(have) == micros(want)
	case numberField:
		return float(have) == float(want)
	case setField:
		a, b := texts(have), texts(want)
		slices.Sort(a)
		slices.Sort(b)
		return slices.Equal(slices.Compact(a), slices.Compact(b))
	case listField:
		return slices.Equal(texts(have), texts(want))
	}
	return have == want
}

func emptyList(v any) bool { return v == nil || len(texts(v)) == 0 }

func texts(v any) []string {
	switch l := v.(type) {
	case []string:
		return slices.Clone(l)
	case []any:
		out := make([]string, 0, len(l))
		for _, s := range l {
			if s, ok := s.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

func micros(v any) model.Micros {
	switch t := v.(type) {
	case model.Micros:
		return t
	case string:
		if at, err := model.ParseTime(t); err == nil {
			return model.MicrosOf(at)
		}
	}
	return 0
}

func float(v any) float64 {
	switch n := v.(type) {
	case float64:
		return n
	case int64:
		return float64(n)
	}
	return 0
}
