package cli

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/operate"
)

// TestTheLedgerFitsTheScreen: with every outcome, with unauthenticated senders, and with large numbers.
func TestTheLedgerFitsTheScreen(t *testing.T) {
	t.Parallel()
	hour := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	line := func(tenant, transport string, n int64, outcomes ...string) operate.LedgerEntry {
		l := operate.LedgerEntry{Hour: hour, Tenant: tenant, Transport: transport, Received: n * int64(len(outcomes)), Readings: n, Outcomes: map[string]int64{}}
		for _, o := range outcomes {
			l.Outcomes[o] = n
			if o == "dead-letter" || o == "refused" || o == "dropped" {
				l.Reasons = append(l.Reasons, operate.ReasonCount{Outcome: o, Reason: "bad-credential", Count: n})
			}
		}
		return l
	}
	everything := []string{"stored", "duplicate", "dead-letter", "refused", "dropped", "waiting"}
	for name, c := range map[string]struct {
		lines       []operate.LedgerEntry
		has, hasNot string
	}{
		"stored only":          {[]operate.LedgerEntry{line("acme", "mqtt", 12, "stored")}, `^            HOUR TENANT  VIA RECEIVED STORED READINGS MISSING\n2026-03-01 08:00   acme mqtt       12     12       12       0\n`, "DEAD|OTHER"},
		"with unauthenticated": {[]operate.LedgerEntry{line("acme", "mqtt", 12, "stored"), line("", "http", 3, "dead-letter", "refused")}, `^ +HOUR .*DEAD REFUSED READINGS MISSING\n03-01 08:00 `, "OTHER"},
		"every outcome":        {[]operate.LedgerEntry{line("acme", "mqtt", 12, everything...), line("", "http", 3, "refused")}, `(?m)^2026-03-01 08:00 acme mqtt: 12 duplicate, 12 waiting$`, "DEAD"},
		"every outcome, and many": {[]operate.LedgerEntry{line("plant-north-seven", "mqtt", 1_234_567, everything...), line("", "http", 99_999, "refused")},
			`(?m)^03-01 08:00 +plant-north-seven mqtt +7407402 +1234567 +6172835 +1234567 +0$`, "DEAD"},
		"over the turn of the year": {[]operate.LedgerEntry{line("plant-north-seven", "mqtt", 12, everything...), {Hour: hour.AddDate(-1, 0, 0), Transport: "http"}}, `2025-03-01 08:00`, "DEAD"},
	} {
		var b strings.Builder
		printHours(&b, c.lines)
		if text := b.String(); widthOf(text) > screen || !regexp.MustCompile(c.has).MatchString(text) || regexp.MustCompile(c.hasNot).MatchString(text) {
			t.Errorf("%s: %d characters wide\n%s", name, widthOf(text), text)
		}
		for _, l := range c.lines {
			if ended := l.Outcomes["stored"] + otherOutcomes(&l); ended != l.Received {
				t.Errorf("%s: %d of %d", name, ended, l.Received)
			}
		}
	}
}
