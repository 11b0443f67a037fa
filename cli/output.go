package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// output is where a command writes its data: the one writer of stdout. It keeps the first error, so that no printer has to hand one on and
// none can forget to: a command whose output is not whole ends with ExitFailed, whatever else it did.
type output struct {
	to io.Writer

	mu   sync.Mutex
	lost error
	gone func() // called at the first error; nil: the output is an instance's, which goes on
	n    uint64 // writes that failed
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if err == nil {
		return n, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	if o.lost == nil {
		o.lost = err
		if o.gone != nil {
			o.gone()
		}
	}
	return n, err
}

// Unwrap is the writer itself, for those who ask whether it is a terminal.
func (o *output) Unwrap() io.Writer { return o.to }

// failed are how many writes have failed.
func (o *output) failed() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// err is an *outputError once something was lost.
func (o *output) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost == nil || o.gone == nil && readerLeft(o.lost) { // who reads what an instance prints may leave
		return nil
	}
	return &outputError{cause: o.lost}
}

// outlives makes the output one whose loss ends nothing.
func (o *output) outlives() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = nil
}

// outputError is returned when what a command shows could not be written.
type outputError struct {
	cause error
	done  string // what became of what the command did, "" where that stands
}

func (e *outputError) Error() string {
	text := fmt.Sprintf("the output could not be written: %v", e.cause)
	if e.done != "" {
		text += "; " + e.done
	}
	return text
}

func (e *outputError) Unwrap() error { return e.cause }

// hint is what to do about it. The disk that stdout is on need not be that of the instance, and nothing has to start again.
func (e *outputError) hint() string {
	if errors.Is(e.cause, syscall.ENOSPC) || errors.Is(e.cause, syscall.EDQUOT) {
		return "the disk is full that stdout is written to: free some space and run the command again"
	}
	return ""
}

// ending is the error of a command that ended with err and may have lost output.
func (o *output) ending(err error) error {
	lost := o.err()
	if _, said := errors.AsType[*outputError](err); lost == nil || said {
		return err
	}
	if err == nil || errors.Is(err, context.Canceled) { // what was cancelled is so because the output was lost
		return lost
	}
	return errors.Join(lost, err)
}

// errEnded is the cause of a context that ended because nothing can be shown any more.
var errEnded = errors.New("the output could not be written")

// readerLeft reports whether an error says that the reader of a pipe has gone.
func readerLeft(err error) bool { return errors.Is(err, syscall.EPIPE) }

// undone undoes a change whose result is shown once and was lost, and says so. It is undone although the command ends.
func undone(ctx context.Context, lost error, undo func(context.Context) error) error {
	e, ok := errors.AsType[*outputError](lost)
	if !ok {
		e = &outputError{cause: lost}
	}
	if err := undo(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(&outputError{e.cause, "what was made stands"}, err)
	}
	return &outputError{e.cause, "the change was undone"}
}
