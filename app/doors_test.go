package app_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/app"
	"weir/config"
	"weir/internal/setting"
	"weir/internal/test/conformance"
	"weir/internal/test/testweir"
	"weir/mqttsource"
	"weir/operate"
)

// instance runs in this process, so that the test can stand around its syncs.
type instance struct {
	*app.Instance
	cfg    config.Config
	device string
	token  string
	stop   func()
}

func runInstance(t *testing.T, sync func(func() error) error) *instance {
	t.Helper()
	return runInstanceWith(t, app.Options{Sync: sync})
}

func runInstanceWith(t *testing.T, opt app.Options) *instance {
	t.Helper()
	return runInstanceSet(t, opt, func(*config.Config) {})
}

// aSource is a source of external_mqtt whose broker does not answer: its metrics are there.
func aSource(c *config.Config) {
	var s mqttsource.Source
	setting.SetDefaults(&s)
	s.ID, s.Host, s.Port = "plant", "127.0.0.1", 1
	c.MQTTSource.Sources = append(c.MQTTSource.Sources, s)
}

// runInstanceSet runs an instance whose configuration the function has changed.
func runInstanceSet(t *testing.T, opt app.Options, set func(*config.Config)) *instance {
	t.Helper()
	cfg := config.Default()
	set(&cfg)
	cfg.DataDir = t.TempDir() + "/d"
	cfg.Listeners = config.Listeners{API: "127.0.0.1:0", Ingest: "127.0.0.1:0", MQTT: "127.0.0.1:0", LwM2M: "127.0.0.1:0", Metrics: "127.0.0.1:0"}
	in := &instance{Instance: app.New(cfg, opt), cfg: cfg, device: "d1"}
	ctx := context.Background()
	in.run(t, ctx)
	client, err := operate.Dial(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := operate.CreateTenant.Ask(ctx, client, operate.NewTenant{Token: "acme"}); err != nil {
		t.Fatal(err)
	}
	d, err := operate.AddDevice.Ask(ctx, client, operate.NewDevice{Tenant: "acme", Token: in.device})
	if err != nil {
		t.Fatal(err)
	}
	in.token = d.Secret
	return in
}

// run starts the instance; it stops with stop, at the latest with the test.
func (in *instance) run(t *testing.T, ctx context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- in.Run(ctx, func() { close(ready) }, nil) }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatal(err)
	}
	in.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the stop: %v", err)
		}
	})
	t.Cleanup(in.stop)
}

func (in *instance) post() (int, http.Header, error) {
	resp, err := http.Post("http://"+in.Listeners().At(operate.IngestListener)+"/weir/acme/events", "application/json",
		strings.NewReader(`{"credentialType":"ACCESS_TOKEN","credentialId":"`+in.token+`","eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1"}}]}}`))
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header, err
}

func (in *instance) publish(t *testing.T) *testweir.MQTT {
	t.Helper()
	m, err := testweir.DialMQTT(in.Listeners().At(operate.MQTTListener), "weir", "acme", in.device, in.token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.Publish("weir/acme/devices/d1/events", 1, false, []byte(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1"}}]}}`)); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestNeitherPubackNor202BeforeTheSyncReturns(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	held, hold := make(chan struct{}, 100), make(chan struct{})
	in := runInstance(t, func(sync func() error) error {
		if armed.Load() {
			held <- struct{}{}
			<-hold
		}
		return sync()
	})
	armed.Store(true)
	m := in.publish(t)
	<-held // the batch that holds the publish, or the connect before it, stands before its sync
	acked, posted := make(chan error, 1), make(chan int, 1)
	go func() {
		_, err := m.Puback()
		acked <- err
	}()
	go func() {
		status, _, _ := in.post()
		posted <- status
	}()
	select {
	case err := <-acked:
		t.Fatalf("a PUBACK came before the sync: %v", err)
	case status := <-posted:
		t.Fatalf("HTTP answered %d before the sync", status)
	case <-time.After(300 * time.Millisecond): // nothing may come, however long; a real clock, for real sockets
	}
	armed.Store(false)
	close(hold)
	if err := <-acked; err != nil {
		t.Errorf("after the sync: %v", err)
	}
	if status := <-posted; status != http.StatusAccepted {
		t.Errorf("after the sync HTTP answered %d", status)
	}
}

func TestAFailingSyncAcknowledgesNothingAtTheDoors(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	in := runInstance(t, func(sync func() error) error {
		if failing.Load() {
			return errors.New("the disk is gone")
		}
		return sync()
	})
	failing.Store(true)
	status, header, err := in.post()
	if err != nil || status != http.StatusServiceUnavailable || header.Get("Retry-After") != "" {
		t.Errorf("HTTP: %d %v %v; want 503 without Retry-After", status, header, err)
	}
	conformance.Shown(t, "S2-021")
	m := in.publish(t)
	if err := m.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if id, err := m.Puback(); err == nil {
		t.Errorf("a PUBACK for %d though the sync failed", id)
	}
	failing.Store(false)
	if status, _, err := in.post(); err != nil || status != http.StatusAccepted {
		t.Errorf("after the disk came back: %d, %v", status, err)
	}
}

func TestAPortThatIsTakenIsReplacedOnlyWhereAnyWillDo(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := config.Default()
	cfg.Listeners = config.Listeners{API: taken.Addr().String()}
	for _, anyPort := range []bool{false, true} {
		cfg.DataDir = t.TempDir() + "/d"
		in := app.New(cfg, app.Options{AnyPort: anyPort})
		ctx, stop := context.WithCancel(t.Context())
		came := false
		err := in.Run(ctx, func() {
			came = true
			if at := in.Listeners().At(operate.APIListener); at == "" || at == taken.Addr().String() {
				t.Errorf("the API is at %q", at)
			}
			stop()
		}, nil)
		stop()
		if came != anyPort || (err == nil) != anyPort {
			t.Errorf("any port %v: came up %v, %v", anyPort, came, err)
		}
	}
}
