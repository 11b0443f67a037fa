package app_test

import (
	"io"
	"log/slog"
	"slices"
	"testing"

	"weir/app"
	"weir/config"
	"weir/operate"
)

// Each area is built by the first request to it: here each has one, of a running instance and of a directory in which nothing runs.
func TestEveryAreaAnswers(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	in := runInstanceSet(t, app.Options{Source: &config.Source{}, Logger: quiet}, func(c *config.Config) { c.AI.Enabled = true })
	tenant, instance, resting := app.AreaNames()
	all := map[string]string{"event-sources": "acme", "ai-inference": "acme", "ai-inference-admin": ""}
	for _, area := range tenant {
		all[area] = "acme"
	}
	for _, area := range instance {
		all[area] = ""
	}
	ask := in.asking(t)
	for area, of := range all {
		var out struct {
			Typename string `json:"__typename"`
		}
		if err := ask(area, of, `{ __typename }`, nil, &out); err != nil || out.Typename != "Query" {
			t.Errorf("%s: %q %v", area, out.Typename, err)
		}
	}
	in.stop()
	dir := app.AtRest(in.cfg, func(string) string { return "" }, quiet)
	defer func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, area := range resting {
		of := ""
		if slices.Contains(tenant, area) {
			of = "acme"
		}
		resp, err := operate.RunGraphQL.Ask(t.Context(), dir, operate.GraphQLRequest{Area: area, Tenant: of, Query: `{ __typename }`})
		if err == nil {
			err = resp.Err()
		}
		if err != nil {
			t.Errorf("%s, at rest: %v", area, err)
		}
	}
}
