package web

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"
)

//go:embed explorer.html
var explorerPage []byte

// explorers returns the pages that developer tools bring along, by area's prefix. They load the style of the setup page and talk to
// no host but their own; their policy runs the one script that stands in them, and no other.
func explorers(areas []Area) (map[string]http.Handler, error) {
	page, err := template.New("explorer").Parse(string(explorerPage))
	if err != nil {
		return nil, err
	}
	all := make(map[string]http.Handler, len(areas))
	for _, a := range areas {
		var b bytes.Buffer
		err := page.Execute(&b, struct {
			Root  string // the way from the page to /
			Areas []Area
			Here  string
		}{strings.Repeat("../", strings.Count(a.ExplorerPath(), "/")), areas, a.ExplorerPath()})
		if err != nil {
			return nil, err
		}
		all[a.prefix()] = explorer(b.Bytes())
	}
	return all, nil
}

func explorer(page []byte) http.Handler {
	policy := fmt.Sprintf("default-src 'none'; script-src %s; style-src 'self' %s; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		digest(page, "script"), digest(page, "style"))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setupHeader(w, "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(page))
	})
}

// digest is the source of a policy that stands for the page's one element of a name.
func digest(page []byte, element string) string {
	_, rest, _ := bytes.Cut(page, []byte("<"+element+">"))
	text, _, _ := bytes.Cut(rest, []byte("</"+element+">"))
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
