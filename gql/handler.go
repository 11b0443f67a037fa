package gql

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"weir/gql/engine"
	"weir/internal/origin"
	"weir/internal/requestid"
	"weir/model"
)

// TenantHeader names the tenant of a service-token call.
const TenantHeader = "X-Weir-Tenant"

// handler serves one area: POST for queries and mutations, an upgrade for graphql-transport-ws.
type handler struct {
	server *Server
	area   *Area
	auth   Authenticate
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = requestid.Ensure(w, r)
	upgrade := r.Method == http.MethodGet && h.area.plane == TenantPlane && isUpgrade(r)
	if r.Method != http.MethodPost && !upgrade {
		w.Header().Set("Allow", http.MethodPost)
		reply(w, r, http.StatusMethodNotAllowed, engine.Refuse(engine.Errorf("", "GraphQL requests are sent by POST")))
		return
	}
	// A page of another host has nothing to ask without a token: it could try passwords from inside of the network of its reader.
	foreign := origin.Foreign(r, h.server.baseURL())
	if foreign && !upgrade && r.Header.Get("Authorization") == "" {
		reply(w, r, http.StatusForbidden, engine.Refuse(engine.Errorf(model.CodeForbidden, "%s", foreignPage)))
		return
	}
	if !h.server.inflight.begin() {
		h.unavailable(w, r, "the server is stopping")
		return
	}
	defer h.server.inflight.end()
	if upgrade {
		if refusal := h.area.refusal(true); refusal != nil {
			h.starting(w, r, refusal)
			return
		}
		h.upgrade(w, r, foreign)
		return
	}
	h.post(w, r)
}

// foreignPage is why what a page of another host sends is refused.
const foreignPage = "a page of another host needs a token; base_url says under which public name this instance is opened"

// baseURL is the public URL of the instance, "" for none.
func (s *Server) baseURL() string {
	if s.cfg.BaseURL == nil {
		return ""
	}
	return s.cfg.BaseURL()
}

func isUpgrade(r *http.Request) bool {
	for v := range strings.SplitSeq(strings.Join(r.Header.Values("Upgrade"), ","), ",") {
		if strings.EqualFold(strings.TrimSpace(v), "websocket") {
			return true
		}
	}
	return false
}

func (h *handler) post(w http.ResponseWriter, r *http.Request) {
	if !isJSON(r.Header.Get("Content-Type")) {
		reply(w, r, http.StatusUnsupportedMediaType, engine.Refuse(engine.Errorf("", "the body must be application/json")))
		return
	}
	session, ok := h.session(w, r)
	if !ok {
		return
	}
	if refusal := h.area.refusal(session.anonymous()); refusal != nil {
		h.starting(w, r, refusal)
		return
	}
	maximum := h.server.cfg.Limits.BodyBytes
	if session.anonymous() {
		maximum = min(maximum, maxAnonymousBody)
	}
	body, done, err := h.body(w, r, session, maximum)
	defer done()
	switch {
	case errors.Is(err, errBusy):
		h.unavailable(w, r, errBusy.Error())
		return
	case err != nil:
		reply(w, r, http.StatusBadRequest, engine.Refuse(bodyError(err, maximum)))
		return
	}
	req, err := engine.ParseRequest(body)
	if err != nil {
		reply(w, r, http.StatusBadRequest, engine.Refuse(engine.Errorf("", "%s", err)))
		return
	}
	e, refusal := h.engine()
	if refusal != nil {
		reply(w, r, http.StatusInternalServerError, engine.Refuse(refusal))
		return
	}
	resp := e.Respond(h.call(r, session), req)
	defer resp.Done()
	reply(w, r, http.StatusOK, resp)
}

// engine returns the engine of the area, or what the caller is told where it cannot be built.
func (h *handler) engine() (*engine.Engine, *engine.Error) {
	e, err := h.area.built()
	if err != nil {
		h.server.log.Error("an area of the API cannot be built", "error", err)
		return nil, engine.Errorf("", "internal error")
	}
	return e, nil
}

// session authenticates the caller of a request; a refusal is answered, and ok is false.
func (h *handler) session(w http.ResponseWriter, r *http.Request) (s Session, ok bool) {
	s, status, refusal := h.prove(r.Context(), r.Header.Get("Authorization"), r.Header.Get(TenantHeader), remote(r), HTTP)
	if refusal == nil {
		return s, true
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	reply(w, r, status, engine.Refuse(refusal))
	return s, false
}

// call is the context of a request in which operations run on behalf of its caller.
func (h *handler) call(r *http.Request, s Session) context.Context {
	ctx := r.Context()
	return WithCall(ctx, Call{Principal: s.Principal, RequestID: requestid.From(ctx), Remote: remote(r), Transport: HTTP})
}

// body reads the body of a request and waits until the request may run. done ends what it takes, and must be called once the request
// is answered. Errors: errBusy, *http.MaxBytesError, and those of the connection.
func (h *handler) body(w http.ResponseWriter, r *http.Request, s Session, maximum int64) (body []byte, done func(), err error) {
	if r.ContentLength > maximum {
		w.Header().Set("Connection", "close") // or the server would read some of the body first
		return nil, func() {}, &http.MaxBytesError{Limit: maximum}
	}
	ctx := r.Context()
	body, read, err := h.server.admission.read(ctx, w, http.MaxBytesReader(w, r.Body, maximum), bodyOwner(s))
	leave, ok := func() {}, !errors.Is(err, errBusy)
	if err == nil {
		leave, ok = h.server.admission.run(ctx, s.anonymous())
	}
	if !ok {
		h.server.metrics.pendingRefused.Inc()
		return nil, read, errBusy
	}
	return body, func() { leave(); read() }, err
}

func (h *handler) unavailable(w http.ResponseWriter, r *http.Request, why string) {
	w.Header().Set("Retry-After", "1")
	reply(w, r, http.StatusServiceUnavailable, engine.Refuse(engine.Errorf(model.CodeUnavailable, "%s", why)))
}

// starting answers a request to an area that does not answer yet.
func (h *handler) starting(w http.ResponseWriter, r *http.Request, why *model.Error) {
	w.Header().Set("Retry-After", fmt.Sprint(why.Ext["retryAfterSeconds"]))
	reply(w, r, http.StatusServiceUnavailable, engine.Refuse(engine.FromModel(why)))
}

// bodyOwner is whose bodies count together: those of a tenant, those of an identity that acts in none, those of all callers without a
// token.
func bodyOwner(s Session) string {
	switch p := s.Principal; {
	case s.anonymous():
		return anonymousOwner
	case p.Tenant != "":
		return "tenant " + p.Tenant
	default:
		return fmt.Sprintf("identity %d %s", p.Identity, p.Subject)
	}
}

func bodyError(err error, maximum int64) *engine.Error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return engine.LimitError("body", "the body is larger than the limit of %d bytes", maximum)
	}
	return engine.Errorf("", "the body could not be read")
}

func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json"))
}

// prove authenticates the caller. status is the HTTP status of the refusal.
func (h *handler) prove(ctx context.Context, authorization, tenant string, from netip.Addr, t Transport) (Session, int, *engine.Error) {
	bearer, ok := bearerOf(authorization)
	if !ok {
		return Session{}, http.StatusUnauthorized, engine.FromModel(model.Unauthenticated("the Authorization header must be: Bearer <token>"))
	}
	plane := h.area.plane
	s, err := h.auth(ctx, Credentials{Plane: plane, Bearer: bearer, Tenant: tenant, Remote: from, Transport: t})
	if err != nil {
		return Session{}, authStatus(err), h.authError(ctx, err)
	}
	kind := model.Anonymous
	if s.Principal != nil {
		kind = s.Principal.Kind
	}
	switch {
	case kind == model.Anonymous && bearer != "":
		return Session{}, http.StatusUnauthorized, engine.FromModel(model.Unauthenticated("the token is not valid"))
	case kind == model.Anonymous && plane == IdentityPlane:
		return Session{}, http.StatusUnauthorized, engine.FromModel(model.Unauthenticated("an identity token is required"))
	case !plane.takes(kind, t):
		return Session{}, http.StatusUnauthorized, engine.FromModel(model.Unauthenticated("this kind of token is not accepted here"))
	}
	return s, 0, nil
}

func authStatus(err error) int {
	switch model.CodeOf(err) {
	case "":
		return http.StatusInternalServerError
	case model.CodeUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusUnauthorized
}

func (h *handler) authError(ctx context.Context, err error) *engine.Error {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return engine.FromModel(e)
	}
	id := requestid.From(ctx)
	h.server.log.Error("graphql: authentication failed", "request", id, "area", h.area.name, "error", err)
	return engine.InternalError(id)
}

// bearerOf returns the token of an Authorization header, "" for none; ok is false for another scheme or an empty token.
func bearerOf(header string) (token string, ok bool) {
	header = strings.TrimSpace(header)
	if header == "" {
		return "", true
	}
	scheme, token, _ := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

func remote(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// The media types of an answer.
const (
	plainJSON    = "application/json"
	responseJSON = "application/graphql-response+json"
)

// reply writes an answer in the media type that the client prefers. A client of responseJSON learns from the status 400 that
// nothing of its document was executed; to any other client an answer of GraphQL is a 200.
func reply(w http.ResponseWriter, r *http.Request, status int, resp *engine.Response) {
	media := mediaType(r.Header.Values("Accept"))
	if status == http.StatusOK && media == responseJSON && resp.Refused() {
		status = http.StatusBadRequest
	}
	b, err := resp.MarshalJSON()
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"errors":[{"message":"internal error"}]}`)
	}
	w.Header().Set("Content-Type", media+"; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may have disconnected
}

// mediaType chooses responseJSON for a client that asks for it and does not prefer plain JSON.
func mediaType(accept []string) string {
	all := strings.Join(accept, ",")
	if !strings.Contains(strings.ToLower(all), responseJSON) {
		return plainJSON
	}
	quality := map[string]float64{}
	for part := range strings.SplitSeq(all, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			q, _ = strconv.ParseFloat(text, 64) // 0 where it is no number: the type is not wanted
		}
		quality[media] = max(quality[media], q)
	}
	if q := quality[responseJSON]; q > 0 && q >= quality[plainJSON] {
		return responseJSON
	}
	return plainJSON
}
