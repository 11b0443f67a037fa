package cli

import (
	"slices"
	"testing"
	"time"
)

func TestASpanMayHaveDays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"1d": day, "14d12h": 14*day + 12*time.Hour, "0d": 0, "-2d": -2 * day, "+1d30m": day + 30*time.Minute, "-1d1s": -day - time.Second,
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "-10m": -10 * time.Minute, "+1h": time.Hour, "0": 0,
	} {
		if got, ok := parseSpan(text); !ok || got != want {
			t.Errorf("%q is %s, %t; not %s", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "d", "1", "1w", "day", "1.5d", "--1d", "1d-2h", "1d+2h", "1d2d", "1h1d", "99999d", "65535d99999999h", "1 d", "-"} {
		if got, ok := parseSpan(text); ok {
			t.Errorf("%q reads as %s", text, got)
		}
	}
}

func TestAMomentIsATimeOrASpanBeforeNow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{"1d": now.Add(-day), "2026-02-01T08:00:00Z": time.Date(2026, 2, 1, 8, 0, 0, 0, time.UTC)} {
		if got, ok := parseMoment(text, now); !ok || !got.Equal(want) {
			t.Errorf("%q is %s, %t", text, got, ok)
		}
	}
	for _, text := range []string{"", "-1d", "yesterday", "2026-02-01"} {
		if _, ok := parseMoment(text, now); ok {
			t.Errorf("%q reads", text)
		}
	}
}

func TestAValueThatMayBeLeftOutMayFollowABlank(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want []string }{
		{[]string{"device", "add", "a", "b", "--wait", "5m"}, []string{"device", "add", "a", "b", "--wait=5m"}},
		{[]string{"device", "add", "--print-commands", "curl", "a", "b"}, []string{"device", "add", "--print-commands=curl", "a", "b"}},
		{[]string{"device", "rotate", "a", "b", "--wait", "1d", "--yes"}, []string{"device", "rotate", "a", "b", "--wait=1d", "--yes"}},
		{[]string{"device", "add", "--wait", "a", "b"}, []string{"device", "add", "--wait", "a", "b"}},
		{[]string{"device", "add", "a", "b", "--wait"}, []string{"device", "add", "a", "b", "--wait"}},
		{[]string{"device", "add", "--", "--wait", "5m"}, []string{"device", "add", "--", "--wait", "5m"}},
		{[]string{"tenant", "list", "--json", "true"}, []string{"tenant", "list", "--json", "true"}},
		{[]string{"nothing", "--wait", "5m"}, []string{"nothing", "--wait", "5m"}},
	} {
		if got := joined(tree(), c.args); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, not %q", c.args, got, c.want)
		}
	}
}
