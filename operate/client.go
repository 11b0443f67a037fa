package operate

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

	"weir/config"
	"weir/model"
)

// Client carries verbs out on a running instance over its socket.
type Client struct{ http *http.Client }

// Dial returns a client of the instance that runs on a data directory. The error is a NotRunningError when none does.
func Dial(ctx context.Context, cfg config.Config) (*Client, error) {
	path := SocketPath(cfg.DataDir)
	dial := func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", path) }
	c, err := dial(ctx)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return nil, &model.Error{Message: fmt.Sprintf("the socket of the instance may not be opened by this user: %v", err), Err: err,
				Hint: "run the command as the user that the instance runs as"}
		}
		return nil, notRunning(cfg.DataDir)
	}
	_ = c.Close()
	return &Client{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}}, nil
}

// Close ends its connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// call carries out a verb with one answer.
func (c *Client) call(ctx context.Context, verb string, in, out any) error {
	resp, err := c.post(ctx, verb, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(out)
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
	return c.do(ctx, req)
}

// do sends a request. The caller closes the body of the answer, which is a good one: anything else is an error.
func (c *Client) do(ctx context.Context, req *http.Request) (*http.Response, error) {
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

// wireError is a refusal on its way over the socket. The other end is the operator, to whom nothing is hidden.
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
