package page

import "encoding/binary"

// Entries gathers what a page has for its keys, before it is known which rules the page names: their numbers follow from all of them.
type Entries struct {
	Data []byte // of the entries, one after the other
	refs []ref
}

// ref is an entry: its rule, and where in Data it ends.
type ref struct{ rule, end int32 }

// Len is the number of entries.
func (e *Entries) Len() int32 { return int32(len(e.refs)) }

// Reset removes all entries and keeps their memory.
func (e *Entries) Reset() { e.Data, e.refs = e.Data[:0], e.refs[:0] }

// End ends an entry of a rule: what was appended to Data since the one before.
func (e *Entries) End(rule int32) { e.refs = append(e.refs, ref{rule, int32(len(e.Data))}) }

// Names appends the tokens of the rules that have entries, and returns the number of each rule.
func (e *Entries) Names(b []byte, rules int, token func(int) string) ([]byte, []uint64) {
	numbers, n := make([]uint64, rules), uint64(0)
	for _, r := range e.refs {
		numbers[r.rule] = 1
	}
	for _, used := range numbers {
		n += used
	}
	b, n = binary.AppendUvarint(b, n), 0
	for i, used := range numbers {
		if used == 1 {
			b = AppendString(b, token(i))
			numbers[i] = n
			n++
		}
	}
	return b, numbers
}

// Append appends some entries, each with the number of its rule.
func (e *Entries) Append(b []byte, from, to int32, numbers []uint64) []byte {
	start := int32(0)
	if from > 0 {
		start = e.refs[from-1].end
	}
	for _, r := range e.refs[from:to] {
		b = binary.AppendUvarint(b, numbers[r.rule])
		b = binary.AppendUvarint(b, uint64(r.end-start))
		b = append(b, e.Data[start:r.end]...)
		start = r.end
	}
	return b
}
