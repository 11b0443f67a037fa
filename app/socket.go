package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"weir/config"
	"weir/model"
	"weir/web"
)

// maxCommandBytes bounds a command's body, maxAnswerBytes any answer.
const (
	maxCommandBytes = 16 << 20
	maxAnswerBytes  = 64 << 20
	mostOperators   = 64 // connections of the socket
)

// ErrNotRunning says that nothing answers on the socket of a data directory.
var ErrNotRunning = errors.New("no instance runs on this data directory")

// verbs are what the socket serves: one POST path each, JSON in and out. Whoever can open the socket holds the data
// directory; what he does is audited as local.
func (in *Instance) verbs() map[string]http.Handler {
	all := map[string]http.Handler{}
	for _, verbs := range []map[string]http.Handler{
		in.adminVerbs(),
		in.tenantVerbs(),
		in.deviceVerbs(),
		in.statusVerbs(),
		in.ledgerVerbs(),
		in.verifyVerbs(),
		in.traceVerbs(),
		in.tailVerbs(),
		in.doctorVerbs(),
		in.completeVerbs(),
		in.siteVerbs(),
		in.reloadVerbs(),
		in.backupVerbs(),
	} {
		maps.Copy(all, verbs)
	}
	return all
}

func verb[In, Out any](in *Instance, do func(context.Context, In) (Out, error)) http.Handler {
	return boundedVerb(in, bounds{maxCommandBytes, patience}, do)
}

// bounds are those of one command.
type bounds struct {
	bytes    int64         // of its body
	patience time.Duration // that it may take
}

// boundedVerb is a verb with other bounds than most.
func boundedVerb[In, Out any](in *Instance, b bounds, do func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q In
		ctx, cancel := context.WithTimeout(r.Context(), b.patience)
		defer cancel()
		most := min(b.bytes, in.budget.commandBytes())
		leave, ok := in.commands.enter(ctx, r.ContentLength, most)
		if !ok {
			in.failedCommand(w, r, errCommandsBusy)
			return
		}
		defer leave()
		if !readCommand(w, r, most, &q) {
			return
		}
		out, err := do(ctx, q)
		if err != nil {
			in.failedCommand(w, r, err)
			return
		}
		answer(w, http.StatusOK, out)
	})
}

// wireError is a refusal on its way over the socket. The other end is the operator: he is told everything.
type wireError struct {
	Code    model.Code `json:"code,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
	Field   string     `json:"field,omitempty"`
	Kind    string     `json:"kind,omitempty"`
	Token   string     `json:"token,omitempty"`
}

func wireErrorOf(err error) wireError {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return wireError{e.Code, e.Reason, e.Message, e.Hint, e.Field, e.Kind, e.Token}
	}
	return wireError{Message: err.Error()}
}

// err is the refusal at the other end.
func (e wireError) err() error {
	if e.Code == "" {
		return errors.New(e.Message)
	}
	return &model.Error{Code: e.Code, Reason: e.Reason, Message: e.Message, Hint: e.Hint, Field: e.Field, Kind: e.Kind, Token: e.Token}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a peer that is gone needs no answer
}

// listenAlone opens a socket that nobody but its owner may connect to, from the first moment on: on Linux the file gets
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

func (in *Instance) startSocket(ctx, life context.Context) error {
	path := socketPath(in.cfg.DataDir)
	// The lock is ours, so a socket that lies here is one that a killed process left.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := listenAlone(ctx, path)
	if err != nil {
		return fmt.Errorf("the operator's socket cannot be opened (paths of sockets have about 100 characters at most): %w", err)
	}
	mux := http.NewServeMux()
	for name, h := range in.verbs() {
		mux.Handle("/v1/"+name, h)
	}
	in.socket = &http.Server{Handler: in.unharmed(mux), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	in.addrs.Socket = path
	in.streaming, in.endStreams = context.WithCancel(life)
	in.goes(life, "socket", func(context.Context) error {
		if err := in.socket.Serve(web.Bounded(l, mostOperators, "socket", in.metrics)); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

// unharmed tells a panic of a command to the log and to whoever gave it; the instance goes on.
func (in *Instance) unharmed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				in.log.Error("a command panicked", "command", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				answer(w, http.StatusInternalServerError, wireError{Message: "the command failed inside; the log of the instance says where"})
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (in *Instance) stopSocket(ctx context.Context) error {
	in.endStreams()
	return in.socket.Shutdown(ctx)
}

// Client is an Operator that speaks to a running instance over its socket.
type Client struct{ http *http.Client }

// Dial returns a client of the instance that runs on a data directory. The error is ErrNotRunning when none does.
func Dial(ctx context.Context, cfg config.Config) (*Client, error) {
	path := socketPath(cfg.DataDir)
	dial := func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", path) }
	c, err := dial(ctx)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return nil, &model.Error{Message: fmt.Sprintf("the socket of the instance may not be opened by this user: %v", err), Err: err,
				Hint: "run the command as the user that the instance runs as"}
		}
		return nil, ErrNotRunning
	}
	_ = c.Close()
	return &Client{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}}, nil
}

// Close implements Operator.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

func call[Out any](ctx context.Context, c *Client, verb string, in any) (*Out, error) {
	resp, err := c.post(ctx, verb, in)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := new(Out)
	return out, json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(out)
}

// post sends a command. The caller closes the body of the answer, which is a good one: anything else is an error.
func (c *Client) post(ctx context.Context, verb string, in any) (*http.Response, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://weir/v1/"+verb, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if ctx.Err() != nil {
		return nil, &model.Error{Message: "the answer of the instance was not waited for: " + ctx.Err().Error(), Err: ctx.Err(),
			Hint: "it may do all the same what it has begun: look before you do it again"}
	}
	if err != nil {
		return nil, fmt.Errorf("the instance did not answer: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var e wireError
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(&e); err != nil {
		return nil, fmt.Errorf("the instance answered %s", resp.Status)
	}
	return nil, e.err()
}

var _ Operator = (*Client)(nil)
