package app_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/app"
	"weir/config"
)

// A wait that takes long is reported after a second and then every five, to the log and to the init system; a short one never.
func TestAStopSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var said []string
		opt := app.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Waits: func(text string, more time.Duration) {
			if more < 6*time.Second {
				t.Errorf("it asks for %s, and says something again in 5s", more)
			}
			said = append(said, text)
		}}
		left := 0
		report := app.Reporting(config.Default(), opt, "stopping", func() string {
			left++
			return "waiting for applier, " + strings.Repeat("x", left)
		})
		time.Sleep(12 * time.Second)
		report()
		report = app.Reporting(config.Default(), opt, "stopping", func() string { return "never" })
		time.Sleep(900 * time.Millisecond)
		report()
		if want := "stopping: waiting for applier, x|stopping: waiting for applier, xx|stopping: waiting for applier, xxx"; strings.Join(said, "|") != want {
			t.Errorf("it says %q, want %q", strings.Join(said, "|"), want)
		}
		if n := strings.Count(log.String(), "stopping: waiting for applier"); n != 3 || strings.Contains(log.String(), "never") || !strings.Contains(log.String(), "for=11s") {
			t.Errorf("%d lines:\n%s", n, &log)
		}
	})
}

// A stop that waits for the log names the component and how many records are left.
func TestAStopThatWaitsForTheLogSaysHowManyRecordsAreLeft(t *testing.T) {
	t.Parallel()
	b := newBarrier()
	close(b.lifted)
	waits := make(chan string, 100)
	in := runInstanceWith(t, app.Options{Waits: func(text string, _ time.Duration) { waits <- text }, Projections: barriers(b)})
	held := b.hold()
	for range 3 {
		if code, _, err := in.post(); err != nil || code != 202 {
			t.Fatal(code, err)
		}
	}
	stopped := make(chan struct{})
	go func() { in.stop(); close(stopped) }()
	select {
	case text := <-waits:
		if text != "stopping: waiting for applier, 3 records of the log left to apply" {
			t.Errorf("it says %q", text)
		}
	case <-stopped:
		t.Error(errors.New("it waits for nothing"))
	}
	close(held)
	<-stopped
}
