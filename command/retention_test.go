package command

import (
	"slices"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// What has ended goes after its time, with its batch once that has no command left; what is open stays, however old it is.
func TestCommandsThatHaveEndedAreKeptForTheirTime(t *testing.T) {
	w := newWorld(t)
	w.device("d", "mqtt1")
	far := model.MicrosOf(w.clock.Now().AddDate(1, 0, 0))
	for _, token := range []string{"ended", "open", "late"} {
		w.order(Order{Token: token, Device: "d", Expires: far})
	}
	for _, token := range []string{"over", "mixed", "running"} {
		w.batch(BatchOrder{Token: token, Devices: []string{"d"}, ExpiresAt: new("2030-12-31T00:00:00Z")})
	}
	w.settle()
	cancel := func(tokens ...string) {
		t.Helper()
		for _, token := range tokens {
			if _, err := w.Cancel(t.Context(), caller(), token); err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel("ended", "over-1")
	w.clock.Step(90 * 24 * time.Hour)
	cancel("late", "mixed-1")
	keep := model.MicrosOf(w.clock.Now().Add(-time.Hour))
	for range 3 {
		w.tx(func(tx store.Tx) error {
			found, err := store.FindExpired(tx, store.KeptCommands, keep, 100)
			if err == nil {
				_, err = found.Remove(tx, 100)
			}
			return err
		})
	}
	if got, want := fixture.Rows(t, w.db, `SELECT token, state FROM commands ORDER BY id`), []string{"open HELD", "late CANCELLED", "mixed-1 CANCELLED", "running-1 HELD"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := fixture.Rows(t, w.db, `SELECT token FROM command_batches ORDER BY id`), []string{"mixed", "running"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := fixture.Rows(t, w.db, `SELECT state, n FROM command_counts WHERE n <> 0`); !slices.Equal(got, []string{"HELD 2"}) {
		t.Errorf("counted %q", got)
	}
	// The token of what is gone names another command.
	if c, refused := w.order(Order{Token: "ended", Device: "d", Name: "other"}); refused != nil || c.Name != "other" {
		t.Error(refused)
	}
}
