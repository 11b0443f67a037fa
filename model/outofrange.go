package model

// What a metric definition does with a value outside its range (outOfRange). A version that was published before the field
// existed has none, which is OutOfRangeRefuse.
const (
	OutOfRangeRefuse = "REFUSE" // the message becomes a dead letter
	OutOfRangeFlag   = "FLAG"   // the value is stored as it is, and marked
	OutOfRangeClamp  = "CLAMP"  // the bound is stored in its place, and marked
)

// RangeMark is the mark of a reading whose value was outside the range that its metric had when the reading was stored. It is
// kept with the reading, because ranges change later. The numbers are frozen.
type RangeMark uint8

// The marks.
const (
	InRange RangeMark = 0 // or the metric had no range
	Flagged RangeMark = 1 // the value is the one that was sent
	Clamped RangeMark = 2 // the value is the bound that the sent value exceeded

	// MaxRangeMark is the largest mark.
	MaxRangeMark = Clamped
)

// String is the mark's name in the API, "" for InRange.
func (m RangeMark) String() string {
	switch m {
	case InRange:
		return ""
	case Flagged:
		return "FLAGGED"
	case Clamped:
		return "CLAMPED"
	}
	return "RangeMark(?)"
}
