package rules

import (
	"errors"
	"slices"
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

// latchOnly is embedded by kinds without further checks whose state is the latch alone.
type latchOnly struct{}

func (latchOnly) Check(*Definition) *Error { return nil }

func (latchOnly) Decode([]byte) (Memory, error) {
	return nil, errors.New("rules: this kind stores nothing besides its latch")
}

// notRun is embedded by kinds that Weir decodes and checks, and does not run yet.
type notRun struct{ latchOnly }

func (notRun) Compile(*Definition, *Predicate) (Judge, *Error) { return nil, nil }

// unread is the memory of a kind that this Weir does not have. It is stored again as it was read.
type unread []byte

func (u unread) Append(b []byte) []byte { return append(b, u...) }
