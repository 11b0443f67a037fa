package ingest

import (
	"encoding/hex"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/internal/wire"
	"weir/model"
	"weir/store"
)

func TestAPageOfAltIDsLoadsAsWhatWasRemembered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSeen(hours(1000), 1<<30, 0)
		tenants, devices := rapid.Int64Range(1, 3), rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64())
		ids := rapid.OneOf(rapid.StringMatching(`m[0-9]{1,5}`), rapid.StringMatching(`[0-9a-f]{12}`), rapid.StringN(1, 20, 128))
		times := rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Map(rapid.Int64Range(0, 1_000_000), func(n int64) int64 { return 1_790_000_000_000_000_000 + n*1000 }), rapid.Int64())
		for range rapid.IntRange(1, 100).Draw(t, "keys") {
			m := &model.Message{AltID: ids.Draw(t, "altId"), HasOccurred: rapid.Bool().Draw(t, "timed")}
			if m.HasOccurred {
				m.Occurred = model.Nanos(times.Draw(t, "occurred"))
			}
			s.addAltID(appendAltIDKey(nil, tenants.Draw(t, "tenant"), devices.Draw(t, "device"), m), 5)
		}
		f := s.freeze(10)
		pages, again := f.pages(), newSeen(hours(1000), 1<<30, 0)
		if most := 16*len(s.altIDs) + 16; len(pages) != 1 || len(pages[0].Body) > most {
			t.Fatalf("%d pages of %d bytes, hashes alone take %d", len(pages), len(pages[0].Body), most)
		}
		if err := again.load(pages[0]); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(s.altIDs, again.altIDs) || len(again.pages) != 1 || len(again.pages[0].hashes) != len(s.altIDs) {
			t.Fatalf("%d altIds became %d", len(s.altIDs), len(again.altIDs))
		}
	})
}

func hours(n int) time.Duration { return time.Duration(n) * time.Hour }

// countingDevices is what devices with counters have sent, and one with a single altId that is longer than a hash.
func countingDevices(devices int64, n int) *seen {
	s := newSeen(hours(1000), 1<<30, 0)
	for i := range n {
		for device := range devices {
			m := &model.Message{AltID: fmt.Sprintf("m%d", i), HasOccurred: true, Occurred: model.Nanos(1_790_000_000_000_000_000 + int64(i)*30_000_000_000)}
			s.addAltID(appendAltIDKey(nil, 1, 7+device, m), model.Nanos(i))
		}
	}
	s.addAltID(appendAltIDKey(nil, 2, 1, &model.Message{AltID: "nobody counts like this"}), 1)
	return s
}

func TestAltIDsThatCountTakeAByteOrTwo(t *testing.T) {
	t.Parallel()
	s := countingDevices(20, 100)
	f := s.freeze(1000)
	if n := len(f.pages()[0].Body); n > 2*len(s.altIDs) {
		t.Errorf("%d altIds take %d bytes", len(s.altIDs), n)
	}
}

func TestADamagedOrNewerPageOfAltIDsIsAnError(t *testing.T) {
	t.Parallel()
	f := countingDevices(3, 5).freeze(1000)
	page := f.pages()[0]
	load := func(body []byte) error {
		return newSeen(hours(1), 1<<30, 0).load(store.SeenPage{Kind: seenAltIDs, Body: body})
	}
	for n := range page.Body {
		if load(page.Body[:n]) == nil {
			t.Errorf("cut after %d of %d bytes it loads", n, len(page.Body))
		}
	}
	if load(append(page.Body[:len(page.Body):len(page.Body)], 0)) == nil {
		t.Error("with a byte too many it loads")
	}
	newer := append([]byte{altIDVersion + 1}, page.Body[1:]...)
	if load(newer) == nil {
		t.Error("a newer version loads")
	}
}

// These pages are the format: a released Weir has written them.
func TestPagesOfAltIDsAreReadForEver(t *testing.T) {
	t.Parallel()
	want := countingDevices(2, 3)
	f := want.freeze(1000)
	for version, body := range map[int][]byte{1: unhex(t, goldenAltIDs1), 2: unhex(t, goldenAltIDs)} {
		got := newSeen(hours(1), 1<<30, 0)
		if err := got.load(store.SeenPage{Kind: seenAltIDs, Body: body}); err != nil || !maps.Equal(got.altIDs, want.altIDs) {
			t.Errorf("version %d: %v, %d altIds, want %d", version, err, len(got.altIDs), len(want.altIDs))
		}
	}
	if body := hex.EncodeToString(f.pages()[0].Body); body != goldenAltIDs {
		t.Errorf("the encoder writes other bytes: %s", body)
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzLoadPageOfAltIDs(f *testing.F) {
	frozen := countingDevices(3, 5).freeze(1000)
	f.Add(frozen.pages()[0].Body)
	f.Add(wire.AppendBytes([]byte{1}, nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		s := newSeen(hours(1), 1<<30, 0)
		if len(body) > 1 {
			_ = s.load(store.SeenPage{Kind: seenAltIDs, Body: body})
		}
	})
}

const (
	goldenAltIDs1 = "01070d6fe4ce83aa1ebfcc53e1ea3d362b4b7a5ada9b3417c6b7b550865384cf55156b8fff7a62717c8837ce63ef7d4e2778062b59867afe7c9724cb62f5db686ad6f1f4ae5bd3dd9fb9e45430f4416ae32ac713f49c87685fdea7e20afe18a930f150114ca98a53c1f998ca76a5b83d3f4f"
	goldenAltIDs  = "020150114ca98a53c1f998ca76a5b83d3f4f02020e070301016d007e00027e808098bf84e1add73180b09dc2df010002070301016d007e00027e808098bf84e1add73180b09dc2df01"
)
