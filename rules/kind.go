package rules

import (
	"errors"
	"slices"

	"weir/rules/window"
)

// Kind is a kind of rule. One file defines a kind: the fields of its definitions, how a definition becomes a Judge, and
// how the state of the Judge is stored. builtin lists the kinds of Weir; Limits.Kinds adds others.
type Kind interface {
	// Type is the name of the kind in a definition.
	Type() Type
	// Uses returns what a definition of the kind consists of. The error names a field without which that is unknown.
	Uses(d *Definition) (Uses, *Error)
	// Check returns the first error in a definition that has the right fields, nil for none.
	Check(d *Definition) *Error
	// Compile returns the judge of a definition that passed its checks. A nil judge means that Weir cannot run the
	// kind yet; publish then refuses the rule.
	Compile(d *Definition, when *Predicate) (Judge, *Error)
	// Decode reads what Memory.Append wrote. It may keep b.
	Decode(b []byte) (Memory, error)
}

// Uses describes the rules of a kind.
type Uses struct {
	Needs, May []string // fields that a definition must have, and may have besides; lateness and severity are free
	As         string   // name of the kind in an error; "type <type>" when empty
	NoActions  bool     // the rule has no actions
	NoGroup    bool     // the rule cannot be scoped to a device group
	Decides    bool     // the condition alone raises and resolves, so it must be able to be true and to be false
	Value      bool     // raised edges carry a value
	Presence   bool     // the rule judges transitions of presence and nothing else
	Clears     bool     // the comparison of the condition may have clear
	Gaps       bool     // the judge asks for Clock.Gap
	Retains    bool     // the memory retains samples, see Retainer
	Enrolls    bool     // the judge is shown the devices of the roster
	AtArrival  bool     // samples are judged when they arrive: lateness means nothing
	Wakes      bool     // of a rule of presence: a key that remembers something is shown the device's next samples, too
	Keys       KeySpace // one state per device, per device and anchor, per anchor, or one for the rule
}

// KeySpace says what each state of a rule belongs to. The zero value means one state for the rule.
type KeySpace uint8

// The parts of a key. They combine: ByDevice | ByAnchor is one state per device and anchor of the rule's anchor type.
const (
	ByDevice KeySpace = 1 << iota
	ByAnchor
)

// Judge is the behaviour of one compiled rule.
type Judge interface {
	// Judge judges a sample: it changes the state of the key and writes the edges into out. It is a function of state and
	// sample: equal arguments give equal results, whenever and wherever it is called. Sample.Clock has the times; Judge
	// keeps neither argument.
	//
	// The engine calls it for each sample in the rule's scope, and with a sample of kind Timer before the first record
	// whose listening time reaches State.Due.
	Judge(st *State, s *Sample, out *Verdict)
}

// Memory is what a kind stores per key besides the latch. A nil Memory stands for none.
type Memory interface {
	// Append appends the encoded form, which Kind.Decode reads. Equal memories have equal forms. A kind that changes its
	// form still reads the old one.
	Append(b []byte) []byte
}

// Retainer is a memory that retains samples.
type Retainer interface {
	Memory
	// Retained is their number, in units of 24 bytes.
	Retained() int
}

// Gathering is the memory of an anchor's key that remembers devices. Nobody says which devices leave a dynamic group: the engine asks
// for those that are remembered, and shows the judge a sample of kind Left for each that has left.
type Gathering interface {
	Memory
	// Has reports whether the device is one of them.
	Has(device int64) bool
	// Devices are their ids, in any order.
	Devices() []int64
}

// retained is the number of samples that a memory retains.
func retained(m Memory) int {
	switch m := m.(type) {
	case nil:
		return 0
	case *window.Line: // most of them
		return m.Retained()
	case Retainer:
		return m.Retained()
	}
	return 0
}

// builtin lists the kinds of Weir in the order of the documentation.
func builtin() []Kind {
	return []Kind{thresholdKind{}, deltaRateKind{}, repeatingKind{}, durationKind{}, absenceKind{}, aggregateKind{}, correlationKind{},
		connectivityKind{}}
}

func findKind(kinds []Kind, t Type) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Type() == t })
	if i < 0 {
		return nil, false
	}
	return kinds[i], true
}

func typesOf(kinds []Kind) []Type {
	types := make([]Type, len(kinds))
	for i, k := range kinds {
		types[i] = k.Type()
	}
	return types
}

// Types are the kinds of rules that the compiler knows, in the order of the documentation.
func (c *Compiler) Types() []Type { return typesOf(c.kinds) }

// FieldsOf are the fields that rules of a kind need or may have besides those of every rule, in the order of the documentation; of an aggregate
// those of all its windows.
func (c *Compiler) FieldsOf(t Type) []string {
	k, ok := findKind(c.kinds, t)
	if !ok {
		return nil
	}
	var used, names []string
	for _, d := range variants(t) {
		if u, err := k.Uses(d); err == nil {
			used = slices.Concat(used, u.Needs, u.May)
		}
	}
	for _, f := range bodyFields {
		if slices.Contains(used, f.name) {
			names = append(names, f.name)
		}
	}
	return names
}

// kindNotes are when a kind raises, and when it resolves.
var kindNotes = map[Type][2]string{
	Threshold:    {"a sample satisfies `when`", "at the next sample that does not"},
	DeltaRate:    {"the change of `metric` since the sample before (with `rate`: per second) satisfies `op` and `threshold`", "at the next sample whose change does not, or that does not satisfy `when`"},
	Repeating:    {"`count` samples within the `window` that ends at a sample satisfy `when`", "at the next sample where they are fewer"},
	Duration:     {"`when` has held without a break for `hold`", "at the next sample that does not satisfy `when`"},
	Absence:      {"no event of the device has arrived for `timeout`", "at its next event of any kind"},
	Aggregate:    {"`agg` of `metric` over a window satisfies `op` and `threshold`", "with the next window that does not"},
	Correlation:  {"`count` distinct devices under one anchor satisfy `when` within `window`", "at the next sample where they are fewer, or when a device leaves"},
	Connectivity: {"the device disconnects", "when it connects"},
}

// variants are definitions that show every set of fields of a kind.
func variants(t Type) []*Definition {
	if t != Aggregate {
		return []*Definition{{Type: t}}
	}
	var out []*Definition
	for _, mode := range windowModes {
		out = append(out, &Definition{Type: t, WindowMode: mode, Agg: AggAvg})
	}
	return out
}

// Form is a kind of rule as its author sees it, or one of its window modes where these have fields of their own.
type Form struct {
	Type             Type
	WindowMode       string
	Raises, Resolves string   // when, in words that name fields
	Needs, May       []string // fields of the definition
	NoActions        bool
}

// Forms are the kinds of rules that the compiler knows.
func (c *Compiler) Forms() (forms []Form) {
	for _, k := range c.kinds {
		for _, d := range variants(k.Type()) {
			if u, err := k.Uses(d); err == nil {
				note := kindNotes[k.Type()]
				forms = append(forms, Form{Type: k.Type(), WindowMode: d.WindowMode, Raises: note[0], Resolves: note[1], Needs: u.Needs, May: u.May, NoActions: u.NoActions})
			}
		}
	}
	return forms
}

// latchOnly is embedded by kinds without further checks whose state is the latch alone.
type latchOnly struct{}

func (latchOnly) Check(*Definition) *Error { return nil }

func (latchOnly) Decode([]byte) (Memory, error) {
	return nil, errors.New("rules: this kind stores nothing besides its latch")
}

// unread is the memory of a kind that this Weir does not have. It is stored again as it was read.
type unread []byte

func (u unread) Append(b []byte) []byte { return append(b, u...) }
