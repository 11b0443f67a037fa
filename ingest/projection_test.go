package ingest_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"weir/ingest"
	"weir/internal/test/draws"
	"weir/store"
)

// tally is a scratch projection: the stored readings of each device, in a table of its own. Counts wait in memory for the
// checkpoint, each loud reading has a row at once.
type tally struct {
	ingest.ProjectionBase
	open, frozen deltas
}

// deltas are what changed since a checkpoint. A row id is never used again, so that ended devices come first.
type deltas struct {
	ended    []int64
	readings map[int64]int64
}

func newTally() []ingest.Projection {
	return []ingest.Projection{&tally{open: deltas{readings: map[int64]int64{}}}}
}

const loud = 100

func (p *tally) Record(_ context.Context, e *ingest.Event, out *ingest.Effects) error {
	if !e.Stored() {
		return nil
	}
	for i, m := range e.Record.Message.Measurements {
		p.open.readings[e.DeviceID]++
		if m.Value > loud {
			at, device := e.At.Offset, e.DeviceID
			out.Step(func(tx store.Tx) error {
				_, err := tx.Exec(`INSERT INTO scratch_loud (log_offset, idx, device) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, int64(at), i, device)
				return err
			})
		}
	}
	return nil
}

func (p *tally) RemoveDevice(_ context.Context, e *ingest.Event, _ *ingest.Effects) error {
	delete(p.open.readings, e.DeviceID)
	p.open.ended = append(p.open.ended, e.DeviceID)
	return nil
}

func (p *tally) Freeze(ingest.Checkpoint) {
	p.frozen, p.open = p.open, deltas{readings: map[int64]int64{}}
}

func (p *tally) Publish(tx store.Tx) error {
	for _, device := range p.frozen.ended {
		if _, err := tx.Exec(`DELETE FROM scratch_readings WHERE device = ?`, device); err != nil {
			return err
		}
	}
	for device, n := range p.frozen.readings {
		if _, err := tx.Exec(`INSERT INTO scratch_readings (device, n) VALUES (?, ?)
			ON CONFLICT (device) DO UPDATE SET n = scratch_readings.n + excluded.n`, device, n); err != nil {
			return err
		}
	}
	return nil
}

// counts reads pairs of numbers.
func counts(t *testing.T, db store.Store, query string) map[int64]int64 {
	t.Helper()
	out := map[int64]int64{}
	if err := db.Read(t.Context(), func(tx store.Tx) error {
		rows, err := tx.Query(query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var k, n int64
			if err := rows.Scan(&k, &n); err != nil {
				return err
			}
			out[k] = n
		}
		return rows.Err()
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func reading(v int, more string) string {
	return fmt.Sprintf(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"%d"}}]}%s}`, v, more)
}

// TestAProjectionFromOutsideEqualsAModelThroughKillsAndReplays registers a result from outside the package in an instance
// that runs while messages come in, and kills it at random places.
func TestAProjectionFromOutsideEqualsAModelThroughKillsAndReplays(t *testing.T) {
	t.Parallel()
	for seed := range draws.Seeds(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 5))
			w := ingest.NewWorld(t, newTally)
			create(t, w.DB())
			const devices = 5
			w.Furnish(devices)
			w.Start()
			readings, loudOnes, known := map[int64]int64{}, map[int64]int64{}, map[string]bool{}
			gone := int64(0)
			kills := 0
			for n := range 600 {
				if n == 400 {
					gone = devices
					w.EndDevice(fmt.Sprintf("d%d", gone))
					delete(readings, gone)
				}
				if r.IntN(40) == 0 {
					kills++
					w.Kill()
					w.Start()
				}
				device, value, more := 1+r.IntN(devices), r.IntN(130), ""
				id := fmt.Sprintf("%d/%d", device, r.IntN(20))
				again := false
				switch r.IntN(8) {
				case 0:
					value = 900 // the profile refuses it
				case 1:
					more = fmt.Sprintf(`,"altId":%q,"occurredTime":"2026-03-01T11:00:00Z"`, id)
					again = known[id]
				}
				if !w.Send(device, reading(value, more)) {
					t.Fatalf("message %d is not taken", n)
				}
				if value == 900 || again || int64(device) == gone {
					continue
				}
				known[id] = known[id] || more != ""
				readings[int64(device)]++
				if value > loud {
					loudOnes[int64(device)]++
				}
			}
			w.Stop()
			if kills < 5 || w.Checkpoints() < 5 {
				t.Errorf("only %d kills and %d checkpoints", kills, w.Checkpoints())
			}
			if got := counts(t, w.DB(), `SELECT device, n FROM scratch_readings`); !maps.Equal(got, readings) {
				t.Errorf("counted %v, want %v", got, readings)
			}
			if got := counts(t, w.DB(), `SELECT device, COUNT(*) FROM scratch_loud GROUP BY device`); !maps.Equal(got, loudOnes) {
				t.Errorf("rows at once: %v, want %v", got, loudOnes)
			}
		})
	}
}

// create makes the tables of the scratch projection, as a migration would.
func create(t *testing.T, db store.Store) {
	t.Helper()
	if err := db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		for _, q := range []string{`CREATE TABLE scratch_readings (device INTEGER PRIMARY KEY, n INTEGER NOT NULL)`,
			`CREATE TABLE scratch_loud (log_offset INTEGER NOT NULL, idx INTEGER NOT NULL, device INTEGER NOT NULL, PRIMARY KEY (log_offset, idx))`} {
			if _, err := tx.Exec(q); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
