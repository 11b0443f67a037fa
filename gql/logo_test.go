package gql

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/govern"
	"weir/internal/test/fixture"
	"weir/model"
)

// Beginnings of images, by which their types are known.
const (
	pngHead  = "\x89PNG\r\n\x1a\n"
	jpegHead = "\xff\xd8\xff\xe0"
	webpHead = "RIFF\x10\x00\x00\x00WEBPVP8 "
)

// sized is an image of n bytes.
func sized(head string, n int) string { return head + strings.Repeat("x", n-len(head)) }

// logoWorld is a userWorld with the handler of logos.
type logoWorld struct {
	*userWorld
	logo http.Handler
}

func newLogoWorld(t *testing.T) *logoWorld {
	w := newUserWorld(t)
	return &logoWorld{w, w.server.Logo(w.govern, ByToken(w.auth))}
}

// send sends a request with headers as "Name: value".
func (w *logoWorld) send(method, token string, body io.Reader, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/api/user-management/branding/logo", body)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	rec := httptest.NewRecorder()
	w.logo.ServeHTTP(rec, r)
	return rec
}

// sends compares the status, and what the body holds.
func (w *logoWorld) sends(what, method, token, body string, status int, text string, headers ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	rec := w.send(method, token, strings.NewReader(body), headers...)
	if rec.Code != status || !strings.Contains(rec.Body.String(), text) {
		w.t.Errorf("%s: %d %.300s, want %d with %q", what, rec.Code, rec.Body, status, text)
	}
	return rec
}

// TestALogoIsAnImageOfItsTenant: what a member with branding:write sends is shown to the members of the tenant, and to nobody else.
func TestALogoIsAnImageOfItsTenant(t *testing.T) {
	t.Parallel()
	w := newLogoWorld(t)
	ada, _ := w.enter("ada@example.org", "acme")
	view, _ := w.enter("view@example.org", "acme")
	bob, _ := w.enter("bob@example.org", "globex")
	w.sends("none", "GET", view, "", 404, "NOT_FOUND")
	tags := map[string]bool{}
	for media, head := range map[string]string{"image/png": pngHead, "image/jpeg": jpegHead, "image/webp": webpHead} {
		image := sized(head, 4000)
		tag := w.sends(media, "POST", ada, image, 204, "", "Content-Type: application/x-www-form-urlencoded").Header().Get("ETag")
		shown := w.sends(media, "GET", view, "", 200, image)
		for name, want := range map[string]string{"Content-Type": media, "ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization, X-Weir-Tenant",
			"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox", "Content-Length": "4000"} {
			if got := shown.Header().Get(name); got != want || got == "" {
				t.Errorf("%s: %s is %q, want %q", media, name, got, want)
			}
		}
		tags[tag] = true
		w.sends("the same again", "GET", view, "", 304, "", "If-None-Match: "+tag)
		w.sends("another", "GET", view, "", 200, image, `If-None-Match: "0"`)
		if head := w.sends("its head", "HEAD", view, "", 200, ""); head.Body.Len() != 0 || head.Header().Get("Content-Length") != "4000" {
			t.Errorf("HEAD: %d bytes, %v", head.Body.Len(), head.Header())
		}
		want := "data:" + media + ";base64," + base64.StdEncoding.EncodeToString([]byte(image))
		if got := w.post(view, "", `{ tenant { brandingOverride { logo } } }`).value("tenant", "brandingOverride", "logo"); got != want {
			t.Errorf("%s: brandingOverride has the logo %.60v", media, got)
		}
	}
	if len(tags) != 3 {
		t.Errorf("three images have the tags %v", tags)
	}
	w.sends("of another tenant", "GET", bob, "", 404, "NOT_FOUND")
	w.sends("set by a program", "POST", w.service("branding:write"), sized(pngHead, 10), 204, "", "X-Weir-Tenant: globex")
	w.sends("shown to a program", "GET", w.service("device:read"), "", 200, sized(pngHead, 10), "X-Weir-Tenant: globex")
	w.sends("of the other tenant still", "GET", ada, "", 200, "xxxxxxxxxxxx")

	tenant, _, _ := w.govern.Lookup("acme")
	by := fixture.Member("ada@example.org", "acme", tenant, model.BrandingWrite)
	w.must(nil, w.govern.SetLogo(t.Context(), by, new("https://example.org/logo.png")))
	if at := w.sends("elsewhere", "GET", view, "", 302, "").Header().Get("Location"); at != "https://example.org/logo.png" {
		t.Errorf("the logo is at %q", at)
	}
	w.must(nil, w.govern.SetLogo(t.Context(), by, nil))
	w.sends("cleared", "GET", view, "", 404, "NOT_FOUND")
	w.must(w.govern.SetSetting(t.Context(), userOperator, "branding.default", `{"logo":"data:image/jpeg;base64,`+base64.StdEncoding.EncodeToString([]byte(jpegHead))+`"}`))
	w.sends("that of the instance", "GET", view, "", 200, jpegHead)
}

// TestWhatIsNoLogoIsRefused: by its size, by its content whatever it is called, and by who sends it.
func TestWhatIsNoLogoIsRefused(t *testing.T) {
	t.Parallel()
	w := newLogoWorld(t)
	ada, _ := w.enter("ada@example.org", "acme")
	view, _ := w.enter("view@example.org", "acme")
	largest := sized(pngHead, govern.MaxLogoBytes)
	w.sends("the largest", "POST", ada, largest, 204, "")
	for what, body := range map[string]string{
		"nothing":                     "",
		"an SVG":                      `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`,
		"an SVG with its declaration": `<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>`,
		"a page":                      "<!DOCTYPE html><script>alert(1)</script>",
		"a GIF":                       "GIF89a",
		"a form":                      "--x\r\nContent-Disposition: form-data; name=\"logo\"\r\nContent-Type: image/png\r\n\r\n" + pngHead + "\r\n--x--\r\n",
		"half of a signature":         pngHead[:4],
		"a page after a byte":         "\x89<html>",
	} {
		w.sends(what, "POST", ada, body, 415, "INVALID_INPUT", "Content-Type: image/png")
	}
	for what, body := range map[string]io.Reader{"a byte too many": strings.NewReader(largest + "x"), "a byte too many of unknown length": io.MultiReader(strings.NewReader(largest), strings.NewReader("x"))} {
		if rec := w.send("POST", ada, body); rec.Code != 413 || !strings.Contains(rec.Body.String(), "262144 bytes") {
			t.Errorf("%s: %d %s", what, rec.Code, rec.Body)
		}
	}
	image := sized(jpegHead, 100)
	for _, method := range []string{"GET", "POST"} {
		w.sends("no token", method, "", image, 401, "UNAUTHENTICATED")
		w.sends("an identity token", method, w.login("ada@example.org"), image, 401, "UNAUTHENTICATED")
		w.sends("no token at all", method, "nonsense", image, 401, "UNAUTHENTICATED")
		w.sends("a program without a tenant", method, w.service("branding:write"), image, 401, "UNAUTHENTICATED")
	}
	w.sends("a member without the authority", "POST", view, image, 403, "branding:write")
	w.sends("a program without the authority", "POST", w.service("basemap:write"), image, 403, "branding:write", "X-Weir-Tenant: acme")
	w.sends("another method", "PUT", ada, image, 405, "")
	w.sends("what none of them changed", "GET", view, "", 200, largest)
	w.Step(16 * time.Minute)
	w.sends("an expired token", "GET", view, "", 401, "UNAUTHENTICATED")
	w.sends("an expired token", "POST", ada, image, 401, "UNAUTHENTICATED")
	view, _ = w.enter("view@example.org", "acme")
	w.must(w.auth.SetIdentityEnabled(t.Context(), userOperator, "view@example.org", false))
	w.sends("a revoked token", "GET", view, "", 401, "UNAUTHENTICATED")
}

// TestALogoIsAdmittedAsOtherBodiesAre: its bytes are admitted as those of GraphQL requests are, and given back.
func TestALogoIsAdmittedAsOtherBodiesAre(t *testing.T) {
	t.Parallel()
	w := newLogoWorld(t)
	ada, _ := w.enter("ada@example.org", "acme")
	held := int64(0)
	body := readerFunc(func(p []byte) (int, error) {
		if held = max(held, w.server.admission.held.Load()); held >= 100_000 {
			return 0, io.EOF
		}
		return copy(p, bytes.Repeat([]byte(pngHead), len(p)/len(pngHead)+1)), nil
	})
	if rec := w.send("POST", ada, body); rec.Code != 204 || held < 100_000 || w.server.admission.held.Load() != 0 {
		t.Errorf("%d %s; %d bytes were held, %d are", rec.Code, rec.Body, held, w.server.admission.held.Load())
	}
	if err := w.server.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.sends("while it stops", "GET", ada, "", 503, "UNAVAILABLE")
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
