package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"weir/model"
	"weir/web"
)

// maxCommandBytes bounds the input of a verb, maxAnswerBytes any answer, maxOperators the connections of the socket.
const (
	maxCommandBytes = 16 << 20
	maxAnswerBytes  = 64 << 20
	maxOperators    = 64
)

// Server serves the verbs on a unix socket: one POST path each, JSON in and out.
type Server struct {
	o        *Operator
	edge     *EdgeOperator // nil: the instance is a platform
	http     *http.Server
	commands *commands
	// streaming ends when the streams must.
	streaming  context.Context
	endStreams context.CancelFunc
}

// NewServer returns a server whose verbs over 64 KiB may have maxBytes of input together.
func NewServer(o *Operator, maxBytes int64) *Server {
	return &Server{o: o, commands: newCommands(maxBytes, o.deps.Metrics)}
}

// errStopping is the answer to a verb that a stop has ended.
var errStopping = model.Errorf(model.CodeUnavailable, "unavailable: the instance is stopping and has ended the command")

// Listen opens the socket of the data directory, whose lock the caller holds, and returns what serves it until Shutdown.
func (s *Server) Listen(ctx, life context.Context) (serve func() error, path string, err error) {
	path = SocketPath(s.o.deps.Config.DataDir)
	// The lock is ours, so a socket that lies here is one that a killed process left.
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, "", &model.Error{Message: path + " is a directory, the socket of the instance was expected", Hint: "move it away: the start makes the socket"}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, "", err
	}
	l, err := listenAlone(ctx, findable(path))
	if err != nil {
		return nil, "", fmt.Errorf("the operator's socket cannot be opened (paths of sockets have about 100 characters at most): %w", err)
	}
	mux := http.NewServeMux()
	all := verbs
	if s.edge != nil {
		all = edgeVerbs
		mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) { s.failed(w, r, errEdgeRole) })
	}
	for _, v := range all {
		mux.Handle("/v1/"+v.path(), v.handler(s))
	}
	s.http = &http.Server{Handler: s.unharmed(mux), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	s.streaming, s.endStreams = context.WithCancel(life)
	bounded := web.Bounded(s.http, l, maxOperators, "socket", s.o.deps.Metrics)
	return func() error {
		if err := s.http.Serve(bounded); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, path, nil
}

// Shutdown ends the streams and the verbs that may take long, and waits for the others.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endStreams()
	return s.http.Shutdown(ctx)
}

func (v *Verb[In, Out]) handler(s *Server) http.Handler {
	maxBytes, timeout := v.maxBytes, v.timeout
	if maxBytes == 0 {
		maxBytes = maxCommandBytes
	}
	if timeout == 0 {
		timeout = verbTimeout
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q In
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		if timeout > verbTimeout { // it may take longer than a stop waits
			defer context.AfterFunc(s.streaming, cancel)()
		}
		limit := min(maxBytes, s.commands.max)
		leave, ok := s.commands.enter(ctx, r.ContentLength, limit)
		if !ok {
			s.failed(w, r, errCommandsBusy)
			return
		}
		defer leave()
		if !readCommand(w, r, limit, &q) {
			return
		}
		out, err := v.answerOf(s, ctx, q)
		if err != nil && s.streaming.Err() != nil && errors.Is(err, context.Canceled) {
			err = errStopping
		}
		if err != nil {
			s.failed(w, r, err)
			return
		}
		reply(w, http.StatusOK, out)
	})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a peer that is gone needs no answer
}

// findable is the path to bind: the absolute one, by which other commands find the instance (OtherInstances), unless it is too long
// for the address of a socket.
func findable(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil || len(abs) >= len(syscall.RawSockaddrUnix{}.Path) {
		return path
	}
	return abs
}

// listenAlone opens a socket that only its owner may connect to, from the first moment on: on Linux the file gets
// the mode that the socket has before it is bound. Elsewhere that may be refused, and the mode is set right after.
func listenAlone(ctx context.Context, path string) (net.Listener, error) {
	l, err := alone().Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func alone() *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
}

// unharmed reports a panic of a verb to the log and to the client; the instance goes on.
func (s *Server) unharmed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				s.o.deps.Log.Error("a command panicked", "command", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				reply(w, http.StatusInternalServerError, wireError{Message: "the command failed inside; the log of the instance says where"})
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// smallCommand is what a command may bring without waiting: the connections bound how many there are.
const smallCommand = 64 << 10

// commands bounds the bodies of the operator's commands that are read and carried out at one time. What does not fit waits.
type commands struct {
	max   int64
	bytes *semaphore.Weighted
	held  atomic.Int64
	waits prometheus.Counter
}

var errCommandsBusy = &model.Error{Code: model.CodeUnavailable, Message: "another large command is being carried out", Hint: "wait for it to end and try again"}

func newCommands(maximum int64, reg prometheus.Registerer) *commands {
	c := &commands{max: maximum, bytes: semaphore.NewWeighted(maximum), waits: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_socket_command_waits_total",
		Help: "Commands over 64 KiB that waited for others to complete."})}
	reg.MustRegister(c.waits,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_socket_command_bytes", Help: "Size of the command bodies over 64 KiB being read or executed."},
			func() float64 { return float64(c.held.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_socket_max_command_bytes", Help: "Maximum size of the command bodies over 64 KiB; further commands wait."},
			func() float64 { return float64(c.max) }))
	return c
}

// enter waits for space for a body of n bytes, of at most limit when n is not known (-1), and returns what gives it back.
func (c *commands) enter(ctx context.Context, n, limit int64) (leave func(), ok bool) {
	if n >= 0 && n <= smallCommand {
		return func() {}, true
	}
	if n < 0 || n > limit {
		n = limit
	}
	if !c.bytes.TryAcquire(n) {
		c.waits.Inc()
		if c.bytes.Acquire(ctx, n) != nil {
			return nil, false
		}
	}
	c.held.Add(n)
	return func() { c.held.Add(-n); c.bytes.Release(n) }, true
}
