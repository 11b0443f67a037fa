// Package poll waits for another process, or for what stands outside a bubble of testing/synctest: it asks again until a condition
// holds. The limit is far above what a busy machine takes, so a test that passes never depends on it.
package poll

import (
	"errors"
	"testing"
	"time"
)

const (
	limit = time.Minute
	pause = 5 * time.Millisecond
)

// Until asks until ok returns nil. The test fails with ok's last error when that takes too long.
func Until(t testing.TB, what string, ok func() error) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(pause) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v it does not hold that %s: %v", limit, what, err)
		}
	}
}

var errNotYet = errors.New("not yet")

// True asks until holds returns true.
func True(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Until(t, what, func() error {
		if holds() {
			return nil
		}
		return errNotYet
	})
}
