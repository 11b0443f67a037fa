package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

//go:embed explorer.html
var explorerPage string

// What the page loads is built from web/explorer and committed, compressed.
//
//go:embed explorer/built/*.gz
var explorerBuilt embed.FS

// explorerPolicy lets the page load the scripts and styles of its host and talk to it, and nothing else.
const explorerPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// explorers returns the routes of the explorer: its page for each area, and what the pages load.
func explorers(areas []Area) (map[string]http.Handler, error) {
	routes := map[string]http.Handler{}
	for _, a := range areas {
		page, err := explorerFor(a, areas)
		if err != nil {
			return nil, err
		}
		routes["GET /"+a.ExplorerPath()] = explorer(page)
	}
	for file, contentType := range map[string]string{"explorer.js.gz": "text/javascript; charset=utf-8", "explorer.css.gz": "text/css; charset=utf-8"} {
		packed, err := explorerBuilt.ReadFile("explorer/built/" + file)
		if err != nil {
			return nil, err
		}
		routes["GET /explorer/"+strings.TrimSuffix(file, ".gz")] = compressed(contentType, packed)
	}
	return routes, nil
}

// explorerFor is the explorer's page for an area, from which the others can be chosen.
func explorerFor(here Area, areas []Area) ([]byte, error) {
	var options strings.Builder
	for _, a := range areas {
		name := a.Name
		if a.Variant != "" {
			name += ", " + a.Variant
		}
		err := h.Option(h.Value(a.ExplorerPath()), h.Data("example", a.Example),
			g.If(a.ExplorerPath() == here.ExplorerPath(), h.Selected()), g.Text(name)).Render(&options)
		if err != nil {
			return nil, err
		}
	}
	root := strings.Repeat("../", strings.Count(here.ExplorerPath(), "/")) // the way from the page to /
	return []byte(strings.NewReplacer("{{root}}", root, "{{areas}}", options.String()).Replace(explorerPage)), nil
}

func explorer(page []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setupHeader(w, "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", explorerPolicy)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(page))
	})
}

// compressed serves what is kept compressed by gzip: as it is to clients that take that, unpacked to the others.
func compressed(contentType string, packed []byte) http.Handler {
	sum := sha256.Sum256(packed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setupHeader(w, contentType)
		w.Header().Set("Cache-Control", "no-cache") // kept, and asked about
		w.Header().Set("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Values("Accept-Encoding")) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sum[:16]))
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(packed))
			return
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		_, _ = io.Copy(w, z) // the caller has left
	})
}

// acceptsGzip reports whether a client takes what is compressed by gzip.
func acceptsGzip(accept []string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		coding, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if coding = strings.TrimSpace(coding); strings.EqualFold(coding, "gzip") || coding == "*" {
			_, q, weighted := strings.Cut(strings.ReplaceAll(params, " ", ""), "q=")
			return !weighted || strings.Trim(q, "0.") != ""
		}
	}
	return false
}
