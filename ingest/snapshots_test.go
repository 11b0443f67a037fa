package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/draws"
	"weir/internal/test/fixture"
	"weir/store"
	"weir/store/past"
	"weir/store/sqlite"
)

// kept are the generations of the kept snapshots.
func kept(t testing.TB, db store.Store) (gens []int64) {
	t.Helper()
	fixture.EachRow(t, db, func(_ []string, v []any) { gens = append(gens, v[0].(int64)) }, `SELECT gen FROM rule_snapshots ORDER BY gen`)
	return gens
}

// dangling are rows of rule state that neither the checkpoint nor a kept snapshot has, and parts of snapshots that there are not.
func dangling(t testing.TB, db store.Store) (rows []string) {
	t.Helper()
	var gen int64
	fixture.EachRow(t, db, func(_ []string, v []any) { gen = v[0].(int64) }, `SELECT generation FROM series_head`)
	has := map[string]bool{}
	for _, g := range append(kept(t, db), gen) {
		seen := map[string]bool{}
		fixture.EachRow(t, db, func(_ []string, v []any) {
			if page := v[0].(string); !seen[page] {
				seen[page] = true
				has[fmt.Sprint(page, v[1])] = g == gen || v[2].(int64) > 0 || page == "clocks"
			}
		}, `SELECT page, gen, tenant_id FROM rule_pages WHERE gen <= ? ORDER BY gen DESC`, g)
	}
	fixture.EachRow(t, db, func(_ []string, v []any) {
		if !has[fmt.Sprint(v[0], v[1])] {
			rows = append(rows, fmt.Sprint(v[0], " ", v[1]))
		}
	}, `SELECT page, gen FROM rule_pages`)
	fixture.EachRow(t, db, func(_ []string, v []any) { rows = append(rows, fmt.Sprint("part of ", v[0])) },
		`SELECT DISTINCT gen FROM rule_snapshot_parts WHERE gen NOT IN (SELECT gen FROM rule_snapshots)`)
	return rows
}

// whole fails when a kept snapshot is not whole.
func whole(t testing.TB, db store.Store) {
	t.Helper()
	if err := db.Read(context.Background(), func(tx store.Tx) error {
		for _, gen := range kept(t, db) {
			s := past.Snapshot{Generation: uint64(gen)}
			pages, err := s.Pages(tx, 1, 20)
			if err != nil {
				return err
			}
			if len(pages.IDs) < 3 {
				t.Errorf("snapshot %d has %q", gen, pages.IDs)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// midnights is traffic over some midnights.
func (w *world) midnights(seed uint64, n, messages int) {
	w.t.Helper()
	for day := range uint64(n) {
		wall, _ := w.clock.now()
		w.clock.advance(wall.Add(time.Hour).Truncate(24 * time.Hour).Add(24*time.Hour - 20*time.Second).Sub(wall))
		w.traffic(seed+day, messages)
	}
}

// TestSnapshotsSurviveAKillAnywhere: whenever the process ends while a snapshot is kept, those that are kept are whole in the end, and those of a
// process that never ended; nothing else is left.
func TestSnapshotsSurviveAKillAnywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallHeads)
	release := w.log.HoldTrim()
	defer release()
	w.furnish(6, w.rulesOf(1)...)
	w.midnights(51, 3, 150)
	w.apply()
	w.finishHead(w.applier)
	want := dump(t, w.db)
	if n := len(kept(t, w.db)); n != 3 {
		t.Fatalf("%d snapshots are kept", n)
	}
	whole(t, w.db)
	for seed := range draws.Seeds(4) {
		r := rand.New(rand.NewPCG(seed, 9))
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
		w.must(err)
		a := w.newApplier(w.log, db)
		for w.killedWhileApplying(a, r) {
			a.checkpoints.end()
			_ = a.checkpoints.await()
			a = w.newApplier(w.log, db)
		}
		w.finishHead(a)
		compareDumps(t, dump(t, db), want)
		whole(t, db)
		if left := dangling(t, db); len(left) > 0 {
			t.Errorf("left are %q", left)
		}
		a.checkpoints.end()
		w.must(db.Close())
	}
}

// TestWhereNothingComesNothingIsKept: midnights pass, and not a byte is written.
func TestWhereNothingComesNothingIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallHeads)
	w.furnish(2, w.rulesOf(1)...)
	w.traffic(1, 40)
	w.apply()
	w.finishHead(w.applier)
	version := func() (n string) {
		for _, table := range tables(t, w.db) {
			n += fmt.Sprint(table, tableRows(t, w.db, table, `SELECT * FROM `+table))
		}
		return n
	}
	before := version()
	for range 5 {
		w.clock.advance(24 * time.Hour)
		w.apply()
		w.must(w.applier.stop()) // a stop, which has nothing to write
	}
	if version() != before {
		t.Error("something was written")
	}
	w.restart()
	w.send(w.arrival(1, temp(1)))
	w.apply()
	w.finishHead(w.applier)
	if got := kept(t, w.db); len(got) != 1 { // of all these midnights
		t.Errorf("kept are %v", got)
	}
}

// TestTheOldestSnapshotsGoFirst: by their age, with what the registry said before, and where all that is kept for previews takes too much; their pages
// go with them, and the others stay whole.
func TestTheOldestSnapshotsGoFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallHeads)
	w.furnish(6, w.rulesOf(1)...)
	w.midnights(61, 6, 150)
	w.apply()
	w.finishHead(w.applier)
	all := kept(t, w.db)
	if len(all) != 6 {
		t.Fatalf("%d snapshots", len(all))
	}
	use := func() (u store.PreviewUse) {
		w.must(w.db.Read(context.Background(), func(tx store.Tx) (err error) { u, err = store.UsedByPreviews(tx); return err }))
		return u
	}
	sweep := func() {
		w.must(w.db.Write(context.Background(), store.Results, func(tx store.Tx) error {
			for after := ""; ; {
				var err error
				if after, err = store.SweepRulePages(tx, w.applier.checkpoints.newest.Generation, after); err != nil || after == "" {
					return err
				}
			}
		}))
		whole(t, w.db)
		if left := dangling(t, w.db); len(left) > 0 {
			t.Errorf("left are %q", left)
		}
	}
	first := use()
	if first.Snapshots != 6 || first.Bytes == 0 || !strings.HasPrefix(first.Oldest.String(), "2026-03-01T23:59:") {
		t.Errorf("%+v", first)
	}
	w.removeBefore(store.KeptSnapshots, noon.AddDate(0, 0, 1), 100)
	sweep()
	if got := kept(t, w.db); !slices.Equal(got, all[1:]) {
		t.Errorf("kept are %v of %v", got, all)
	}
	if now := use(); now.Bytes >= first.Bytes || now.Snapshots != 5 {
		t.Errorf("%+v, before %+v", now, first)
	}
	w.removeBefore(store.KeptMetadata, noon.AddDate(0, 0, 2), 100) // the registry of the second day is gone
	w.removeBefore(store.KeptSnapshots, noon, 100)
	sweep()
	if got := kept(t, w.db); !slices.Equal(got, all[2:]) {
		t.Errorf("kept are %v of %v", got, all)
	}
	half := use().Bytes / 2
	for _, k := range store.KeptForPreviews {
		var e *store.Expired
		w.must(w.db.Read(context.Background(), func(tx store.Tx) (err error) { e, err = store.FindExcess(tx, k, half, 1<<20); return err }))
		w.must(w.db.Write(context.Background(), store.Results, func(tx store.Tx) error { _, err := e.Remove(tx, 1<<20); return err }))
	}
	sweep()
	const stay = 400 // the last span of each link before the checkpoint, and what says that a page is gone: they stay wherever they lie
	if now, got := use(), kept(t, w.db); now.Bytes > half+stay || len(got) == 0 || len(got) == 4 || !slices.Equal(got, all[6-len(got):]) {
		t.Errorf("%+v of %d bytes, kept are %v of %v", now, half, got, all)
	}
	w.restart() // what is kept does not disturb a start
	w.send(w.arrival(1, temp(1)))
	w.apply()
	w.finishHead(w.applier)
	sweep()
}
