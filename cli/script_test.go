package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/test/made"

	"github.com/rogpeppe/go-internal/testscript"

	"weir/config"
	"weir/internal/test/conformance"
	"weir/internal/test/need"
	"weir/internal/test/testcerts"
	"weir/internal/test/testweir"
	"weir/operate"
	"weir/store"
	"weir/store/sqlite"
)

// TestScripts runs the real program as its users do. Each script has a directory of its own; in addition to the commands of
// testscript there are:
//
//	exits CODE PROGRAM ARG…   runs it and holds its exit code; stdout and stderr are for the next commands
//	start-weir [ARG…]         weir run in the background until its listeners are open, which become $API, $INGEST, $MQTT,
//	                          $METRICS; what it says goes to run.out and run.err
//	stop-weir, kill-weir      SIGTERM or SIGKILL, and wait; stop-weir fails unless it ends with 0
//	hang-up                   SIGHUP
//	eventually TEXT PROGRAM ARG…  runs it until its stdout holds TEXT
//	get CODE URL              GET, holding the status; the answer is in the files body and header
//	post CODE URL FILE        POST likewise
//	take-port NAME            listens on a free port, whose address becomes $NAME
//	from-the-future FILE      makes a database one that a newer Weir has written
//	sql FILE STATEMENT        changes a database without Weir
//	settled                   wait until the instance has applied what it acknowledged
//	metric NAME VALUE         hold a metric
//	await FILE REGEXP         wait until a file that another program writes holds it
//	lost ARG…                 weir with these arguments fails because its stdout, a full device, takes nothing
//	lost-by-usage             the same of all commands that have no line with lost or lost-otherwise, called as their usage says
//	lost-otherwise COMMAND…   the lines above have shown that of a command
//	ai-provider NAME          an AI provider that drafts one rule, at $NAME; $NAME_DESTINATION may be connected to
//	all-lost                  holds that it was shown of every command
//	shown ID…                 the statements of the checklist that the lines above have shown
func TestScripts(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // under nohup what is started here would be deaf to it
	}
	t.Parallel()
	binary := testweir.Binary(t)
	testscript.Run(t, testscript.Params{
		Dir:                filepath.Join("testdata", "script"),
		UpdateScripts:      made.Update(),
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("WEIR_CONFIG", "") // one that is installed on the machine does not count
			env.Setenv("TMPDIR", filepath.Join(env.WorkDir, ".tmp"))
			env.Setenv("KEYS_LESS_3", strconv.Itoa(config.Keys()-3)) // as many as a reload leaves alone that finds three others
			env.Values[instanceKey{}] = &instance{}
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "start-weir": startWeir, "stop-weir": stopWeir, "kill-weir": killWeir, "get": get, "post": post, "take-port": takePort,
			"from-the-future": fromTheFuture, "settled": settled, "metric": metric, "await": await,
			"hang-up": hangUp, "eventually": eventually, "certificates": certificates,
			"sql":  changeStore,
			"lost": lost, "lost-by-usage": lostByUsage, "lost-otherwise": lostOtherwise, "ai-provider": aiProvider, "all-lost": allLost,
			"shown": func(ts *testscript.TestScript, _ bool, ids []string) { conformance.Shown(script{t, ts.Name()}, ids...) },
		},
	})
}

// condition knows [namespaces]: file systems may be mounted here, in a namespace of a test's own; and [superuser]: no file
// is closed to this user.
func condition(name string) (so bool, err error) {
	switch name {
	case "namespaces":
		so = exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt").Run() == nil
	case "superuser":
		so = os.Geteuid() == 0
	default:
		return false, fmt.Errorf("there is no condition %s", name)
	}
	if !so && need.Must() {
		return false, fmt.Errorf("[%s] does not hold here, and no script may be left out", name)
	}
	return so, nil
}

// script is a script as the log of shown statements names it.
type script struct {
	*testing.T
	name string
}

func (s script) Name() string { return s.T.Name() + "/" + s.name }

// instance is the weir run of a script.
type instance struct {
	cmd    *exec.Cmd
	exited chan error
	lost   map[string]bool // commands, by their paths
}

type instanceKey struct{}

func theInstance(ts *testscript.TestScript) *instance { return ts.Value(instanceKey{}).(*instance) }

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s ended with %d, not with %d", strings.Join(args[1:], " "), got, want)
	}
}

func startWeir(ts *testscript.TestScript, neg bool, args []string) {
	in := theInstance(ts)
	if neg || in.cmd != nil {
		ts.Fatalf("start-weir: one instance a script")
	}
	in.cmd = exec.Command("weir", append([]string{"run"}, args...)...)
	path, err := exec.LookPath(filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "weir"))
	ts.Check(err)
	in.cmd.Path, in.cmd.Err = path, nil
	in.cmd.Dir = ts.MkAbs(".")
	ts.Setenv("API", "")
	in.cmd.Env = []string{"HOME=" + ts.Getenv("HOME"), "WEIR_GRAPHQL_DEV_TOOLS=" + ts.Getenv("WEIR_GRAPHQL_DEV_TOOLS")}
	in.cmd.Stdout, in.cmd.Stderr = create(ts, "run.out"), create(ts, "run.err")
	ts.Check(in.cmd.Start())
	in.exited = make(chan error, 1)
	go func() { in.exited <- in.cmd.Wait() }()
	ts.Defer(func() { killWeir(ts, false, nil) })
	awaitReady(ts, in)
}

// create makes a file for the program to write to directly: what it has written before it was ready can be read then.
func create(ts *testscript.TestScript, name string) *os.File {
	f, err := os.Create(ts.MkAbs(name))
	ts.Check(err)
	ts.Defer(func() { _ = f.Close() })
	return f
}

// awaitReady waits until the instance is ready and names its addresses.
func awaitReady(ts *testscript.TestScript, in *instance) {
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		select {
		case err := <-in.exited:
			in.cmd = nil
			ts.Fatalf("weir run ended: %v\n%s", err, ts.ReadFile("run.err"))
		default:
		}
		for line := range strings.Lines(ts.ReadFile("run.out")) {
			if f := strings.Fields(line); len(f) > 1 && slices.Contains([]string{"api", "ingest", "mqtt", "metrics"}, f[0]) {
				ts.Setenv(strings.ToUpper(f[0]), f[1])
			}
		}
		if ready(ts.Getenv("API")) {
			return
		}
	}
}

func ready(addr string) bool {
	if addr == "" {
		return false
	}
	resp, err := http.Get("http://" + addr + "/readyz")
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

func stopWeir(ts *testscript.TestScript, neg bool, _ []string) {
	in := theInstance(ts)
	if neg || in.cmd == nil {
		ts.Fatalf("stop-weir: nothing runs")
	}
	ts.Check(in.cmd.Process.Signal(syscall.SIGTERM))
	err := <-in.exited
	in.cmd = nil
	if err != nil {
		ts.Fatalf("weir run ended with %v\n%s", err, ts.ReadFile("run.err"))
	}
}

func killWeir(ts *testscript.TestScript, _ bool, _ []string) {
	in := theInstance(ts)
	if in.cmd == nil {
		return
	}
	_ = in.cmd.Process.Kill() // it may have ended
	<-in.exited
	in.cmd = nil
}

func hangUp(ts *testscript.TestScript, neg bool, args []string) {
	in := theInstance(ts)
	if neg || len(args) > 0 || in.cmd == nil {
		ts.Fatalf("usage: hang-up, while an instance runs")
	}
	ts.Check(in.cmd.Process.Signal(syscall.SIGHUP))
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually TEXT PROGRAM ARG…")
	}
	late := time.After(30 * time.Second)
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		if err := ts.Exec(args[1], args[2:]...); err == nil && strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		select {
		case <-late:
			ts.Fatalf("%s never said %q:\n%s", strings.Join(args[1:], " "), args[0], ts.ReadFile("stdout"))
		default:
		}
	}
}

func get(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: get CODE URL")
	}
	resp, err := http.Get(args[1])
	ts.Check(err)
	answered(ts, resp, args[0])
}

func post(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: post CODE URL FILE")
	}
	resp, err := http.Post(args[1], "application/json", strings.NewReader(ts.ReadFile(args[2])))
	ts.Check(err)
	answered(ts, resp, args[0])
}

// answered keeps the body in the file body, the header in the file header, and holds the status.
func answered(ts *testscript.TestScript, resp *http.Response, code string) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("body"), body, 0o600))
	var header strings.Builder
	ts.Check(resp.Header.Write(&header))
	ts.Check(os.WriteFile(ts.MkAbs("header"), []byte(header.String()), 0o600))
	if strconv.Itoa(resp.StatusCode) != code {
		ts.Fatalf("%s %s: %s, not %s: %s", resp.Request.Method, resp.Request.URL, resp.Status, code, body)
	}
}

func takePort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: take-port NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

func certificates(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: certificates DIR")
	}
	ts.Check(testcerts.WriteSet(ts.MkAbs(args[0])))
}

func fromTheFuture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: from-the-future FILE")
	}
	ctx := context.Background()
	db, err := sqlite.Open(ctx, ts.MkAbs(args[0]), sqlite.Options{})
	ts.Check(err)
	defer func() { ts.Check(db.Close()) }()
	ts.Check(db.Write(ctx, store.Durable, func(tx store.Tx) error {
		_, err := tx.Exec(`INSERT INTO schema_migrations (number, name, checksum, applied_at) VALUES (9999, 'later', 'c0ffee', 0)`)
		return err
	}))
}

func changeStore(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql FILE STATEMENT")
	}
	ctx := context.Background()
	db, err := sqlite.Open(ctx, ts.MkAbs(args[0]), sqlite.Options{})
	ts.Check(err)
	defer func() { ts.Check(db.Close()) }()
	ts.Check(db.Write(ctx, store.Durable, func(tx store.Tx) error {
		n, err := tx.Exec(args[1])
		if err == nil && n == 0 {
			err = errors.New("no row was changed")
		}
		return err
	}))
}

// settled waits until every record is applied.
func settled(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: settled")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := config.Default()
	cfg.DataDir = ts.MkAbs("data")
	c, err := operate.Dial(ctx, cfg)
	ts.Check(err)
	defer c.Close()
	ts.Check(awaitApplied(ctx, c))
}

func metric(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: metric NAME VALUE")
	}
	resp, err := http.Get("http://" + ts.Getenv("METRICS") + "/metrics")
	ts.Check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	for line := range strings.Lines(string(body)) {
		if v, ok := strings.CutPrefix(line, args[0]+" "); ok {
			if v = strings.TrimSpace(v); v != args[1] {
				ts.Fatalf("%s is %s, not %s", args[0], v, args[1])
			}
			return
		}
	}
	ts.Fatalf("there is no metric %s", args[0])
}

// await waits until a file that is being written holds a regular expression.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	want, err := regexp.Compile(args[1])
	ts.Check(err)
	over := time.After(30 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		b, _ := os.ReadFile(ts.MkAbs(args[0])) // it may not be there yet
		if want.Match(b) {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			ts.Fatalf("%s does not hold %s:\n%s", args[0], args[1], b)
		}
	}
}
