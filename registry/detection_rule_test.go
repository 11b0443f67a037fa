package registry

import (
	"maps"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

func TestDraftsAreCheckedForForm(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	rule := func(field string, v any) error {
		p := store.Patch{"token": "r", "deviceProfileToken": "p", "definition": ruleText, "enabled": true}
		p[field] = v
		_, err := b.Rules.Create(ctx, acme, p)
		return err
	}
	metric := func(fields store.Patch) error {
		p := store.Patch{"token": "m", "deviceProfileToken": "p", "metricKey": "k", "dataType": "DOUBLE"}
		maps.Copy(p, fields)
		_, err := b.Metrics.Create(ctx, acme, p)
		return err
	}
	profile := func(field string, v any) error {
		_, err := b.Profiles.Create(ctx, acme, store.Patch{"token": "q", field: v})
		return err
	}
	deep := strings.Repeat("[", 100_000)
	b.unchanged("refused drafts", func() {
		for what, c := range map[string]struct {
			err   error
			field string
		}{
			"definition no JSON":         {rule("definition", "{"), "definition"},
			"definition no object":       {rule("definition", `[1]`), "definition"},
			"definition null":            {rule("definition", `null`), "definition"},
			"definition with an id":      {rule("definition", `{"id":"x","name":"n"}`), "definition"},
			"text behind":                {rule("definition", `{} {}`), "definition"},
			"deeply nested":              {rule("definition", deep+strings.Repeat("]", 100_000)), "definition"},
			"canvas no object":           {rule("authoringGraph", `"x"`), "authoringGraph"},
			"group without version":      {rule("entityGroupToken", "g"), "entityGroupVersion"},
			"version without group":      {rule("entityGroupVersion", 1), "entityGroupToken"},
			"unknown profile":            {rule("deviceProfileToken", "nope"), "deviceProfileToken"},
			"unknown placement":          {rule("placement", "edge"), "placement"},
			"metadata null document":     {rule("metadata", "null"), "metadata"},
			"min above max":              {metric(store.Patch{"minValue": 2.0, "maxValue": 1.0}), "minValue"},
			"unknown data type":          {metric(store.Patch{"dataType": "double"}), "dataType"},
			"enum no array":              {metric(store.Patch{"enum": `{"a":1}`}), "enum"},
			"enum of numbers":            {metric(store.Patch{"enum": `[1]`}), "enum"},
			"enum with a null":           {metric(store.Patch{"enum": `["a",null]`}), "enum"},
			"empty key":                  {metric(store.Patch{"metricKey": ""}), "metricKey"},
			"long key":                   {metric(store.Patch{"metricKey": strings.Repeat("k", 129)}), "metricKey"},
			"time-out below the least":   {profile("inactivityTimeoutSeconds", 59), "inactivityTimeoutSeconds"},
			"negative accuracy":          {profile("location", map[string]any{"expectedAccuracyMeters": -1.0}), "location"},
			"negative interval":          {profile("location", map[string]any{"expectedUpdateIntervalSeconds": -1}), "location"},
			"name too long":              {profile("name", strings.Repeat("n", 129)), "name"},
			"description too long":       {profile("description", strings.Repeat("n", 1025)), "description"},
			"active version is no field": {profile("activeVersion", 3), "activeVersion"},
		} {
			t.Run(what, func(t *testing.T) {
				if code := model.CodeOf(c.err); code != model.CodeInvalidInput && code != model.CodeLimitExceeded || !strings.HasPrefix(c.err.Error(), c.field+":") {
					t.Errorf("%s: got %v, want a refusal that begins with %s", what, c.err, c.field)
				}
			})
		}
	})
	if err := metric(store.Patch{"minValue": 1.5, "maxValue": 1.5}); err != nil {
		t.Error(err)
	}
	b.unchanged("an update against what the record holds", func() {
		_, err := b.Metrics.Update(ctx, acme, "m", store.Patch{"name": "x", "minValue": 2.0})
		b.refused("min alone", err, model.CodeInvalidInput, "minValue")
	})
}

// TestARuleOfTheEdge is frozen with its placement and submitted as one; CLOUD is what a rule without one has.
func TestARuleOfTheEdge(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	if _, err := b.Rules.Create(ctx, acme, store.Patch{"token": "at-site", "deviceProfileToken": "p", "definition": ruleText, "enabled": true, "placement": model.PlacementEdge}); err != nil {
		t.Fatal(err)
	}
	frozen := func() (s *Snapshot) {
		t.Helper()
		must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
		if err := store.Read(ctx, b.access.store, func(tx store.Tx) error {
			p, err := b.Profiles.Table.Get(tx, acme.TenantID, "p")
			if err == nil {
				s, err = b.Profiles.freeze(tx, p)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := frozen()
	text, err := s.encode()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := decodeSnapshot(text); err != nil || back.V != snapshotFormatPlaced || back.Rules[0].Placement != model.PlacementEdge {
		t.Errorf("%+v, %v", back, err)
	}
	if v := s.view("acme", "p", 1); len(v.Rules) != 1 || v.Rules[0].Placement != model.PlacementEdge {
		t.Errorf("%+v", v)
	}
	must(b.Rules.Update(ctx, acme, "at-site", store.Patch{"placement": model.PlacementCloud}))(t)
	if s := frozen(); s.V != snapshotFormat || s.Rules[0].Placement != "" {
		t.Errorf("%+v", s)
	}
}
