package poll

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test that keeps how it failed.
type failing struct {
	testing.TB
	with string
}

func (f *failing) Helper() {}
func (f *failing) Fatalf(format string, args ...any) {
	f.with = fmt.Sprintf(format, args...)
	panic(f)
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		True(t, "it was asked three times", func() bool { asked++; return asked == 3 })
		if asked != 3 {
			t.Errorf("asked %d times", asked)
		}
		f, began := &failing{}, time.Now()
		func() {
			defer func() { _ = recover() }()
			Until(f, "pigs fly", func() error { return errors.New("no wings") })
		}()
		if want := "after 1m0s it does not hold that pigs fly: no wings"; f.with != want || time.Since(began) < limit {
			t.Errorf("%q after %v", f.with, time.Since(began))
		}
	})
}
