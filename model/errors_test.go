package model

import (
	"errors"
	"fmt"
	"testing"
)

func TestAConstructorSetsWhatItsErrorIsAbout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err                             *Error
		field, kind, token, text, shown string
	}{
		"invalid":    {Invalid("input.name", "is longer than %d characters", 8), "input.name", "", "", "is longer than 8 characters", "input.name: is longer than 8 characters"},
		"over limit": {OverLimit("limits.devices", "at most %d", 2), "limits.devices", "", "", "at most 2", "limits.devices: at most 2"},
		"not found":  {NotFound("device", "d: 1"), "", "device", "d: 1", `device "d: 1" does not exist`, `device "d: 1" does not exist`},
		"not unique": {NotUnique("area", "externalId", "7"), "externalId", "area", "",
			`externalId of an area must be unique, "7" is in use`, `conflict: externalId of an area must be unique, "7" is in use`},
		"in use": {InUse("device type", "t", "device"), "", "device type", "t", `device type "t" is in use by a device`, `device type "t" is in use by a device`},
		"plain":  {Errorf(CodeConflict, "it exists: %s", "x"), "", "", "", "it exists: x", "it exists: x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, ok := errors.AsType[*Error](fmt.Errorf("wrapped: %w", c.err))
			if !ok || e.Field != c.field || e.Kind != c.kind || e.Token != c.token {
				t.Errorf("field %q, kind %q, token %q", e.Field, e.Kind, e.Token)
			}
			if e.Text() != c.text || e.Error() != c.shown {
				t.Errorf("text %q, message %q", e.Text(), e.Error())
			}
		})
	}
}
