package site

import (
	"slices"
	"time"

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
		changes = append(changes, FieldChange{Name: f.name, Old: f.shown(have[f.name]), New: f.shown(v)})
	}
	return patch, changes
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
		if at, err := time.Parse(time.RFC3339Nano, t); err == nil {
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
