package registry

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

// draft fills profile "p" with two metrics and three rules, of which one is disabled.
func (b *bench) fillDraft() {
	b.Helper()
	ctx := b.Context()
	for _, p := range []store.Patch{
		{"token": "m-temp", "metricKey": "temp", "dataType": "DOUBLE", "unit": "Cel", "minValue": -40.0, "maxValue": 125},
		{"token": "m-mode", "metricKey": "mode", "dataType": "STRING", "enum": `["on","off"]`, "name": "Mode"},
	} {
		p["deviceProfileToken"] = "p"
		must(b.Metrics.Create(ctx, acme, p))(b)
	}
	for _, p := range []store.Patch{
		{"token": "r2", "definition": ruleText, "enabled": true},
		{"token": "r1", "definition": ruleText, "enabled": true, "name": "Hot"},
		{"token": "r0", "definition": `{"broken":true}`, "enabled": false},
	} {
		p["deviceProfileToken"] = "p"
		must(b.Rules.Create(ctx, acme, p))(b)
	}
	must(b.Profiles.Update(ctx, acme, "p", store.Patch{"inactivityTimeoutSeconds": 90,
		"location": map[string]any{"expectedAccuracyMeters": 2.5}}))(b)
	b.view("a draft has no effect")
}

// filledView is what resolution reads of the published draft.
func filledView(token string, version int) model.ProfileView {
	return model.ProfileView{V: 1, Tenant: "acme", Token: token, Version: version, InactivityTimeout: 90,
		Metrics: []model.MetricView{
			{Key: "mode", DataType: "STRING", Enum: []string{"on", "off"}},
			{Key: "temp", DataType: "DOUBLE", Unit: "Cel", Min: new(-40.0), Max: new(125.0)},
		},
		Rules: []model.RuleView{{Token: "r1", Definition: ruleText}, {Token: "r2", Definition: ruleText}},
	}
}

func TestPublishFreezesTheDraftAndRollbackReturnsToIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	p, _, _ := b.seed()
	b.fillDraft()
	key := idKey(p.ID)

	v := must(b.Profiles.Publish(ctx, acme, "p", new("first"), nil))(t)
	if v.Version != 1 || *v.Label != "first" || v.Description != nil || *v.PublishedBy != "ada" {
		t.Errorf("version %+v", v)
	}
	b.view("publish", row(t, model.ViewProfile, key, filledView("p", 1)))

	must(b.Rules.Update(ctx, acme, "r2", store.Patch{"enabled": false}))(t)
	must(b.Metrics.Delete(ctx, acme, "m-mode"))(t)
	must(b.Profiles.Update(ctx, acme, "p", store.Patch{"inactivityTimeoutSeconds": nil, "location": nil}))(t)
	b.view("changes of the draft")
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	second := filledView("p", 2)
	second.Rules, second.Metrics, second.InactivityTimeout = second.Rules[:1], second.Metrics[1:], 0
	b.view("second publish", row(t, model.ViewProfile, key, second))
	if got := must(b.Devices.LocationOf(ctx, acme, "d"))(t); got == nil || got.Declared {
		t.Errorf("location of the second version: %+v", got)
	}

	back := must(b.Profiles.Rollback(ctx, acme, "p", 1))(t)
	if *back.ActiveVersion != 1 {
		t.Errorf("active version %d", *back.ActiveVersion)
	}
	b.view("rollback", row(t, model.ViewProfile, key, filledView("p", 1)))
	if got := must(b.Devices.LocationOf(ctx, acme, "d"))(t); got == nil || !got.Declared || *got.Declaration.ExpectedAccuracyMeters != 2.5 {
		t.Errorf("location of the first version: %+v", got)
	}
	if got := must(b.Profiles.Active(ctx, acme, "p"))(t); got == nil || got.VersionToken() != "p@1" || len(got.Rules) != 2 {
		t.Errorf("active version: %+v", got)
	}
	b.unchanged("rollback to the active version", func() { must(b.Profiles.Rollback(ctx, acme, "p", 1))(t) })
	b.unchanged("rollback to no version", func() {
		_, err := b.Profiles.Rollback(ctx, acme, "p", 3)
		b.refused("unknown version", err, model.CodeNotFound, `device profile version "p@3"`)
		_, err = b.Profiles.Rollback(ctx, acme, "q", 1)
		b.refused("unknown profile", err, model.CodeNotFound, `device profile "q"`)
		_, err = b.Profiles.Rollback(ctx, other, "p", 1)
		b.refused("another tenant's profile", err, model.CodeNotFound, `device profile "p"`)
	})
	third := must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	var versions []int64
	for _, v := range must(b.Profiles.History(ctx, acme, "p", 1000, 0))(t) {
		versions = append(versions, v.Version)
	}
	if third.Version != 3 || !slices.Equal(versions, []int64{3, 2, 1}) {
		t.Errorf("published %d, versions %v", third.Version, versions)
	}
	if vs := must(b.Profiles.History(ctx, other, "p", 1000, 0))(t); len(vs) != 0 {
		t.Errorf("another tenant sees %d versions", len(vs))
	}
}

func TestPublishSubmitsEnabledRulesAsAService(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	b.fillDraft()
	must(b.Profiles.Publish(t.Context(), acme, "p", nil, nil))(t)
	want := []Candidate{{Token: "r1", Definition: ruleText}, {Token: "r2", Definition: ruleText}}
	if len(b.validator.asked) != 1 || !slices.Equal(b.validator.asked[0], want) {
		t.Errorf("submitted %v, want %v", b.validator.asked, want)
	}
	by := b.validator.by
	if by.Kind != model.ServiceCaller || by.Tenant != "acme" || !by.Has(model.DeviceRead) || by.Has(model.DeviceWrite) {
		t.Errorf("the rules were submitted by %+v", by)
	}
}

func TestARefusedPublishWritesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	b.fillDraft()
	publish := func() error {
		_, err := b.Profiles.Publish(ctx, acme, "p", nil, nil)
		return err
	}
	b.unchanged("refused rules", func() {
		b.validator.refuse = map[string]string{"r1": "when: no", "r2": "severity: missing"}
		b.refused("two rules", publish(), model.CodeInvalidInput, `"r1": when: no; "r2": severity: missing`)
	})
	b.validator.refuse = nil
	b.unchanged("validator away", func() {
		b.validator.err = errors.New("dial tcp 10.0.0.1: refused")
		err := publish()
		b.refused("validator away", err, model.CodeUnavailable, "unavailable")
		if strings.Contains(err.Error(), "10.0.0.1") {
			t.Errorf("the message shows the cause: %v", err)
		}
	})
	b.validator.err = nil
	b.unchanged("long label", func() {
		_, err := b.Profiles.Publish(ctx, acme, "p", new(strings.Repeat("l", 129)), nil)
		b.refused("label", err, model.CodeInvalidInput, "label")
		_, err = b.Profiles.Publish(ctx, acme, "p", nil, new(strings.Repeat("l", 1025)))
		b.refused("description", err, model.CodeInvalidInput, "description")
		_, err = b.Profiles.Publish(ctx, acme, "q", nil, nil)
		b.refused("unknown", err, model.CodeNotFound, `device profile "q"`)
		_, err = b.Profiles.Publish(ctx, other, "p", nil, nil)
		b.refused("another tenant's", err, model.CodeNotFound, `device profile "p"`)
	})
}

func TestOnlyWhatWasValidatedIsPublished(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	b.fillDraft()
	changes := 1
	b.validator.during = func() {
		if changes > 0 {
			changes--
			must(b.Rules.Update(ctx, acme, "r1", store.Patch{"definition": `{"name":"other"}`, "name": nil}))(t)
		}
	}
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	if n := len(b.validator.asked); n != 2 || b.validator.asked[1][0].Definition != `{"name":"other"}` {
		t.Errorf("validated %d times: %v", n, b.validator.asked)
	}
	if got := must(b.Profiles.Active(ctx, acme, "p"))(t); got.Rules[0].Definition != `{"name":"other"}` {
		t.Errorf("published %+v", got.Rules)
	}
	changes = 1000
	before := b.rows(`SELECT * FROM device_profile_versions`)
	_, err := b.Profiles.Publish(ctx, acme, "p", nil, nil)
	b.refused("a draft that keeps changing", err, model.CodeConflict, "conflict:")
	if after := b.rows(`SELECT * FROM device_profile_versions`); !slices.Equal(before, after) {
		t.Errorf("a version was written: %v", after)
	}
}

func TestADraftsRevisionMovesWithEachChangeOfIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	p, _, _ := b.seed()
	b.fillDraft()
	seen := map[string]string{}
	look := func(what string) {
		t.Helper()
		err := b.db.Read(ctx, func(tx store.Tx) error {
			rev, err := b.Profiles.versions.Revision(tx, p)
			if other, ok := seen[rev]; ok {
				t.Errorf("%s: same revision as %s", what, other)
			}
			seen[rev] = what
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	look("start")
	must(b.Profiles.Update(ctx, acme, "p", store.Patch{"name": "P"}))(t)
	look("profile")
	must(b.Metrics.Update(ctx, acme, "m-temp", store.Patch{"unit": "K"}))(t)
	look("metric")
	must(b.Rules.Update(ctx, acme, "r0", store.Patch{"name": "N"}))(t)
	look("rule")
	must(b.Rules.Delete(ctx, acme, "r2"))(t)
	look("rule deleted")
	must(b.Rules.Create(ctx, acme, store.Patch{"token": "r2", "deviceProfileToken": "p", "definition": ruleText, "enabled": true}))(t)
	look("rule made again")
}

func TestAProfileIsRenamedUntilItIsPublishedOrAdopted(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	create := func(token string) { must(b.Profiles.Create(ctx, acme, store.Patch{"token": token}))(t) }
	rename := func(from, to string) error {
		_, err := b.Profiles.Rename(ctx, acme, from, to)
		return err
	}
	for _, token := range []string{"free", "held", "published", "adopted"} {
		create(token)
	}
	must(b.Profiles.Publish(ctx, acme, "published", nil, nil))(t)
	must(b.Types.Create(ctx, acme, store.Patch{"token": "t", "profileToken": "adopted"}))(t)
	b.views()
	b.unchanged("refused renames", func() {
		b.refused("empty", rename("free", ""), model.CodeInvalidInput, "newToken")
		b.refused("blank", rename("free", "  "), model.CodeInvalidInput, "newToken")
		b.refused("no token", rename("free", "a.b"), model.CodeInvalidInput, "newToken")
		b.refused("held", rename("free", "held"), model.CodeConflict, `unique, "held"`)
		b.refused("unknown", rename("nope", "x"), model.CodeNotFound, `device profile "nope"`)
		b.refused("published", rename("published", "x"), model.CodeInUse, "published version")
		b.refused("adopted", rename("adopted", "x"), model.CodeInUse, "device type")
		_, err := b.Profiles.Rename(ctx, other, "free", "x")
		b.refused("another tenant's", err, model.CodeNotFound, `device profile "free"`)
		for _, same := range []string{"free", "published", "adopted"} {
			if err := rename(same, same); err != nil {
				t.Errorf("the present token: %v", err)
			}
		}
	})
	if err := rename("free", "freed"); err != nil {
		t.Error(err)
	}
	b.view("rename")
}

func TestAProfileTakesItsPartsWithIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	p, _, _ := b.seed()
	b.fillDraft()
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	b.views()
	b.unchanged("delete of an adopted profile", func() {
		_, err := b.Profiles.Delete(ctx, acme, "p")
		b.refused("adopted", err, model.CodeInUse, "device type")
	})
	must(b.Types.Update(ctx, acme, "t", store.Patch{"profileToken": nil}))(t)
	b.views()
	must(b.Profiles.Delete(ctx, acme, "p"))(t)
	b.view("delete", row(t, model.ViewProfile, idKey(p.ID), nil))
	for _, table := range []string{"device_profiles", "device_profile_versions", "metric_definitions", "detection_rules"} {
		if left := b.rows("SELECT * FROM " + table); len(left) > 0 {
			t.Errorf("%s: %q left", table, left)
		}
	}
	if n := b.rows(`SELECT count(*) FROM audit_events WHERE operation = 'delete'`); n[0] != "8" {
		t.Errorf("%s rows in the journal, want one for each of 8 rows", n[0])
	}
}

func TestAdoptingAProfileIsSeenByResolution(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	p := must(b.Profiles.Create(ctx, acme, store.Patch{"token": "p"}))(t)
	b.view("a profile that was never published")
	typ := must(b.Types.Create(ctx, acme, store.Patch{"token": "t", "profileToken": "p"}))(t)
	key := idKey(typ.ID)
	with, without := row(t, model.ViewDeviceType, key, model.DeviceTypeView{V: 1, Profile: p.ID}), row(t, model.ViewDeviceType, key, model.DeviceTypeView{V: 1})
	b.view("create", with)
	must(b.Types.Update(ctx, acme, "t", store.Patch{"name": "T", "profileToken": "p"}))(t)
	b.view("no change")
	must(b.Types.Update(ctx, acme, "t", store.Patch{"profileToken": ""}))(t)
	b.view("detach", without)
	must(b.Types.Update(ctx, acme, "t", store.Patch{"profileToken": "p"}))(t)
	b.view("attach", with)
	must(b.Devices.Create(ctx, acme, store.Patch{"token": "d", "deviceTypeToken": "t"}))(t)
	b.views()
	b.unchanged("delete while devices have it", func() {
		_, err := b.Types.Delete(ctx, acme, "t")
		b.refused("in use", err, model.CodeInUse, "device")
	})
	must(b.Devices.Delete(ctx, acme, "d"))(t)
	b.views()
	must(b.Types.Delete(ctx, acme, "t"))(t)
	b.view("delete", row(t, model.ViewDeviceType, key, nil))
	_, err := b.Types.Update(ctx, acme, "t", store.Patch{})
	b.refused("update of what is gone", err, model.CodeNotFound, `device type "t"`)
}

func TestAProfileHasAtMostItsPartsAndUniqueKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{MetricsPerProfile: 2, RulesPerProfile: 1})
	ctx := t.Context()
	for _, token := range []string{"p", "q"} {
		must(b.Profiles.Create(ctx, acme, store.Patch{"token": token}))(t)
	}
	metric := func(token, profile, key string) error {
		_, err := b.Metrics.Create(ctx, acme, store.Patch{"token": token, "deviceProfileToken": profile, "metricKey": key, "dataType": "INT"})
		return err
	}
	rule := func(token, profile string) error {
		_, err := b.Rules.Create(ctx, acme, store.Patch{"token": token, "deviceProfileToken": profile, "definition": ruleText, "enabled": true})
		return err
	}
	for _, err := range []error{metric("m1", "p", "a"), metric("m2", "p", "b"), metric("m3", "q", "a"), rule("r1", "p"), rule("r2", "q")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.unchanged("no room", func() {
		b.refused("metric", metric("m4", "p", "c"), model.CodeLimitExceeded, "at most 2 metric definitions")
		b.refused("rule", rule("r3", "p"), model.CodeLimitExceeded, "at most 1 detection rules")
		_, err := b.Rules.Update(ctx, acme, "r2", store.Patch{"deviceProfileToken": "p"})
		b.refused("rule moved", err, model.CodeLimitExceeded, "at most 1 detection rules")
		b.refused("key twice", metric("m5", "q", "a"), model.CodeConflict, "metricKey of a metric definition must be unique")
	})
	must(b.Rules.Update(ctx, acme, "r2", store.Patch{"deviceProfileToken": "q"}))(t)
	must(b.Metrics.Delete(ctx, acme, "m2"))(t)
	b.unchanged("moved onto a key in use", func() {
		_, err := b.Metrics.Update(ctx, acme, "m3", store.Patch{"deviceProfileToken": "p"})
		b.refused("moved", err, model.CodeConflict, "unique")
	})
}

func TestAPublishIsRefusedThatWouldHaveMoreRulesRunThanATenantMay(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{RulesPerTenant: 3})
	ctx := t.Context()
	b.seed()
	b.fillDraft() // two enabled rules
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	must(b.Profiles.Create(ctx, acme, store.Patch{"token": "q"}))(t)
	rule := func(token string) {
		t.Helper()
		must(b.Rules.Create(ctx, acme, store.Patch{"token": token, "deviceProfileToken": "q", "definition": ruleText, "enabled": true}))(t)
	}
	rule("q1")
	must(b.Profiles.Publish(ctx, acme, "q", nil, nil))(t)
	rule("q2")
	b.unchanged("one rule more", func() {
		_, err := b.Profiles.Publish(ctx, acme, "q", nil, nil)
		b.refused("one rule more", err, model.CodeLimitExceeded, "detection.max_rules_per_tenant")
	})
	b.Profiles.bounds.rulesOfTenant = 1 // it was lowered since
	must(b.Rules.Update(ctx, acme, "r1", store.Patch{"enabled": false}))(t)
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t) // still above, and less than before
	b.unchanged("back to more", func() {
		_, err := b.Profiles.Rollback(ctx, acme, "p", 1)
		b.refused("back to more", err, model.CodeLimitExceeded, "detection.max_rules_per_tenant")
	})
}

// TestOutOfRangeIsFrozenAtPublish: resolution reads it of the published version, and a version that refuses is as it was before
// the field existed.
func TestOutOfRangeIsFrozenAtPublish(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	p, _, _ := b.seed()
	b.fillDraft()
	key := idKey(p.ID)
	if m := must(b.Metrics.ByToken(ctx, acme, []string{"m-temp"}))(t)[0]; m.OutOfRange != model.OutOfRangeRefuse {
		t.Errorf("a definition that says nothing has outOfRange %q", m.OutOfRange)
	}
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	b.view("publish", row(t, model.ViewProfile, key, filledView("p", 1)))
	must(b.Metrics.Update(ctx, acme, "m-temp", store.Patch{"outOfRange": "FLAG"}))(t)
	b.view("a change of the draft")
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	flagged := filledView("p", 2)
	flagged.Metrics[1].OutOfRange = model.OutOfRangeFlag
	b.view("second publish", row(t, model.ViewProfile, key, flagged))
	must(b.Profiles.Rollback(ctx, acme, "p", 1))(t)
	b.view("rollback", row(t, model.ViewProfile, key, filledView("p", 1)))
}

// TestABoundThatClampWouldStoreIsAValueOfTheMetric: CLAMP stores a bound as a reading.
func TestABoundThatClampWouldStoreIsAValueOfTheMetric(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	for i, c := range []struct {
		refused string // field; "" for none
		p       store.Patch
	}{
		{"", store.Patch{"dataType": "INT", "minValue": -1.0, "maxValue": 2.0, "outOfRange": "CLAMP"}},
		{"minValue", store.Patch{"dataType": "INT", "minValue": -0.5, "maxValue": 2.0, "outOfRange": "CLAMP"}},
		{"maxValue", store.Patch{"dataType": "INT", "minValue": -1.0, "maxValue": 2.5, "outOfRange": "CLAMP"}},
		{"", store.Patch{"dataType": "INT", "minValue": -0.5, "maxValue": 2.5, "outOfRange": "FLAG"}},
		{"", store.Patch{"dataType": "DOUBLE", "minValue": -0.5, "maxValue": 2.5, "outOfRange": "CLAMP"}},
		{"maxValue", store.Patch{"dataType": "BOOLEAN", "maxValue": 0.5, "outOfRange": "CLAMP"}},
		{"", store.Patch{"dataType": "BOOLEAN", "maxValue": 0.0, "outOfRange": "CLAMP"}},
		{"maxValue", store.Patch{"dataType": "DOUBLE", "maxValue": 40.0, "enum": `["1","2"]`, "outOfRange": "CLAMP"}},
		{"", store.Patch{"dataType": "DOUBLE", "maxValue": 40.0, "enum": `["1","4e1"]`, "outOfRange": "CLAMP"}},
		{"outOfRange", store.Patch{"dataType": "DOUBLE", "outOfRange": "DROP"}},
		{"outOfRange", store.Patch{"dataType": "DOUBLE", "outOfRange": nil}},
	} {
		token := "m-" + strconv.Itoa(i)
		c.p["token"], c.p["deviceProfileToken"], c.p["metricKey"] = token, "p", token
		_, err := b.Metrics.Create(t.Context(), acme, c.p)
		if c.refused == "" && err != nil {
			t.Errorf("%v: %v", c.p, err)
		}
		if refusal, ok := errors.AsType[*model.Error](err); c.refused != "" && (!ok || refusal.Field != c.refused) {
			t.Errorf("%v: %v, want a refusal of %s", c.p, err, c.refused)
		}
	}
}

// TestANameBelongsToOneMetricOfAProfile: as key or as source name. Source names are sorted, each once, and frozen at a publish.
func TestANameBelongsToOneMetricOfAProfile(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	p, _, _ := b.seed()
	b.fillDraft() // declares temp and mode
	must(b.Profiles.Create(ctx, acme, store.Patch{"token": "elsewhere"}))(t)
	must(b.Metrics.Create(ctx, acme, store.Patch{"token": "other", "deviceProfileToken": "elsewhere", "metricKey": "free", "dataType": "DOUBLE", "sourceNames": []any{"taken"}}))(t)
	m := must(b.Metrics.Update(ctx, acme, "m-temp", store.Patch{"sourceNames": []any{"taken", "/3303/0/5700", "taken", "Node Temperature"}}))(t)
	if want := []string{"/3303/0/5700", "Node Temperature", "taken"}; !slices.Equal(m.SourceNames, want) {
		t.Errorf("%q, want %q", m.SourceNames, want)
	}
	long := strings.Repeat("ü", 128)
	for what, c := range map[string]struct {
		field string // refused; "" for none
		p     store.Patch
	}{
		"a source name of another":      {"sourceNames", store.Patch{"metricKey": "x", "sourceNames": []any{"taken"}}},
		"the key of another":            {"sourceNames", store.Patch{"metricKey": "x", "sourceNames": []any{"y", "mode"}}},
		"a key that is sent as another": {"metricKey", store.Patch{"metricKey": "taken"}},
		"its own key":                   {"sourceNames", store.Patch{"metricKey": "x", "sourceNames": []any{"x"}}},
		"an empty name":                 {"sourceNames", store.Patch{"metricKey": "x", "sourceNames": []any{""}}},
		"a long name":                   {"sourceNames", store.Patch{"metricKey": "x", "sourceNames": []any{long + "x"}}},
		"a name as long as may be":      {"", store.Patch{"metricKey": "fresh", "sourceNames": []any{long}}},
		"more names than may be":        {"sourceNames", store.Patch{"metricKey": "x", "sourceNames": make([]any, 65)}},
	} {
		c.p["token"], c.p["deviceProfileToken"], c.p["dataType"] = "m-x", "p", "DOUBLE"
		names, _ := c.p["sourceNames"].([]any)
		for i := range names {
			if names[i] == nil {
				names[i] = strconv.Itoa(i)
			}
		}
		_, err := b.Metrics.Create(ctx, acme, c.p)
		refusal, ok := errors.AsType[*model.Error](err)
		if c.field == "" && err != nil || c.field != "" && (!ok || refusal.Field != c.field) {
			t.Errorf("%s: %v, want a refusal of %q", what, err, c.field)
		}
	}
	if _, err := b.Metrics.Update(ctx, acme, "other", store.Patch{"deviceProfileToken": "p"}); err == nil {
		t.Error("a definition was moved to a profile that has its source name")
	}
	must(b.Metrics.Delete(ctx, acme, "m-x"))(t)
	b.view("a draft")
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	published := filledView("p", 1)
	published.Metrics[1].SourceNames = []string{"/3303/0/5700", "Node Temperature", "taken"}
	b.view("publish", row(t, model.ViewProfile, idKey(p.ID), published))
	if m := must(b.Metrics.Update(ctx, acme, "m-temp", store.Patch{"sourceNames": nil}))(t); len(m.SourceNames) != 0 {
		t.Errorf("cleared: %q", m.SourceNames)
	}
	must(b.Metrics.Update(ctx, acme, "other", store.Patch{"deviceProfileToken": "p"}))(t)
}
