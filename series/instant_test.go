package series

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// fleetOfOneInstant fills a store with devices that all report at the same instants: with chunks, with blocks, and a head.
func fleetOfOneInstant(t *testing.T, devices, rounds int) *Series {
	t.Helper()
	s := open(t, fixture.Store(t), Config{ChunkReadings: 10, FullReadings: 10})
	offset := model.Offset(0)
	for n := range rounds {
		for d := range devices {
			offset++
			at := day0 + model.Micros(n)*60_000_000
			device := (d*7+n)%devices + 1 // nobody is always the last
			p := Point{TenantID: 1, Device: int64(device), DeviceToken: fmt.Sprintf("device-%d", device), Metric: "temp", Occurred: at, Received: at, Offset: offset}
			if err := s.Put(t.Context(), []Point{p}); err != nil {
				t.Fatal(err)
			}
		}
		if n%16 == 15 {
			if err := writeHead(s, offset); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func TestAFleetThatReportsAtOneInstantIsListedInOrder(t *testing.T) {
	t.Parallel()
	const devices, rounds = 80, 40
	s := fleetOfOneInstant(t, devices, rounds)
	next := model.Offset(devices * rounds)
	for page := 1; next > 0; page++ {
		r, err := s.Measurements(t.Context(), Query{TenantID: 1, Page: Page{Number: page, Size: 100}})
		if err != nil || len(r.Events) == 0 || r.Total != devices*rounds {
			t.Fatalf("page %d: %+v %v", page, r, err)
		}
		for _, e := range r.Events {
			if e.Offset != next {
				t.Fatalf("page %d: offset %d where %d is next", page, e.Offset, next)
			}
			next--
		}
	}
}

// A row that says less than its readings would let others come before them.
func TestARowWhoseLastOffsetIsTooLowIsDamaged(t *testing.T) {
	t.Parallel()
	s := fleetOfOneInstant(t, 10, 16)
	if err := s.st.Write(t.Context(), store.Results, func(tx store.Tx) error {
		_, err := tx.Exec(`UPDATE series_chunks SET last_offset = last_offset - 1 WHERE id = 3`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Measurements(t.Context(), Query{TenantID: 1, Page: Page{Size: 1000}}); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "series_chunks 3") {
		t.Error(err)
	}
}
