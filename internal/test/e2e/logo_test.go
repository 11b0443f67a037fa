package e2e_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/test/testweir"
)

// maxLogo is the maximum of the image of a logo.
const maxLogo = 256 << 10

// image is a PNG of n bytes, as far as its type shows.
func image(n int) []byte { return append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, n-8)...) }

// logo sends a request about the logo and returns the status, the headers and the body.
func (n *tenant) logo(method string, body []byte, headers ...string) (int, http.Header, string) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), method, n.API+"/api/user-management/branding/logo", bytes.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.token)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// rowBytes is what the rows of the tenant take.
func (n *tenant) rowBytes() (bytes int) {
	n.t.Helper()
	var tenants struct {
		Tenants []struct {
			Token         string
			RegistryBytes int
		}
	}
	n.RunJSON(&tenants, "tenant", "list")
	for _, found := range tenants.Tenants {
		if found.Token == n.name {
			bytes = found.RegistryBytes
		}
	}
	return bytes
}

// tenantLogo: an image goes in and comes out, at the size that it may have and not beyond, to its tenant alone, and counts as its rows do.
func tenantLogo(t *testing.T, w *world) {
	n, other := w.tenant(t, "logo"), w.tenant(t, "no-logo")
	before := n.rowBytes()
	largest := image(maxLogo)
	if status, _, body := n.logo("POST", largest); status != http.StatusNoContent {
		t.Fatalf("the largest: %d %s", status, body)
	}
	if grown := n.rowBytes() - before; grown < maxLogo*4/3 || grown > maxLogo*4/3+1000 {
		t.Errorf("the rows have grown by %d bytes", grown)
	}
	status, head, body := n.logo("GET", nil)
	if status != http.StatusOK || body != string(largest) || head.Get("Content-Type") != "image/png" || head.Get("X-Content-Type-Options") != "nosniff" ||
		head.Get("Cache-Control") != "private, no-cache" || head.Get("ETag") == "" {
		t.Errorf("%d, %d bytes, %v", status, len(body), head)
	}
	if status, _, body := n.logo("GET", nil, "If-None-Match: "+head.Get("ETag")); status != http.StatusNotModified || body != "" {
		t.Errorf("the same again: %d, %d bytes", status, len(body))
	}
	if status, _, body := other.logo("GET", nil); status != http.StatusNotFound || !strings.Contains(body, `"NOT_FOUND"`) {
		t.Errorf("the other tenant: %d %.200s", status, body)
	}
	for what, c := range map[string]struct {
		body   []byte
		status int
	}{"a byte more": {image(maxLogo + 1), http.StatusRequestEntityTooLarge}, "an SVG": {[]byte(`<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>`), http.StatusUnsupportedMediaType}} {
		if status, _, body := n.logo("POST", c.body, "Content-Type: image/png"); status != c.status || !strings.Contains(body, `"errors"`) {
			t.Errorf("%s: %d %.200s", what, status, body)
		}
	}
	n.Query("user-management", n.token, `mutation{setTenantLogo(logo:null){token}}`, nil, nil)
	if status, _, _ := n.logo("GET", nil); status != http.StatusNotFound {
		t.Errorf("cleared: %d", status)
	}
	if left := n.rowBytes() - before; left > 1000 {
		t.Errorf("%d bytes are still counted", left)
	}
}

// TestALogoIsKeptAndBounded: it is there after a restart, and counts to what the rows of its tenant may take.
func TestALogoIsKeptAndBounded(t *testing.T) {
	t.Parallel()
	o := testweir.Options{Dir: t.TempDir(), Config: "\ngovernance: {registry_bytes: 300KiB}\n"}
	w := start(t, o)
	n := w.tenant(t, "kept")
	if status, _, body := n.logo("POST", image(maxLogo)); status != http.StatusInsufficientStorage || !strings.Contains(body, "governance.registry_bytes") {
		t.Errorf("beyond the bytes of the tenant: %d %s", status, body)
	}
	kept := image(200 << 10)
	for range 2 { // one in place of the other takes no more
		if status, _, body := n.logo("POST", kept); status != http.StatusNoContent {
			t.Fatalf("%d %s", status, body)
		}
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	again := &world{Proc: testweir.Start(t, o)}
	again.login()
	if status, _, body := again.enter(t, "kept").logo("GET", nil); status != http.StatusOK || body != string(kept) {
		t.Errorf("after a restart: %d, %d bytes", status, len(body))
	}
}
