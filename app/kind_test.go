package app_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/app"
	"weir/config"
	"weir/model"
	"weir/operate"
	"weir/rules"
	"weir/site"
	"weir/store"
	"weir/store/sqlite"
)

// quietKind raises when a device sent nothing for timeout, and counts how often that was. Weir does not have the kind:
// the test registers it.
type quietKind struct{}

func (quietKind) Type() rules.Type { return "quiet" }

func (quietKind) Uses(*rules.Definition) (rules.Uses, *rules.Error) {
	return rules.Uses{Needs: []string{"timeout"}, Keys: rules.ByDevice, Value: true}, nil
}

func (quietKind) Check(*rules.Definition) *rules.Error { return nil }

func (quietKind) Compile(d *rules.Definition, _ *rules.Predicate) (rules.Judge, *rules.Error) {
	return quietJudge(d.Timeout), nil
}

func (quietKind) Decode(b []byte) (rules.Memory, error) {
	if len(b) != 8 {
		return nil, errors.New("not 8 bytes")
	}
	return quietCount(binary.BigEndian.Uint64(b)), nil
}

type quietCount uint64

func (c quietCount) Append(b []byte) []byte { return binary.BigEndian.AppendUint64(b, uint64(c)) }

type quietJudge rules.Listening

func (j quietJudge) Judge(st *rules.State, s *rules.Sample, out *rules.Verdict) {
	count, _ := st.Own.(quietCount)
	if s.Kind != rules.Timer {
		st.Own, st.Due = count, s.Clock.Now+rules.Listening(j)
		st.Latch(false, rules.Firing{At: max(st.LastEdge, s.Occurred)}, out)
		return
	}
	st.Own, st.Due = count+1, 0
	st.Latch(true, rules.Firing{At: max(st.LastEdge, s.Occurred), Value: float64(count + 1), HasValue: true}, out)
}

const quietSite = `version: 1
tenants:
  - token: acme
    deviceProfiles:
      - token: p
        detectionRules: [{token: quiet, definition: {name: quiet, type: quiet, timeout: 50ms}}]
    deviceTypes: [{token: t, profileToken: p}]
    devicesFrom: [{file: devices.csv, deviceTypeToken: t}]
`

// kindDir is the variable that makes the test binary an instance with quietKind on a data directory; with notesVar it has the capability
// notes, too.
const (
	kindDir  = "WEIR_TEST_KIND_DIR"
	notesVar = "WEIR_TEST_NOTES"
)

func init() {
	if dir := os.Getenv(kindDir); dir != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		opt := app.Options{RuleKinds: []rules.Kind{quietKind{}}}
		if os.Getenv(notesVar) != "" {
			opt.Capabilities = []app.Capability{notes()}
		}
		in := app.New(kindConfig(dir), opt)
		err := in.Run(ctx, func() { fmt.Println(in.Listeners().At(operate.IngestListener)) }, nil)
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func kindConfig(dir string) config.Config {
	cfg := config.Default()
	cfg.DataDir = dir
	cfg.Presence.Grace = time.Millisecond // silence counts from the start on, also of a device that was not heard since
	cfg.Listeners = config.Listeners{API: "127.0.0.1:0", Ingest: "127.0.0.1:0", MQTT: "127.0.0.1:0", Metrics: "127.0.0.1:0"}
	return cfg
}

// kindProcess is a running instance with quietKind.
type kindProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	ingest string
}

// startKind starts it, with more variables set.
func startKind(t *testing.T, dir string, more ...string) *kindProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), kindDir+"="+dir)
	for _, name := range more {
		cmd.Env = append(cmd.Env, name+"=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &kindProcess{t: t, cmd: cmd}
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the instance did not start")
	}
	p.ingest = lines.Text()
	return p
}

// end ends the process with a signal and waits until it is gone.
func (p *kindProcess) end(s os.Signal) {
	_ = p.cmd.Process.Signal(s) // it may be gone already
	_ = p.cmd.Wait()
}

func (p *kindProcess) post(device int) {
	p.t.Helper()
	p.send(device, "1")
}

// send sends a reading of x, and returns once it is acknowledged.
func (p *kindProcess) send(device int, x string) {
	p.t.Helper()
	body := fmt.Sprintf(`{"credentialType":"ACCESS_TOKEN","credentialId":%q,"eventType":"Measurement","payload":{"entries":[{"measurements":{"x":%q}}]}}`,
		secretOf(device), x)
	resp, err := http.Post("http://"+p.ingest+"/weir/acme/events", "application/json", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusAccepted {
		p.t.Fatalf("device %d: status %d, %v", device, resp.StatusCode, err)
	}
}

// outlast lets device 1 send until device 0 has been quiet for longer than the rule's timeout.
func (p *kindProcess) outlast() {
	for since := time.Now(); time.Since(since) < 100*time.Millisecond; {
		p.post(1)
	}
	p.post(1)
}

// applied waits until the log is applied.
func (p *kindProcess) applied(cfg config.Config) {
	p.t.Helper()
	client, err := operate.Dial(p.t.Context(), cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	defer client.Close()
	(*instance)(nil).until(p.t, client, func(s *operate.Status) bool { return s.Log.Applied == s.Log.Last })
}

// TestKindOfRuleFromOutsideSurvivesAKill publishes a rule of a kind that the test registers. Its edges are the same
// whether the state comes from the pages of a stop or from a replay after a kill.
func TestKindOfRuleFromOutsideSurvivesAKill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	cfg := kindConfig(dir)
	p := startKind(t, dir)
	applyRuleSite(t, cfg, quietSite)
	p.post(0)
	p.outlast() // raised
	p.applied(cfg)
	p.end(syscall.SIGKILL)

	p = startKind(t, dir)
	p.post(0) // resolved; its timer is pending at the stop
	p.end(syscall.SIGTERM)
	p = startKind(t, dir)
	p.outlast() // raised
	p.post(0)   // resolved; its timer is pending at the kill
	p.end(syscall.SIGKILL)
	p = startKind(t, dir)
	p.outlast() // raised
	p.applied(cfg)
	p.end(syscall.SIGTERM)

	want := []string{"raised=1", "resolved=0", "raised=2", "resolved=0", "raised=3"}
	if got := edgesOf(t, dir, "quiet"); !slices.Equal(got, want) {
		t.Errorf("edges %q, want %q", got, want)
	}
}

func applyRuleSite(t *testing.T, cfg config.Config, text string) {
	t.Helper()
	at := t.TempDir()
	for file, text := range map[string]string{"site.yaml": text,
		"devices.csv": fmt.Sprintf("token,accessToken\nd0,%s\nd1,%s\n", secretOf(0), secretOf(1))} {
		if err := os.WriteFile(filepath.Join(at, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	doc, _, err := site.Read(site.Source{}, filepath.Join(at, "site.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := operate.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := operate.ApplySite.Ask(t.Context(), client, operate.SiteCommand{Document: doc}); err != nil {
		t.Fatal(err)
	}
}

// edgesOf returns the edges of device 0 under a rule that the store of a stopped instance has.
func edgesOf(t *testing.T, dir, rule string) []string {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var got []string
	err = db.Read(t.Context(), func(tx store.Tx) error {
		return store.Edges(tx, 1, func(e *model.Edge) error {
			if e.Series == "d0" && e.Rule == rule {
				got = append(got, fmt.Sprintf("%s=%g", e.Signal, e.Value))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
