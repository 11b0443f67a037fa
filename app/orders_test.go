package app_test

import (
	"errors"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"weir/internal/test/fixture"
	"weir/internal/test/poll"

	"weir/operate"
)

const ordersSite = `version: 1
tenants:
  - token: acme
    deviceProfiles:
      - token: p
        commandDefinitions: [{token: stop, commandKey: stop}]
        detectionRules:
          - {token: two, definition: {name: two, type: aggregate, windowMode: count, count: 2, agg: sum, metric: x, op: ge, threshold: 2, actions: [
              {type: sendCommand, sendCommand: {command: stop, payload: '{"by":"rule"}'}},
              {type: sendCommand, sendCommand: {command: blow}},
              {type: sendCommand, sendCommand: {command: stop}, guard: "value > 2.0"}]}}
    deviceTypes: [{token: t, profileToken: p}]
    devicesFrom: [{file: devices.csv, deviceTypeToken: t}]
`

// TestARulesCommandIsMadeOnce publishes a rule that sends a command of its profile and one that the profile does not have, and lets it fire before a kill, after
// it and before stops: each edge makes one command and one dead letter, however often the log is read again.
func TestARulesCommandIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	cfg := kindConfig(dir)
	p := startKind(t, dir)
	applyRuleSite(t, cfg, ordersSite)
	fire := func(device int) {
		p.post(device)
		p.post(device)
	}
	fire(0)
	p.applied(cfg)
	p.end(syscall.SIGKILL)
	p = startKind(t, dir)
	fire(1)
	p.end(syscall.SIGTERM)
	p = startKind(t, dir)
	p.end(syscall.SIGKILL)
	p = startKind(t, dir)
	p.post(0)
	p.applied(cfg)
	client, err := operate.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "an empty outbox", func() error {
		r, err := operate.ShowOutbox.Ask(t.Context(), client, operate.OutboxQuery{Tenant: "acme", Limit: 10})
		if err == nil && r.Rows > 0 {
			err = errors.New("orders wait")
		}
		return err
	})
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	p.end(syscall.SIGTERM)
	db := fixture.StoreIn(t, dir)
	if got := fixture.Rows(t, db, `SELECT name, coalesce(payload, '-'), device, count(*), count(DISTINCT token) FROM commands GROUP BY name, payload, device ORDER BY device`); !slices.Equal(got, []string{`stop {"by":"rule"} d0 1 1`, `stop {"by":"rule"} d1 1 1`}) {
		t.Errorf("commands: %q", got)
	}
	if got := fixture.Rows(t, db, `SELECT tenant, kind, reason, subject, count(*), count(DISTINCT correlation) FROM dead_letters GROUP BY 1, 2, 3, 4 ORDER BY 4`); !slices.Equal(got, []string{"acme detection-action unprocessable d0 1 1",
		"acme detection-action unprocessable d1 1 1"}) {
		t.Errorf("dead letters: %q", got)
	}
}
