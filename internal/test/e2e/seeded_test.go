package e2e_test

import (
	"bytes"
	"fmt"
	"testing"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/model"
	"weir/store"
	"weir/store/sqlite"
)

// TestRuleHealthOfAStoreThatWasSeeded: what no test waits for is put into the database at rest. A rule that has fired two billion times is
// counted no further than the API can say; one that a newer Weir has written goes by its token, because its name cannot be read.
func TestRuleHealthOfAStoreThatWasSeeded(t *testing.T) {
	t.Parallel()
	tn := paired(t).again()
	tn.profile("p", map[string]string{"hot": above("Too hot", "temp", 30, ""), "newer": above("Newer", "temp", 90, "")})
	tn.device("e", "p")
	fires := func(n int) (found []health) {
		t.Helper()
		poll.Until(t, fmt.Sprintf("the rule has fired %d times", n), func() error {
			if found = tn.health("p"); len(found) == 2 && found[0].FireCount == n {
				return nil
			}
			return fmt.Errorf("%+v", found)
		})
		return found
	}
	tn.kept(measured("temp", "31", tn.as("e")))
	if h := fires(1); h[1].Name != "Newer" || h[1].Status != "ACTIVE" {
		t.Errorf("%+v", h)
	}
	if err := tn.Stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), tn.path("weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		if n, err := tx.Exec(`UPDATE rule_fires SET fires = 2147483645`); n != 1 || err != nil {
			return fmt.Errorf("%d rules have fired: %w", n, err)
		}
		var body []byte
		if err := tx.QueryRow(`SELECT body FROM view_rows WHERE kind = ? AND to_offset IS NULL`, string(model.ViewProfile)).Scan(&body); err != nil {
			return err
		}
		newer := bytes.Replace(body, []byte(`\"name\":\"Newer\"`), []byte(`\"name\":\"Newer\",\"sinceLater\":true`), 1)
		if bytes.Equal(body, newer) {
			return fmt.Errorf("no rule is named: %s", body)
		}
		_, err := tx.Exec(`UPDATE view_rows SET body = ? WHERE kind = ? AND to_offset IS NULL`, newer, string(model.ViewProfile))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	tn = tn.again()
	h := fires(2147483645)
	if h[1].Name != "newer" || h[1].RuleToken != "newer" || h[1].Status != "COMPILE_ERROR" || h[1].Message == nil || h[0].Name != "Too hot" {
		t.Errorf("%+v", h)
	}
	conformance.Shown(t, "S1-049")
	for _, v := range []string{"1", "31", "1", "31"} {
		tn.kept(measured("temp", v, tn.as("e")))
	}
	tn.kept(measured("mark", "7", tn.as("e")))
	poll.True(t, "everything is applied", func() bool {
		applied, err := tn.Applied()
		return err == nil && applied
	})
	fires(2147483647)
	conformance.Shown(t, "S1-055")
}
