package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/config"
	"weir/operate"
)

// common is what every instance is configured with; raised lets one tenant send and keep as much as the machine takes.
const (
	common = "auth: {access_token_ttl: 12h}\nlogging: {level: warn}\n"
	raised = "governance: {ingest_messages_per_second: 100000000, ingest_burst: 100000000, registry_bytes: 1GiB, held_command_ceiling: 1000000}\n"
)

// build makes the static program.
func (b *bench) build(ctx context.Context) error {
	b.binary = filepath.Join(b.work, "weir")
	return b.goBuild(ctx, b.binary, "")
}

func (b *bench) goBuild(ctx context.Context, out, ldflags string, env ...string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", out, ".")
	cmd.Dir = b.root
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w: %s", err, text)
	}
	return nil
}

// setup is how an instance differs from a plain one.
type setup struct {
	config  string   // more of it
	lab     []string // arguments of the lab, which then runs in the program's place
	devices int
	rules   int                    // that judge each reading
	limit   func(rule int) float64 // what each rule compares with; nil: ruleLimit
	define  func(rule int) string  // the definition of each rule; nil: a threshold
	bounded bool                   // tenants have the default ceilings
	lwm2m   string                 // address of listeners.lwm2m; "" for a free one, where it is opened at all
	edge    string                 // the section of an instance with role: edge, which has nothing else; "": a platform
}

// instance is a data directory and the process that runs on it.
type instance struct {
	b   *bench
	dir string
	setup
	cmd    *exec.Cmd
	exited chan error
	stderr bytes.Buffer  // read once the process has ended
	served time.Duration // from exec until the last listener was open, of the last start
	took   time.Duration // … and until every acknowledged reading could be queried
	wrote  int64         // bytes that the process which ended last has caused to be written to the disk

	api, ingest, mqtt, metrics string
	client                     *operate.Client
	token                      string // of the tenant's administrator
}

// data is the data directory.
func (in *instance) data() string { return filepath.Join(in.dir, "data") }

func (in *instance) configFile() string { return filepath.Join(in.dir, "weir.yaml") }

// fresh makes a directory and starts on it.
func (b *bench) fresh(ctx context.Context, s setup) (*instance, error) {
	dir, err := os.MkdirTemp(b.work, "i")
	if err != nil {
		return nil, err
	}
	in := &instance{b: b, dir: dir, setup: s}
	return in, in.start(ctx)
}

// start runs the program and returns when it answers queries.
func (in *instance) start(ctx context.Context) error {
	text := fmt.Sprintf("data_dir: %q\nlisteners: {api: \"127.0.0.1:0\", ingest: \"127.0.0.1:0\", mqtt: \"127.0.0.1:0\", metrics: \"127.0.0.1:0\", lwm2m: %q}\n%s%s",
		in.data(), cmp.Or(in.lwm2m, "127.0.0.1:0"), common, in.config)
	if !in.bounded {
		text += raised
	}
	if in.edge != "" {
		text = fmt.Sprintf("role: edge\ndata_dir: %q\nlisteners: {api: \"127.0.0.1:0\", ingest: \"127.0.0.1:0\", metrics: \"127.0.0.1:0\"}\nlogging: {level: warn}\n%s", in.data(), in.edge)
	}
	if err := os.WriteFile(in.configFile(), []byte(text), 0o600); err != nil {
		return err
	}
	program, args, err := in.program()
	if err != nil {
		return err
	}
	in.cmd = exec.CommandContext(ctx, program, args...)
	in.stderr.Reset()
	in.cmd.Stderr = &in.stderr
	out, err := in.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := in.cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	up := in.listeners(lines)
	in.served = time.Since(began)
	in.exited = make(chan error, 1)
	go func() {
		for lines.Scan() { // the pipe has no other reader
		}
		in.exited <- in.cmd.Wait()
	}()
	if !up {
		return fmt.Errorf("the instance did not come up: %w: %s", <-in.exited, in.stderr.String())
	}
	if err := in.answers(ctx); err != nil {
		return err
	}
	in.took = time.Since(began)
	in.client, err = operate.Dial(ctx, config.Config{DataDir: in.data()})
	return err
}

// answers waits until the instance answers queries.
func (in *instance) answers(ctx context.Context) error {
	for {
		resp, err := http.Get(in.api + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-in.exited:
			in.exited <- err
			return fmt.Errorf("the instance ended before it answered: %w: %s", err, in.stderr.String())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// program is what is run, and its arguments.
func (in *instance) program() (string, []string, error) {
	if in.lab == nil {
		return in.b.binary, []string{"run", "--config", in.configFile()}, nil
	}
	self, err := os.Executable()
	return self, append([]string{labCommand, "-config", in.configFile()}, in.lab...), err
}

func (in *instance) listeners(lines *bufio.Scanner) bool {
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "api":
			in.api = "http://" + f[1]
		case "ingest":
			in.ingest = f[1]
		case "mqtt":
			in.mqtt = f[1]
		case "metrics":
			in.metrics = "http://" + f[1]
		case "socket":
			return true
		}
	}
	return false
}

func (in *instance) pid() int { return in.cmd.Process.Pid }

// stop asks the process to stop and waits for it.
func (in *instance) stop() error { return in.end(syscall.SIGTERM) }

// kill ends it as a power cut would.
func (in *instance) kill() error {
	if err := in.end(syscall.SIGKILL); !strings.Contains(fmt.Sprint(err), "signal: killed") {
		return err
	}
	return nil
}

func (in *instance) end(s syscall.Signal) error {
	if in.exited == nil {
		return nil
	}
	_ = in.client.Close()
	if err := in.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	err := <-in.exited
	in.exited = nil
	if u, ok := in.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		in.wrote = int64(u.Oublock) * 512 // an int32 where words are short
	}
	if err != nil && s != syscall.SIGKILL {
		return fmt.Errorf("%w: %s", err, in.stderr.String())
	}
	return err
}

// drop ends what still runs and removes the directory, so that the next part has the disk for itself.
func (in *instance) drop() {
	if err := in.kill(); err != nil {
		in.b.say.Printf("ending an instance: %v", err)
	}
	if err := os.RemoveAll(in.dir); err != nil {
		in.b.say.Printf("removing a directory: %v", err)
	}
}

// run runs another command of the program.
func (in *instance) run(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, in.b.binary, append(args, "--config", in.configFile())...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("weir %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// metric is the value of a metric without labels.
func (in *instance) metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.metrics+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// backlog is how many records of the log wait for the applier.
func (in *instance) backlog(ctx context.Context) (int64, error) {
	s, err := operate.GetStatus.Ask(ctx, in.client, operate.None{})
	if err != nil {
		return 0, err
	}
	if s.Waiting != "" {
		return 0, fmt.Errorf("the applier stands still: %s", s.Waiting)
	}
	return int64(s.Log.Last) - int64(s.Log.Applied), nil
}

// applied waits until nothing waits.
func (in *instance) applied(ctx context.Context) error {
	for {
		n, err := in.backlog(ctx)
		if err != nil || n <= 0 {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
