//go:build !noconsole

package web

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func testConsole(t *testing.T, s ConsoleSettings) *Console {
	t.Helper()
	s.Enabled = true
	c, err := NewConsole(s, func() ConsoleAbout { return ConsoleAbout{InstanceID: "weir", Version: "1.2.3", Setup: true} })
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	return c
}

func withConsole(t *testing.T, state SetupState, s ConsoleSettings) (http.Handler, *Console) {
	t.Helper()
	c := testConsole(t, s)
	return testFront(t, state, func(f *Front, _ *Config) { f.Console = c }), c
}

func ask(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestTheConsoleIsTheFirstPageOnceSomebodyCanSignIn(t *testing.T) {
	for _, c := range []struct {
		state          SetupState
		path           string
		status         int
		location, body string
	}{
		{SetupOpen, "/", 303, "setup", ""},
		{SetupStarting, "/", 503, "", "Weir is starting"},
		{SetupClosed, "/", 200, "", `<div id="app">`},
		{SetupClosed, "/plain", 200, "", "Weir runs and is ready."},
		{SetupClosed, "/plain", 200, "", `<a href=".">Console</a>`},
		{SetupClosed, "/sign-in", 303, "plain", ""},
		{SetupClosed, "/sign-out", 303, "plain", ""},
	} {
		h, _ := withConsole(t, c.state, ConsoleSettings{})
		w := ask(h, c.path)
		if w.Code != c.status || w.Header().Get("Location") != c.location || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s: %d %q, want %d %q with %q\n%.400s", c.path, w.Code, w.Header().Get("Location"), c.status, c.location, c.body, w.Body)
		}
	}
}

// Without the console, switched off or not built in, / is the page without a script, and the pieces are not there.
func TestAProgramWithoutTheConsoleServesThePlainPage(t *testing.T) {
	if c, err := NewConsole(ConsoleSettings{}, nil); c != nil || err != nil {
		t.Fatal(c, err)
	}
	h := testFront(t, SetupClosed, nil)
	if w := ask(h, "/"); !strings.Contains(w.Body.String(), "Weir runs and is ready.") || strings.Contains(w.Body.String(), "Console") {
		t.Errorf("%d\n%.400s", w.Code, w.Body)
	}
	for _, path := range []string{"/console.json", "/assets/0123456789abcdef/console.js"} {
		if w := ask(h, path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestThePiecesOfTheConsoleAreKeptForEverBelowTheirDigest(t *testing.T) {
	h, c := withConsole(t, SetupClosed, ConsoleSettings{})
	page := ask(h, "/")
	if page.Header().Get("Cache-Control") != "no-cache" || page.Header().Get("ETag") == "" {
		t.Errorf("the page: %v", page.Header())
	}
	if w := ask(h, "/", "If-None-Match", page.Header().Get("ETag")); w.Code != 304 {
		t.Errorf("the page again: %d", w.Code)
	}
	loaded := regexp.MustCompile(`(?:src|href)="(assets/[^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1)
	if len(loaded) != 2 {
		t.Fatalf("the page loads %q", loaded)
	}
	for _, m := range loaded {
		path := "/" + m[1]
		packed := ask(h, path, "Accept-Encoding", "br, gzip")
		plain := ask(h, path)
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatal(path, err)
		}
		unpacked, err := io.ReadAll(z)
		if err != nil || packed.Header().Get("Content-Encoding") != "gzip" || !bytes.Equal(unpacked, plain.Body.Bytes()) || plain.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: %v %v", path, packed.Header(), err)
		}
		if got := plain.Header().Get("Cache-Control"); got != "public, max-age=31536000, immutable" || plain.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %v", path, plain.Header())
		}
		if w := ask(h, strings.Replace(path, c.digest, "0123456789abcdef", 1)); w.Code != 404 {
			t.Errorf("of another digest: %d", w.Code)
		}
	}
	for _, name := range []string{"index.html", "NOTICE.txt", "no-such.js", "../console.js"} {
		if w := ask(h, "/assets/"+c.digest+"/"+name); w.Code != 404 && w.Code != 307 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// Other contents have another digest, and so has one file less.
func TestTheDigestIsOverAllFilesOfTheConsole(t *testing.T) {
	of := func(files fstest.MapFS) string {
		c, err := newConsole(files, ConsoleSettings{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.digest
	}
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	seen := map[string]bool{}
	for _, files := range []fstest.MapFS{
		{"index.html": file("a"), "b.js": file("b")}, {"index.html": file("a"), "b.js": file("c")}, {"index.html": file("a")}, {"index.html": file("a"), "c.js": file("b")},
	} {
		seen[of(files)] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d digests", len(seen))
	}
	if _, err := newConsole(fstest.MapFS{"b.js": file("b")}, ConsoleSettings{}, nil); err == nil {
		t.Error("a console without a page is taken")
	}
}

// The policy is written out: a change of it is a decision.
func TestThePolicyOfTheConsole(t *testing.T) {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-hashes' 'sha256-tcbDxjMo+xKqM21aCGYbs/QAJqB7yUXC06oPWDapBgc='; " +
		"img-src 'self' data:; connect-src 'self'; font-src 'none'; object-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types svelte-trusted-html default"
	h, c := withConsole(t, SetupClosed, ConsoleSettings{})
	for _, path := range []string{"/", "/assets/" + c.digest + "/console.js", "/console.json"} {
		w := ask(h, path)
		for name, want := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": ""} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if !strings.Contains(w.Header().Get("Permissions-Policy"), "geolocation=()") {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
	framed := testConsole(t, ConsoleSettings{FrameAncestors: []string{"https://portal.example.org", "http://10.0.0.1:81"}})
	if !strings.Contains(framed.policy, "; frame-ancestors https://portal.example.org http://10.0.0.1:81; ") {
		t.Error(framed.policy)
	}
}

func TestTheConsoleIsToldOfTheInstance(t *testing.T) {
	h, _ := withConsole(t, SetupClosed, ConsoleSettings{})
	w := ask(h, "/console.json")
	var about ConsoleAbout
	if err := json.Unmarshal(w.Body.Bytes(), &about); err != nil || about != (ConsoleAbout{InstanceID: "weir", Version: "1.2.3", Setup: true}) {
		t.Errorf("%s %v", w.Body, err)
	}
	if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Type") != "application/json" {
		t.Error(w.Header())
	}
}

// What the policy would block is not in the sources, and no other host is named in what is built, but for namespaces and the pages that
// explain Svelte's errors, which nothing loads.
func TestTheConsoleNamesNoOtherHost(t *testing.T) {
	err := fs.WalkDir(os.DirFS("console/src"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(os.DirFS("console/src"), name)
		for _, bad := range []string{"{@html", " style=", "innerHTML", "eval(", "new Function"} {
			if bytes.Contains(text, []byte(bad)) {
				t.Errorf("%s has %q", name, bad)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c := testConsole(t, ConsoleSettings{})
	hosts := regexp.MustCompile(`(?:https?|wss?)://[a-zA-Z0-9.-]+`)
	total := 0
	for name := range c.pieces {
		total += len(packedOf(t, c, name))
		for _, host := range hosts.FindAllString(string(textOf(t, c, name)), -1) {
			if host != "http://www.w3.org" && host != "https://svelte.dev" {
				t.Errorf("%s names %s", name, host)
			}
		}
	}
	first := len(packedOf(t, c, "style.css"))
	for name := range loadedAtOnce(t, c, "console.js", map[string]bool{}) {
		first += len(packedOf(t, c, name))
	}
	if first > 60_000 || total > 480_000 || first < 10_000 {
		t.Errorf("the page to sign-in and Overview has %d bytes, packed, all of it %d", first, total)
	}
}

// What is loaded on demand has a size of its own, packed: libraries with what is written around them, and each screen.
func TestThePiecesOfTheConsoleKeepTheirSizes(t *testing.T) {
	c := testConsole(t, ConsoleSettings{})
	of := func(names ...string) (sum int) {
		for _, name := range names {
			if c.pieces[name] == nil {
				t.Errorf("there is no %s", name)
				continue
			}
			sum += len(packedOf(t, c, name))
		}
		return sum
	}
	for _, l := range []struct {
		most  int
		names []string
	}{{24_000, []string{"uPlot.esm.js"}}, {64_000, []string{"Canvas.js"}}, {70_000, []string{"Map.js", "land-110m.js"}}, {116_000, []string{"editor.js"}}} {
		if n := of(l.names...); n > l.most {
			t.Errorf("%s: %d bytes, at most %d", l.names, n, l.most)
		}
	}
	libraries := []string{"uPlot.esm.js", "Canvas.js", "land-110m.js", "editor.js", "svelte.js"}
	for name := range c.pieces {
		if n := len(packedOf(t, c, name)); n > 30_000 && !slices.Contains(libraries, name) {
			t.Errorf("%s has %d bytes, at most 30000", name, n)
		}
	}
	// The editor comes with the JSON view alone.
	for name := range c.pieces {
		if loadedAtOnce(t, c, name, map[string]bool{})["editor.js"] && name != "editor.js" {
			t.Errorf("%s loads the editor at once", name)
		}
	}
}

// textOf is a piece as it was built.
func textOf(t *testing.T, c *Console, name string) []byte {
	t.Helper()
	text, err := unpacked(packedOf(t, c, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// packedOf is a piece as it is in the program.
func packedOf(t *testing.T, c *Console, name string) []byte {
	t.Helper()
	b, err := fs.ReadFile(c.files, c.pieces[name].file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loadedAtOnce are the pieces that one imports, and those that they import; what is imported on demand is none of them.
func loadedAtOnce(t *testing.T, c *Console, name string, seen map[string]bool) map[string]bool {
	if seen[name] || c.pieces[name] == nil {
		return seen
	}
	seen[name] = true
	for _, m := range regexp.MustCompile("(?:from|import)[\"'`]\\./([^\"'`]+)").FindAllSubmatch(textOf(t, c, name), -1) {
		loadedAtOnce(t, c, string(m[1]), seen)
	}
	return seen
}

// Each reason that the intake knows is explained, and none besides.
func TestTheConsoleExplainsEachReason(t *testing.T) {
	var words struct {
		Transports []string
		Outcomes   map[string]string
		Reasons    map[string][]string
	}
	raw, err := os.ReadFile("console/src/words/outcomes.json")
	if err == nil {
		err = json.Unmarshal(raw, &words)
	}
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../ingest/ingest.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"qos-2": true} // a transport's own
	for _, m := range regexp.MustCompile(`\bReason\w+\s+Reason = "([^"]+)"`).FindAllSubmatch(source, -1) {
		known[string(m[1])] = true
	}
	for reason := range known {
		if len(words.Reasons[reason]) != 2 {
			t.Errorf("%s is not explained", reason)
		}
	}
	for reason := range words.Reasons {
		if !known[reason] {
			t.Errorf("%s is explained, and no message has it", reason)
		}
	}
	for _, m := range regexp.MustCompile(`\bTransport\w+\s+= "([^"]+)"`).FindAllSubmatch(source, -1) {
		if !slices.Contains(words.Transports, string(m[1])) {
			t.Errorf("the messages of %s cannot be selected", m[1])
		}
	}
	if len(known) < 20 || len(words.Outcomes) != 5 {
		t.Errorf("%d reasons, %d outcomes", len(known), len(words.Outcomes))
	}
}
