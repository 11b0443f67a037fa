package app_test

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/app"
	"weir/config"
	"weir/health"
	"weir/ingest"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
	"weir/model"
	"weir/operate"
)

// barrier is a projection that keeps the applier at a record until it is lifted.
type barrier struct {
	ingest.ProjectionBase
	reached chan struct{} // closed with the first record
	once    sync.Once
	mu      sync.Mutex
	lifted  chan struct{}
}

func newBarrier() *barrier {
	return &barrier{reached: make(chan struct{}), lifted: make(chan struct{})}
}

func barriers(b *barrier) []ingest.Projection { return []ingest.Projection{b} }

// hold lets the barrier down again until what it returns is closed.
func (b *barrier) hold() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lifted = make(chan struct{})
	return b.lifted
}

func (b *barrier) Record(ctx context.Context, _ *ingest.Event, _ *ingest.Effects) error {
	b.once.Do(func() { close(b.reached) })
	b.mu.Lock()
	lifted := b.lifted
	b.mu.Unlock()
	select {
	case <-lifted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// killed is the directory of an instance that was ended as by a power cut, with readings in its log that no checkpoint covers: the
// files as they were while it ran.
func (in *instance) killed(t *testing.T, readings int) *instance {
	t.Helper()
	for range readings {
		if code, _, err := in.post(); err != nil || code != http.StatusAccepted {
			t.Fatalf("%d, %v", code, err)
		}
	}
	cut := *in
	cut.cfg.DataDir = filepath.Join(t.TempDir(), "cut")
	err := filepath.WalkDir(in.cfg.DataDir, func(path string, d fs.DirEntry, err error) error {
		to := filepath.Join(cut.cfg.DataDir, strings.TrimPrefix(path, in.cfg.DataDir))
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(to, 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return &cut
}

// startOf is a start that goes on in the background.
type startOf struct {
	*instance
	serving, ready chan struct{}
	cancel         context.CancelFunc
	ended          chan error
}

// starts starts an instance on the directory and returns once devices are served.
func (in *instance) starts(t *testing.T, opt app.Options) *startOf {
	t.Helper()
	s := &startOf{serving: make(chan struct{}), ready: make(chan struct{}), ended: make(chan error, 1)}
	opt.Serving = func() { close(s.serving) }
	s.instance = &instance{Instance: app.New(in.cfg, opt), cfg: in.cfg, device: in.device, token: in.token}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() { s.ended <- s.Run(ctx, func() { close(s.ready) }, nil) }()
	t.Cleanup(func() {
		cancel()
		err := <-s.ended
		s.ended <- err
	})
	select {
	case <-s.serving:
	case err := <-s.ended:
		s.ended <- err
		t.Fatalf("the start ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("devices are not served")
	}
	return s
}

func (s *startOf) stop() error {
	s.cancel()
	err := <-s.ended
	s.ended <- err
	return err
}

func (in *instance) query(t *testing.T, area, query string) (*http.Response, string) {
	t.Helper()
	resp, body, err := testweir.GraphQL{API: "http://" + in.Listeners().At(operate.APIListener), Area: area, Query: query}.Post(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func (in *instance) client(t *testing.T) *operate.Client {
	t.Helper()
	c, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// stored counts the stored readings, as the local operator.
func (in *instance) stored(t *testing.T) int {
	t.Helper()
	got, err := operate.RunGraphQL.Ask(t.Context(), in.client(t), operate.GraphQLRequest{Tenant: "acme", Area: "event-management",
		Query: `{measurementEvents(criteria:{pageNumber:1,pageSize:1}){asOf pagination{totalRecords}}}`})
	if err != nil {
		t.Fatal(err)
	}
	var data struct {
		MeasurementEvents struct {
			AsOf       string
			Pagination struct{ TotalRecords int }
		}
	}
	if err := json.Unmarshal(got.Data, &data); err != nil || data.MeasurementEvents.AsOf == "" {
		t.Fatalf("%v: %s", err, got.Data)
	}
	return data.MeasurementEvents.Pagination.TotalRecords
}

// A log that cannot be applied yet keeps no device waiting: PUBACK and 202 come while queries are refused with the progress.
func TestDevicesAreServedWhileTheLogIsAppliedAndQueriesWait(t *testing.T) {
	t.Parallel()
	const before = 5
	b := newBarrier()
	in := runInstance(t, nil).killed(t, before).starts(t, app.Options{Projections: barriers(b)})
	<-b.reached
	if _, err := in.publish(t).Puback(); err != nil {
		t.Fatalf("no PUBACK: %v", err)
	}
	if code, _, err := in.post(); err != nil || code != http.StatusAccepted {
		t.Fatalf("a reading over HTTP: %d, %v", code, err)
	}
	select {
	case <-in.ready:
		t.Fatal("the instance is ready before the log is applied")
	default:
	}
	t.Run("queries", func(t *testing.T) { in.refusesQueries(t) })
	t.Run("operator", func(t *testing.T) { in.saysHowFarItIs(t) })
	close(b.lifted)
	<-in.ready
	poll.True(t, "everything is applied", func() bool { return in.status(t).Log.Applied == in.status(t).Log.Last })
	if n := in.stored(t); n != before+2 {
		t.Errorf("%d readings are stored, want %d", n, before+2)
	}
	if s := in.status(t); s.Unbalanced != 0 || s.Replay != nil || !s.Ready {
		t.Errorf("afterwards: %+v", s)
	}
	if resp, body := in.query(t, "event-processing", `{eventProcessingInfo{functionalArea}}`); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %s, %s", resp.Status, body)
	}
}

func (s *startOf) refusesQueries(t *testing.T) {
	for _, area := range []string{"event-management", "device-state", "event-processing"} {
		resp, body := s.query(t, area, `{__typename}`)
		after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != http.StatusServiceUnavailable || err != nil || after < 1 || !strings.Contains(body, `"code":"UNAVAILABLE"`) || strings.Contains(body, "recordsToApply") {
			t.Errorf("%s: %s, Retry-After %q, %s", area, resp.Status, resp.Header.Get("Retry-After"), body)
		}
	}
	for _, area := range []string{"user-management", "device-management"} {
		if resp, body := s.query(t, area, `{__typename}`); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %s", area, resp.Status, body)
		}
	}
	got, err := operate.RunGraphQL.Ask(t.Context(), s.client(t), operate.GraphQLRequest{Tenant: "acme", Area: "device-state", Query: `{__typename}`})
	if err != nil || len(got.Errors) != 1 || got.Errors[0].Extensions.Code != model.CodeUnavailable || !strings.Contains(got.Errors[0].Message, "records are applied") {
		t.Errorf("the operator's query: %+v, %v", got, err)
	}
	resp, err := http.Get("http://" + s.Listeners().At(operate.APIListener) + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %s", resp.Status)
	}
}

func (s *startOf) saysHowFarItIs(t *testing.T) {
	st := s.status(t)
	if st.Ready || st.Replay == nil || st.Replay.Records == 0 || st.Replay.Applied >= st.Replay.Records || st.Unbalanced != 0 || st.Log.AsOf.After(st.StartedAt) {
		t.Errorf("status %+v", st)
	}
	h, err := operate.AskHealth(t.Context(), s.cfg)
	if err != nil || h.State != operate.HealthNotReady || len(h.Problems) != 1 || !strings.Contains(h.Problems[0], "devices are served") || h.Waiting == 0 {
		t.Errorf("health %+v, %v", h, err)
	}
	report, err := operate.RunDoctor.Ask(t.Context(), s.client(t), operate.DoctorQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.ID == "instance" && (f.Result != health.Warning || !strings.Contains(f.Text, "is being applied")) {
			t.Errorf("doctor: %+v", f)
		}
	}
	if _, err := operate.ShowLedger.Ask(t.Context(), s.client(t), operate.LedgerQuery{}); model.CodeOf(err) != model.CodeUnavailable {
		t.Errorf("the ledger: %v", err)
	}
	resp, err := http.Get("http://" + s.Listeners().At(operate.MetricsListener) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	for _, name := range []string{"weir_eventprocessing_detect_consumer_pending", "weir_eventprocessing_detect_lag_seconds"} {
		if !strings.Contains(text, "\n"+name+" ") || strings.Contains(text, "\n"+name+" 0\n") {
			t.Errorf("%s is not live", name)
		}
	}
}

// A stop in the middle is a clean one, and the start after it has everything once. What was changed meanwhile is kept, too.
func TestAStopWhileTheLogIsAppliedIsCleanAndLosesNothing(t *testing.T) {
	t.Parallel()
	const before = 5
	cut := runInstance(t, nil).killed(t, before)
	b := newBarrier()
	in := cut.starts(t, app.Options{Projections: barriers(b)})
	<-b.reached
	if code, _, err := in.post(); err != nil || code != http.StatusAccepted {
		t.Fatalf("%d, %v", code, err)
	}
	if _, err := operate.AddDevice.Ask(t.Context(), in.client(t), operate.NewDevice{Tenant: "acme", Token: "made-meanwhile"}); err != nil {
		t.Fatalf("a device is not made: %v", err)
	}
	if err := in.stop(); err != nil {
		t.Fatalf("the stop: %v", err)
	}
	if _, err := os.Stat(operate.CleanPath(cut.cfg.DataDir)); err != nil {
		t.Errorf("the stop is not marked as clean: %v", err)
	}
	next, _, err := cut.again(t, app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := next.stored(t); n != before+1 {
		t.Errorf("%d readings are stored, want %d", n, before+1)
	}
	if s := next.status(t); !s.LastStop.Clean || s.Unbalanced != 0 {
		t.Errorf("afterwards: %+v", s)
	}
}

// A stop that comes while the parts still start ends without an error: nobody has to look at why.
func TestAStopDuringTheStartIsClean(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir() + "/d"
	cfg.Listeners = config.Listeners{API: "127.0.0.1:0", Ingest: "127.0.0.1:0", MQTT: "127.0.0.1:0", Metrics: "127.0.0.1:0"}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := app.New(cfg, app.Options{}).Run(ctx, func() { t.Error("it is ready") }, nil); err != nil {
		t.Errorf("the stop: %v", err)
	}
}

// A kill in the middle, with devices that were served meanwhile: the start after it has everything once.
func TestAKillWhileTheLogIsAppliedLosesNothing(t *testing.T) {
	t.Parallel()
	const before, meanwhile = 5, 3
	b := newBarrier()
	in := runInstance(t, nil).killed(t, before).starts(t, app.Options{Projections: barriers(b)})
	<-b.reached
	twice := in.killed(t, meanwhile)
	again := twice.starts(t, app.Options{Projections: barriers(newBarrier())}).killed(t, meanwhile)
	next, _, err := again.again(t, app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := next.stored(t); n != before+2*meanwhile {
		t.Errorf("%d readings are stored, want %d", n, before+2*meanwhile)
	}
	if s := next.status(t); s.Unbalanced != 0 {
		t.Errorf("afterwards: %+v", s)
	}
}

// A boot that ended before its clock was set left records without a time of day: the listeners wait until they are applied, since
// a stamp must not lie before them.
func TestListenersWaitForALogWhoseEndHasNoTimeOfDay(t *testing.T) {
	t.Parallel()
	began := time.Now()
	cut := runInstanceWith(t, app.Options{Now: func() (time.Time, time.Duration) {
		mono := time.Since(began)
		return time.Unix(0, 0).Add(mono), mono
	}}).killed(t, 3)
	b := newBarrier()
	var served atomic.Bool
	waits := make(chan string, 100)
	opt := app.Options{Projections: barriers(b), Serving: func() { served.Store(true) }, Waits: func(text string, _ time.Duration) { waits <- text }}
	next := &instance{Instance: app.New(cut.cfg, opt), cfg: cut.cfg, device: cut.device, token: cut.token}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	ready := make(chan struct{})
	go func() { ended <- next.Run(ctx, func() { close(ready) }, nil) }()
	t.Cleanup(func() { cancel(); err := <-ended; ended <- err })
	select {
	case text := <-waits:
		if !strings.Contains(text, "starting: what was acknowledged before the start is being applied, 0 of") {
			t.Errorf("it says %q", text)
		}
	case err := <-ended:
		ended <- err
		t.Fatalf("the start ended: %v", err)
	}
	if at := next.Listeners().At(operate.MQTTListener); at != "" || served.Load() {
		t.Errorf("devices are served, the broker listens at %s", at)
	}
	close(b.lifted)
	<-ready
	if n := next.stored(t); n != 3 {
		t.Errorf("%d readings are stored, want 3", n)
	}
}
