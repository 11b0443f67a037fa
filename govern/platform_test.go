package govern

import (
	"testing"

	"weir/internal/test/fixture"
	"weir/store"
)

func TestTheDefaultsOfThePlatformChangeAndKeepWhatWasUsed(t *testing.T) {
	cfg := DefaultConfig()
	cfg.IngestMessagesPerSecond, cfg.IngestBurst = 1, 1000
	g := open(t, fixture.Store(t), cfg, newClock().Now)
	mustCreate(t, g, store.Patch{"token": "acme"})
	mustCreate(t, g, store.Patch{"token": "own", "ingestBurst": int64(300)})
	for _, name := range []string{"acme", "nobody"} {
		if !g.Take(name, 900) {
			t.Fatalf("%s: refused", name)
		}
	}
	cfg.IngestBurst, cfg.ShedPriority = 1100, 77
	if err := g.SetPlatform(cfg); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"acme", "nobody"} {
		if g.Take(name, 201) || !g.Take(name, 200) {
			t.Errorf("%s: the change filled the bucket, or does not count", name)
		}
	}
	if !g.Take("new-name", 1100) {
		t.Error("a name that is seen later has the old ceiling")
	}
	if a, n := g.Limits("acme"), g.Limits("nobody"); *a.IngestBurst != 1100 || *n.ShedPriority != 77 {
		t.Errorf("got %d, %d", *a.IngestBurst, *n.ShedPriority)
	}
	if v := g.Limits("own"); *v.IngestBurst != 300 {
		t.Errorf("the tenant's own value is %d", *v.IngestBurst)
	}
}

func TestTheManualFloorOfThePlatformCounts(t *testing.T) {
	cfg := DefaultConfig()
	g := open(t, fixture.Store(t), cfg, newClock().Now)
	mustCreate(t, g, store.Patch{"token": "acme", "shedPriority": int64(30)})
	cfg.ManualFloor = 3
	if err := g.SetPlatform(cfg); err != nil {
		t.Fatal(err)
	}
	if g.Take("acme", 1) || g.Take("nobody", 1) {
		t.Error("bronze is admitted at level 3")
	}
	cfg.ManualFloor = 4
	if err := g.SetPlatform(cfg); err == nil {
		t.Error("level 4 is taken")
	}
}
