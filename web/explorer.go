package web

import (
	"bytes"
	_ "embed"
	"net/http"
	"time"
)

//go:embed explorer.html
var explorerPage []byte

// explorer serves the page that developer tools bring along. It is whole in itself: the policy lets it load nothing and
// talk to no host but the endpoint next to it.
func explorer() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy",
			"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-store")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(explorerPage))
	})
}
