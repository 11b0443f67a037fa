package operate

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestLargeCommandsWaitForOneAnotherAndSmallOnesForNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCommands(1<<20, prometheus.NewRegistry())
		leave, ok := c.enter(t.Context(), 800<<10, 1<<20)
		if !ok || c.held.Load() != 800<<10 {
			t.Fatalf("%v, %d bytes", ok, c.held.Load())
		}
		if small, ok := c.enter(t.Context(), smallCommand, 1<<20); !ok {
			t.Error("a small one waits")
		} else {
			small()
		}
		entered := false
		go func() {
			second, ok := c.enter(t.Context(), -1, 512<<10) // of a length that is not known
			entered = ok
			second()
		}()
		if synctest.Wait(); entered {
			t.Error("two are carried out that together are too large")
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, ok := c.enter(gone, 1<<20, 1<<20); ok {
			t.Error("who has left is let in")
		}
		leave()
		if synctest.Wait(); !entered || c.held.Load() != 0 {
			t.Errorf("the second: %v, %d bytes are held", entered, c.held.Load())
		}
		if n := testutil.ToFloat64(c.waits); n != 2 {
			t.Errorf("%v waits are counted", n)
		}
	})
}

func TestAStopEndsTheVerbsThatMayTakeLong(t *testing.T) {
	t.Parallel()
	s := &Server{o: &Operator{deps: Deps{Log: slog.New(slog.DiscardHandler)}}, commands: newCommands(1<<20, prometheus.NewRegistry())}
	s.streaming, s.endStreams = context.WithCancel(t.Context())
	var ended error
	v := Verb[None, None]{Name: "slow", timeout: siteTimeout, running: func(_ *Operator, ctx context.Context, _ None) (None, error) {
		s.endStreams()
		<-ctx.Done()
		ended = ctx.Err()
		return None{}, ended
	}}
	w := httptest.NewRecorder()
	v.handler(s).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/slow", strings.NewReader("{}")))
	if ended != context.Canceled || !strings.Contains(w.Body.String(), "the instance is stopping") {
		t.Errorf("ended by %v, answered %s", ended, w.Body)
	}
}
