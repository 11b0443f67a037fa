package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/app"
	"weir/ingest"
	"weir/model"
	"weir/operate"
)

// again is an instance on the directory of another, and how its run ends.
func (in *instance) again(t *testing.T, opt app.Options) (next *instance, stop func() error, err error) {
	t.Helper()
	next = &instance{Instance: app.New(in.cfg, opt), cfg: in.cfg, device: in.device, token: in.token}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- next.Run(ctx, func() { close(ready) }, nil) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = stop() }) // its error is the test's
	select {
	case <-ready:
		return next, stop, nil
	case err := <-ended:
		ended <- err
		return next, stop, err
	}
}

func (in *instance) status(t *testing.T) *operate.Status {
	t.Helper()
	c, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := operate.GetStatus.Ask(t.Context(), c, operate.None{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Refusals that the log did not take before the stop are missing in the ledger: the stop is not marked as clean, and the next
// start notes the span as a gap.
func TestAStopThatCouldNotStoreItsCountsIsNotClean(t *testing.T) {
	t.Parallel()
	in := runInstance(t, nil)
	in.stop()
	var broken atomic.Bool
	second, stop, err := in.again(t, app.Options{Sync: func(sync func() error) error {
		if broken.Load() {
			return errors.New("no space left on device")
		}
		return sync()
	}})
	if err != nil {
		t.Fatal(err)
	}
	if s := second.status(t); !s.LastStop.Clean || s.LedgerGaps != 0 {
		t.Errorf("after a clean stop: %+v, %d gaps", s.LastStop, s.LedgerGaps)
	}
	broken.Store(true)
	before := model.MicrosOf(time.Now())
	for range 3 {
		if code, _, err := second.post(); err != nil || code != http.StatusServiceUnavailable {
			t.Fatalf("%d, %v", code, err)
		}
	}
	if err := stop(); err == nil {
		t.Error("the stop says nothing")
	}
	if _, err := os.Stat(operate.CleanPath(in.cfg.DataDir)); err == nil {
		t.Error("the stop is marked as clean")
	}
	third, _, err := in.again(t, app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s := third.status(t); s.LastStop.Clean || s.LedgerGaps != 1 || s.Unbalanced != 0 {
		t.Errorf("afterwards: %+v, %d gaps, %d hours out of balance", s.LastStop, s.LedgerGaps, s.Unbalanced)
	}
	if r := third.ledger(t); len(r.Gaps) != 1 || model.MicrosOf(r.Gaps[0].From) > before || model.MicrosOf(r.Gaps[0].To) < before {
		t.Errorf("the gap is %+v, the refusals came at %s", r.Gaps, before)
	}
}

// A newest file of the log behind a hole, in which no record is: the start names what is missing and goes on.
func TestAStartGoesOnBehindAFileWithoutRecords(t *testing.T) {
	t.Parallel()
	in := runInstance(t, nil)
	for range 3 {
		if code, _, err := in.post(); err != nil || code != http.StatusAccepted {
			t.Fatalf("%d, %v", code, err)
		}
	}
	last := in.status(t).Log.Last
	in.stop()
	file := filepath.Join(operate.SpoolPath(in.cfg.DataDir), fmt.Sprintf("%016x.span", uint64(last)+100))
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next, stop, err := in.again(t, app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s := next.status(t); len(s.Log.Losses) != 1 || s.Log.Applied < last+99 {
		t.Errorf("%+v", s.Log)
	}
	if code, _, err := next.post(); err != nil || code != http.StatusAccepted {
		t.Errorf("afterwards: %d, %v", code, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	after, _, err := in.again(t, app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s := after.status(t); len(s.Log.Losses) != 1 || s.Unbalanced != 0 {
		t.Errorf("the start after it: %+v", s.Log)
	}
}

// Where the first file behind the checkpoint is gone, the hint names the empty file that lets the start read the others.
func TestTheHintNamesTheFileThatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(operate.SpoolPath(dir), "00000000000047df.span")
	for first, named := range map[model.Offset]bool{0x47e1: true, 0x47df: false} {
		err := app.Older(dir, fmt.Errorf("x: %w", ingest.ErrStoreOlder), 0x47de, first)
		e, ok := errors.AsType[*model.Error](err)
		if !ok || strings.Contains(e.Hint, "touch "+missing) != named || !strings.Contains(e.Hint, "put the newer weir.db back") || !errors.Is(err, ingest.ErrStoreOlder) {
			t.Errorf("the log begins with %d: %v: %s", first, err, e.Hint)
		}
	}
	if err := errors.New("another"); app.Older(dir, err, 1, 5) != err {
		t.Error("another error is changed")
	}
}

func (in *instance) ledger(t *testing.T) *operate.LedgerReport {
	t.Helper()
	c, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := operate.ShowLedger.Ask(t.Context(), c, operate.LedgerQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
