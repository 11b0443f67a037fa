package app

import (
	"context"
	"encoding/json"
	"testing"

	"weir/config"
	"weir/operate"
	"weir/web"
)

// The document that each explorer begins with is answered.
func TestTheExplorerBeginsWithADocumentThatIsAnswered(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir() + "/d"
	cfg.Listeners = config.Listeners{}
	cfg.AI.Enabled = true
	in := New(cfg, Options{})
	ctx, stop := context.WithCancel(t.Context())
	err := in.Run(ctx, func() {
		defer stop()
		steps := setupSteps{in.entities, in.applier, in.intake}
		if _, err := steps.MakeTenant(ctx, "acme", ""); err != nil {
			t.Error(err)
			return
		}
		if _, err := steps.MakeDevice(ctx, "acme", "d1", ""); err != nil {
			t.Error(err)
			return
		}
		rule := web.SetupRule{Device: "d1", Metric: "temp", Op: "gt", Threshold: 1, Severity: "major"}
		if _, err := steps.AddRule(ctx, "acme", rule); err != nil {
			t.Error(err)
			return
		}
		client, err := operate.Dial(ctx, cfg)
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		for _, at := range areasOf(cfg, capabilities()) {
			area := at.Name()
			if at.Example == "" {
				t.Errorf("%s has none", area)
			}
			got, err := operate.RunGraphQL.Ask(ctx, client, operate.GraphQLRequest{Area: area, Tenant: "acme", Query: at.Example})
			switch {
			case err != nil:
				t.Errorf("%s: %v", area, err)
			case area == "user-management": // me is a person, whom the local operator is not
				if len(got.Errors) != 1 || got.Errors[0].Message == "" || len(got.Errors[0].Path) != 1 || got.Errors[0].Path[0] != "me" {
					t.Errorf("%s: %+v", area, got.Errors)
				}
			case len(got.Errors) > 0 || !json.Valid(got.Data):
				t.Errorf("%s: %+v", area, got.Errors)
			}
		}
	}, nil)
	if err != nil {
		t.Error(err)
	}
}
