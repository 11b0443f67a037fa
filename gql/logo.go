package gql

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"weir/govern"
	"weir/gql/engine"
	"weir/internal/requestid"
	"weir/model"
	"weir/store/entity"
)

// Logos is the part of govern that serves logos.
type Logos interface {
	Look(ctx context.Context, tenant int64) (*govern.Look, error)
	SetLogo(ctx context.Context, by *model.Principal, logo *string) error
}

// logoHandler serves the logo of the caller's tenant as an image; bodies are admitted as in an area.
type logoHandler struct {
	*resource
	logos Logos
}

// Logo serves the logo of the caller's tenant: GET the one that applies, POST sets the tenant's own.
func (s *Server) Logo(logos Logos, auth Authenticate) http.Handler {
	return &logoHandler{s.resource("user-management", "logo", auth), logos}
}

// logoAccess is what the methods demand, as Access of operations does.
func logoAccess(method string) (access Access, served bool) {
	switch method {
	case http.MethodGet, http.MethodHead:
		return AnyCaller(), true
	case http.MethodPost:
		return Requires(model.BrandingWrite), true
	}
	return Access{}, false
}

func (h *logoHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = requestid.Ensure(w, r)
	access, served := logoAccess(r.Method)
	if !served {
		w.Header().Set("Allow", "GET, HEAD, POST")
		reply(w, r, http.StatusMethodNotAllowed, engine.Refuse(engine.Errorf("", "a logo is read by GET and set by POST")))
		return
	}
	session, end, ok := h.begin(w, r, access)
	if !ok {
		return
	}
	defer end()
	body, done, err := h.body(w, r, session, govern.MaxLogoBytes)
	defer done()
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case errors.Is(err, errBusy):
		h.unavailable(w, r, errBusy.Error())
	case tooLarge:
		reply(w, r, http.StatusRequestEntityTooLarge, engine.Refuse(bodyError(err, govern.MaxLogoBytes)))
	case err != nil:
		reply(w, r, http.StatusBadRequest, engine.Refuse(bodyError(err, govern.MaxLogoBytes)))
	case r.Method == http.MethodPost:
		h.set(w, r, session, body)
	default:
		h.show(w, r, session)
	}
}

// set makes an image the logo of the caller's tenant.
func (h *logoHandler) set(w http.ResponseWriter, r *http.Request, s Session, image []byte) {
	logo, err := govern.LogoOf(image)
	if err != nil {
		h.answer(w, r, http.StatusUnsupportedMediaType, err)
		return
	}
	if err := h.logos.SetLogo(h.call(r, s), s.Principal, &logo); err != nil {
		h.refuse(w, r, err)
		return
	}
	w.Header().Set("ETag", logoTag(logo))
	w.WriteHeader(http.StatusNoContent)
}

// show answers with the logo that applies: an image, or where it is. A client asks each time whether it is still the one that it has.
func (h *logoHandler) show(w http.ResponseWriter, r *http.Request, s Session) {
	tenant, err := entity.TenantOf(s.Principal)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	look, err := h.logos.Look(h.call(r, s), tenant)
	switch {
	case err != nil:
		h.refuse(w, r, err)
		return
	case look.Branding.Logo == nil:
		h.refuse(w, r, model.Errorf(model.CodeNotFound, "neither the tenant nor the instance has a logo"))
		return
	}
	logo, head := *look.Branding.Logo, w.Header()
	head.Set("Cache-Control", "private, no-cache")
	head.Set("Vary", "Authorization, "+TenantHeader)
	media, image := govern.LogoImage(logo)
	if media == "" {
		head.Set("Location", logo)
		w.WriteHeader(http.StatusFound)
		return
	}
	head.Set("ETag", logoTag(logo))
	head.Set("Content-Type", media)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image))
}

// logoTag names a logo by its content.
func logoTag(logo string) string {
	sum := sha256.Sum256([]byte(logo))
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}
