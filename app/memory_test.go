package app

import (
	"fmt"
	"strings"
	"testing"

	"weir/config"
	"weir/gql"
)

func TestTheSharesOfMemoryAddUpToLessThanItsLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{MinMemory, 128 << 20, 512 << 20, 2 << 30, 4 << 30} {
		b := NewBudget(limit)
		sum := int64(programBytes)
		for _, s := range shares() {
			if got := b.of(s); got < s.Min || got > s.Max {
				t.Errorf("%d MiB: %s has %d", limit>>20, s.Name, got)
			}
			sum += b.of(s)
		}
		if sum > limit {
			t.Errorf("%d MiB: the parts have %d MiB", limit>>20, sum>>20)
		}
		// What is counted in pieces costs no more than its part.
		l := b.graphQL(gql.LimitsFromEnv(func(string) string { return "" }))
		for _, c := range []struct {
			part  share
			bytes int64
		}{
			{mqttShare, int64(b.mqttConnections(1<<30)) * connectionMQTT}, {ingestShare, int64(b.ingestConnections()) * connectionHTTP},
			{apiShare, int64(b.apiConnections()) * connectionHTTP}, {bodyShare, 2 * int64(b.largeBodies()) * largeBody},
			{ruleShare, int64(b.keysInAll()) * bytesPerKey}, {resultShare, int64(l.ResponseBytes) * resultsPerByte},
			{graphQLShare, l.PendingBytes}, {documentShare, l.CacheBytes},
		} {
			if c.bytes > b.of(c.part) || c.bytes <= 0 {
				t.Errorf("%d MiB: %s may take %d of %d", limit>>20, c.part.Name, c.bytes, b.of(c.part))
			}
		}
	}
	weights := int64(0)
	for _, s := range shares() {
		weights += s.PerMille
	}
	if weights != 1000 {
		t.Errorf("the shares add up to %d parts per thousand", weights)
	}
}

func TestConfiguredNumbersCountAsFarAsThereIsRoom(t *testing.T) {
	t.Parallel()
	b := NewBudget(512 << 20)
	if n := b.mqttConnections(100); n != 100 {
		t.Errorf("%d connections of 100", n)
	}
	if n := b.mqttConnections(100_000); n < 2000 || n > 20_000 {
		t.Errorf("%d connections of 100,000 with 512 MiB", n)
	}
	cfg := config.Default()
	altIDs := altIDBytes(NewBudget(MinMemory), cfg)
	if altIDs >= int64(cfg.Ingest.DedupeMaxBytes) {
		t.Errorf("%d bytes of altIds in %d of memory", altIDs, MinMemory)
	}
}

func TestAnInstanceDoesNotStartWithTooLittleMemory(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Limits.Memory = MinMemory
	if err := CheckMemory(cfg); err != nil {
		t.Error(err)
	}
	cfg.Limits.Memory = MinMemory - 1 // as a container could leave it
	err := CheckMemory(cfg)
	ps, ok := config.AsProblems(err)
	if !ok || ps[0].Path != "limits.memory" || !strings.Contains(ps[0].Hint, "64MiB") || !strings.Contains(fmt.Sprint(err), "63MiB") {
		t.Errorf("%v", err)
	}
	if r := RuntimeLimit(config.Config{Limits: config.Limits{Memory: 512 << 20}}); r >= 512<<20 || r < 400<<20 {
		t.Errorf("the runtime gets %d", r)
	}
}
