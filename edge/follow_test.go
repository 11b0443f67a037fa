package edge

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"

	"weir/internal/edgewire"
	"weir/model"
)

// TestWhatASiteJudges follows the versions of profiles as the log has them: from which message on the site judges, and until which.
func TestWhatASiteJudges(t *testing.T) {
	t.Parallel()
	f := &forwarder{e: &Edge{cfg: Config{Settings: Settings{Uplink: UplinkSettings{Username: "acme:secret", Firings: true}}}, follow: &follower{}}}
	profile := func(row int64, tenant, token string, version int, placement string) model.ViewChange {
		body, err := json.Marshal(model.ProfileView{V: 1, Tenant: tenant, Token: token, Version: version, Rules: []model.RuleView{{Token: "r", Definition: "{}", Placement: placement}}})
		if err != nil {
			t.Fatal(err)
		}
		return model.ViewChange{Kind: model.ViewProfile, Key: strconv.FormatInt(row, 10), Body: body}
	}
	gone := model.ViewChange{Kind: model.ViewProfile, Key: "1"}
	for _, step := range []struct {
		what   string
		change model.ViewChange
		last   uint64
		tell   bool
		want   []edgewire.Runs
	}{
		{"a profile without such a rule", profile(1, "acme", "p", 1, ""), 3, false, nil},
		{"one with such a rule", profile(1, "acme", "p", 2, model.PlacementEdge), 7, true, []edgewire.Runs{{Profile: "p", Version: 2, From: 8}}},
		{"the same, read again", profile(1, "acme", "p", 2, model.PlacementEdge), 7, false, []edgewire.Runs{{Profile: "p", Version: 2, From: 8}}},
		{"another tenant's", profile(2, "other", "p", 1, model.PlacementEdge), 8, false, []edgewire.Runs{{Profile: "p", Version: 2, From: 8}}},
		{"the next version", profile(1, "acme", "p", 3, model.PlacementEdge), 9, false, []edgewire.Runs{{Profile: "p", Version: 3, From: 8}}},
		{"an earlier one, which the other lane reads", profile(1, "acme", "p", 1, model.PlacementEdge), 4, true, []edgewire.Runs{{Profile: "p", Version: 1, From: 5}}},
		{"it goes", gone, 11, true, []edgewire.Runs{{Profile: "p", Version: 1, From: 5, Until: 12}}},
		{"it goes, read again", gone, 11, false, []edgewire.Runs{{Profile: "p", Version: 1, From: 5, Until: 12}}},
		{"what was before, read again", profile(1, "acme", "p", 2, model.PlacementEdge), 7, false, []edgewire.Runs{{Profile: "p", Version: 1, From: 5, Until: 12}}},
		{"it is there again", profile(1, "acme", "p", 4, model.PlacementEdge), 20, true, []edgewire.Runs{{Profile: "p", Version: 4, From: 21}}},
	} {
		if tell := f.judges([]model.ViewChange{step.change}, step.last); tell != step.tell {
			t.Errorf("%s: the Weir above has to be told: %v", step.what, tell)
		}
		if got := f.judged(); !reflect.DeepEqual(got, step.want) {
			t.Errorf("%s: %+v, want %+v", step.what, got, step.want)
		}
	}
	f.e.cfg.Uplink.Firings = false
	if got := f.judged(); got != nil {
		t.Errorf("without edge.uplink.firings it says %+v", got)
	}
}
