package wire

import "hash/maphash"

// textSlots is how many texts are kept at a time, a power of two; longest is how many bytes one may have to be kept.
const (
	textSlots = 1 << 12
	longest   = 64
)

// Texts keeps short strings that are read again and again, such as names, so that each is made once and not once for each
// time it is read. It never has more than some thousand: one that comes new takes the place of another. The zero value is
// empty; it is used by one goroutine.
type Texts struct {
	seed  maphash.Seed
	slots []string
}

// of returns the bytes as a string.
func (t *Texts) of(p []byte) string {
	if len(p) == 0 || len(p) > longest {
		return string(p)
	}
	if t.slots == nil {
		t.seed, t.slots = maphash.MakeSeed(), make([]string, textSlots)
	}
	slot := &t.slots[maphash.Bytes(t.seed, p)%textSlots]
	if *slot != string(p) {
		*slot = string(p)
	}
	return *slot
}
