// Package testweir runs the real program in tests: it builds the binary once per test process, without the race detector
// (SQLite is many times slower with it), starts it on a directory with ports of its own, and speaks to it as a user would.
package testweir

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// built has what builds the program with each tag, "" for none, once for all tests of the process.
var built sync.Map

// Binary returns the path of the program, built from the tree. GOARCH and the like hold for it as they do for the test.
func Binary(t testing.TB) string {
	t.Helper()
	return program(t, "", func() (string, error) {
		if err := touchSources(); err != nil {
			return "", err
		}
		return compile("weir")
	})
}

func program(t testing.TB, tag string, build func() (string, error)) string {
	t.Helper()
	if os.Getenv("PROCESSES") == "none" {
		t.Skip("starts the program; this run, under the race detector or for 32 bits, leaves that to the plain one")
	}
	once, _ := built.LoadOrStore(tag, sync.OnceValues(build))
	path, err := once.(func() (string, error))()
	if err != nil {
		t.Fatalf("building the program, tag %q: %v", tag, err)
	}
	return path
}

// touchSources looks at every file that the program is built from. The test cache keeps an eye on what a test has looked
// at, and on nothing that another process reads: without this a test of the program would go on passing from the cache
// after the program has changed.
func touchSources() error {
	return filepath.WalkDir(root(), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		_, err = os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) { // somebody tidies up
			return nil
		}
		return err
	})
}

// Tagged returns the path of the program built with a tag.
func Tagged(t testing.TB, tag string) string {
	t.Helper()
	Binary(t) // looks at the sources
	return program(t, tag, func() (string, error) { return compile("weir-"+tag, "-tags", tag) })
}

// compile builds the program. One file per user, architecture and checkout serves all test processes, one of which builds at a time:
// the go command leaves a file alone that is up to date, and linking takes seconds. What runs is another name of the file, which is
// moved in place, so that it goes on running when the sources have changed.
func compile(name string, flags ...string) (path string, err error) {
	checkout := sha256.Sum256([]byte(root()))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("weir-test-%d-%s-%x", os.Getuid(), runtime.GOARCH, checkout[:4]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(dir, name)
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	built := path + ".built"
	cmd := exec.Command("go", append(append([]string{"build", "-o", built}, flags...), ".")...)
	cmd.Dir = root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+runtime.GOARCH, "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, present(built, path)
}

// lockFile waits until no other process has the file locked, and locks it.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // which unlocks it
}

// present makes path another name of the file built, unless it is.
func present(built, path string) error {
	of, err := os.Stat(built)
	if err != nil {
		return err
	}
	if is, err := os.Stat(path); err == nil && os.SameFile(of, is) {
		return nil
	}
	fresh := path + ".fresh"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(built, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// root is the top of the module. A test runs in the directory of its package; the path of this file would be none where the
// build trims paths.
func root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			panic("there is no go.mod above " + dir)
		}
	}
}

// Environ is the environment of the test without the variables of Weir: what they say is meant for the test. So is GOGC, with which the gate
// lets tests collect garbage seldom. A configuration that is installed on the machine does not count.
func Environ() []string {
	own := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "WEIR_") || strings.HasPrefix(kv, "GOGC=") })
	return append(own, "WEIR_CONFIG=")
}

// Proc is a running instance.
type Proc struct {
	t       testing.TB
	cmd     *exec.Cmd
	Dir     string
	Config  string // path of its configuration file
	API     string // http://host:port
	Ingest  string
	MQTT    string // host:port
	Metrics string
	LwM2M   string // host:port, "" while it is closed
	Boot    string // host:port of the LwM2M bootstrap server, "" while it is closed
	exited  chan error
	ended   chan struct{}
	stderr  *bytes.Buffer
	stdout  bytes.Buffer
	mu      sync.Mutex
}

// Options say how an instance is started.
type Options struct {
	Dir    string   // data directory; "" makes one
	Config string   // more YAML, without data_dir and listeners
	Env    []string // more environment
	Under  []string // a command that runs the instance: prlimit and what it takes
	Binary string   // of another build than the shipped one; "" is that
	// Serving makes Start return once devices are served, although queries may still wait for what was acknowledged before.
	Serving bool
	// Begun is called when the process runs, long before it is ready; nil: nothing is.
	Begun func(*Proc)
	// Wrap may change how the process is started; nil leaves it.
	Wrap func(*exec.Cmd) error
}

// Start runs an instance and returns when it is ready. It is killed at the end of the test if it still runs.
func Start(t testing.TB, o Options) *Proc {
	t.Helper()
	p, err := TryStart(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// WriteConfig writes a configuration file for an instance on dir and returns its path.
func WriteConfig(t testing.TB, dir, more string) string {
	t.Helper()
	path := filepath.Join(dir, "weir.yaml")
	others := ` mqtt: "127.0.0.1:0", lwm2m: "127.0.0.1:0",`
	if strings.Contains(more, "role: edge") { // its broker is at edge.listen
		others = ""
	}
	text := fmt.Sprintf("data_dir: %q\nlisteners: {api: \"127.0.0.1:0\", ingest: \"127.0.0.1:0\",%s metrics: \"127.0.0.1:0\"}\n%s\n",
		filepath.Join(dir, "data"), others, more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TryStart is Start for an instance that may not come up.
func TryStart(t testing.TB, o Options) (*Proc, error) {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	p := &Proc{t: t, Dir: o.Dir, Config: WriteConfig(t, o.Dir, o.Config), exited: make(chan error, 1), ended: make(chan struct{}), stderr: &bytes.Buffer{}}
	if o.Binary == "" {
		o.Binary = Binary(t)
	}
	args := append(slices.Clone(o.Under), o.Binary, "run", "--config", p.Config)
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env = append(Environ(), o.Env...)
	if o.Wrap != nil {
		if err := o.Wrap(p.cmd); err != nil {
			return nil, err
		}
	}
	p.cmd.Stderr = &lockedWriter{p: p}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if o.Begun != nil {
		o.Begun(p)
	}
	lines := make(chan string)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.mu.Lock()
			p.stdout.WriteString(s.Text() + "\n")
			p.mu.Unlock()
			lines <- s.Text()
		}
		close(lines)
		p.exited <- p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.Kill)
	for line := range lines {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "api":
			p.API = "http://" + f[1]
		case "ingest":
			p.Ingest = "http://" + f[1]
		case "mqtt":
			p.MQTT = f[1]
		case "metrics":
			p.Metrics = "http://" + f[1]
		case "lwm2m":
			p.LwM2M = f[1]
		case "lwm2m_bootstrap":
			p.Boot = f[1]
		case "socket": // the last of the list
			go func() {
				for range lines {
				}
			}()
			if o.Serving || p.answers() {
				return p, nil
			}
		}
	}
	err = <-p.exited
	p.exited <- err
	return nil, fmt.Errorf("the instance did not come up: %w\n%s", err, p.Stderr())
}

// answers waits until the instance answers queries; false when it has ended before.
func (p *Proc) answers() bool {
	for !p.Over() {
		resp, err := http.Get(p.API + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

type lockedWriter struct{ p *Proc }

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.p.stderr.Write(b)
}

// Stderr is what the instance has logged.
func (p *Proc) Stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// Stdout is what the instance has printed.
func (p *Proc) Stdout() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stdout.String()
}

// Kill ends the process as a power cut would, and waits until it is gone.
func (p *Proc) Kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	err := <-p.exited
	p.exited <- err
}

// Stop asks the process to stop and returns how it ended.
func (p *Proc) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := <-p.exited
	p.exited <- err
	return err
}

// Ended is closed when the process is gone.
func (p *Proc) Ended() <-chan struct{} { return p.ended }

// Over reports whether the process is gone.
func (p *Proc) Over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// PID is the process id.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Run runs another command of the program on the instance's configuration and returns its stdout.
func (p *Proc) Run(stdin string, args ...string) string {
	p.t.Helper()
	cmd := exec.Command(Binary(p.t), append(args, "--config", p.Config)...)
	cmd.Env = Environ()
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		p.t.Fatalf("weir %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// RunJSON is Run with --json, decoded.
func (p *Proc) RunJSON(into any, args ...string) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.Run("", append(args, "--json")...)), into); err != nil {
		p.t.Fatal(err)
	}
}

// Password is the password of the administrators that tests make.
const Password = "correct horse battery"

// Identity makes an administrator when there is none yet and returns its identity token.
func (p *Proc) Identity() string {
	p.t.Helper()
	var login struct {
		Login struct{ IdentityToken string }
	}
	const email = "admin@example.org"
	query := fmt.Sprintf(`mutation{login(email:%q,password:%q){identityToken}}`, email, Password)
	if err := p.TryQuery("user-management", "", query, nil, &login); err != nil {
		p.Run(Password, "admin", "create", email, "--password-file", "-")
		p.Query("user-management", "", query, nil, &login)
	}
	return login.Login.IdentityToken
}

// SignIn returns an access token of the administrator for the tenant.
func (p *Proc) SignIn(tenant string) string {
	p.t.Helper()
	identity := p.Identity()
	var sel struct {
		SelectTenant struct{ AccessToken string }
	}
	p.Query("user-management", "", `mutation($t:String!,$i:String!){selectTenant(identityToken:$i,tenant:$t){accessToken}}`,
		map[string]any{"i": identity, "t": tenant}, &sel)
	return sel.SelectTenant.AccessToken
}

// Query runs a GraphQL document and decodes its data; an error fails the test.
func (p *Proc) Query(area, token, query string, vars map[string]any, into any) {
	p.t.Helper()
	if err := p.TryQuery(area, token, query, vars, into); err != nil {
		p.t.Fatalf("%s: %v\n%s", area, err, query)
	}
}

// TryQuery is Query for a document that may be refused.
func (p *Proc) TryQuery(area, token, query string, vars map[string]any, into any) error {
	resp, b, err := GraphQL{API: p.API, Area: area, Token: token, Query: query, Variables: vars}.Post(p.t.Context())
	if err != nil {
		return err
	}
	var out struct {
		Data   json.RawMessage
		Errors []struct{ Message string }
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return fmt.Errorf("%s: %s", resp.Status, b)
	}
	if len(out.Errors) > 0 {
		return fmt.Errorf("%s: %s", resp.Status, b)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(out.Data, into)
}
