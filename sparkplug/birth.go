package sparkplug

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// definition is what a birth says of a metric.
type definition struct {
	name     string
	alias    uint64
	hasAlias bool
	kind     DataType
}

// birth is what a node or a device said of itself when it was born. It resolves the metrics of the messages that follow.
type birth struct {
	device  string       // "" for the node itself
	defs    []definition // by name
	byAlias []int32      // indexes of the definitions that have an alias, by alias

	online bool // as it was last asserted
	fresh  bool // born since the node was born last; what is not is resolved by nothing
	texts  *texts
}

// newBirth takes the definitions out of a birth message. An alias stands for one name (tck-id-payloads-alias-uniqueness).
func newBirth(device string, metrics []Metric) (*birth, error) {
	b := &birth{device: device, defs: make([]definition, 0, len(metrics)), texts: &texts{}}
	for i := range metrics {
		m := &metrics[i]
		if m.Name == "" {
			return nil, malformed("a metric of a birth has no name")
		}
		b.defs = append(b.defs, definition{name: m.Name, alias: m.Alias, hasAlias: m.HasAlias, kind: m.Type})
	}
	// A metric may come several times, with values of several times: the last one counts.
	slices.SortStableFunc(b.defs, func(x, y definition) int { return strings.Compare(x.name, y.name) })
	kept := b.defs[:0]
	for i, d := range b.defs {
		if i+1 == len(b.defs) || b.defs[i+1].name != d.name {
			kept = append(kept, d)
		}
	}
	b.defs = slices.Clip(kept)
	return b, b.index()
}

// index sorts the aliases.
func (b *birth) index() error {
	b.byAlias = nil
	for i := range b.defs {
		if b.defs[i].hasAlias {
			b.byAlias = append(b.byAlias, int32(i))
		}
	}
	slices.SortFunc(b.byAlias, func(x, y int32) int { return cmp.Compare(b.defs[x].alias, b.defs[y].alias) })
	for i := 1; i < len(b.byAlias); i++ {
		x, y := &b.defs[b.byAlias[i-1]], &b.defs[b.byAlias[i]]
		if x.alias == y.alias {
			return malformed("the alias %d is used by %q and %q", x.alias, cut(x.name), cut(y.name))
		}
	}
	return nil
}

// resolve returns the definition of a metric of a message, nil for one that the birth does not have.
func (b *birth) resolve(m *Metric) *definition {
	if m.Name != "" {
		i, ok := slices.BinarySearchFunc(b.defs, m.Name, func(d definition, name string) int { return strings.Compare(d.name, name) })
		if !ok {
			return nil
		}
		return &b.defs[i]
	}
	if !m.HasAlias {
		return nil
	}
	i, ok := slices.BinarySearchFunc(b.byAlias, m.Alias, func(at int32, alias uint64) int { return cmp.Compare(b.defs[at].alias, alias) })
	if !ok {
		return nil
	}
	return &b.defs[b.byAlias[i]]
}

// same reports whether another birth gives the same names the same aliases and types: what one resolves the other resolves alike.
func (b *birth) same(other *birth) bool {
	return b != nil && other != nil && slices.Equal(b.defs, other.defs)
}

// takeTexts takes over what was reported of the same node or device; old may be nil.
func (b *birth) takeTexts(old *birth) {
	if old != nil {
		b.texts = old.texts
	}
}

// texts are the attributes of a node or device that were reported, so that they are reported again only when they change.
type texts struct {
	reported map[string]uint64 // hash of the value
	pending  map[string]text
	last     time.Time // of the last report
}

type text struct {
	value string
	json  bool
}
