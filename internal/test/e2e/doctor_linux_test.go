package e2e_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// While what was accepted cannot be applied, health ends with 5 and doctor names it; both are content again when it can.
func TestHealthAndDoctorSeeAStandstill(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: "auth: {device_auth_mode: optional}\n"})
	if out := w.Run("", "health"); out != "ready\n" {
		t.Errorf("before: %q", out)
	}
	tn := w.enter(t, "first")
	release := holdDatabase(t, w)
	tn.kept(measured("temp", "1", `"device":"boiler-1"`))
	poll.Until(t, "a standstill", func() error {
		out, err := w.TryRun("", "health")
		if code(err) != 5 || !strings.Contains(out, "weir: degraded: what was accepted is not applied: ") || !strings.Contains(out, "hint: weir doctor") {
			return errors.New(out)
		}
		return nil
	})
	out, err := w.TryRun("", "doctor")
	if code(err) != 5 || !strings.Contains(fields(out), "fail applier what was accepted is not applied") || !strings.Contains(fields(out), "backlog 1 record to be applied") {
		t.Errorf("%v: %s", err, out)
	}
	release()
	poll.Until(t, "health", func() error {
		_, err := w.TryRun("", "health", "--wait", "10s")
		return err
	})
}

// fields is a text with one space between its words.
func fields(text string) string { return strings.Join(strings.Fields(text), " ") }

func code(err error) int {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	return 0
}
