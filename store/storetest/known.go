package storetest

import (
	"testing"

	"weir/model"
	"weir/store"
)

// testKnown shows what the results know of a log that is lost: the highest offset of any of them.
func testKnown(t *testing.T, f *fixture) {
	const kind = model.ViewKind("control-sequence")
	known := func(want model.Offset) {
		t.Helper()
		f.read(t, func(tx store.Tx) error {
			if got, err := store.HighestOffset(tx); got != want || err != nil {
				t.Errorf("%d %v, want %d", got, err, want)
			}
			return nil
		})
	}
	known(0)
	letter := &store.DeadLetter{Tenant: "t", Kind: store.DeadLetterIngest, Epoch: 1, Offset: 40}
	for _, step := range []struct {
		want model.Offset
		do   func(store.Tx) error
	}{
		{10, func(tx store.Tx) error { return store.SetCheckpointState(tx, 10, 1) }},
		{20, func(tx store.Tx) error { return store.SetView(tx, kind, "", []byte("1"), 20, 20) }},
		{20, func(tx store.Tx) error { return store.SetView(tx, "other", "a", []byte("1"), 21, 21) }},
		{30, func(tx store.Tx) error {
			return store.InsertAlert(tx, &store.EventRow{TenantID: 1, Type: model.AlertEvent, Offset: 30})
		}},
		{40, func(tx store.Tx) error { return store.AddDeadLetter(tx, letter) }},
		{50, func(tx store.Tx) error {
			_, err := store.AddEdges(tx, []model.Edge{{TenantID: 1, ID: model.EdgeID{Epoch: 1, Offset: 50, Rule: "r"}}})
			return err
		}},
	} {
		f.write(t, step.do)
		known(step.want)
	}
}
