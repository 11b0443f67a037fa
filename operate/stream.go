package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"weir/model"
)

// ErrStreamEnded says that the instance has ended a stream: it is stopping.
var ErrStreamEnded = errors.New("the instance has ended the stream: it is stopping")

// lastLine is how long a stop waits for a peer to take what was begun.
const lastLine = time.Second

// source is what a streaming verb shows, value by value. Next waits for the next one; its error ends the stream.
type source[Out any] interface {
	Next(context.Context) (Out, error)
	Close()
}

// StreamVerb is a verb whose answer goes on until the client leaves or the instance stops.
type StreamVerb[In, Out any] struct {
	Name string
	open func(*Operator, context.Context, In) (source[Out], error)
}

func (v *StreamVerb[In, Out]) path() string { return v.Name }

// handler opens the source once; when the header of the answer is out the stream stands, so that nothing which happens
// afterwards is missed. Then comes a line of JSON for each value.
func (v *StreamVerb[In, Out]) handler(s *Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q In
		if !readCommand(w, r, maxCommandBytes, &q) {
			return
		}
		ctx, to, done := s.untilStop(w, r)
		defer done()
		src, err := v.open(s.o, ctx, q)
		if err != nil {
			s.failed(w, r, err)
			return
		}
		defer src.Close()
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.WriteHeader(http.StatusOK)
		lines := json.NewEncoder(w)
		for {
			if to.Flush() != nil {
				return
			}
			v, err := src.Next(ctx)
			if err != nil || lines.Encode(v) != nil {
				return
			}
		}
	})
}

// Follow opens the stream; what happens after it has returned is seen.
func (v *StreamVerb[In, Out]) Follow(ctx context.Context, c *Client, in In) (*Stream[Out], error) {
	resp, err := c.post(ctx, v.Name, in)
	if err != nil {
		return nil, err
	}
	return &Stream[Out]{resp.Body, json.NewDecoder(resp.Body)}, nil
}

// Stream is the other end of a streaming verb.
type Stream[Out any] struct {
	body  io.ReadCloser
	lines *json.Decoder
}

// Next waits for the next value. The error is that of the context the stream was opened with, ErrStreamEnded when the
// instance has ended it, or what went wrong.
func (s *Stream[Out]) Next(ctx context.Context) (out Out, err error) {
	err = s.lines.Decode(&out)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return out, ctx.Err()
	case errors.Is(err, io.EOF):
		return out, ErrStreamEnded
	}
	return out, fmt.Errorf("the stream of the instance broke off: %w", err)
}

// Close ends the stream.
func (s *Stream[Out]) Close() error { return s.body.Close() }

// readCommand reads the body of a command; false says that it was answered already.
func readCommand(w http.ResponseWriter, r *http.Request, limit int64, into any) bool {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "POST only", http.StatusMethodNotAllowed)
		return false
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			reply(w, http.StatusRequestEntityTooLarge, wireErrorOf(&model.Error{Code: model.CodeLimitExceeded,
				Message: fmt.Sprintf("the command is larger than %d bytes, the maximum that the memory of this instance allows", limit), Hint: "split it, or raise limits.memory"}))
			return false
		}
		reply(w, http.StatusBadRequest, wireError{Code: model.CodeInvalidInput, Message: "the command does not read: " + err.Error()})
		return false
	}
	return true
}

// failed answers a command that was refused or failed.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, err error) {
	if model.CodeOf(err) == "" {
		s.o.deps.Log.Error("a command failed", "command", r.URL.Path, "error", err)
	}
	reply(w, http.StatusUnprocessableEntity, wireErrorOf(err))
}

// untilStop is the life of an answer that goes on for long: that of the request, and no longer than the instance runs. A peer
// that reads nothing may stand still as long as it likes, but for a stop.
func (s *Server) untilStop(w http.ResponseWriter, r *http.Request) (ctx context.Context, to *http.ResponseController, done func()) {
	ctx, cancel := context.WithCancel(r.Context())
	to = http.NewResponseController(w)
	stop := context.AfterFunc(s.streaming, func() {
		cancel()
		_ = to.SetWriteDeadline(time.Now().Add(lastLine))
	})
	return ctx, to, func() {
		stop()
		cancel()
	}
}
