package cli

import (
	"bytes"
	"testing"
	"time"

	"weir/operate"
)

func TestALagIsSaidWhereItCouldMislead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		health operate.Health
		want   string
	}{
		{operate.Health{}, ""},
		{operate.Health{Waiting: 3, AsOf: new(now.Add(-2 * time.Second))}, ""},
		{operate.Health{Waiting: 3, AsOf: new(now.Add(-3 * time.Second))}, "as of 2026-03-01T11:59:57Z, 3 records waiting to be applied\n"},
	} {
		var out bytes.Buffer
		(&command{io: IO{Stderr: &out}}).noteLagOf(&c.health, now)
		if out.String() != c.want {
			t.Errorf("%+v: %q, want %q", c.health, &out, c.want)
		}
	}
}
