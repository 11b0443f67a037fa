package operate

import (
	"context"
	"errors"
	"testing"
)

// TestEachVerbHasANameOfItsOwn: the socket serves each under its name.
func TestEachVerbHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, v := range verbs {
		if v.path() == "" || seen[v.path()] {
			t.Errorf("%T: the name %q is empty or taken", v, v.path())
		}
		seen[v.path()] = true
	}
}

func TestAVerbIsAnsweredAtRestOnlyWhereItSaysSo(t *testing.T) {
	t.Parallel()
	d := &Directory{}
	needsRunning := Verb[None, int]{running: func(*Operator, context.Context, None) (int, error) { return 1, nil }}
	if _, err := needsRunning.Ask(t.Context(), d, None{}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v", err)
	}
	either := Verb[None, int]{running: needsRunning.running, atRest: func(*Directory, context.Context, None) (int, error) { return 2, nil }}
	if n, err := either.Ask(t.Context(), d, None{}); n != 2 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	d.entities = &Entities{}
	entities := Verb[None, int]{entities: func(e *Entities, _ context.Context, _ None) (int, error) {
		if e != d.entities {
			t.Error("asked of other entities")
		}
		return 3, nil
	}}
	if n, err := entities.Ask(t.Context(), d, None{}); n != 3 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}
