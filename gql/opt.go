package gql

// Opt is a value of an update: absent (keep), null (clear) or a value (set). As a field of a struct that Args.Decode
// fills it keeps the three apart.
type Opt[T any] struct {
	Set  bool // the caller named the field
	Null bool // and named it null
	V    T    // the value when Set and not Null
}

// Get returns the value and whether there is one.
func (o Opt[T]) Get() (T, bool) { return o.V, o.Set && !o.Null }

// Or returns the value that a record holding old has after the update; null gives T's zero value.
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

// optional is what every *Opt is.
type optional interface {
	setNull()
	target() any
}
