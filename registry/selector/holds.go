package selector

import (
	"maps"
	"slices"

	"weir/model"
)

// Attributes returns the value of a SHARED attribute of an entity; exists is false when there is none. A value is a string, a bool or
// a float64; any other, nil among them, exists and equals no scalar.
type Attributes func(key string) (value any, exists bool)

// Holds reports whether a condition holds for an entity with these attributes.
func Holds(c model.Condition, attributes Attributes) bool {
	holds := func(part model.Condition) bool { return Holds(part, attributes) }
	switch c.Op {
	case model.Always:
		return true
	case model.AllOf:
		return !slices.ContainsFunc(c.Parts, func(part model.Condition) bool { return !holds(part) })
	case model.AnyOf:
		return slices.ContainsFunc(c.Parts, holds)
	case model.Not:
		return !holds(c.Parts[0])
	case model.HasKey:
		_, exists := attributes(c.Key)
		return exists
	case model.Compare:
		value, exists := attributes(c.Key)
		return exists && compare(value, c.Cmp, c.Value)
	}
	return false
}

// compare compares a value with a literal. Values of two types are unequal and have no order.
func compare(value any, cmp model.Comparison, literal any) bool {
	switch cmp {
	case model.Equal:
		return equal(value, literal)
	case model.NotEqual:
		return !equal(value, literal)
	}
	a, ok := value.(float64)
	b, both := literal.(float64)
	if !ok || !both {
		return false
	}
	switch cmp {
	case model.Less:
		return a < b
	case model.LessOrEqual:
		return a <= b
	case model.Greater:
		return a > b
	}
	return a >= b
}

func equal(value, literal any) bool {
	switch literal := literal.(type) {
	case string:
		s, ok := value.(string)
		return ok && s == literal
	case bool:
		b, ok := value.(bool)
		return ok && b == literal
	case float64:
		n, ok := value.(float64)
		return ok && n == literal
	}
	return false
}

// Keys returns the keys of the attributes that a condition reads, sorted.
func Keys(c model.Condition) []string {
	keys := map[string]bool{}
	addKeys(c, keys)
	return slices.Sorted(maps.Keys(keys))
}

func addKeys(c model.Condition, to map[string]bool) {
	if c.Op == model.HasKey || c.Op == model.Compare {
		to[c.Key] = true
	}
	for _, part := range c.Parts {
		addKeys(part, to)
	}
}
