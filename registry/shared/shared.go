// Package shared encodes what a device may read of itself: its attributes of the scope SHARED, as one JSON document.
package shared

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// MaxBytes is the size of the largest set that is handed to a device: a larger one would be a large packet for whoever carries it, and
// there may be one of every device.
const MaxBytes = 64 << 10

// Attribute is an attribute of a device. Exactly one of Text, Literal and Bool is set; none for null.
type Attribute struct {
	Key     string
	Text    *string
	Literal *string // a number or a JSON document, as it was written
	Bool    *bool
}

// Set is the attributes of a device as they go to it.
type Set struct {
	// Revision names the content: 32 hex digits, the same for the same attributes and for no other. It has no order.
	Revision string
	// Body is {"revision": …, "attributes": {key: value, …}} in the order of the keys; of a set over MaxBytes it is the Note.
	Body []byte
	// Bytes is the size of the whole document.
	Bytes int
}

// TooLarge reports whether the set is larger than a device is handed.
func (s *Set) TooLarge() bool { return s.Bytes > MaxBytes }

// Note returns what a device is sent that cannot take the set: {"revision": …, "tooLarge": true, "bytes": …}. It knows
// then that there is a set that it does not have.
func (s *Set) Note() []byte {
	return []byte(`{"revision":"` + s.Revision + `","tooLarge":true,"bytes":` + strconv.Itoa(s.Bytes) + `}`)
}

// SetOf encodes the attributes of a device. It does not keep them.
func SetOf(all []Attribute) Set {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Attribute) int { return strings.Compare(a.Key, b.Key) })
	members := []byte{'{'}
	for i := range all {
		if i > 0 {
			members = append(members, ',')
		}
		members = append(append(append(members, text(all[i].Key)...), ':'), all[i].value()...)
	}
	members = append(members, '}')
	sum := sha256.Sum256(members)
	s := Set{Revision: hex.EncodeToString(sum[:16])}
	s.Body = append([]byte(`{"revision":"`+s.Revision+`","attributes":`), append(members, '}')...)
	if s.Bytes = len(s.Body); s.TooLarge() {
		s.Body = s.Note()
	}
	return s
}

func text(s string) []byte {
	b, _ := json.Marshal(s) // of a text it cannot fail
	return b
}

// value is the value as JSON. The decimal numbers of attributes may be written in ways that JSON does not know: +1.5, .5, 007.
func (a *Attribute) value() []byte {
	switch {
	case a.Text != nil:
		return text(*a.Text)
	case a.Bool != nil:
		return strconv.AppendBool(nil, *a.Bool)
	case a.Literal == nil:
		return []byte("null")
	case json.Valid([]byte(*a.Literal)):
		return []byte(*a.Literal)
	}
	if n, err := strconv.ParseInt(*a.Literal, 10, 64); err == nil {
		return strconv.AppendInt(nil, n, 10)
	}
	n, err := strconv.ParseFloat(*a.Literal, 64)
	if err != nil {
		return []byte("null")
	}
	b, err := json.Marshal(n)
	if err != nil { // no finite number
		return []byte("null")
	}
	return b
}
