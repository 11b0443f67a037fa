package series

import (
	"context"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/model"
	"weir/store"
)

// counted is a store that counts its reads.
type counted struct {
	store.Store
	reads int
}

func (c *counted) Read(ctx context.Context, fn func(store.Tx) error) error {
	c.reads++
	return c.Store.Read(ctx, fn)
}

// TestALongQueryContinuesWithTheReadersOfScans: what it returns is the same, whichever readers it has.
func TestALongQueryContinuesWithTheReadersOfScans(t *testing.T) {
	t.Parallel()
	s := sharedDay(t) // 20 devices, about 53 chunks each
	queries, scans, applier := &counted{Store: s.st}, &counted{Store: s.st}, &counted{Store: s.st}
	s.st, s.scans, s.applier = queries, scans, applier
	device := int64(3)
	buckets := func(q BucketQuery) func() (int, error) {
		return func() (int, error) {
			got, err := s.Buckets(t.Context(), q)
			n := int64(0)
			for _, b := range got {
				n += b.Count
			}
			return int(n), err
		}
	}
	page := func(q Query) func() (int, error) {
		return func() (int, error) {
			got, err := s.Events(t.Context(), q)
			if err != nil {
				return 0, err
			}
			return int(got.Total), nil
		}
	}
	before := day0 + 1
	for _, c := range []struct {
		name string
		ask  func() (int, error)
		want int
		long bool
	}{
		{"buckets of a device", buckets(BucketQuery{TenantID: 1, Device: &device, IntervalSeconds: 60}), 530, false},
		{"buckets of all devices", buckets(BucketQuery{TenantID: 1, IntervalSeconds: 60}), 20 * 530, true},
		{"the newest page of a device", page(Query{TenantID: 1, Device: &device}), 530, false},
		{"the newest page of all devices", page(Query{TenantID: 1}), 20 * 530, false},
		{"a page of all devices, far down", page(Query{TenantID: 1, Page: Page{Number: 80}}), 20 * 530, true},
		{"a page of selected readings of all devices", page(Query{TenantID: 1, Anchors: []int64{0}}), 0, true},
		{"a narrow time of all devices", page(Query{TenantID: 1, End: &before}), 20, false},
	} {
		s.shortSteps = 300
		queries.reads, scans.reads = 0, 0
		moved := testutil.ToFloat64(s.m.scans)
		got, err := c.ask()
		if err != nil || got != c.want && c.name != "a page of selected readings of all devices" {
			t.Errorf("%s: %d, %v", c.name, got, err)
		}
		if queries.reads != 1 || (scans.reads == 1) != c.long || (testutil.ToFloat64(s.m.scans)-moved == 1) != c.long {
			t.Errorf("%s: %d reads as a short query, %d as a scan", c.name, queries.reads, scans.reads)
		}
		s.shortSteps = 1 << 30
		if again, err := c.ask(); err != nil || again != got {
			t.Errorf("%s: %d, as one short query %d, %v", c.name, got, again, err)
		}
	}
	if err := s.st.Write(t.Context(), store.Results, func(tx store.Tx) error {
		for i := range int64(5 * rowsPerStep) {
			if err := store.InsertAlert(tx, &store.EventRow{TenantID: 1, Device: 1, DeviceToken: "device-1", Type: model.AlertEvent, Offset: model.Offset(1 + i), Occurred: day0}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for steps, long := range map[int]bool{4: true, 60: false} {
		queries.reads, scans.reads, s.shortSteps = 0, 0, steps
		got, err := s.Alerts(t.Context(), Query{TenantID: 1, Page: Page{Size: 1}})
		if err != nil || got.Total != 5*rowsPerStep || (scans.reads == 1) != long {
			t.Errorf("rows counted in %d steps: %+v, %v, %d scans", steps, got, err, scans.reads)
		}
	}
	if applier.reads != 0 {
		t.Error("a query used the applier's reader")
	}
}

// TestTheApplierReadsItsCatalogWithItsOwnReader: readers of queries are not asked for.
func TestTheApplierReadsItsCatalogWithItsOwnReader(t *testing.T) {
	t.Parallel()
	s := sharedDay(t)
	applier := &counted{Store: s.st}
	s.st, s.applier, s.devices = nil, applier, map[int64]*device{}
	ok, err := s.Admit(t.Context(), 1, 3, []model.Reading{{Metric: "temp"}})
	if err != nil || !ok || applier.reads != 1 {
		t.Errorf("%v, %v, %d reads", ok, err, applier.reads)
	}
	if !slices.ContainsFunc(s.devices[3].series, func(sr *series) bool { return sr.metric == "temp" }) {
		t.Error("its series were not read")
	}
}
