package engine

// Opt is a value of an update: absent (keep), null (clear) or a value (set). A struct that Args.Decode fills uses it to
// distinguish the three.
type Opt[T any] struct {
	Set  bool // the caller named the field
	Null bool // with null
	V    T    // the value when Set and not Null
}

// Get returns the value and whether there is one.
func (o Opt[T]) Get() (T, bool) { return o.V, o.Set && !o.Null }

// Or returns the value after the update of a field that holds old; null becomes T's zero value.
func (o Opt[T]) Or(old T) T {
	if o.Set {
		return o.V
	}
	return old
}

func (o *Opt[T]) setNull() { o.Set, o.Null = true, true }

func (o *Opt[T]) target() any {
	o.Set = true
	return &o.V
}

// optional is implemented by every *Opt.
type optional interface {
	setNull()
	target() any
}
