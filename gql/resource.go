package gql

import (
	"cmp"
	"errors"
	"net/http"

	"weir/gql/engine"
	"weir/internal/requestid"
	"weir/model"
)

// resource is something of the caller's tenant that is served by HTTP methods beside GraphQL. Callers are authenticated and refusals are answered as in an area
// of the tenant plane.
type resource struct {
	*handler
	what string // in the log
}

func (s *Server) resource(area, what string, auth Authenticate) *resource {
	return &resource{&handler{server: s, area: &Area{name: area, plane: TenantPlane}, auth: auth}, what}
}

// begin authenticates the caller of a request and checks that they have access. ok is false where the request is answered already; end is called after it
// otherwise.
func (h *resource) begin(w http.ResponseWriter, r *http.Request, access Access) (session Session, end func(), ok bool) {
	if !h.server.inflight.begin() {
		h.unavailable(w, r, "the server is stopping")
		return Session{}, nil, false
	}
	if session, ok = h.session(w, r); ok {
		err := access.check(h.area.plane, HTTP, session.Principal)
		if err == nil {
			return session, h.server.inflight.end, true
		}
		h.refuse(w, r, err)
	}
	h.server.inflight.end()
	return Session{}, nil, false
}

// statusOf is the status with which a refusal is answered, by its code.
var statusOf = map[model.Code]int{
	model.CodeUnauthenticated: http.StatusUnauthorized,
	model.CodeForbidden:       http.StatusForbidden,
	model.CodeNotFound:        http.StatusNotFound,
	model.CodeConflict:        http.StatusConflict,
	model.CodeThrottled:       http.StatusTooManyRequests,
	model.CodeUnavailable:     http.StatusServiceUnavailable,
	model.CodeLimitExceeded:   http.StatusInsufficientStorage,
}

// refuse answers a request that was not served.
func (h *resource) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.answer(w, r, cmp.Or(statusOf[model.CodeOf(err)], http.StatusBadRequest), err)
}

// answer shows a refusal to the caller. What is none is logged and stays hidden.
func (h *resource) answer(w http.ResponseWriter, r *http.Request, status int, err error) {
	e, refused := errors.AsType[*model.Error](err)
	if !refused || e.Err != nil {
		h.server.log.Error("api: the "+h.what+" was not served", "request", requestid.From(r.Context()), "method", r.Method, "error", err)
	}
	if !refused {
		reply(w, r, http.StatusInternalServerError, engine.Refuse(engine.InternalError(requestid.From(r.Context()))))
		return
	}
	reply(w, r, status, engine.Refuse(engine.FromModel(e)))
}
