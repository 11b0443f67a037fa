package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/app"
	"weir/auth"
	"weir/config"
	"weir/ingest"
	"weir/ingest/trace"
	"weir/internal/test/loopback"
	"weir/model"
	"weir/operate"
)

// lines is a transport that the product does not have: lines over TCP. The first is "tenant token", each further one a number,
// the reading. It answers "kept" with the number once that is on disk.
type lines struct {
	app.TransportDeps

	mu       sync.Mutex
	bound    map[net.Conn]model.Binding
	status   ingest.SourceStatus
	shut     bool
	handlers sync.WaitGroup
	answered atomic.Int64
}

// linesTransport is what an instance needs to have it. made gets each one that is built; nil: none.
func linesTransport(made chan<- *lines) app.Transport {
	return app.Transport{
		Name: "lines", Source: "lines1",
		Listeners: func(config.Config) []operate.Listener {
			return []operate.Listener{{Name: "plain_lines", Key: "lines.listen", Configured: "127.0.0.1:0", Protocol: "lines", Access: "numbers; a credential per connection"}}
		},
		New: func(d app.TransportDeps) (app.Served, error) {
			l := &lines{TransportDeps: d, bound: map[net.Conn]model.Binding{}, status: ingest.SourceStatus{ID: d.Source, Kind: "lines", State: ingest.SourceDown}}
			if made != nil {
				made <- l
			}
			return app.Served{Transport: l}, nil
		},
	}
}

func (l *lines) Name() string { return l.status.Kind }

func (l *lines) Run(ctx context.Context) error {
	l.enter(ingest.SourceUp)
	socket := l.Sockets[0]
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	for {
		c, err := socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		l.handlers.Go(func() { l.serve(ctx, c) })
	}
}

// Close lets those that are connected send nothing more, and waits until they have their answers.
func (l *lines) Close(context.Context) error {
	l.enter(ingest.SourceShut)
	err := l.Sockets[0].Close()
	l.mu.Lock()
	l.shut = true
	for c := range l.bound {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
	l.mu.Unlock()
	l.handlers.Wait()
	return err
}

func (l *lines) Drop(match func(model.Binding) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, b := range l.bound {
		if match(b) {
			_ = c.Close()
		}
	}
}

func (l *lines) Sources() []ingest.SourceStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	s.Counts.Connected = int64(len(l.bound))
	return []ingest.SourceStatus{s}
}

func (l *lines) enter(s ingest.SourceState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.State, l.status.Since = s, time.Now()
}

func (l *lines) serve(ctx context.Context, c net.Conn) {
	defer c.Close()
	in := bufio.NewScanner(c)
	if !in.Scan() {
		return
	}
	tenant, token, _ := strings.Cut(in.Text(), " ")
	b, ok := l.admit(ctx, c, auth.Claim{Tenant: tenant, Type: "ACCESS_TOKEN", ID: token})
	if !ok {
		l.Refused(tenant, "", "not authorized", "")
		return
	}
	var answering sync.WaitGroup
	defer func() {
		answering.Wait()
		l.mu.Lock()
		delete(l.bound, c)
		l.mu.Unlock()
	}()
	var out sync.Mutex
	for in.Scan() {
		text := in.Text()
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			l.Intake.Refuse(l.Intake.Received(l.Name(), l.Source, tenant, len(text)), ingest.ReasonUndecodable)
			continue
		}
		l.mu.Lock()
		l.status.Counts.Received++
		l.status.LastMessage = time.Now()
		l.mu.Unlock()
		answering.Add(1)
		l.Intake.Accept(ctx, &ingest.Arrival{Transport: l.Name(), Source: l.Source, Tenant: tenant, Topic: b.Device, Body: []byte(text), Conn: &b, HoldFor: -1,
			Message: &model.Message{Type: model.MeasurementEvent, Measurements: []model.Reading{{Metric: "n", Value: v}}}},
			func(a ingest.Answer) {
				defer answering.Done()
				l.answered.Add(1)
				out.Lock()
				defer out.Unlock()
				if a.Outcome == ingest.Stored {
					_, _ = fmt.Fprintln(c, "kept", text) // the sender may be gone
				}
			})
	}
}

// admit binds a connection to the device that its first line proves.
func (l *lines) admit(ctx context.Context, c net.Conn, claim auth.Claim) (b model.Binding, ok bool) {
	p, err := l.Verifier.Verify(ctx, claim)
	if err != nil {
		return b, false
	}
	b = model.Binding{Tenant: p.Tenant, TenantID: p.TenantID, Device: p.Device, DeviceID: p.DeviceID, Credential: p.CredentialID}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut || !l.Verifier.Fresh(p) {
		return b, false
	}
	l.bound[c] = b
	return b, true
}

// lineSender is the other end of a connection.
type lineSender struct {
	net.Conn
	in *bufio.Scanner
}

func dialLines(t *testing.T, address, token string) *lineSender {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintln(c, "acme", token); errors.Join(err, c.SetDeadline(time.Now().Add(30*time.Second))) != nil {
		t.Fatal(err)
	}
	return &lineSender{c, bufio.NewScanner(c)}
}

// kept returns the next number that was acknowledged; ok is false once the connection has ended.
func (s *lineSender) kept() (n int, ok bool) {
	if !s.in.Scan() {
		return 0, false
	}
	_, err := fmt.Sscanf(s.in.Text(), "kept %d", &n)
	return n, err == nil
}

// TestATransportFromOutsideIsOneOfTheInstance: its listener is opened and shown with the others, its messages are
// acknowledged after the sync, its connections end with their credentials, and its source goes down with the instance.
func TestATransportFromOutsideIsOneOfTheInstance(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	held, hold := make(chan struct{}, 100), make(chan struct{})
	made := make(chan *lines, 1)
	var out strings.Builder
	in := runInstanceWith(t, app.Options{Transports: []app.Transport{linesTransport(made)}, Out: &out, Sync: func(sync func() error) error {
		if armed.Load() {
			held <- struct{}{}
			<-hold
		}
		return sync()
	}})
	client, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	address := in.Listeners().At("plain_lines")
	checkShown(t, client, address, out.String())

	s := dialLines(t, address, in.token)
	armed.Store(true)
	fmt.Fprintln(s, 7)
	<-held
	l := <-made
	if n := l.answered.Load(); n != 0 {
		t.Errorf("%d messages were answered before the sync", n)
	}
	armed.Store(false)
	close(hold)
	if n, ok := s.kept(); n != 7 || !ok {
		t.Fatalf("%d was acknowledged, want 7", n)
	}
	if got := sourceOf(t, in.Sources()); got.State != ingest.SourceUp || got.Counts != (ingest.SourceCounts{Connected: 1, Received: 1}) || got.LastMessage.IsZero() {
		t.Errorf("the source is %+v", got)
	}
	resp, err := operate.RunGraphQL.Ask(t.Context(), client, operate.GraphQLRequest{Area: "device-management", Tenant: "acme",
		Query: `mutation($t: String!) { deleteDevice(token: $t) }`, Variables: map[string]any{"t": in.device}})
	if err != nil || resp.Err() != nil {
		t.Fatal(err, resp.Err())
	}
	if n, ok := s.kept(); ok || errors.Is(s.in.Err(), os.ErrDeadlineExceeded) {
		t.Errorf("the connection of a device that was deleted goes on: %d, %v", n, s.in.Err())
	}
	in.stop()
	if got := sourceOf(t, l.Sources()); got.State != ingest.SourceShut || got.Counts.Connected != 0 {
		t.Errorf("after the stop the source is %+v", got)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("after the stop the listener is open")
	}
}

func sourceOf(t *testing.T, all []ingest.SourceStatus) ingest.SourceStatus {
	t.Helper()
	for _, s := range all {
		if s.ID == "lines1" && s.Kind == "lines" {
			return s
		}
	}
	t.Fatalf("no source is reported: %+v", all)
	return ingest.SourceStatus{}
}

// checkShown looks for the listener in the banner, the status and the findings.
func checkShown(t *testing.T, client *operate.Client, address, banner string) {
	t.Helper()
	if !strings.Contains(banner, fmt.Sprintf("  %-12s %-24s numbers; a credential per connection; no TLS\n", "plain_lines", address)) {
		t.Errorf("the banner lacks %s:\n%s", address, banner)
	}
	status, err := operate.GetStatus.Ask(t.Context(), client, operate.None{})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(status.Listeners); err != nil || status.Listeners.At("plain_lines") != address || !strings.Contains(string(text), `,"plainLines":"`+address+`",`) {
		t.Errorf("the status has %s, %v", text, err)
	}
	report, err := operate.RunDoctor.Ask(t.Context(), client, operate.DoctorQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.ID == "ports" && !strings.Contains(f.Text, address) {
			t.Errorf("ports: %s", f.Text)
		}
	}
}

// linesDir is the variable with which the test binary becomes an instance that has the transport.
const linesDir = "LINES_DIR"

// TestLinesProcess is such an instance. It prints where the transport listens, and ends with its input.
func TestLinesProcess(t *testing.T) {
	dir := os.Getenv(linesDir)
	if dir == "" {
		return // a part of the test below
	}
	cfg := config.Default()
	cfg.DataDir, cfg.Spool.ReplayBytes = dir, 8<<10
	cfg.Listeners = config.Listeners{}
	in := app.New(cfg, app.Options{Transports: []app.Transport{linesTransport(nil)}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() }()
	if err := in.Run(ctx, func() { fmt.Printf("\nlistens %s\n", in.Listeners().At("plain_lines")) }, nil); err != nil {
		t.Fatal(err)
	}
}

// linesProcess is a running instance with the transport.
type linesProcess struct{ *child }

func startLines(t *testing.T, dir string) *linesProcess {
	t.Helper()
	return &linesProcess{startChild(t, "TestLinesProcess", linesDir, dir)}
}

// stop ends the instance in order; it must report no error.
func (p *linesProcess) stop(t *testing.T) {
	t.Helper()
	if err := errors.Join(p.stdin.Close(), p.Wait()); err != nil {
		t.Error(err)
	}
}

// TestReadingsOfATransportFromOutsideSurviveKills kills the instance while a device sends over a transport that the product
// does not know: each acknowledged reading is stored exactly once, and the ledger of its source balances.
func TestReadingsOfATransportFromOutsideSurviveKills(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = filepath.Join(t.TempDir(), "d")
	p := startLines(t, cfg.DataDir)
	token := furnishLines(t, cfg)
	const kills, before = 3, 200 // acknowledgements before a kill
	sent := 0
	acked := map[int]bool{}
	for range kills {
		sent = p.killAmid(t, token, before, sent, acked)
		p = startLines(t, cfg.DataDir)
	}
	client, err := operate.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	status := (*instance)(nil).until(t, client, func(s *operate.Status) bool { return s.Log.Applied == s.Log.Last })
	if status.LastStop.Clean {
		t.Error("the kill was a clean stop")
	}
	stored := storedLines(t, client)
	for n := range sent {
		if got := stored[n]; got > 1 || got == 0 && acked[n] {
			t.Errorf("%d is stored %d times, acknowledged: %v", n, got, acked[n])
		}
	}
	if len(acked) < kills*before || len(stored) > sent {
		t.Errorf("%d sent, %d acknowledged, %d stored", sent, len(acked), len(stored))
	}
	checkLinesLedger(t, client, len(stored))
	p.stop(t)
	rest := app.AtRest(cfg, func(string) string { return "" }, slog.New(slog.DiscardHandler))
	v, err := operate.VerifyLedger.Ask(t.Context(), rest, func(int64, int64) {})
	if err != nil || !v.Balanced || v.Messages != int64(len(stored)) || v.Waiting != 0 {
		t.Errorf("the recount says %+v, %v; want %d messages", v, err, len(stored))
	}
	if err := rest.Close(); err != nil {
		t.Error(err)
	}
}

// killAmid sends numbers from next on, several at a time, and kills the instance once enough are acknowledged. It returns
// the first number that was not sent.
func (p *linesProcess) killAmid(t *testing.T, token string, enough, next int, acked map[int]bool) int {
	t.Helper()
	const window = 16
	s := dialLines(t, p.address, token)
	for open, here := 0, 0; ; {
		for ; open < window; open++ {
			if _, err := fmt.Fprintln(s, next); err != nil {
				break // it is dead
			}
			next++
		}
		n, ok := s.kept()
		if !ok {
			break
		}
		acked[n] = true
		open--
		if here++; here == enough {
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = p.Wait() // says that it was killed
	return next
}

// furnishLines makes a tenant with a device and returns its access token.
func furnishLines(t *testing.T, cfg config.Config) string {
	t.Helper()
	client, err := operate.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := operate.CreateTenant.Ask(t.Context(), client, operate.NewTenant{Token: "acme"}); err != nil {
		t.Fatal(err)
	}
	d, err := operate.AddDevice.Ask(t.Context(), client, operate.NewDevice{Tenant: "acme", Token: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	return d.Secret
}

// storedLines returns how many times each number is stored.
func storedLines(t *testing.T, client *operate.Client) map[int]int {
	t.Helper()
	resp, err := operate.RunGraphQL.Ask(t.Context(), client, operate.GraphQLRequest{Area: "event-management", Tenant: "acme",
		Query: `{ measurementEvents(criteria: {pageNumber: 1, pageSize: 1000, deviceToken: "d1"}) { results { name value } } }`})
	if err != nil || resp.Err() != nil {
		t.Fatal(err, resp.Err())
	}
	var page struct {
		MeasurementEvents struct {
			Results []struct {
				Name  string
				Value float64
			}
		}
	}
	if err := json.Unmarshal(resp.Data, &page); err != nil {
		t.Fatal(err)
	}
	stored := map[int]int{}
	for _, r := range page.MeasurementEvents.Results {
		if r.Name != "n" {
			t.Errorf("a metric %s is stored", r.Name)
		}
		stored[int(r.Value)]++
	}
	return stored
}

// checkLinesLedger holds the ledger of the transport, and what is known of each message, against what is stored.
func checkLinesLedger(t *testing.T, client *operate.Client, stored int) {
	t.Helper()
	ledger, err := operate.ShowLedger.Ask(t.Context(), client, operate.LedgerQuery{Transport: "lines"})
	if err != nil {
		t.Fatal(err)
	}
	var received, ended int64
	for _, l := range ledger.Lines {
		received += l.Received
		ended += l.Outcomes["stored"]
		if l.Missing != 0 {
			t.Errorf("the ledger does not balance: %+v", l)
		}
	}
	if received != int64(stored) || ended != received {
		t.Errorf("the ledger has %d received and %d stored, want %d", received, ended, stored)
	}
	traced, err := operate.TraceDevice.Ask(t.Context(), client, trace.Query{Tenant: "acme", Device: "d1", Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)})
	if err != nil || len(traced.Messages) != stored {
		t.Fatalf("%d messages are traced, want %d: %v", len(traced.Messages), stored, err)
	}
	for _, m := range traced.Messages {
		if m.Transport != "lines" {
			t.Errorf("a message came over %q", m.Transport)
		}
	}
}

// TestATransportThatCannotStartLeavesNoSocketOpen: neither one that fails to be built nor one whose second listener is taken.
func TestATransportThatCannotStartLeavesNoSocketOpen(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	for name, second := range map[string]string{"the second listener is taken": taken.Addr().String(), "it fails": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := loopback.Free(t)
			broken := errors.New("it is broken")
			kind := app.Transport{Name: "broken", Source: "broken1",
				Listeners: func(config.Config) []operate.Listener {
					return []operate.Listener{{Name: "first", Key: "broken.first", Configured: address}, {Name: "second", Key: "broken.second", Configured: second}}
				},
				New: func(d app.TransportDeps) (app.Served, error) {
					if len(d.Sockets) != 1 || d.Sockets[0].About.Name != "first" || d.Sockets[0].Addr().String() != address {
						t.Errorf("it is given %+v", d.Sockets)
					}
					return app.Served{}, broken
				}}
			cfg := config.Default()
			cfg.DataDir, cfg.Listeners = t.TempDir()+"/d", config.Listeners{}
			err := app.New(cfg, app.Options{Transports: []app.Transport{kind}}).Run(t.Context(), func() { t.Error("it is ready") }, nil)
			if second == "" && !errors.Is(err, broken) || second != "" && !strings.Contains(fmt.Sprint(err), "broken.second: "+second+" is in use by another process") {
				t.Errorf("got %v", err)
			}
			if again, err := net.Listen("tcp", address); err != nil {
				t.Errorf("its socket is still open: %v", err)
			} else if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
