package store_test

import (
	"math"
	"testing"

	"weir/store"
)

// The largest page that the API takes begins behind every list, also where an int has 32 bits.
func TestTheLastPageBeginsBehindTheList(t *testing.T) {
	t.Parallel()
	p := store.Page{Number: math.MaxInt32, Size: store.MaxPageSize}
	if o := p.Offset(); o != (math.MaxInt32-1)*store.MaxPageSize {
		t.Errorf("offset %d", o)
	}
	if i := p.First(5); i != 5 {
		t.Errorf("first %d of 5", i)
	}
	if i := (store.Page{Number: 2, Size: 2}).First(5); i != 2 {
		t.Errorf("first %d of 5 on the second page of 2", i)
	}
}
