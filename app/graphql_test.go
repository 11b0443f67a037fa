package app_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"weir/app"
	"weir/model"
	"weir/operate"
	"weir/store"
	"weir/store/sqlite"
)

// TestEntityCommandsUseTheResolversOfTheAPI: the same document runs over the socket and where nothing runs, with the same
// refusals, and the journal names the local operator.
func TestEntityCommandsUseTheResolversOfTheAPI(t *testing.T) {
	t.Parallel()
	in := runInstance(t, nil)
	client, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	rename := func(to operate.Target, device, name string) (string, error) {
		resp, err := operate.RunGraphQL.Ask(t.Context(), to, operate.GraphQLRequest{Area: "device-management", Tenant: "acme",
			Query: `mutation($t: String!, $n: String) { updateDevice(token: $t, request: {name: $n}) { name } }`, Variables: map[string]any{"t": device, "n": name}})
		if err != nil {
			return "", err
		}
		return string(resp.Data), resp.Err()
	}
	check := func(where string, to operate.Target) {
		if data, err := rename(to, in.device, where); err != nil || !strings.Contains(data, `"`+where+`"`) {
			t.Errorf("%s: %s, %v", where, data, err)
		}
		if _, err := rename(to, "nobody", "x"); model.CodeOf(err) != model.CodeNotFound {
			t.Errorf("%s: a device that does not exist: %v", where, err)
		}
		if _, err := operate.RunGraphQL.Ask(t.Context(), to, operate.GraphQLRequest{Area: "nowhere", Tenant: "acme"}); model.CodeOf(err) != model.CodeInvalidInput {
			t.Errorf("%s: an area that does not exist: %v", where, err)
		}
	}
	check("running", client)
	in.stop()
	rest := app.AtRest(in.cfg, func(string) string { return "" }, slog.New(slog.DiscardHandler))
	check("at rest", rest)
	if err := rest.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := sqlite.Inspect(context.Background(), operate.DBPath(in.cfg.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var local int
	if err := st.Read(t.Context(), func(tx store.Tx) error {
		return tx.QueryRow(`SELECT count(*) FROM audit_events WHERE actor = 'local' AND operation = 'UPDATE' COLLATE NOCASE AND table_name = 'devices'`).Scan(&local)
	}); err != nil || local != 2 {
		t.Errorf("the journal has %d changes by the local operator, %v", local, err)
	}
}
