package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// ConsoleSettings are the keys of the console.
type ConsoleSettings struct {
	Enabled        bool     `yaml:"enabled" default:"true" doc:"Whether / is the console, a web application; otherwise it is the page of /plain, which has no script."`
	FrameAncestors []string `yaml:"frame_ancestors" doc:"Origins, such as https://portal.example.org, whose pages may show the console in a frame; empty: none."`
}

// consolePolicy lets the page load the scripts and styles of its host and talk to it, and nothing else. The hash is that of the style
// display: contents, which Svelte sets on elements of its own; texts become HTML through policies of the page alone.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-hashes' 'sha256-tcbDxjMo+xKqM21aCGYbs/QAJqB7yUXC06oPWDapBgc='; " +
	"img-src 'self' data:; connect-src 'self'; font-src 'none'; object-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors %s; " +
	"require-trusted-types-for 'script'; trusted-types svelte-trusted-html default"

// Console is the web application at /. Its pieces lie below a digest of all of them, so that a browser keeps each for ever and never
// mixes those of two versions.
type Console struct {
	page   []byte
	etag   string
	digest string
	policy string
	files  fs.FS
	pieces map[string]*consolePiece // by name
	about  func() ConsoleAbout
}

// ConsoleAbout is what the console learns of the instance before anybody has signed in.
type ConsoleAbout struct {
	InstanceID string `json:"instanceId"`
	Version    string `json:"version"`
	Setup      bool   `json:"setup"` // there is no administrator yet
	DevTools   bool   `json:"devTools"`
}

// consolePiece is a file that the page loads, compressed by gzip. It is read for each answer: it is part of the program, and a copy of
// all of them in memory would be of no use to an instance that nobody looks at.
type consolePiece struct {
	contentType string
	file        string
}

// consoleTypes are the types of the files by their endings: one that is not here is not part of the console.
var consoleTypes = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// consolePage is the file of the page; what it loads is named relative to it.
const consolePage = "index.html"

// NewConsole returns the console, nil when it is switched off or no part of the program. about is asked for each answer.
func NewConsole(s ConsoleSettings, about func() ConsoleAbout) (*Console, error) {
	files := consoleFiles()
	if !s.Enabled || files == nil {
		return nil, nil
	}
	return newConsole(files, s, about)
}

func newConsole(files fs.FS, s ConsoleSettings, about func() ConsoleAbout) (*Console, error) {
	ancestors := "'none'"
	if len(s.FrameAncestors) > 0 {
		ancestors = strings.Join(s.FrameAncestors, " ")
	}
	c := &Console{policy: fmt.Sprintf(consolePolicy, ancestors), files: files, pieces: map[string]*consolePiece{}, about: about}
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(b))
		sum.Write(b)
		piece, packed := strings.CutSuffix(name, ".gz")
		if contentType := consoleTypes[path.Ext(piece)]; packed && contentType != "" {
			c.pieces[piece] = &consolePiece{contentType, name}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("web: console: %w", err)
	}
	page, err := fs.ReadFile(files, consolePage)
	if err != nil {
		return nil, fmt.Errorf("web: console: %w", err)
	}
	c.digest = fmt.Sprintf("%x", sum.Sum(nil)[:8])
	c.page = bytes.ReplaceAll(page, []byte(`="./`), []byte(`="assets/`+c.digest+`/`))
	c.etag = fmt.Sprintf(`"%x"`, sha256.Sum256(c.page))
	return c, nil
}

// routes are those of the console besides /.
func (c *Console) routes() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /assets/{digest}/{name...}": http.HandlerFunc(c.piece),
		"GET /console.json":              http.HandlerFunc(c.describe),
	}
}

// header is what every answer of the console says of itself.
func (c *Console) header(w http.ResponseWriter, r *http.Request, contentType, kept string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", c.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Permissions-Policy", "accelerometer=(), camera=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), payment=(), usb=()")
	h.Set("Cache-Control", kept)
	h.Set("Vary", "Accept-Encoding")
	if r.TLS != nil { // elsewhere browsers ignore it, and say so in their consoles
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
	}
}

// home is the page: kept by the browser, and asked about each time.
func (c *Console) home(w http.ResponseWriter, r *http.Request) {
	c.header(w, r, "text/html; charset=utf-8", "no-cache")
	w.Header().Set("ETag", c.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(c.page))
}

// piece is what the page loads. One of another digest is of another version: its page has to be loaded again.
func (c *Console) piece(w http.ResponseWriter, r *http.Request) {
	p := c.pieces[r.PathValue("name")]
	if p == nil || r.PathValue("digest") != c.digest {
		http.Error(w, "there is no such piece of the console; load its page again", http.StatusNotFound)
		return
	}
	c.header(w, r, p.contentType, "public, max-age=31536000, immutable")
	body, err := fs.ReadFile(c.files, p.file)
	if err != nil { // never, as below
		http.Error(w, "the piece cannot be read", http.StatusInternalServerError)
		return
	}
	if acceptsGzip(r.Header.Values("Accept-Encoding")) {
		w.Header().Set("Content-Encoding", "gzip")
	} else if body, err = unpacked(body); err != nil { // never: it was built with the program
		http.Error(w, "the piece cannot be unpacked", http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// unpacked is what gzip has compressed.
func unpacked(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func (c *Console) describe(w http.ResponseWriter, r *http.Request) {
	body, err := json.Marshal(c.about())
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	c.header(w, r, "application/json", "no-store")
	_, _ = w.Write(body) // the caller has left
}

// gzipped compresses what is served often.
func gzipped(raw []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(raw)
		err = errors.Join(err, z.Close())
	}
	if err != nil { // a buffer takes everything
		panic(err)
	}
	return b.Bytes()
}
