package gql

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"weir/gql/engine"
	"weir/internal/connlimit"
	"weir/internal/jsonscan"
	"weir/internal/requestid"
	"weir/model"
)

// The subprotocol graphql-transport-ws: https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md
const subprotocol = "graphql-transport-ws"

// Close codes, those of the subprotocol and of RFC 6455 §7.4.1.
const (
	closeMalformed     websocket.StatusCode = 4400
	closeUnauthorized  websocket.StatusCode = 4401
	closeInitTimeout   websocket.StatusCode = 4408
	closeIDInUse       websocket.StatusCode = 4409
	closeSecondInit    websocket.StatusCode = 4429
	closeTryAgainLater                      = websocket.StatusTryAgainLater // more connections than one identity may have
	closeGoingAway                          = websocket.StatusGoingAway
)

// Timers of a connection.
const (
	initWithin    = 10 * time.Second
	pingEvery     = 25 * time.Second
	maxSilence    = 60 * time.Second
	writeWithin   = 10 * time.Second
	superviseTick = 500 * time.Millisecond // expiry and revocation take effect within a second
)

// socket is one WebSocket connection. One goroutine reads, one supervises the timers, each operation has its own; the
// library serialises writes.
type socket struct {
	h       *handler
	conn    *websocket.Conn
	ctx     context.Context
	id      string // request id of the upgrade, for the log
	remote  netip.Addr
	foreign bool   // a page of another host has opened it: it needs a token
	header  string // the token of the upgrade's Authorization header, for a connection_init without one

	started  time.Time
	lastSeen atomic.Int64 // unix nanoseconds of the last frame from the client
	lastPing time.Time    // supervisor only
	slot     *socketSlot

	mu      sync.Mutex
	begun   bool // connection_init was received
	acked   bool
	session Session
	ops     map[string]*socketOp
	wg      sync.WaitGroup
}

type socketOp struct{ cancel context.CancelFunc }

// message is one message of the subprotocol, in either direction.
type message struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// upgrade opens a connection. foreign: a page of another host asks for it.
func (h *handler) upgrade(w http.ResponseWriter, r *http.Request, foreign bool) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	slot := h.server.sockets.open(cancel)
	if slot == nil {
		h.unavailable(w, r, "too many WebSocket connections are open")
		return
	}
	defer slot.close()
	s := &socket{h: h, id: requestid.From(r.Context()), remote: remote(r), header: upgradeAuthorization(r), started: time.Now(),
		slot: slot, ctx: ctx, foreign: foreign, ops: map[string]*socketOp{}}
	s.touch()
	s.lastPing = s.started
	alive := func(context.Context, []byte) bool { s.touch(); return true }
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{subprotocol}, InsecureSkipVerify: true, // see init: the token is the boundary, not the origin
		OnPingReceived: alive, OnPongReceived: func(ctx context.Context, b []byte) { alive(ctx, b) },
	})
	if err != nil {
		return // Accept has sent the response
	}
	s.conn = conn
	conn.SetReadLimit(min(h.server.cfg.Limits.BodyBytes, maxAnonymousBody))
	defer func() {
		cancel()
		s.wg.Wait()
		_ = conn.CloseNow() // no effect when it is closed already
	}()
	if conn.Subprotocol() != subprotocol {
		s.close(closeMalformed, "the subprotocol must be "+subprotocol)
		return
	}
	s.wg.Go(s.supervise)
	s.read()
}

func (s *socket) touch() { s.lastSeen.Store(time.Now().UnixNano()) }

// close ends the connection. The first reason wins: the library closes once.
func (s *socket) close(code websocket.StatusCode, why string) {
	s.h.server.metrics.socketsClosed.WithLabelValues(strconv.Itoa(int(code))).Inc()
	s.h.server.log.Debug("graphql: closing WebSocket", "request", s.id, "code", int(code), "reason", why)
	_ = s.conn.Close(code, why) // the peer may be gone already
}

// supervise closes the connection when a timer runs out, the token ends or the server stops.
func (s *socket) supervise() {
	tick := time.NewTicker(superviseTick)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.h.server.inflight.draining:
			s.close(closeGoingAway, "the server is stopping")
			return
		case now := <-tick.C:
			if code, why := s.judge(now); code != 0 {
				s.close(code, why)
				return
			}
			if now.Sub(s.lastPing) >= pingEvery {
				s.lastPing = now
				s.wg.Go(func() { s.send(message{Type: "ping"}) })
			}
		}
	}
}

func (s *socket) judge(now time.Time) (websocket.StatusCode, string) {
	s.mu.Lock()
	begun, acked, session := s.begun, s.acked, s.session
	s.mu.Unlock()
	switch {
	case !begun && now.Sub(s.started) >= initWithin:
		return closeInitTimeout, "connection_init did not come in time"
	case acked && session.over(now):
		return closeUnauthorized, "the token has ended"
	case now.UnixNano()-s.lastSeen.Load() >= int64(maxSilence):
		return websocket.StatusPolicyViolation, "nothing was heard for too long"
	}
	return 0, ""
}

// read handles messages until the connection ends.
func (s *socket) read() {
	for {
		typ, data, err := s.conn.Read(s.ctx)
		if err != nil {
			return
		}
		s.touch()
		m, ok := parseMessage(typ, data)
		if !ok {
			s.close(closeMalformed, "the message is malformed")
			return
		}
		if code, why := s.handle(m); code != 0 {
			s.close(code, why)
			return
		}
	}
}

func parseMessage(typ websocket.MessageType, data []byte) (m message, ok bool) {
	if typ != websocket.MessageText || jsonscan.Text(data) != nil {
		return m, false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil || members == nil {
		return m, false
	}
	for name, into := range map[string]*string{"type": &m.Type, "id": &m.ID} {
		if raw, sent := members[name]; sent && json.Unmarshal(raw, into) != nil {
			return m, false
		}
	}
	m.Payload = members["payload"]
	return m, m.Type != ""
}

// handle acts on one message; a code other than 0 closes the connection.
func (s *socket) handle(m message) (websocket.StatusCode, string) {
	switch m.Type {
	case "connection_init":
		return s.init(m)
	case "ping":
		return s.ping(m)
	case "pong":
		return 0, ""
	case "subscribe":
		return s.subscribe(m)
	case "complete":
		if m.ID == "" {
			return closeMalformed, "complete needs an id"
		}
		s.mu.Lock()
		if op := s.ops[m.ID]; op != nil {
			delete(s.ops, m.ID)
			op.cancel()
		}
		s.mu.Unlock()
		return 0, ""
	}
	return closeMalformed, "the type of the message is unknown"
}

func (s *socket) init(m message) (websocket.StatusCode, string) {
	s.mu.Lock()
	again := s.begun
	s.begun = true
	s.mu.Unlock()
	if again {
		return closeSecondInit, "connection_init came twice"
	}
	authorization, ok := authorizationOf(m.Payload)
	if !ok {
		return closeMalformed, "the payload is malformed"
	}
	session, code, why := s.prove(cmp.Or(authorization, s.header))
	switch {
	case code != 0:
		return code, why
	case s.foreign && session.anonymous():
		return closeUnauthorized, foreignPage
	}
	if !s.slot.join(session, s.remote) {
		return closeTryAgainLater, "this identity has too many connections"
	}
	if !session.anonymous() {
		connlimit.Keep(s.ctx)
		s.conn.SetReadLimit(s.h.server.cfg.Limits.BodyBytes)
	}
	s.mu.Lock()
	s.session, s.acked = session, true
	s.mu.Unlock()
	s.send(message{Type: "connection_ack"})
	return 0, ""
}

// prove authenticates the value of an Authorization header, "" for none.
func (s *socket) prove(authorization string) (Session, websocket.StatusCode, string) {
	session, _, refusal := s.h.prove(requestid.With(s.ctx, s.id), authorization, "", s.remote, WebSocket)
	switch {
	case refusal == nil:
		return session, 0, ""
	case refusal.Code() == model.CodeUnavailable || refusal.Code() == "":
		return Session{}, websocket.StatusInternalError, refusal.Message
	}
	return Session{}, closeUnauthorized, refusal.Message
}

// ping sends a pong. A token of the same identity and tenant in the payload extends the connection.
func (s *socket) ping(m message) (websocket.StatusCode, string) {
	authorization, ok := authorizationOf(m.Payload)
	if !ok {
		return closeMalformed, "the payload is malformed"
	}
	s.mu.Lock()
	acked, old := s.acked, s.session
	s.mu.Unlock()
	if authorization != "" && acked {
		session, code, why := s.prove(authorization)
		if code != 0 {
			return code, why
		}
		if !sameCaller(old, session) {
			return closeUnauthorized, "the token belongs to another identity or tenant"
		}
		s.mu.Lock()
		s.session = session
		s.mu.Unlock()
	}
	s.send(message{Type: "pong"})
	return 0, ""
}

func sameCaller(a, b Session) bool {
	if a.anonymous() || b.anonymous() {
		return a.anonymous() && b.anonymous()
	}
	p, q := a.Principal, b.Principal
	return p.Kind == q.Kind && p.Identity == q.Identity && p.Subject == q.Subject && p.Tenant == q.Tenant
}

// subscribe starts an operation.
func (s *socket) subscribe(m message) (websocket.StatusCode, string) {
	var members map[string]json.RawMessage
	if m.ID == "" || json.Unmarshal(m.Payload, &members) != nil || members == nil {
		return closeMalformed, "subscribe needs an id and a payload"
	}
	req, err := engine.RequestOf(members)
	if err != nil {
		return closeMalformed, err.Error()
	}
	ctx, cancel := context.WithCancel(s.ctx)
	op := &socketOp{cancel}
	s.mu.Lock()
	acked, taken, full := s.acked, s.ops[m.ID] != nil, len(s.ops) >= s.h.server.cfg.Limits.Subscriptions
	call := Call{Principal: s.session.Principal, RequestID: s.id, Remote: s.remote, Transport: WebSocket}
	if acked && !taken && !full {
		s.ops[m.ID] = op
	}
	s.mu.Unlock()
	switch {
	case !acked:
		cancel()
		return closeUnauthorized, "connection_init comes first"
	case taken:
		cancel()
		return closeIDInUse, "the id is in use"
	case full:
		cancel()
		s.h.server.metrics.socketsRefused.WithLabelValues("subscriptions").Inc()
		s.send(errorMessage(m.ID, engine.LimitError("subscriptions", "a connection may have %d subscriptions",
			s.h.server.cfg.Limits.Subscriptions)))
		return 0, ""
	}
	s.h.server.metrics.subscriptions.Inc()
	s.wg.Go(func() {
		defer s.h.server.metrics.subscriptions.Dec()
		defer cancel()
		s.run(WithCall(ctx, call), m.ID, op, req)
	})
	return 0, ""
}

// run executes an operation to its end.
func (s *socket) run(ctx context.Context, id string, op *socketOp, req engine.Request) {
	e, refusal := s.h.engine()
	if refusal != nil {
		s.finish(id, op, errorMessage(id, refusal))
		return
	}
	prepared, resp := e.Prepare(req)
	if resp != nil {
		s.finish(id, op, errorMessage(id, resp.Errors...))
		return
	}
	leave, ok := s.h.server.admission.run(ctx, PrincipalFrom(ctx).Kind == model.Anonymous)
	if !ok {
		s.h.server.metrics.pendingRefused.Inc()
		s.finish(id, op, errorMessage(id, engine.Errorf(model.CodeUnavailable, "too many requests are waiting")))
		return
	}
	if !prepared.Subscribes() {
		resp := e.Perform(ctx, prepared, req.Variables)
		leave()
		s.answer(id, op, resp)
		resp.Done()
		return
	}
	if !s.slot.follow() {
		leave()
		s.finish(id, op, errorMessage(id, engine.LimitError("subscriptions", "an identity may have %d subscriptions at a time over all of its connections",
			s.h.server.cfg.Limits.SubscriptionsPerIdentity)))
		return
	}
	defer s.slot.unfollow()
	sub, resp := e.Subscribe(ctx, prepared, req.Variables)
	leave() // an open subscription only waits
	if resp != nil {
		s.finish(id, op, errorMessage(id, resp.Errors...))
		return
	}
	s.follow(ctx, id, op, sub)
}

// answer sends the result of a query or mutation.
func (s *socket) answer(id string, op *socketOp, resp *engine.Response) {
	if resp.Refused() {
		s.finish(id, op, errorMessage(id, resp.Errors...))
		return
	}
	if s.next(id, op, resp) {
		s.finish(id, op, message{ID: id, Type: "complete"})
	}
}

// follow sends the responses of a subscription until it ends.
func (s *socket) follow(ctx context.Context, id string, op *socketOp, sub *engine.Subscription) {
	defer sub.Close()
	for {
		resp, errs := sub.Next(ctx)
		switch {
		case resp != nil:
			sent := s.next(id, op, resp)
			if resp.Done(); !sent {
				return
			}
		case len(errs) > 0:
			s.finish(id, op, errorMessage(id, errs...))
			return
		default:
			s.finish(id, op, message{ID: id, Type: "complete"})
			return
		}
	}
}

// next sends one result unless the client has completed the operation.
func (s *socket) next(id string, op *socketOp, resp *engine.Response) bool {
	payload, err := resp.MarshalJSON()
	if err != nil {
		s.h.server.log.Error("graphql: response cannot be encoded", "request", s.id, "error", err)
		s.finish(id, op, errorMessage(id, engine.InternalError(s.id)))
		return false
	}
	s.mu.Lock()
	live := s.ops[id] == op
	s.mu.Unlock()
	return live && s.send(message{ID: id, Type: "next", Payload: payload})
}

// finish frees the id and sends the operation's last message, unless the client has completed it before.
func (s *socket) finish(id string, op *socketOp, last message) {
	s.mu.Lock()
	live := s.ops[id] == op
	if live {
		delete(s.ops, id)
	}
	s.mu.Unlock()
	if live {
		s.send(last)
	}
}

func errorMessage(id string, errs ...*engine.Error) message {
	payload, err := json.Marshal(errs)
	if err != nil {
		payload = []byte(`[{"message":"internal error"}]`)
	}
	return message{ID: id, Type: "error", Payload: payload}
}

// send writes one message. The connection is closed when the peer does not read it within writeWithin.
func (s *socket) send(m message) bool {
	b, err := json.Marshal(m)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, writeWithin)
	defer cancel()
	if err := s.conn.Write(ctx, websocket.MessageText, b); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			_ = s.conn.CloseNow()
		}
		return false
	}
	return true
}
