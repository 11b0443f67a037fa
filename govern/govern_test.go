package govern

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// operator may do everything here.
var operator = fixture.Operator()

func open(t *testing.T, db store.Store, cfg Config, clock func() time.Time) *Govern {
	t.Helper()
	g, err := New(t.Context(), cfg, Deps{Store: db, Writer: store.Direct{Store: db}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func newGovern(t *testing.T) *Govern { return open(t, fixture.Store(t), DefaultConfig(), nil) }

func mustCreate(t *testing.T, g *Govern, p store.Patch) *Tenant {
	t.Helper()
	tenant, err := g.Tenants.Create(t.Context(), operator, p)
	if err != nil {
		t.Fatal(err)
	}
	return tenant
}

func TestFirstStartMakesTiersOnceAndNoTenant(t *testing.T) {
	db := fixture.Store(t)
	g := open(t, db, DefaultConfig(), nil)
	if tokens := g.TenantTokens(); len(tokens) != 0 {
		t.Errorf("tenants %v at first start", tokens)
	}
	if removed, err := g.Tiers.Delete(t.Context(), operator, "bronze"); !removed || err != nil {
		t.Fatalf("deleting bronze: %v, %v", removed, err)
	}
	g = open(t, db, DefaultConfig(), nil)
	all, err := g.TierCounts(t.Context(), operator)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tier := range all {
		got = append(got, tier.Token)
	}
	if !slices.Equal(got, []string{"gold", "silver"}) {
		t.Errorf("tiers after the second start: %v", got)
	}
}

func TestANewTenantIsSilverEnabledAndInForceAtOnce(t *testing.T) {
	db := fixture.Store(t)
	g := open(t, db, DefaultConfig(), nil)
	tenant := mustCreate(t, g, store.Patch{"token": "acme", "name": "Acme"})
	id, enabled, known := g.Lookup("acme")
	if id != tenant.ID || !enabled || !known {
		t.Errorf("Lookup = %d, %v, %v", id, enabled, known)
	}
	if g.TokenOf(id) != "acme" {
		t.Errorf("TokenOf(%d) = %q", id, g.TokenOf(id))
	}
	v, ok := g.Governance("acme")
	if !ok || v.Tier != "silver" || v.ShedPriority == nil || *v.ShedPriority != 60 || v.IngestBurst != nil {
		t.Errorf("governance %+v", v)
	}
	again := open(t, db, DefaultConfig(), nil)
	if id2, enabled, known := again.Lookup("acme"); id2 != id || !enabled || !known {
		t.Errorf("after a restart Lookup = %d, %v, %v", id2, enabled, known)
	}
}

func TestEachSwitchOfATenantPutsAViewRow(t *testing.T) {
	db := fixture.Store(t)
	g := open(t, db, DefaultConfig(), nil)
	tenant := mustCreate(t, g, store.Patch{"token": "acme"})
	before := g.NotBefore("acme")
	for _, enabled := range []bool{false, false, true} {
		if _, err := g.SetTenantEnabled(t.Context(), operator, "acme", enabled); err != nil {
			t.Fatal(err)
		}
	}
	if after := g.NotBefore("acme"); after <= before {
		t.Errorf("not-before stayed at %d", after)
	}
	var states []bool
	err := db.Read(t.Context(), func(tx store.Tx) error {
		rows, err := store.PendingControl(tx, 0, 100)
		for _, row := range rows {
			vs, err := store.DecodeViewChanges(row.Body)
			if err != nil {
				return err
			}
			for _, v := range vs {
				var body model.TenantView
				if err := json.Unmarshal(v.Body, &body); err != nil {
					return err
				}
				if v.Kind != model.ViewTenant || v.Key != "acme" || body.ID != tenant.ID || body.V != 1 {
					t.Errorf("view row %s %s %+v", v.Kind, v.Key, body)
				}
				states = append(states, body.Enabled)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(states, []bool{true, false, true}) {
		t.Errorf("view rows say %v; switching to the same state must write nothing", states)
	}
}

func TestSwitchingATenantNotifiesTheTransportsAfterwards(t *testing.T) {
	db := fixture.Store(t)
	var g *Govern
	var told []bool
	g, err := New(t.Context(), DefaultConfig(), Deps{Store: db, Writer: store.Direct{Store: db}, OnSwitch: func(tenant string, enabled bool) {
		if _, now, _ := g.Lookup(tenant); now != enabled {
			t.Errorf("told %v before it was in force", enabled)
		}
		told = append(told, enabled)
	}})
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, g, store.Patch{"token": "acme"})
	for _, enabled := range []bool{true, false, true} {
		if _, err := g.SetTenantEnabled(t.Context(), operator, "acme", enabled); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(told, []bool{false, true}) {
		t.Errorf("told %v", told)
	}
}

func TestValuesCascadeFromTenantOverTierToPlatform(t *testing.T) {
	g := newGovern(t)
	mustCreate(t, g, store.Patch{"token": "acme", "tierToken": "gold", "ingestMessagesPerSecond": 7.5})
	check := func(step string, rate float64, burst, priority int64) {
		t.Helper()
		v := g.Limits("acme")
		if *v.IngestMessagesPerSecond != rate || *v.IngestBurst != burst || *v.ShedPriority != priority {
			t.Errorf("%s: %v/s burst %d priority %d, want %v, %d, %d", step, *v.IngestMessagesPerSecond, *v.IngestBurst,
				*v.ShedPriority, rate, burst, priority)
		}
	}
	check("override over tier", 7.5, 4000, 90)
	update := func(p store.Patch) {
		t.Helper()
		if _, err := g.Tenants.Update(t.Context(), operator, "acme", p); err != nil {
			t.Fatal(err)
		}
	}
	update(store.Patch{"ingestMessagesPerSecond": nil})
	check("override removed", 2000, 4000, 90)
	if _, err := g.Tiers.Update(t.Context(), operator, "gold", store.Patch{"config": `{"shedPriority": 81, "ingestBurst": 0}`}); err != nil {
		t.Fatal(err)
	}
	check("tier changed; zero means the next level", 1000, 2000, 81)
	update(store.Patch{"tierToken": "bronze"})
	check("other tier", 250, 500, 30)
	if v, _ := g.Governance("acme"); v.Tier != "bronze" || v.HeldCommandCeiling != nil {
		t.Errorf("governance %+v: a limit that nobody sets must be nil", v)
	}
}

func TestTierConfigIsClearedByNullBracesAndEmptyText(t *testing.T) {
	for _, cleared := range []any{nil, "{}", " { } ", ""} {
		g := newGovern(t)
		tier, err := g.Tiers.Update(t.Context(), operator, "gold", store.Patch{"config": cleared})
		if err != nil || tier.Config != nil {
			t.Errorf("config %#v: %v, %v", cleared, tier, err)
		}
		tier, err = g.Tiers.Update(t.Context(), operator, "silver", store.Patch{"name": "S"})
		if err != nil || tier.Config == nil {
			t.Errorf("config omitted: %v, %v", tier, err)
		}
	}
}

func TestRefusalsOfTenantsAndTiersWriteNothing(t *testing.T) {
	ctx := t.Context()
	db := fixture.Store(t)
	g := open(t, db, DefaultConfig(), nil)
	mustCreate(t, g, store.Patch{"token": "acme", "tierToken": "gold"})
	tenant := func(p store.Patch) func() error {
		return func() error { _, err := g.Tenants.Create(ctx, operator, p); return err }
	}
	update := func(p store.Patch) func() error {
		return func() error { _, err := g.Tenants.Update(ctx, operator, "acme", p); return err }
	}
	tier := func(config string) func() error {
		return func() error {
			_, err := g.Tiers.Update(ctx, operator, "gold", store.Patch{"config": config})
			return err
		}
	}
	before := dump(t, db)
	for name, c := range map[string]struct {
		do   func() error
		code model.Code
		text string
	}{
		"token in use":             {tenant(store.Patch{"token": "acme"}), model.CodeConflict, "unique"},
		"token with a dot":         {tenant(store.Patch{"token": "ac.me"}), model.CodeInvalidInput, "token"},
		"unknown tier":             {tenant(store.Patch{"token": "b", "tierToken": "tin"}), model.CodeInvalidInput, "tierToken"},
		"null tier":                {update(store.Patch{"tierToken": nil}), model.CodeInvalidInput, "tierToken"},
		"rate of zero":             {update(store.Patch{"ingestMessagesPerSecond": 0.0}), model.CodeInvalidInput, "ingestMessagesPerSecond"},
		"priority above 100":       {update(store.Patch{"shedPriority": int64(101)}), model.CodeInvalidInput, "shedPriority"},
		"name beside a bad value":  {update(store.Patch{"name": "x", "ingestBurst": int64(-1)}), model.CodeInvalidInput, "ingestBurst"},
		"held ceiling too low":     {update(store.Patch{"heldCommandCeiling": int64(99)}), model.CodeInvalidInput, "heldCommandCeiling"},
		"unknown tenant":           {func() error { _, err := g.Tenants.Update(ctx, operator, "no", nil); return err }, model.CodeNotFound, `"no"`},
		"unknown tenant switched":  {func() error { _, err := g.SetTenantEnabled(ctx, operator, "no", true); return err }, model.CodeNotFound, `"no"`},
		"tier with an unknown key": {tier(`{"ingestMessages": 1}`), model.CodeInvalidInput, "ingestMessages"},
		"tier of negative rate":    {tier(`{"ingestMessagesPerSecond": -1}`), model.CodeInvalidInput, "ingestMessagesPerSecond"},
		"tier with a tenant's key": {tier(`{"aiExternalEnabled": true}`), model.CodeInvalidInput, "aiExternalEnabled"},
		"tier config null":         {tier(`null`), model.CodeInvalidInput, "config"},
		"tier config no object":    {tier(`[1]`), model.CodeInvalidInput, "config"},
		"tier config broken":       {tier(`{`), model.CodeInvalidInput, "config"},
		"tier number as text":      {tier(`{"ingestBurst": "5"}`), model.CodeInvalidInput, "ingestBurst"},
		"tier burst not whole":     {tier(`{"ingestBurst": 2.5}`), model.CodeInvalidInput, "ingestBurst"},
		"tier color": {func() error {
			_, err := g.Tiers.Update(ctx, operator, "gold", store.Patch{"color": "gold"})
			return err
		}, model.CodeInvalidInput, "color"},
		"tier in use": {func() error { _, err := g.Tiers.Delete(ctx, operator, "gold"); return err }, model.CodeInUse, "tenant"},
		"reorder leaves one out": {func() error { _, err := g.ReorderTiers(ctx, operator, []string{"gold", "silver"}); return err },
			model.CodeInvalidInput, "orderedTokens"},
		"reorder names one twice": {func() error {
			_, err := g.ReorderTiers(ctx, operator, []string{"gold", "silver", "gold"})
			return err
		}, model.CodeInvalidInput, "orderedTokens"},
		"without a token": {func() error { _, err := g.Tenants.Create(ctx, nil, store.Patch{"token": "b"}); return err },
			model.CodeUnauthenticated, "unauthenticated"},
		"with a tenant's wildcard": {func() error {
			by := &model.Principal{Kind: model.AccessCaller, Tenants: map[model.Authority]bool{model.AllAuthorities: true}}
			_, err := g.Tenants.Create(ctx, by, store.Patch{"token": "b"})
			return err
		}, model.CodeForbidden, "tenant:write"},
	} {
		t.Run(name, func(t *testing.T) { fixture.Refused(t, c.do(), c.code, c.text) })
	}
	if after := dump(t, db); after != before {
		t.Errorf("a refusal wrote something:\n%s\nbefore:\n%s", after, before)
	}
}

// dump is everything that a refusal must leave alone.
func dump(t *testing.T, db store.Store) string {
	t.Helper()
	var b strings.Builder
	err := db.Read(t.Context(), func(tx store.Tx) error {
		ts, err := (&Govern{}).tenantKind(entity.Base{}).Table.Select(tx, 0, "id")
		if err != nil {
			return err
		}
		tr, err := (&Govern{}).tierKind(entity.Base{}).Table.Select(tx, 0, "id")
		if err != nil {
			return err
		}
		control, err := store.PendingControl(tx, 0, 1000)
		if err != nil {
			return err
		}
		_, audit, err := store.ListAudit(tx, store.Page{}, store.AuditFilter{})
		if err != nil {
			return err
		}
		return json.NewEncoder(&b).Encode([]any{ts, tr, control, audit})
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReorderedTiersStayInTheirOrder(t *testing.T) {
	g := newGovern(t)
	if _, err := g.Tiers.Create(t.Context(), operator, store.Patch{"token": "tin", "color": "red"}); err != nil {
		t.Fatal(err)
	}
	all, err := g.TierCounts(t.Context(), operator)
	if err != nil || all[3].Token != "tin" {
		t.Fatalf("a new tier goes last: %v, %v", all, err)
	}
	want := []string{"tin", "silver", "gold", "bronze"}
	if _, err := g.ReorderTiers(t.Context(), operator, want); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, g, store.Patch{"token": "acme", "tierToken": "tin"})
	all, err = g.TierCounts(t.Context(), operator)
	if err != nil {
		t.Fatal(err)
	}
	for i, tier := range all {
		if tier.Token != want[i] || tier.DisplayOrder != int64(i+1) || (tier.Tenants == 1) != (tier.Token == "tin") {
			t.Errorf("place %d: %s, order %d, %d tenants", i, tier.Token, tier.DisplayOrder, tier.Tenants)
		}
	}
}

func TestADamagedTierReferenceStopsTheStart(t *testing.T) {
	db := fixture.Store(t)
	g := open(t, db, DefaultConfig(), nil)
	tenant := mustCreate(t, g, store.Patch{"token": "acme"})
	g.index.mu.RLock()
	known := len(g.index.byID)
	g.index.mu.RUnlock()
	if known != 1 || tenant.TierID == 0 {
		t.Fatalf("%d tenants, tier %d", known, tenant.TierID)
	}
	// A reference cannot be broken through the store: foreign keys hold.
	err := db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		_, err := tx.Exec(`UPDATE tenants SET tier_id = 999`)
		return err
	})
	if err == nil {
		t.Error("a tenant without a tier was accepted")
	}
}

func TestConfigNamesEveryReasonAtOnce(t *testing.T) {
	cfg := DefaultConfig()
	if err := cfg.Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	cfg.IngestBurst, cfg.ShedPriority, cfg.ManualFloor = 0, 101, 4
	err := cfg.Validate()
	for _, key := range []string{"ingest_burst", "shed_priority", "manual_floor"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%v does not name %s", err, key)
		}
	}
	if _, err := New(context.Background(), cfg, Deps{}); err == nil {
		t.Error("New takes it")
	}
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeInvalidInput {
		t.Errorf("%v", err)
	}
}
