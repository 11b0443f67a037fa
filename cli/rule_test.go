package cli

import (
	"strings"
	"testing"
	"time"
)

// TestWhatARuleCouldNotJudgeIsShown: all that its health knows, and what is shown of a rule that has done nothing yet.
func TestWhatARuleCouldNotJudgeIsShown(t *testing.T) {
	t.Parallel()
	at, signal := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC), "raised"
	for _, c := range []struct {
		health *ruleHealth
		want   string
	}{
		{nil, "live not known: no instance runs, or no published version has the rule enabled"},
		{&ruleHealth{Status: "ACTIVE"}, "status active|fired never|last input -|problems none"},
		{&ruleHealth{Status: "ACTIVE", FireCount: 1, LastFiredAt: &at, LastSignal: &signal, LastInputAt: &at, EvalErrors: 1, Missing: 2, LateSamples: 1, Refused: 3, Held: 4,
			StaleActions: 5, ClockHeld: true, MissingMetrics: []string{"hum", "temp"}},
			"status active|fired 1 time (both edges), last raised 2026-03-01T12:00:00Z|last input 2026-03-01T12:00:00Z|" +
				"problems 1 failed evaluation, 2 samples without the attribute, 1 late sample, 3 samples without room, 4 detections over the ceiling, 5 stale actions|" +
				"held silence does not count: messages of the tenant are turned away or wait|not sent yet hum, temp"},
		{&ruleHealth{Status: "COMPILE_ERROR", Message: new("when: no"), LateSamples: 2}, "status compile error|error when: no|fired never|last input -|problems 2 late samples"},
	} {
		var b strings.Builder
		printRule(&b, &ruleRow{Token: "r", Profile: "p", Enabled: true, Health: c.health})
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n")[6:] {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("got  %s\nwant %s", text, c.want)
		}
	}
}
