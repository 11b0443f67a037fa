package auth

import (
	"net/url"
	"slices"
	"testing"

	"weir/model"
)

// FuzzRedirectURI: a redirect that a client may name leads to a host, over TLS or within the machine.
func FuzzRedirectURI(f *testing.F) {
	for _, seed := range []string{"https://app.example.org/cb?x=1", "http://127.0.0.1:8080/", "http://localhost/cb", "http://[::1]/", "http://example.org/", "https://user@example.org/", "https:///cb",
		"https://a#b", "https://a\\b", "custom:cb", "http://localhost.example.org/", "http://127.0.0.1.example.org", "https://%zz/", "http://[::1%25eth0]/", "HTTPS://A/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := OAuthClient{RedirectURIs: []string{text}, Scopes: []string{"location"}}
		if err := c.check(); err != nil {
			if model.CodeOf(err) != model.CodeInvalidInput {
				t.Error(err)
			}
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
			t.Fatalf("%q: %v", text, err)
		}
		if !slices.Contains([]string{"https", "http"}, u.Scheme) || u.Scheme == "http" && !loopback(u.Hostname()) {
			t.Errorf("%q leads over an open network", text)
		}
	})
}
