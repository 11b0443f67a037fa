package trace

import (
	"path/filepath"
	"testing"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/sqlite"
)

// TestEdgesOfAMessage: edges are kept with microseconds, a record with nanoseconds: those of a message are found all the same, and no other's.
func TestEdgesOfAMessage(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	wall := model.NanosOf(time.Date(2026, 11, 28, 6, 0, 0, 123_456_789, time.UTC))
	edge := func(at model.Offset, received model.Nanos) model.Edge {
		return model.Edge{ID: model.EdgeID{Epoch: 1, Offset: at, Rule: "p/r", Key: "7"}, Tenant: "acme", TenantID: 1, Profile: "p", Version: 2, Rule: "r", Kind: "threshold", Signal: model.Raised,
			Series: "d", Device: 7, Occurred: received.Micros(), Received: received}
	}
	if err := db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		_, err := store.AddEdges(tx, []model.Edge{edge(4, wall-1_000_000), edge(5, wall)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	tr := Tracer{Store: db, MaxAge: time.Hour, MaxFutureSkew: time.Minute}
	found, err := tr.Edges(t.Context(), &model.Record{Received: model.Stamp{Wall: wall}}, 5, 1, 7)
	if err != nil || len(found) != 1 || found[0].ID.Offset != 5 || found[0].Version != 2 {
		t.Errorf("%+v, %v", found, err)
	}
}
