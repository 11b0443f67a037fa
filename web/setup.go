package web

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"html"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"time"

	"weir/internal/origin"
	"weir/model"
)

//go:embed setup.html
var setupPage []byte

//go:embed setup_closed.html
var setupClosedPage []byte

//go:embed setup_starting.html
var setupStartingPage []byte

//go:embed setup.js
var setupScript []byte

//go:embed setup.css
var setupStyle []byte

//go:embed setup.svg
var setupIcon []byte

// SetupState is how far the first run is.
type SetupState int

// The states of the first run.
const (
	SetupStarting SetupState = iota // not known yet
	SetupOpen                       // there is no administrator
	SetupClosed                     // there is one, and nothing to be filled in
)

// setupContinues is the query of the page's address once its link is used up.
const setupContinues = "continue"

// setupPolicy lets the page load its own script and style and talk to its own host, and nothing else.
const setupPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// SetupPages returns the routes of the setup page: the page itself, which is the same for every client, its script,
// its style and its sign. What proves the right to fill it in stands in the fragment of the link, which no server ever sees.
func SetupPages(state func() SetupState, version string) map[string]http.Handler {
	return map[string]http.Handler{
		"GET /setup":           setupHTML(state, version),
		"GET /setup/setup.js":  setupFile("text/javascript; charset=utf-8", setupScript),
		"GET /setup/setup.css": setupFile("text/css; charset=utf-8", setupStyle),
		"GET /setup/setup.svg": setupFile("image/svg+xml", setupIcon),
	}
}

func setupHTML(state func() SetupState, version string) http.Handler {
	const page = "text/html; charset=utf-8"
	open, closed, starting := setupFile(page, filled(setupPage, version)), setupFile(page, filled(setupClosedPage, version)), filled(setupStartingPage, version)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch state() {
		case SetupOpen:
			open.ServeHTTP(w, r)
		case SetupClosed:
			// The page that has made the administrator goes on after a reload; without its secret it can do nothing.
			if r.URL.RawQuery == setupContinues {
				open.ServeHTTP(w, r)
				return
			}
			closed.ServeHTTP(w, r)
		default:
			setupHeader(w, page)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(starting) // the caller has left
		}
	})
}

// filled puts the version into the footer of a page.
func filled(page []byte, version string) []byte {
	return bytes.ReplaceAll(page, []byte("{{version}}"), []byte(html.EscapeString(version)))
}

func setupFile(contentType string, content []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setupHeader(w, contentType)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}

// setupHeader is what every answer of the setup says of itself.
func setupHeader(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", setupPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// SetupCall is one thing that the setup page asks for; read decodes its body into what into points at.
type SetupCall func(r *http.Request, read func(into any) error) (any, error)

// NewSetupCall makes a call of what does it with its decoded body.
func NewSetupCall[In, Out any](do func(r *http.Request, in In) (Out, error)) SetupCall {
	return func(r *http.Request, read func(any) error) (any, error) {
		var in In
		if err := read(&in); err != nil {
			return nil, err
		}
		return do(r, in)
	}
}

// SetupGuard says how the calls of the setup page are taken.
type SetupGuard struct {
	BaseURL string // its host is accepted, too: a proxy in front may pass another host
	Log     *slog.Logger
}

const (
	maxSetupBody = 16 << 10
	setupTime    = 30 * time.Second
)

// Calls returns the handler of the page's calls, POST /setup/v1/{name}. What a page of another host sends, what is no
// JSON and what is too long is refused before it is looked at.
func (g SetupGuard) Calls(calls map[string]SetupCall) http.Handler {
	mux := http.NewServeMux()
	for name, call := range calls {
		mux.Handle("POST /setup/v1/"+name, g.guarded(call))
	}
	return mux
}

func (g SetupGuard) guarded(call SetupCall) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setupHeader(w, "application/json")
		ctx, cancel := context.WithTimeout(r.Context(), setupTime)
		defer cancel()
		out, err := g.answer(w, r.WithContext(ctx), call)
		if err != nil {
			g.refuse(w, r, err)
			return
		}
		if in, ok := out.(interface{ setCookies() []*http.Cookie }); ok {
			for _, c := range in.setCookies() {
				http.SetCookie(w, c)
			}
		}
		setupSend(w, http.StatusOK, out)
	})
}

func (g SetupGuard) answer(w http.ResponseWriter, r *http.Request, call SetupCall) (any, error) {
	if !g.own(r) {
		return nil, setupRefusal{http.StatusForbidden, "pages of another host may not do this: open it by its address or a name of the local network, or set base_url to its public name"}
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, setupRefusal{http.StatusUnsupportedMediaType, "the body must be application/json"}
	}
	return call(r, func(into any) error { return setupRead(http.MaxBytesReader(w, r.Body, maxSetupBody), into) })
}

// own reports whether no page of another host has sent the request.
func (g SetupGuard) own(r *http.Request) bool { return !origin.Foreign(r, g.BaseURL) }

// setupRead reads one JSON object with known members and nothing after it.
func setupRead(body io.Reader, into any) error {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return nil
		}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return setupRefusal{http.StatusRequestEntityTooLarge, "the body is too long"}
	}
	return setupRefusal{http.StatusBadRequest, "the body is not the expected JSON object"}
}

// setupRefusal is a refusal of the page itself.
type setupRefusal struct {
	status int
	text   string
}

func (e setupRefusal) Error() string { return e.text }

// setupError is the page's answer about a refusal. Field names the input that it is about, "" for none.
type setupError struct {
	Error string `json:"error"`
	Field string `json:"field,omitempty"`
	Code  string `json:"code,omitempty"`
}

var setupStatus = map[model.Code]int{model.CodeUnauthenticated: http.StatusForbidden, model.CodeInvalidInput: http.StatusBadRequest,
	model.CodeConflict: http.StatusConflict, model.CodeThrottled: http.StatusTooManyRequests, model.CodeUnavailable: http.StatusServiceUnavailable}

func (g SetupGuard) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if e, ok := errors.AsType[setupRefusal](err); ok {
		setupSend(w, e.status, setupError{Error: e.text})
		return
	}
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code == "" {
		g.Log.Error("the setup page's call failed", "path", r.URL.Path, "error", err)
		setupSend(w, http.StatusInternalServerError, setupError{Error: "something went wrong inside; the log of the instance says what"})
		return
	}
	status, known := setupStatus[e.Code]
	if !known {
		status = http.StatusUnprocessableEntity
	}
	if after, ok := e.Ext["retryAfterSeconds"].(int); ok {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	setupSend(w, status, setupErrorOf(e))
}

// setupErrorOf shows the field of an INVALID_INPUT apart from what is wrong with it.
func setupErrorOf(e *model.Error) setupError {
	if e.Code == model.CodeInvalidInput {
		return setupError{Error: e.Text(), Field: e.Field, Code: string(e.Code)}
	}
	return setupError{Error: e.Message, Code: string(e.Code)}
}

func setupSend(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller has left
}
