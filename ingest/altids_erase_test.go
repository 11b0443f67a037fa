package ingest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/wire"
	"weir/model"
	"weir/store"
)

// readPage takes a page of version 2 apart: how many hashes it has, and its keys.
func readPage(t interface{ Fatal(...any) }, body []byte) (hashes []byte, keys []altIDKey) {
	r := wire.NewReader(body)
	r.Byte()
	hashes = r.Take(16 * r.Count(16))
	groups, prev := r.Count(4), altIDKey{}
	src := r.Take(r.Len())
	for range groups {
		var err error
		if src, err = decodeAltIDGroup(src, &prev, func(k altIDKey) { keys = append(keys, k) }); err != nil {
			t.Fatal(err)
		}
	}
	if len(src) > 0 || r.Err() != nil {
		t.Fatal(len(src), r.Err())
	}
	return hashes, keys
}

// checkErased checks what EraseAltIDs has made of a page that loads.
func checkErased(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, body []byte, tenant int64) (erased int) {
	page := store.SeenPage{Kind: seenAltIDs, Body: body}
	before := bytes.Clone(body)
	got, erased, err := EraseAltIDs(page, tenant)
	switch {
	case err != nil:
		t.Fatal(err)
	case !bytes.Equal(before, body):
		t.Fatal("the page itself was changed")
	case erased == 0 && !bytes.Equal(got, body):
		t.Fatal("nothing was erased, and the page is another one")
	}
	again := newSeen(hours(1000), 1<<30, 0)
	if err := again.load(store.SeenPage{Kind: seenAltIDs, Body: got}); err != nil {
		t.Fatal(err)
	}
	if body[0] < altIDVersion {
		if erased > 0 {
			t.Fatal("a page of hashes has no texts")
		}
		return 0
	}
	hashes, keys := readPage(t, body)
	left, kept := readPage(t, got)
	want := slices.DeleteFunc(slices.Clone(keys), func(k altIDKey) bool { return k.tenant == tenant })
	if !bytes.Equal(hashes, left) || !slices.Equal(kept, want) || erased != len(keys)-len(want) {
		t.Fatalf("of %d keys %d were erased, %d are left, want %d; hashes are the same: %v", len(keys), erased, len(kept), len(want), bytes.Equal(hashes, left))
	}
	if third, n, err := EraseAltIDs(store.SeenPage{Kind: seenAltIDs, Body: got}, tenant); err != nil || n != 0 || !bytes.Equal(third, got) {
		t.Fatalf("erased again: %d, %v", n, err)
	}
	return erased
}

// A page loses the texts of one tenant, and those of the others are remembered as before: their repeats are still found.
func TestErasedAltIDsLeaveThoseOfOthers(t *testing.T) {
	t.Parallel()
	total := 0
	rapid.Check(t, func(t *rapid.T) {
		s := newSeen(hours(1000), 1<<30, 0)
		tenants, devices := rapid.Int64Range(1, 4), rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64())
		others := map[[16]byte]struct{}{}
		for range rapid.IntRange(1, 8).Draw(t, "devices") {
			tenant, device, n := tenants.Draw(t, "tenant"), devices.Draw(t, "device"), rapid.IntRange(1, 60).Draw(t, "events")
			for i := range n {
				m := &model.Message{AltID: fmt.Sprintf("zebra%d", i), HasOccurred: rapid.Bool().Draw(t, "timed"), Occurred: model.Nanos(1_790_000_000_000_000_000 + int64(i)*1000)}
				key := appendAltIDKey(nil, tenant, device, m)
				if s.addAltID(key, 5); tenant != 2 {
					others[altIDHash(key)] = struct{}{}
				}
			}
		}
		f := s.freeze(10)
		body := f.pages()[0].Body
		erased := checkErased(t, body, 2)
		total += erased
		got, _, _ := EraseAltIDs(store.SeenPage{Kind: seenAltIDs, Body: body}, 2)
		again := newSeen(hours(1000), 1<<30, 0)
		if err := again.load(store.SeenPage{Kind: seenAltIDs, Body: got}); err != nil {
			t.Fatal(err)
		}
		if len(again.altIDs) != len(s.altIDs)-erased {
			t.Fatalf("%d altIds, %d erased, %d are left", len(s.altIDs), erased, len(again.altIDs))
		}
		for hash := range others {
			if _, ok := again.altIDs[hash]; !ok {
				t.Fatal("an altId of another tenant is gone")
			}
		}
	})
	if total == 0 {
		t.Error("nothing was ever erased: the test shows nothing")
	}
}

// The page that is left without any text holds none of the erased.
func TestAPageOfOneTenantIsEmptyAfterTheErase(t *testing.T) {
	t.Parallel()
	s := newSeen(hours(1000), 1<<30, 0)
	for i := range 100 {
		s.addAltID(appendAltIDKey(nil, 3, 9, &model.Message{AltID: fmt.Sprintf("zebra-%d", i)}), 1)
	}
	f := s.freeze(10)
	body := f.pages()[0].Body
	if !bytes.Contains(body, []byte("zebra")) {
		t.Fatal("the page has no text: the test shows nothing")
	}
	got, n, err := EraseAltIDs(store.SeenPage{Kind: seenAltIDs, Body: body}, 3)
	if err != nil || n != 100 || bytes.Contains(got, []byte("zebra")) || len(got) > 4 {
		t.Errorf("%d erased, %v: %q", n, err, got)
	}
}

// Pages that hold no texts stay as they are: those of hashes alone, and those of MQTT clients.
func TestPagesWithoutTextsStay(t *testing.T) {
	t.Parallel()
	for _, p := range []store.SeenPage{{Kind: seenAltIDs, Body: unhex(t, goldenAltIDs1)}, {Kind: seenRepeats, Body: unhex(t, goldenAltIDs)}} {
		if got, n, err := EraseAltIDs(p, 1); err != nil || n != 0 || !bytes.Equal(got, p.Body) {
			t.Errorf("kind %v: %d erased, %v", p.Kind, n, err)
		}
	}
	if _, n, err := EraseAltIDs(store.SeenPage{Kind: seenAltIDs, Body: unhex(t, goldenAltIDs)}, 1); err != nil || n != 6 {
		t.Errorf("of a page that a released Weir has written: %d erased, %v", n, err)
	}
}

func TestADamagedPageIsNotErasedInPart(t *testing.T) {
	t.Parallel()
	f := countingDevices(3, 5).freeze(1000)
	body := f.pages()[0].Body
	erase := func(body []byte) error {
		_, _, err := EraseAltIDs(store.SeenPage{Kind: seenAltIDs, Body: body}, 1)
		return err
	}
	for n := range body {
		if erase(body[:n]) == nil {
			t.Errorf("cut after %d of %d bytes it is taken", n, len(body))
		}
	}
	if erase(append(body[:len(body):len(body)], 0)) == nil {
		t.Error("with a byte too many it is taken")
	}
}

// FuzzEraseAltIDs: a page that loads loses the texts of the tenant and nothing else; one that does not is an error.
func FuzzEraseAltIDs(f *testing.F) {
	frozen := countingDevices(3, 5).freeze(1000)
	f.Add(frozen.pages()[0].Body, int64(1))
	f.Add(frozen.pages()[0].Body, int64(2))
	f.Add([]byte{altIDVersion, 0, 0}, int64(1))
	f.Fuzz(func(t *testing.T, body []byte, tenant int64) {
		if len(body) < 2 || body[0] > altIDVersion {
			return // a start refuses a newer version
		}
		page := store.SeenPage{Kind: seenAltIDs, Body: body}
		if err := newSeen(hours(1), 1<<30, 0).load(page); err == nil {
			checkErased(t, body, tenant)
		} else if _, n, erring := EraseAltIDs(page, tenant); erring == nil && body[0] == altIDVersion {
			t.Fatalf("a page that does not load (%v) is taken: %d erased", err, n)
		}
	})
}
