package app_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/app"
	"weir/config"
	"weir/ingest"
	"weir/operate"
	"weir/store"
	"weir/store/sqlite"
)

// tally is a result of the log that the product does not have: the stored readings, in a table of its own.
type tally struct {
	ingest.ProjectionBase
	open, frozen int
}

func (p *tally) Record(_ context.Context, e *ingest.Event, _ *ingest.Effects) error {
	if e.Stored() {
		p.open += len(e.Record.Message.Measurements)
	}
	return nil
}

func (p *tally) Freeze(ingest.Checkpoint) { p.frozen, p.open = p.open, 0 }

func (p *tally) Publish(tx store.Tx) error {
	if p.frozen == 0 {
		return nil
	}
	_, err := tx.Exec(`UPDATE scratch_tally SET n = n + ?`, p.frozen)
	return err
}

// tallyDir is the variable with which the test binary becomes an instance that has the projection.
const tallyDir = "TALLY_DIR"

// TestTallyProcess is such an instance. It prints where it listens and the token of its device, and ends with its input.
func TestTallyProcess(t *testing.T) {
	dir := os.Getenv(tallyDir)
	if dir == "" {
		return // a part of the test below
	}
	cfg := config.Default()
	cfg.DataDir, cfg.Spool.ReplayBytes = dir, 2<<10
	cfg.Listeners = config.Listeners{API: "127.0.0.1:0", Ingest: "127.0.0.1:0", MQTT: "127.0.0.1:0", Metrics: "127.0.0.1:0"}
	in := app.New(cfg, app.Options{Projections: []ingest.Projection{&tally{}}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() }()
	if err := in.Run(ctx, func() { fmt.Printf("\nlistens %s\n", in.Listeners().At(operate.IngestListener)) }, nil); err != nil {
		t.Fatal(err)
	}
}

// tallied is a running instance with the projection.
type tallied struct{ *child }

func startTallied(t *testing.T, dir string) *tallied {
	t.Helper()
	return &tallied{startChild(t, "TestTallyProcess", tallyDir, dir)}
}

// post sends a message with two readings and waits until it is acknowledged.
func (p *tallied) post(t *testing.T, token string) {
	t.Helper()
	resp, err := http.Post("http://"+p.address+"/weir/acme/events", "application/json", strings.NewReader(`{"credentialType":"ACCESS_TOKEN","credentialId":"`+token+
		`","eventType":"Measurement","payload":{"entries":[{"measurements":{"a":"1","b":"2"}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("it answers %d, %v", resp.StatusCode, err)
	}
}

// stop ends the instance in order, with a last checkpoint.
func (p *tallied) stop(t *testing.T) {
	t.Helper()
	if err := p.stdin.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

// TestAProjectionFromOutsideCountsOnceThroughKills kills an instance whose log has a result that the product does not know,
// and starts it again: each acknowledged reading is counted once.
func TestAProjectionFromOutsideCountsOnceThroughKills(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	p := startTallied(t, dir)
	client, err := operate.Dial(t.Context(), config.Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operate.CreateTenant.Ask(t.Context(), client, operate.NewTenant{Token: "acme"}); err != nil {
		t.Fatal(err)
	}
	device, err := operate.AddDevice.Ask(t.Context(), client, operate.NewDevice{Tenant: "acme", Token: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	p.stop(t)
	inDatabase(t, dir, func(tx store.Tx) error {
		if _, err := tx.Exec(`CREATE TABLE scratch_tally (n INTEGER NOT NULL)`); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO scratch_tally (n) VALUES (0)`)
		return err
	})
	const kills, messages = 4, 60
	for range kills {
		p = startTallied(t, dir)
		for range messages {
			p.post(t, device.Secret)
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait() // says that it was killed
	}
	startTallied(t, dir).stop(t)
	var n, checkpoints int
	inDatabase(t, dir, func(tx store.Tx) error {
		if err := tx.QueryRow(`SELECT n FROM scratch_tally`).Scan(&n); err != nil {
			return err
		}
		_, gen, err := store.CheckpointState(tx)
		checkpoints = int(gen)
		return err
	})
	if want := 2 * kills * messages; n != want || checkpoints < 2*kills {
		t.Errorf("%d readings are counted in %d checkpoints, want %d", n, checkpoints, want)
	}
}

// inDatabase runs a function in the database of an instance that does not run.
func inDatabase(t *testing.T, dir string, fn func(store.Tx) error) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Write(t.Context(), store.Durable, fn); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
