package model

// Condition is a condition over the attributes of an entity, as a selector states it. It is a tree that the evaluator
// (registry/selector) and the database (store/relations) understand alike.
//
// A leaf is true or false, never unknown: an attribute that does not exist makes it false, also that of "!=". The value null
// and a JSON document exist and equal no scalar.
type Condition struct {
	Op    ConditionOp
	Parts []Condition // of AllOf and AnyOf at least two, of Not one
	Key   string      // of HasKey and Compare: the key of the attribute
	Cmp   Comparison  // of Compare
	Value any         // of Compare: string, bool or float64; an order compares with a float64
}

// ConditionOp is the kind of a node of a Condition.
type ConditionOp uint8

// The kinds. Always and Never stand alone: they are not part of another condition.
const (
	Always ConditionOp = iota
	Never
	AllOf
	AnyOf
	Not
	HasKey
	Compare
)

// Comparison is the operator of a comparison, as it is written.
type Comparison string

// The comparisons.
const (
	Equal          Comparison = "="
	NotEqual       Comparison = "<>"
	Less           Comparison = "<"
	LessOrEqual    Comparison = "<="
	Greater        Comparison = ">"
	GreaterOrEqual Comparison = ">="
)
