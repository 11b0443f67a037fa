package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/draws"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// TestTenThousandDevicesFlapAtOnce: what a storm of one tenant leaves is bounded by its ceiling, whatever devices there are: edges,
// contributions to alarms, orders. No edge of another tenant is lost or late. Once there is room each alarm is what its device is.
func TestTenThousandDevicesFlapAtOnce(t *testing.T) {
	draws.NeedsAll(t)
	t.Parallel()
	const devices, flaps, quiet, perSecond = 10_000, 6, 20, 20
	w := newWorld(t, func(w *world) { w.maxEdges, w.logBytes, w.cfg.ReplayBytes = perSecond, 256<<20, 4<<20 })
	rule := doing(thresholdRule("hot", "temp", "gt", 60), raise+`,{"type":"sendCommand","sendCommand":{"command":"stop"}}`)
	w.furnish(devices, rule)
	vs := []model.ViewChange{row(model.ViewTenant, "other", model.TenantView{V: 1, ID: 2, Enabled: true}), row(model.ViewDeviceType, "30", model.DeviceTypeView{V: 1, Profile: 40}),
		row(model.ViewProfile, "40", model.ProfileView{V: 1, Tenant: "other", Token: "calm", Version: 1, Rules: []model.RuleView{rule}})}
	for i := range quiet {
		vs = append(vs, row(model.ViewDevice, fmt.Sprintf("other/q%d", i), model.DeviceView{V: 1, ID: int64(devices + 1 + i), Type: 30}))
	}
	w.change(vs...)
	began := w.clock.elapsed()
	says := map[int64]bool{} // whether the newest value of a device is over the threshold
	n := 0
	send := func(tenant, device string, id int64, hot bool) {
		w.clock.advance(100 * time.Microsecond)
		n++
		at := w.clock.stamp()
		r := &model.Record{Kind: model.KindMessage, Transport: TransportMQTT, Source: "mqtt1", Tenant: tenant, Account: tenant, Device: device, Received: at,
			Credential: id, DeviceID: id, ClientID: "weir:" + tenant + ":" + device, PacketID: uint16(n%60000 + 1), Hash: [16]byte{byte(n), byte(n >> 8), byte(n >> 16)}, Bytes: 120,
			Message: &model.Message{Type: model.MeasurementEvent, Measurements: []model.Reading{{Metric: "temp", Value: map[bool]float64{true: 90, false: 20}[hot]}}}}
		w.must(w.log.Append(t.Context(), spool.Entry{Data: model.AppendRecord(nil, r), Done: func(model.Offset, error) {}}))
		if says[id] = hot; n%2000 == 0 {
			w.must(w.log.Sync(t.Context()))
		}
	}
	want := 0 // edges of the quiet tenant
	for f := range flaps {
		for i := range devices {
			send("acme", fmt.Sprintf("d%d", i+1), int64(i+1), (f+i/7)%2 == 0)
			if i%(devices/quiet) == 0 { // one of the quiet devices moves meanwhile, too
				q := i / (devices / quiet)
				send("other", fmt.Sprintf("q%d", q), int64(devices+1+q), f%2 == 0)
				want++
			}
		}
		w.must(w.log.Sync(t.Context()))
		if w.apply(); f == 3 {
			w.restart()
		}
	}
	took := (w.clock.elapsed() - began).Seconds()
	count := func(query string) (n int) {
		for _, row := range fixture.Rows(t, w.db, query) {
			_, err := fmt.Sscan(row, &n)
			w.must(err)
		}
		return n
	}
	edges := map[string]int{}
	for _, e := range w.edges {
		edges[e.Tenant]++
	}
	// What the tenant has for two minutes, and what came meanwhile, with the share of the rule.
	most := int(perSecond * (120 + took) * 1.1)
	if edges["acme"] > most || edges["acme"] < perSecond*60 {
		t.Errorf("%d edges in %.0f s, at most %d are to be expected", edges["acme"], took, most)
	}
	if edges["other"] != want {
		t.Errorf("the other tenant has %d edges, want %d", edges["other"], want)
	}
	if contributions := count(`SELECT count(*) FROM alarm_events WHERE tenant_id = 1`); contributions > edges["acme"] {
		t.Errorf("%d moves of alarms by %d edges", contributions, edges["acme"])
	}
	raised := map[string]int{}
	for _, e := range w.edges {
		if e.Signal == model.Raised {
			raised[e.Tenant]++
		}
	}
	for tenant, id := range map[string]int{"acme": 1, "other": 2} {
		if n := count(fmt.Sprintf(`SELECT count(*) FROM outbox WHERE tenant_id = %d`, id)); n != raised[tenant] {
			t.Errorf("%s: %d orders, %d raised edges", tenant, n, raised[tenant])
		}
	}
	active := func() map[int64]bool {
		all := map[int64]bool{}
		fixture.EachRow(t, w.db, func(_ []string, vs []any) { all[vs[0].(int64)] = vs[1].(string) == string(model.AlarmActive) }, `SELECT device_id, state FROM alarms`)
		return all
	}
	wrong := func(from, to int64) (n int) {
		is := active()
		for id := from; id <= to; id++ {
			if is[id] != says[id] {
				n++
			}
		}
		return n
	}
	if n := wrong(devices+1, devices+quiet); n > 0 {
		t.Errorf("%d alarms of the other tenant are wrong in the storm", n)
	}
	if wrong(1, devices) == 0 {
		t.Error("all alarms are right at the end of the storm: the ceiling was not met, and the test shows nothing")
	}
	for minutes := 0; wrong(1, devices) > 0; minutes++ {
		if minutes > devices/perSecond/60+5 {
			t.Fatalf("%d alarms are wrong after %d minutes", wrong(1, devices), minutes)
		}
		for range 6 {
			w.clock.advance(10 * time.Second)
			w.must(appendClock(context.Background(), w.log, w.time.Stamp(), func(model.Offset, error) {}))
			w.must(w.log.Sync(t.Context()))
			w.apply()
		}
	}
	last := map[string]model.Edge{}
	w.must(w.db.Read(t.Context(), func(tx store.Tx) error {
		return store.Edges(tx, 1, func(e *model.Edge) error {
			if before, known := last[e.Series]; known && before.Signal == e.Signal && before.ID == e.ID {
				t.Errorf("twice: %+v", e)
			}
			last[e.Series] = *e
			return nil
		})
	}))
	var off []string
	for id := range int64(devices) {
		name := fmt.Sprintf("d%d", id+1)
		if e, known := last[name]; says[id+1] != (known && e.Signal == model.Raised) {
			off = append(off, name)
		}
	}
	if len(off) > 0 {
		t.Errorf("the last edge of %d devices is not what they are: %s", len(off), strings.Join(slices.Sorted(slices.Values(off))[:min(5, len(off))], ", "))
	}
}
