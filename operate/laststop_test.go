package operate

import (
	"strings"
	"testing"

	"weir/health"
)

func TestWhatMayHaveEndedAProcess(t *testing.T) {
	t.Parallel()
	was := &Running{Traces: health.Traces{Boot: "a", OOMKills: 2}}
	for name, c := range map[string]struct {
		was  *Running
		now  health.Traces
		want string
	}{
		"no note":          {nil, health.Traces{Boot: "a"}, ""},
		"a power cut":      {was, health.Traces{Boot: "b"}, "was restarted"},
		"no memory":        {was, health.Traces{Boot: "a", OOMKills: 3}, "1 process for want of memory"},
		"kill -9":          {was, health.Traces{Boot: "a", OOMKills: 2}, "was killed"},
		"nothing is known": {&Running{}, health.Traces{}, ""},
	} {
		if got := Evidence(c.was, c.now); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
