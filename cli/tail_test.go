package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"weir/operate"
)

func TestNothingThatADeviceSaysReachesTheTerminalAsItIs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	printSeen(&out, &operate.Seen{Time: time.Unix(1, 5e6), Tenant: "acme", Transport: "http", Device: "d1", Outcome: "dead letter", Reason: "invalid-value",
		Why: "\x1b[2Jmetric \u202egnp is\r\nno", Values: []string{"t\x07emp=1"}, Readings: 3, DelayMS: 12.34})
	want := "00:00:01.005Z  acme  http  d1  dead letter (invalid-value): \ufffd[2Jmetric \ufffdgnp is\ufffd\ufffdno  t\ufffdemp=1 and 2 more  12ms\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}

func TestWhatIsTooFastToShowIsCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		json bool
		want string
	}{{false, "… 1,234,567 more, too fast to show\n"}, {true, "{\"leftOut\":1234567}\n"}} {
		var out bytes.Buffer
		tails := make(chan *operate.Sightings, 1)
		tails <- &operate.Sightings{LeftOut: 1_234_567}
		close(tails)
		cmd := &command{io: IO{Stdout: &out}, json: c.json}
		err := cmd.showTail(t.Context(), &watching{tails: tails, err: operate.ErrStreamEnded}, 0)
		if !errors.Is(err, operate.ErrStreamEnded) || out.String() != c.want {
			t.Errorf("%v, %q", err, out.String())
		}
	}
}

func TestATailEndsWellAtCtrlCAndAtItsLimit(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	cmd := &command{io: IO{Stdout: &bytes.Buffer{}}}
	if err := cmd.showTail(ctx, &watching{tails: make(chan *operate.Sightings)}, 0); err != nil {
		t.Error(err)
	}
	over := make(chan *operate.Sightings)
	close(over)
	for range 50 { // both have ended, and either may be seen first
		if err := cmd.showTail(ctx, &watching{tails: over, err: context.Canceled}, 0); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	cmd = &command{io: IO{Stdout: &out}}
	tails := make(chan *operate.Sightings, 1)
	tails <- &operate.Sightings{Messages: make([]operate.Seen, 5)}
	if err := cmd.showTail(t.Context(), &watching{tails: tails}, 2); err != nil || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("%v, %q", err, out.String())
	}
}

func TestATimeIsGivenAsSuchOrByHowLongAgoItWas(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Time{"": {}, "-10m": now.Add(-10 * time.Minute), "2026-01-02T03:04:05.678Z": time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)} {
		if got, err := parseAt(s, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	if _, err := parseAt("noon", now); exitCode(err) != ExitUsage {
		t.Error(err)
	}
}

func TestThousandsAreGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
