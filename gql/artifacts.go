package gql

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"weir/artifact"
	"weir/gql/engine"
	"weir/internal/requestid"
	"weir/model"
)

// Artifacts is the part of artifact.Service that the API needs.
type Artifacts interface {
	Put(ctx context.Context, by *model.Principal, u artifact.Upload, r io.Reader) (a *model.Artifact, made bool, err error)
	List(ctx context.Context, by *model.Principal, tokens []string) ([]*model.Artifact, error)
	ReadAt(ctx context.Context, a *model.Artifact, p []byte, off int64) (int, error)
	Delete(ctx context.Context, by *model.Principal, token string) error
}

// artifactView is an artifact as it is shown.
type artifactView struct {
	ID        string        `gql:"id" json:"-"`
	CreatedAt model.Micros  `gql:"createdAt" json:"createdAt"`
	UpdatedAt model.Micros  `gql:"updatedAt" json:"updatedAt"`
	DeletedAt *model.Micros `gql:"deletedAt" json:"-"`
	Token     string        `gql:"token" json:"token"`
	Name      *string       `gql:"name" json:"name"`
	Version   *string       `gql:"version" json:"version"`
	SHA256    string        `gql:"sha256" json:"sha256"`
	Bytes     int64         `gql:"bytes" json:"bytes"`
}

func viewArtifact(a *model.Artifact) artifactView {
	given := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return artifactView{ID: strconv.FormatInt(a.ID, 10), CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt, Token: a.Token, Name: given(a.Name), Version: given(a.Version), SHA256: a.SHA256, Bytes: a.Bytes}
}

// RegisterArtifacts registers the operations on artifacts. What one holds is sent and fetched over HTTP: see Server.Artifacts.
func RegisterArtifacts(a *Area, all Artifacts) {
	a.Type("Artifact", artifactView{})
	a.Query("artifacts", Requires(model.DeviceRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		var tokens []string
		if args.Has("tokens") && !args.IsNull("tokens") {
			tokens = append([]string{}, args.Strings("tokens")...)
		}
		found, err := all.List(ctx, PrincipalFrom(ctx), tokens)
		shown := make([]artifactView, len(found))
		for i, a := range found {
			shown[i] = viewArtifact(a)
		}
		return shown, err
	})
	a.Mutation("deleteArtifact", Requires(model.DeviceWrite), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		if err := all.Delete(ctx, PrincipalFrom(ctx), args.String("token")); err != nil {
			return nil, err
		}
		return true, nil
	})
}

// artifactHandler serves what artifacts hold. A body is no part of what requests may hold in memory, since it is written as it comes.
type artifactHandler struct {
	*resource
	all Artifacts
}

// Artifacts serves the artifacts of the caller's tenant under a path that ends with {token}: PUT the bytes of one, with name, version and sha256 in
// the query, GET them, DELETE it. A HEAD or GET with If-None-Match costs no bytes: the ETag is the SHA-256.
func (s *Server) Artifacts(all Artifacts, auth Authenticate) http.Handler {
	return &artifactHandler{s.resource("device-management", "artifact", auth), all}
}

// Times of an upload: how long its line may be silent, and how long it may take.
const (
	uploadSilence = 30 * time.Second
	uploadTimeout = 30 * time.Minute
)

func (h *artifactHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = requestid.Ensure(w, r)
	access := Requires(model.DeviceRead)
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPut, http.MethodDelete:
		access = Requires(model.DeviceWrite)
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT, DELETE")
		reply(w, r, http.StatusMethodNotAllowed, engine.Refuse(engine.Errorf("", "an artifact is written by PUT, read by GET and removed by DELETE")))
		return
	}
	session, end, ok := h.begin(w, r, access)
	if !ok {
		return
	}
	defer end()
	ctx := h.call(r, session)
	switch r.Method {
	case http.MethodPut:
		h.put(ctx, w, r, session)
	case http.MethodDelete:
		if err := h.all.Delete(ctx, session.Principal, r.PathValue("token")); err != nil {
			h.refuse(w, r, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		h.get(ctx, w, r, session)
	}
}

// put keeps the bytes of a request. 201: the artifact is new; 200: there was one with these bytes, whose name and version are set.
func (h *artifactHandler) put(ctx context.Context, w http.ResponseWriter, r *http.Request, s Session) {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	line := &patient{r: r.Body, c: http.NewResponseController(w), ctx: ctx}
	a, made, err := h.all.Put(ctx, s.Principal, UploadOf(r.PathValue("token"), r.URL.Query()), line)
	switch {
	case err != nil && line.err != nil && errors.Is(err, line.err): // of the line, or of the server that stops
		w.Header().Set("Connection", "close")
		h.answer(w, r, http.StatusBadRequest, model.Errorf(model.CodeInvalidInput, "the bytes of the artifact did not arrive"))
		return
	case err != nil:
		w.Header().Set("Connection", "close") // or the server would read some of the body first
		status := cmp.Or(statusOf[model.CodeOf(err)], http.StatusBadRequest)
		if model.CodeOf(err) == model.CodeLimitExceeded {
			status = http.StatusRequestEntityTooLarge
		}
		h.answer(w, r, status, err)
		return
	}
	status := http.StatusOK
	if made {
		status = http.StatusCreated
	}
	body, err := json.Marshal(viewArtifact(a))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	w.Header().Set("ETag", `"`+a.SHA256+`"`)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a peer that is gone needs no answer
}

// UploadOf is the artifact that a query describes: name, version and sha256.
func UploadOf(token string, q url.Values) artifact.Upload {
	return artifact.Upload{Token: token, Name: q.Get("name"), Version: q.Get("version"), SHA256: q.Get("sha256")}
}

// patient reads from a line that may be slow, as long as it is not silent.
type patient struct {
	r   io.Reader
	c   *http.ResponseController
	ctx context.Context
	err error
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		p.err = err
		return 0, err
	}
	_ = p.c.SetReadDeadline(time.Now().Add(uploadSilence)) // a closed connection needs none
	_ = p.c.SetWriteDeadline(time.Now().Add(2 * uploadSilence))
	n, err := p.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		p.err = err
	}
	return n, err
}

// get answers with the bytes of an artifact.
func (h *artifactHandler) get(ctx context.Context, w http.ResponseWriter, r *http.Request, s Session) {
	token := r.PathValue("token")
	found, err := h.all.List(ctx, s.Principal, []string{token})
	if err == nil && len(found) == 0 {
		err = model.NotFound("artifact", token)
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	a, head := found[0], w.Header()
	head.Set("ETag", `"`+a.SHA256+`"`)
	head.Set("Cache-Control", "private, no-cache")
	head.Set("Vary", "Authorization, "+TenantHeader)
	head.Set("Content-Type", "application/octet-stream")
	head.Set("Content-Disposition", "attachment")
	head.Set("X-Content-Type-Options", "nosniff")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(uploadTimeout))
	http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(readerAt{ctx, h.all, a}, 0, a.Bytes))
}

// readerAt reads an artifact.
type readerAt struct {
	ctx context.Context
	all Artifacts
	a   *model.Artifact
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r.all.ReadAt(r.ctx, r.a, p, off) }
