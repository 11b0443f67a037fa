// Package need says what a test needs of the machine. Where that is missing the test is skipped, so that the tests run with
// Go alone; with NEEDS=must, as CI runs them, it fails instead, so that none is left out without a word.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// Must reports whether what is missing is a failure.
func Must() bool { return os.Getenv("NEEDS") == "must" }

// Program returns the path of a program.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	That(t, err == nil, "%s is not installed", name)
	return path
}

// That goes on where it is so; why says what is missing.
func That(t testing.TB, so bool, why string, args ...any) {
	t.Helper()
	switch {
	case so:
	case Must():
		t.Fatalf(why, args...)
	default:
		t.Skipf(why, args...)
	}
}
