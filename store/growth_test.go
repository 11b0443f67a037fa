package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/model"
)

// fullStore is a store whose disk is full until its space is freed.
type fullStore struct {
	Store
	err   error
	freed int
	wrote int
}

func (s *fullStore) FreeSpace() { s.freed++; s.err = nil }

func (s *fullStore) Write(_ context.Context, _ Durability, fn func(Tx) error) error {
	if err := fn(nil); err != nil {
		return err
	}
	if s.err != nil {
		return fmt.Errorf("commit: %w", s.err)
	}
	s.wrote++
	return nil
}

// What makes no rows is tried again with the space that is kept for it; what the disk refuses is no internal error.
func TestAFullDiskRefusesWhatMakesRowsAndTakesTheRest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err          error
		grows        bool
		code         model.Code
		freed, wrote int
	}{
		"a delete on a full disk":      {ErrFull, false, "", 1, 1},
		"a create on a full disk":      {ErrFull, true, model.CodeUnavailable, 0, 0},
		"a delete on a read-only disk": {ErrUnwritable, false, model.CodeUnavailable, 0, 0},
		"a create on a read-only disk": {ErrUnwritable, true, model.CodeUnavailable, 0, 0},
		"another error":                {ErrClosed, false, "", 0, 0},
		"no error":                     {nil, true, "", 0, 1},
	} {
		st := &fullStore{err: c.err}
		_, err := Mutate(t.Context(), st, nil, time.Now, func(ch *Change) error {
			if c.grows {
				return ch.Admit(1, 10)
			}
			return nil
		})
		if model.CodeOf(err) != c.code || c.wrote == 0 && !errors.Is(err, c.err) || c.wrote == 1 && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if st.freed != c.freed || st.wrote != c.wrote {
			t.Errorf("%s: space was freed %d times, %d writes", name, st.freed, st.wrote)
		}
	}
}
