package e2e_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

func eventQueries(t *testing.T, w *world) {
	tn := w.tenant(t, "event-queries")
	tn.plain("d", "e")
	base := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	minute := func(i int) time.Time { return base.Add(time.Duration(i) * time.Minute) }
	for _, i := range []int{3, 0, 4, 1, 2} { // as they come, not as they happened
		tn.kept(measured("temp", fmt.Sprint(10+i), tn.as("d"), at(minute(i))))
	}
	tn.kept(fmt.Sprintf(`{"eventType":"Location","payload":{"entries":[{"latitude":"47.5","longitude":"8.25","elevation":"400"}]},%s,%s}`, tn.as("d"), at(minute(5))))
	tn.kept(fmt.Sprintf(`{"eventType":"Alert","payload":{"entries":[{"type":"smoke","level":3,"message":"look"}]},%s,%s}`, tn.as("d"), at(minute(6))))
	tn.kept(measured("hum", "55", tn.as("e"), at(minute(2))))
	all := tn.arrived(6) // and what came before the last one
	var got []float64
	for _, m := range all {
		if m.DeviceToken == "d" {
			got = append(got, m.Value)
			if m.Name != "temp" || !sameTime(&m.OccurredTime, minute(int(m.Value)-10)) {
				t.Errorf("%+v", m)
			}
		}
	}
	if !reflect.DeepEqual(got, []float64{14, 13, 12, 11, 10}) {
		t.Errorf("%v", got)
	}
	conformance.Shown(t, "S3-029", "S3-031")
	for _, c := range []struct {
		criteria map[string]any
		want     []float64
		total    int
	}{
		{map[string]any{"pageSize": 2}, []float64{14, 13}, 6},
		{map[string]any{"pageSize": 2, "pageNumber": 3}, []float64{11, 10}, 6},
		{map[string]any{"pageSize": 4, "pageNumber": 2}, []float64{11, 10}, 6},
		{map[string]any{"pageSize": 2, "pageNumber": 4}, nil, 6},
		{map[string]any{"deviceToken": "e"}, []float64{55}, 1},
		{map[string]any{"deviceToken": "nobody"}, nil, 0},
		{map[string]any{"deviceToken": "d", "startTime": minute(1).Format(time.RFC3339), "endTime": minute(3).Format(time.RFC3339)}, []float64{13, 12, 11}, 3},
		{map[string]any{"deviceToken": "d", "startTime": minute(4).Format(time.RFC3339)}, []float64{14}, 1},
		{map[string]any{"deviceToken": "d", "endTime": minute(0).Format(time.RFC3339)}, []float64{10}, 1},
		{map[string]any{"deviceToken": "d", "startTime": minute(0).Add(time.Microsecond).Format(time.RFC3339Nano), "endTime": minute(1).Add(-time.Microsecond).Format(time.RFC3339Nano)}, nil, 0},
		// They came a moment ago and happened an hour ago: what counts is when they happened.
		{map[string]any{"startTime": base.Add(30 * time.Minute).Format(time.RFC3339)}, nil, 0},
		{map[string]any{"deviceToken": "d", "startTime": base.Format(time.RFC3339), "endTime": base.Add(30 * time.Minute).Format(time.RFC3339)}, []float64{14, 13, 12, 11, 10}, 5},
		{map[string]any{"eventTypes": []int{2, 3}, "deviceToken": "e"}, []float64{55}, 1},
		{map[string]any{"eventTypes": []int{1, 3}}, nil, 0},
	} {
		page, total := tn.measurements(c.criteria)
		var got []float64
		for _, m := range page {
			got = append(got, m.Value)
		}
		if !reflect.DeepEqual(got, c.want) || total != c.total {
			t.Errorf("%v: %v of %d, want %v of %d", c.criteria, got, total, c.want, c.total)
		}
	}
	conformance.Shown(t, "S3-025", "S3-026", "S3-028", "S3-032")
	for query, want := range map[string]string{
		`events(criteria:{pageNumber:1,pageSize:10}){pagination{totalRecords}}`:                                           `{"events":{"pagination":{"totalRecords":8}}}`,
		`events(criteria:{pageNumber:1,pageSize:10,eventTypes:[1,3]}){results{eventType deviceToken}}`:                    `{"events":{"results":[{"eventType":3,"deviceToken":"d"},{"eventType":1,"deviceToken":"d"}]}}`,
		`locationEvents(criteria:{pageNumber:1,pageSize:10}){results{deviceToken latitude longitude elevation accuracy}}`: `{"locationEvents":{"results":[{"deviceToken":"d","latitude":47.5,"longitude":8.25,"elevation":400,"accuracy":null}]}}`,
		`alertEvents(criteria:{pageNumber:1,pageSize:10}){results{type level message}}`:                                   `{"alertEvents":{"results":[{"type":"smoke","level":3,"message":"look"}]}}`,
		`measurementEvents(criteria:{pageNumber:1,pageSize:1,deviceToken:"e"}){results{name value}}`:                      `{"measurementEvents":{"results":[{"name":"hum","value":55}]}}`,
		`bucketedMeasurements(criteria:{deviceToken:"e",name:"hum",intervalSeconds:3600}){name count avg}`:                `{"bucketedMeasurements":[{"name":"hum","count":1,"avg":55}]}`,
	} {
		if got := string(tn.events("{"+query+"}", nil).Data); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	conformance.Shown(t, "S3-009")
	other := w.tenant(t, "event-queries-other")
	if page, total := other.measurements(nil); total != 0 || len(page) != 0 {
		t.Errorf("another tenant sees %v", page)
	}
	conformance.Shown(t, "S3-034")
	_, sdl := w.get(t, "/schema/event-management.graphql")
	criteria := fieldsOf(t, sdl, "input", "EventSearchCriteria")
	if slices.ContainsFunc(criteria, func(f string) bool { return len(f) > 4 && f[:4] == "name" }) {
		t.Errorf("%q", criteria)
	}
	conformance.Shown(t, "S3-030")
	bucketed := fieldsOf(t, sdl, "input", "MeasurementAggregationCriteria")
	for _, f := range []string{"deviceToken: String", "name: String", "startTime: String", "endTime: String", "intervalSeconds: Int!"} {
		if !slices.Contains(bucketed, f) {
			t.Errorf("%q lacks %s", bucketed, f)
		}
	}
	conformance.Shown(t, "S3-035")
}

// bucket is an item of bucketedMeasurements.
type bucket struct {
	BucketStart, Name  string
	Avg, Min, Max, Sum float64
	Count              int
}

func (tn *tenant) buckets(seconds int) []bucket {
	tn.t.Helper()
	var out struct{ BucketedMeasurements []bucket }
	tn.events(`query($s:Int!){bucketedMeasurements(criteria:{deviceToken:"d",name:"temp",intervalSeconds:$s}){bucketStart name avg min max sum count}}`,
		map[string]any{"s": seconds}).into(tn.t, &out)
	return out.BucketedMeasurements
}

// bucketsOf computes buckets from readings.
func bucketsOf(readings map[time.Time]float64, seconds int) []bucket {
	by := map[int64]*bucket{}
	for when, v := range readings {
		start := when.Unix() - when.Unix()%int64(seconds)
		b := by[start]
		if b == nil {
			b = &bucket{BucketStart: time.Unix(start, 0).UTC().Format(time.RFC3339), Name: "temp", Min: math.Inf(1), Max: math.Inf(-1)}
			by[start] = b
		}
		b.Min, b.Max, b.Sum, b.Count = min(b.Min, v), max(b.Max, v), b.Sum+v, b.Count+1
		b.Avg = b.Sum / float64(b.Count)
	}
	var starts []int64
	for s := range by {
		starts = append(starts, s)
	}
	slices.Sort(starts)
	var out []bucket
	for _, s := range starts {
		out = append(out, *by[s])
	}
	return out
}

func sameBuckets(got, want []bucket) bool {
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*max(1, math.Abs(b)) }
	return slices.EqualFunc(got, want, func(a, b bucket) bool {
		return sameInstant(a.BucketStart, b.BucketStart) && a.Name == b.Name && a.Count == b.Count && near(a.Min, b.Min) && near(a.Max, b.Max) &&
			near(a.Sum, b.Sum) && near(a.Avg, b.Avg)
	})
}

func buckets(t *testing.T, w *world) {
	tn := w.tenant(t, "buckets")
	tn.plain("d")
	base := time.Now().Add(-3 * time.Hour).UTC().Truncate(time.Second)
	readings := map[time.Time]float64{}
	var body strings.Builder
	for i := range 200 {
		when, v := base.Add(time.Duration(i*47)*time.Second), float64((i*37)%101)/4
		readings[when] = v
		body.WriteString(fmt.Sprintf(`,{"measurements":{"temp":"%g"},%s}`, v, at(when)))
	}
	tn.kept(`{"eventType":"Measurement","payload":{"entries":[` + body.String()[1:] + `]},` + tn.as("d") + `}`)
	tn.arrived(200)
	for _, seconds := range []int{1, 7, 30, 59, 60, 90, 300, 3600, 86400} {
		if got, want := tn.buckets(seconds), bucketsOf(readings, seconds); !sameBuckets(got, want) {
			t.Errorf("buckets of %d s: %+v, want %+v", seconds, got, want)
		}
	}
	conformance.Shown(t, "S3-036", "S3-037", "S3-038")
}

func backfill(t *testing.T, w *world) {
	tn := w.tenant(t, "backfill")
	tn.plain("d")
	now := time.Now().UTC().Truncate(time.Second)
	readings := map[time.Time]float64{}
	for i, ago := range []time.Duration{0, 5 * time.Hour, 49 * time.Hour, 15 * 24 * time.Hour, 29 * 24 * time.Hour} {
		when := now.Add(-ago)
		readings[when] = float64(i)
		tn.kept(measured("temp", fmt.Sprint(i), tn.as("d"), at(when)))
		if i == 0 {
			tn.arrived(1)
		}
	}
	tn.arrived(len(readings))
	if got, want := tn.buckets(3600), bucketsOf(readings, 3600); !sameBuckets(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	conformance.Shown(t, "S3-040")
	old := now.Add(-200 * 24 * time.Hour)
	readings[old] = 9
	tn.kept(measured("temp", "9", tn.as("d"), at(old)))
	all := tn.arrived(len(readings))
	if last := all[len(all)-1]; last.Value != 9 || !sameTime(&last.OccurredTime, old) {
		t.Errorf("%+v", last)
	}
	if got, want := tn.buckets(86400), bucketsOf(readings, 86400); !sameBuckets(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	conformance.Shown(t, "S3-041")
}

// presenceOf is what deviceStates says of a device.
type presenceOf struct {
	Active                                                bool
	PresenceSource, SessionID                             string
	Source                                                *string
	LastConnectTime, LastDisconnectTime, LastActivityTime *string
}

func (tn *tenant) presence(device string) (p presenceOf, ok bool) {
	tn.t.Helper()
	var out struct{ DeviceStatesByDeviceToken []presenceOf }
	tn.states(`query($d:String!){deviceStatesByDeviceToken(deviceTokens:[$d]){active presenceSource sessionId source lastConnectTime lastDisconnectTime lastActivityTime}}`,
		map[string]any{"d": device}).into(tn.t, &out)
	if len(out.DeviceStatesByDeviceToken) != 1 {
		return p, false
	}
	return out.DeviceStatesByDeviceToken[0], true
}

func presence(t *testing.T, w *world) {
	tn := w.tenant(t, "presence")
	tn.plain("http", "mqtt", "suffixed", "silent")
	if _, ok := tn.presence("silent"); ok {
		t.Error("a device of which nothing is known has a state")
	}
	tn.kept(measured("temp", "1", tn.as("http")))
	becomes := func(device, what string, ok func(presenceOf) bool) {
		t.Helper()
		poll.Until(t, device+" becomes "+what, func() error {
			if p, known := tn.presence(device); !known || !ok(p) {
				return fmt.Errorf("%+v", p)
			}
			return nil
		})
	}
	becomes("http", "active by its events", func(p presenceOf) bool {
		return p.Active && p.PresenceSource == "INFERRED" && p.SessionID == "0" && p.LastActivityTime != nil && p.Source != nil && *p.Source == "http1"
	})
	c := tn.connect("mqtt")
	becomes("mqtt", "connected", func(p presenceOf) bool {
		return p.Active && p.PresenceSource == "ASSERTED" && p.SessionID != "0" && p.LastConnectTime != nil && *p.Source == "mqtt1"
	})
	before, _ := tn.presence("mqtt")
	again := tn.connect("mqtt") // takes over: no disconnect in between
	becomes("mqtt", "a later session", func(p presenceOf) bool {
		return p.Active && (len(p.SessionID) > len(before.SessionID) || p.SessionID > before.SessionID) && p.LastDisconnectTime == nil
	})
	if _, err := c.Puback(); err == nil {
		t.Error("the first connection was not ended")
	}
	_ = again.Close()
	becomes("mqtt", "absent", func(p presenceOf) bool {
		return !p.Active && p.PresenceSource == "ASSERTED" && p.LastDisconnectTime != nil
	})
	s, code, err := testweir.ConnectMQTT(w.MQTT, "weir:presence:suffixed:2", "presence:presence-suffixed", "")
	if err != nil || code != 0 {
		t.Fatal(code, err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Publish("weir/presence/devices/suffixed/events", 1, false, []byte(measured("temp", "1"))); err != nil {
		t.Fatal(err)
	}
	becomes("suffixed", "active by its events", func(p presenceOf) bool { return p.Active && p.PresenceSource == "INFERRED" })
}
