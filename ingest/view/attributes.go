package view

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"weir/model"
)

// device is what the view knows of a device besides its row and its tracked relationships.
type device struct {
	attributes []attribute // in the order of compare
	groups     []string    // static ones that it is a member of, sorted

	stamped *AnchorSet // what its events bear, as of a state of its tenant's groups
	as      uint64     // that state; 0: it is to be found
}

// attribute is the value of an attribute. There are many of them: keys and texts are kept once for all.
type attribute struct {
	key   uint32 // number in View.keys
	scope scope
	kind  valueKind
	value uint64 // by the kind: the bits of a number, the number of a text in View.texts, 1 for true
}

type scope uint8

// The scopes whose values are read. Of the scope CLIENT nothing is.
const (
	scopeServer scope = iota + 1
	scopeShared
)

type valueKind uint8

const (
	aNumber valueKind = iota + 1
	aText
	aBool
	anyOther
)

func compareAttributes(a, b attribute) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.scope, b.scope))
}

func scopeOf(name string) scope {
	switch name {
	case "SERVER":
		return scopeServer
	case "SHARED":
		return scopeShared
	}
	return 0
}

// setAttribute accounts for its memory itself.
func (v *View) setAttribute(c *Change) error {
	id, scopeName, key, err := model.ParseAttributeKey(c.Key)
	s := scopeOf(scopeName)
	if err != nil || s == 0 || key == "" {
		return errors.Join(errors.New("key names no attribute"), err)
	}
	c.ID = id
	if c.Body == nil {
		v.endAttribute(id, s, key)
		return nil
	}
	var b model.AttributeView
	if err := decode(c.Body, &b, func() int { return b.V }); err != nil {
		return err
	}
	a := attribute{scope: s, kind: anyOther}
	switch {
	case b.Number != nil:
		a.kind, a.value = aNumber, math.Float64bits(*b.Number)
	case b.Text != nil:
		a.kind, a.value = aText, uint64(v.texts.take(*b.Text))
	case b.Bool != nil && *b.Bool:
		a.kind, a.value = aBool, 1
	case b.Bool != nil:
		a.kind = aBool
	}
	a.key = v.keys.take(key)
	v.held += b.Memory()
	d := v.device(id)
	d.as = 0
	at, had := slices.BinarySearchFunc(d.attributes, a, compareAttributes)
	if !had {
		d.attributes = insert(d.attributes, at, a)
		return nil
	}
	v.release(d.attributes[at])
	d.attributes[at] = a
	return nil
}

// insert makes room for one: there are few of a device, and many devices.
func insert(all []attribute, at int, a attribute) []attribute {
	if len(all) == cap(all) {
		all = append(make([]attribute, 0, len(all)+1), all...)
	}
	return slices.Insert(all, at, a)
}

func (v *View) endAttribute(id int64, s scope, key string) {
	d := v.devices[id]
	number, known := v.keys.numbers[key]
	if d == nil || !known {
		return
	}
	at, has := slices.BinarySearchFunc(d.attributes, attribute{key: number, scope: s}, compareAttributes)
	if !has {
		return
	}
	v.release(d.attributes[at])
	d.attributes = slices.Delete(d.attributes, at, at+1)
	d.as = 0
	v.tidy(id)
}

// release gives back what the value of an attribute holds.
func (v *View) release(a attribute) {
	v.held -= model.AttributeMemory
	if a.kind == aText {
		v.held -= int64(len(v.texts.drop(uint32(a.value))))
	}
	v.keys.drop(a.key)
}

// device returns what is known of a device, to be changed.
func (v *View) device(id int64) *device {
	d := v.devices[id]
	if d == nil {
		d = new(device)
		v.devices[id] = d
	}
	return d
}

// tidy removes a device of which nothing is known.
func (v *View) tidy(id int64) {
	if d := v.devices[id]; d != nil && len(d.attributes) == 0 && len(d.groups) == 0 && d.stamped == nil {
		delete(v.devices, id)
	}
}

// attribute returns the value of an attribute: a float64, a string, a bool or, for any other, nil.
func (v *View) attribute(id int64, s scope, key string) (value any, exists bool) {
	d := v.devices[id]
	number, known := v.keys.numbers[key]
	if d == nil || !known {
		return nil, false
	}
	at, has := slices.BinarySearchFunc(d.attributes, attribute{key: number, scope: s}, compareAttributes)
	if !has {
		return nil, false
	}
	switch a := d.attributes[at]; a.kind {
	case aNumber:
		return math.Float64frombits(a.value), true
	case aText:
		return v.texts.all[a.value].text, true
	case aBool:
		return a.value == 1, true
	}
	return nil, true
}

// Number returns the number that rules see under a key of a device: that of the scope SERVER, else that of SHARED.
func (v *View) Number(device int64, key string) (n float64, ok bool) {
	for _, s := range []scope{scopeServer, scopeShared} {
		value, _ := v.attribute(device, s, key)
		if n, ok = value.(float64); ok {
			return n, true
		}
	}
	return 0, false
}

// Numbers returns what Number returns for each key of a device, nil for none.
func (v *View) Numbers(device int64) map[string]float64 {
	d := v.devices[device]
	if d == nil {
		return nil
	}
	all := make(map[string]float64, len(d.attributes))
	for _, a := range d.attributes { // of a key, that of the scope SERVER comes first
		key := v.keys.all[a.key].text
		if _, has := all[key]; !has && a.kind == aNumber {
			all[key] = math.Float64frombits(a.value)
		}
	}
	return all
}

// texts gives texts numbers, as long as something uses them.
type texts struct {
	numbers map[string]uint32
	all     []sharedText
	free    []uint32
}

type sharedText struct {
	text string
	uses int
}

func newTexts() texts { return texts{numbers: map[string]uint32{}} }

// take returns the number of a text, which is used once more.
func (t *texts) take(text string) uint32 {
	n, known := t.numbers[text]
	switch last := len(t.free) - 1; {
	case known:
	case last >= 0:
		n, t.free = t.free[last], t.free[:last]
		t.all[n].text, t.numbers[text] = text, n
	default:
		n = uint32(len(t.all))
		t.all, t.numbers[text] = append(t.all, sharedText{text: text}), n
	}
	t.all[n].uses++
	return n
}

// drop notes that a text is used once less, and returns it.
func (t *texts) drop(n uint32) string {
	s := &t.all[n]
	text := s.text
	if s.uses--; s.uses == 0 {
		delete(t.numbers, text)
		s.text = ""
		t.free = append(t.free, n)
	}
	return text
}
