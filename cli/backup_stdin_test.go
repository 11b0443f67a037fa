package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
)

// waitingInput is a stdin on which nothing comes: asked is closed when it is read.
type waitingInput struct {
	asked chan struct{}
	once  sync.Once
	never chan struct{}
}

func (w *waitingInput) Read([]byte) (int, error) {
	w.once.Do(func() { close(w.asked) })
	<-w.never
	return 0, io.EOF
}

// A signal ends the context of a command.
func TestAVerificationThatWaitsForItsInputEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	in := &waitingInput{asked: make(chan struct{}), never: make(chan struct{})}
	defer close(in.never)
	var errs bytes.Buffer
	ended := make(chan int)
	go func() {
		ended <- Run(ctx, []string{"backup", "verify", "-"}, IO{Stdin: in, Stdout: io.Discard, Stderr: &errs})
	}()
	<-in.asked
	cancel()
	if code := <-ended; code != ExitFailed || !strings.Contains(errs.String(), "canceled") {
		t.Errorf("ended with %d: %s", code, &errs)
	}
}
