package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"weir/auth"
	"weir/config"
	"weir/model"
)

// maxCommandBytes bounds a command's body and its answer.
const maxCommandBytes = 16 << 20

// ErrNotRunning says that nothing answers on the socket of a data directory.
var ErrNotRunning = errors.New("no instance runs on this data directory")

// verbs are what the socket serves: one POST path each, JSON in and out. Whoever can open the socket holds the data
// directory; what he does is audited as local.
func (in *Instance) verbs() map[string]http.Handler {
	return map[string]http.Handler{
		"admin-create":  verb(in, in.createAdmin),
		"tenant-create": verb(in, in.createTenant),
		"device-add":    verb(in, in.addHere),
		"status":        verb(in, func(ctx context.Context, _ struct{}) (*Status, error) { return in.status(ctx) }),
		"ledger":        verb(in, in.ledger),
		"dead-letters":  verb(in, in.deadLetters),
	}
}

func verb[In, Out any](in *Instance, do func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST only", http.StatusMethodNotAllowed)
			return
		}
		var q In
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommandBytes))
		d.DisallowUnknownFields()
		if err := d.Decode(&q); err != nil {
			answer(w, http.StatusBadRequest, wireError{Code: model.CodeInvalidInput, Message: "the command does not read: " + err.Error()})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		out, err := do(ctx, q)
		if err != nil {
			if model.CodeOf(err) == "" {
				in.log.Error("a command failed", "command", r.URL.Path, "error", err)
			}
			answer(w, http.StatusUnprocessableEntity, wireErrorOf(err))
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
}

func wireErrorOf(err error) wireError {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return wireError{e.Code, e.Reason, e.Message, e.Hint}
	}
	return wireError{Message: err.Error()}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a peer that is gone needs no answer
}

func (in *Instance) startSocket(_, life context.Context) error {
	path := socketPath(in.cfg.DataDir)
	// The lock is ours, so a socket that lies here is one that a killed process left.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("the operator's socket cannot be opened (paths of sockets have about 100 characters at most): %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	for name, h := range in.verbs() {
		mux.Handle("/v1/"+name, h)
	}
	in.socket = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	in.addrs.Socket = path
	in.goes(life, "socket", func(context.Context) error {
		if err := in.socket.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

func (in *Instance) stopSocket(ctx context.Context) error { return in.socket.Shutdown(ctx) }

// Client is an Operator that speaks to a running instance over its socket.
type Client struct{ http *http.Client }

// Dial returns a client of the instance that runs on a data directory. The error is ErrNotRunning when none does.
func Dial(ctx context.Context, cfg config.Config) (*Client, error) {
	path := socketPath(cfg.DataDir)
	dial := func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", path) }
	c, err := dial(ctx)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("the socket of the instance may not be opened by this user: %w", err)
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
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://weir/v1/"+verb, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the instance did not answer: %w", err)
	}
	defer resp.Body.Close()
	answer := io.LimitReader(resp.Body, maxCommandBytes)
	if resp.StatusCode != http.StatusOK {
		var e wireError
		if err := json.NewDecoder(answer).Decode(&e); err != nil {
			return nil, fmt.Errorf("the instance answered %s", resp.Status)
		}
		if e.Code == "" {
			return nil, errors.New(e.Message)
		}
		return nil, &model.Error{Code: e.Code, Reason: e.Reason, Message: e.Message, Hint: e.Hint}
	}
	out := new(Out)
	return out, json.NewDecoder(answer).Decode(out)
}

// CreateAdmin implements Operator.
func (c *Client) CreateAdmin(ctx context.Context, a NewAdmin) (*AdminCreated, error) {
	return call[AdminCreated](ctx, c, "admin-create", a)
}

// CreateTenant implements Operator.
func (c *Client) CreateTenant(ctx context.Context, t NewTenant) (*TenantCreated, error) {
	return call[TenantCreated](ctx, c, "tenant-create", t)
}

// AddDevice implements Operator.
func (c *Client) AddDevice(ctx context.Context, d NewDevice) (*DeviceAdded, error) {
	return call[DeviceAdded](ctx, c, "device-add", d)
}

// Status returns how the instance is.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return call[Status](ctx, c, "status", struct{}{})
}

// Ledger returns the ledger.
func (c *Client) Ledger(ctx context.Context, q LedgerQuery) (*LedgerReport, error) {
	return call[LedgerReport](ctx, c, "ledger", q)
}

// DeadLetters lists dead letters, newest first.
func (c *Client) DeadLetters(ctx context.Context, q DeadLetterQuery) ([]DeadLetter, error) {
	out, err := call[[]DeadLetter](ctx, c, "dead-letters", q)
	if err != nil {
		return nil, err
	}
	return *out, nil
}

var _ Operator = (*Client)(nil)

func newIdentity(a NewAdmin) auth.NewIdentity {
	if a.Role == "" {
		a.Role = auth.RoleSuperuser
	}
	return auth.NewIdentity{Email: a.Email, Password: a.Password, Enabled: true, SystemRoles: []string{a.Role}}
}
