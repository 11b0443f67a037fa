package app_test

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

const windowsSite = `version: 1
tenants:
  - token: acme
    deviceProfiles:
      - token: p
        detectionRules:
          - {token: count, definition: {name: c, type: aggregate, windowMode: count, count: 2, agg: sum, metric: x, op: ge, threshold: 2}}
          - {token: repeating, definition: {name: r, type: repeating, count: 3, window: 1h, lateness: 0s, when: {metric: x, op: ge, threshold: 1}}}
          - {token: sliding, definition: {name: s, type: aggregate, windowMode: sliding, window: 1h, agg: sum, metric: x, op: ge, threshold: 4, lateness: 0s}}
          - {token: delta, definition: {name: d, type: deltaRate, metric: x, op: le, threshold: 0, lateness: 0s}}
    deviceTypes: [{token: t, profileToken: p}]
    devicesFrom: [{file: devices.csv, deviceTypeToken: t}]
`

// TestWindowsWithoutALatenessSurviveAKill publishes the kinds that need no record of time. What they remember comes from a
// replay after a kill and from pages after a stop.
func TestWindowsWithoutALatenessSurviveAKill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	cfg := kindConfig(dir)
	p := startKind(t, dir)
	applyRuleSite(t, cfg, windowsSite)
	p.post(0)
	p.applied(cfg)
	p.end(syscall.SIGKILL)
	p = startKind(t, dir)
	p.post(0)
	p.post(0)
	p.end(syscall.SIGTERM)
	p = startKind(t, dir)
	p.post(0)
	p.applied(cfg)
	p.end(syscall.SIGTERM)
	for rule, want := range map[string]string{"count": "raised=2", "repeating": "raised=1", "sliding": "raised=4", "delta": "raised=0"} {
		if got := edgesOf(t, dir, rule); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: edges %q, want %s", rule, got, want)
		}
	}
}
