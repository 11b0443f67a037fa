package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/report"
	"weir/ingest/response"
	"weir/internal/ranges"
	"weir/internal/setting"
	"weir/internal/test/poll"
	"weir/model"
	"weir/spool"
	"weir/spool/bolt"
)

// platform is a log with an uplink beside a pretended applier.
type platform struct {
	*Edge
	log     *bolt.Log
	trims   *spool.Trims
	repeats *Repeats
	stop    func()
}

// openPlatform opens the uplink of a platform. apply says whether everything in the log is applied at once.
func openPlatform(t *testing.T, dir, broker string, set func(*Settings)) *platform {
	t.Helper()
	s := Settings{AgentID: "gw", Uplink: UplinkSettings{BrokerURL: "tcp://" + broker, Username: "acme:secret", BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond}}
	setting.FillDefaults(&s)
	s.Commands, s.WhenFull = true, "refuse"
	if set != nil {
		set(&s)
	}
	log, err := bolt.Open(dir+"/spool", bolt.Options{Capacity: spool.Capacity{MaxBytes: s.SpoolMaxBytes}, Mend: true})
	if err != nil {
		t.Fatal(err)
	}
	p := &platform{log: log, trims: spool.NewTrims(log, 2), repeats: NewRepeats()}
	clock := &wall{from: time.Now()}
	p.Edge, err = Open(Config{Settings: s, InstanceID: "weir", Dir: dir + "/uplink"}, Deps{Dial: (&net.Dialer{}).DialContext, Now: clock.now, Boot: 1, Built: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Open: func(OpenLog) (spool.Log, *Began, error) { return p.trims.Share(1), nil, nil },
		Beside: &Beside{Done: func() model.Offset { return p.trims.Done(0) }, Repeats: p.repeats,
			Unseal: func(_ string, sealed []byte) ([]byte, error) { return bytes.TrimPrefix(sealed, []byte("sealed:")), nil }}})
	if err != nil {
		t.Fatal(err)
	}
	_, last := log.Bounds()
	p.repeats.Through(last)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{p.Run, p.RunTally, p.RunState} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	p.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := p.Edge.Close(); err != nil {
			t.Error(err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	return p
}

// append appends records in one batch, and applies them; repeats are those that the applier finds to be repeats.
func (p *platform) append(t *testing.T, repeats map[int]bool, rs ...*model.Record) {
	t.Helper()
	var done sync.WaitGroup
	entries := make([]spool.Entry, len(rs))
	at := make([]model.Offset, len(rs))
	for i, r := range rs {
		done.Add(1)
		entries[i] = spool.Entry{Data: model.AppendRecord(nil, r), Done: func(o model.Offset, err error) {
			if at[i] = o; err != nil {
				t.Error(err)
			}
			done.Done()
		}}
	}
	if err := p.log.Append(t.Context(), entries...); err != nil {
		t.Fatal(err)
	}
	done.Wait()
	for i := range rs {
		p.repeats.Note(at[i], repeats[i])
	}
}

func stamped(r model.Record) *model.Record {
	r.Transport, r.Source, r.Tenant, r.Account, r.Device = ingest.TransportMQTT, "mqtt1", "acme", "acme", "pump"
	r.Received = model.Stamp{Boot: 1, Wall: model.NanosOf(time.Now())}
	return &r
}

func measured(n int) *model.Record {
	return stamped(model.Record{Kind: model.KindMessage, Message: &model.Message{Type: model.MeasurementEvent, Measurements: []model.Reading{{Metric: "n", Value: float64(n)}}}})
}

func clockRecord() *model.Record {
	return &model.Record{Kind: model.KindClock, Received: model.Stamp{Boot: 1, Wall: model.NanosOf(time.Now())}}
}

// handedOver waits until nothing waits.
func (p *platform) handedOver(t *testing.T, stored int64) {
	t.Helper()
	poll.Until(t, "everything is handed over", func() error {
		if s := p.Status(); s.Waiting != 0 || s.Outcomes["stored"] != stored {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// TestTheUplinkOfAPlatformNumbersItsMessages: records of other kinds, of other tenants and repeats have no number, so that numbers have no hole, and they
// go on after a restart.
func TestTheUplinkOfAPlatformNumbersItsMessages(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	dir := t.TempDir()
	p := openPlatform(t, dir, "127.0.0.1:"+w.Port(), nil)
	foreign, unproven := measured(100), measured(101)
	foreign.Tenant, foreign.Account = "other", "other"
	unproven.Verdict = model.VerdictBad
	p.append(t, map[int]bool{3: true}, clockRecord(), measured(1), foreign, measured(1), unproven, measured(2), clockRecord())
	p.handedOver(t, 2)
	if waiting := p.Status(); waiting.Newest != 2 || waiting.Position != 2 {
		t.Errorf("%+v", waiting)
	}
	if first, _ := p.log.Bounds(); first != 1 {
		t.Errorf("the log begins at %d: the applier still needs it", first)
	}
	if err := errors.Join(p.Keep(), p.trims.Trim(0, 4)); err != nil {
		t.Fatal(err)
	}
	if first, _ := p.log.Bounds(); first != 5 {
		t.Errorf("the log begins at %d, the uplink needs it no more, the applier from 5 on", first)
	}
	p.stop()
	p = openPlatform(t, dir, "127.0.0.1:"+w.Port(), nil)
	poll.True(t, "it says hello again", func() (again bool) {
		w.with(func() { again = len(w.hellos) == 2 })
		return again
	})
	p.append(t, nil, clockRecord(), measured(3))
	p.handedOver(t, 3)
	for _, l := range p.Ledger() {
		if l.Missing() != 0 || l.Transport != ingest.TransportMQTT || l.Tenant != "acme" {
			t.Errorf("%+v", l)
		}
	}
	w.with(func() {
		if len(w.have) != 1 {
			t.Errorf("links above: %v", w.have)
		}
		for link, got := range w.have {
			if !reflect.DeepEqual(got, ranges.Set{{1, 3}}) {
				t.Errorf("%s: %v", link, got)
			}
		}
		if h := w.hellos[len(w.hellos)-1]; h.Newest != 2 || h.Position != 2 || h.First != 1 {
			t.Errorf("the second hello was %+v", h)
		}
	})
	for _, m := range w.relayed() {
		var e struct {
			AltID, OccurredTime string
			Payload             struct {
				Entries []struct{ Measurements map[string]string }
			}
		}
		if err := json.Unmarshal([]byte(m.Payload), &e); err != nil || e.AltID != "edge:"+m.Number || e.OccurredTime == "" || m.Topic != "weir/acme/devices/pump/events" {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

// TestAWeirAboveThatWasRestoredGetsAgainWhatAPlatformStillHas under the same numbers.
func TestAWeirAboveThatWasRestoredGetsAgainWhatAPlatformStillHas(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	p := openPlatform(t, t.TempDir(), "127.0.0.1:"+w.Port(), nil)
	const all = 300
	for i := range all {
		p.append(t, nil, measured(i+1), clockRecord())
	}
	p.handedOver(t, all)
	w.with(func() {
		for link := range w.have {
			w.have[link] = ranges.Set{{1, 150}}
		}
	})
	if !p.Resync() {
		t.Fatal("not connected")
	}
	poll.Until(t, "it is above again", func() (err error) {
		w.with(func() {
			for _, got := range w.have {
				if !reflect.DeepEqual(got, ranges.Set{{1, all}}) {
					err = fmt.Errorf("%v", got)
				}
			}
		})
		return err
	})
	p.handedOver(t, all) // and counted once
	byNumber := map[string]string{}
	for _, m := range w.relayed() {
		if before, again := byNumber[m.Number]; again && before != m.Payload {
			t.Errorf("%s was %s and is %s", m.Number, before, m.Payload)
		}
		byNumber[m.Number] = m.Payload
	}
	if len(byNumber) != all {
		t.Errorf("%d numbers", len(byNumber))
	}
}

// TestAnUplinkThatWasOffBeginsAsAnotherInstallation: what the log has lost meanwhile was never numbered, and what was numbered before is not meant.
func TestAnUplinkThatWasOffBeginsAsAnotherInstallation(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	dir := t.TempDir()
	p := openPlatform(t, dir, "127.0.0.1:"+w.Port(), nil)
	p.append(t, nil, measured(1), measured(2))
	p.handedOver(t, 2)
	before := p.InstallID()
	p.stop()
	log, err := bolt.Open(dir+"/spool", bolt.Options{Capacity: spool.Capacity{MaxBytes: 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	off := &platform{log: log, repeats: NewRepeats()}
	off.append(t, nil, measured(3))
	if _, err := log.Purge(3); err != nil { // else the file that holds the rest has it still
		t.Fatal(err)
	}
	off.append(t, nil, measured(4))
	if err := log.Trim(3); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	p = openPlatform(t, dir, "127.0.0.1:"+w.Port(), nil)
	p.append(t, nil, measured(5))
	poll.Until(t, "what the log has is above", func() error {
		if got := w.relayed(); len(got) < 4 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if p.InstallID() == before {
		t.Error("it is the same installation")
	}
	poll.True(t, "nothing waits", func() bool { return p.Status().Waiting == 0 && p.Status().Outcomes["waiting"] == 0 })
}

// TestBodiesOfAPlatformAreReadAsTheyWere: what went up decodes to what the platform has read.
func TestBodiesOfAPlatformAreReadAsTheyWere(t *testing.T) {
	t.Parallel()
	at := model.EntryTime{At: model.NanosOf(time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)), Has: true}
	nan := math.NaN()
	for _, m := range []*model.Message{
		{Type: model.MeasurementEvent, AltID: "a", Occurred: at.At, HasOccurred: true, Measurements: []model.Reading{{Metric: "<b>", Value: -0.1, Time: at}, {Metric: "a", Value: 1e-9, Time: at}, {Entry: 1, Metric: "a", Value: 1e300}}},
		{Type: model.LocationEvent, Locations: []model.Location{{Latitude: 48.2, Longitude: 16.3, Elevation: nan, Accuracy: 3, Speed: nan, Heading: 359.9, Time: at}}},
		{Type: model.AlertEvent, Alerts: []model.Alert{{Type: "hot", Message: "very \"hot\"", Source: "s", Level: 3}, {Type: "cold"}}},
		{Type: model.NewRelationship, Relationship: &model.Relationship{Type: "t", TargetType: "area", Target: "x"}},
	} {
		k, body, err := bodyOf(&model.Record{Kind: model.KindMessage, Message: m})
		if err != nil || k != kindEvents {
			t.Fatal(k, err)
		}
		got, err := ingest.Decode(body)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if want, have := fmt.Sprintf("%+v", *m), fmt.Sprintf("%+v", got.Message); m.Relationship == nil && want != have {
			t.Errorf("%s: %s, want %s", body, have, want)
		} else if m.Relationship != nil && *got.Message.Relationship != *m.Relationship {
			t.Errorf("%s: %+v", body, got.Message.Relationship)
		}
	}
	r := &model.Report{Attributes: []model.Reported{{Key: "s", Type: model.ReportedString, Value: "<x>"}, {Key: "l", Type: model.ReportedLong, Value: "-7"}, {Key: "d", Type: model.ReportedDouble, Value: "21"},
		{Key: "e", Type: model.ReportedDouble, Value: "2.5e3"}, {Key: "b", Type: model.ReportedBoolean, Value: "true"}, {Key: "j", Type: model.ReportedJSON, Value: `{"a":[1]}`}, {Key: "n"}}}
	k, body, err := bodyOf(&model.Record{Kind: model.KindDeviceReport, Report: r})
	if err != nil || k != kindReports {
		t.Fatal(k, err)
	}
	got, err := report.Decode(body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	types := map[string]model.ReportedType{}
	for _, a := range got.Attributes {
		types[a.Key] = a.Type
	}
	for _, a := range r.Attributes {
		if types[a.Key] != a.Type {
			t.Errorf("%s: %s is %v, want %v", body, a.Key, types[a.Key], a.Type)
		}
	}
	for _, a := range []*model.Response{{Command: "c", Success: true, Payload: "21.5"}, {Command: "c", Nonce: "n", Error: "no"}, {Command: "c", Success: true, Payload: `"text"`}} {
		k, body, err := bodyOf(&model.Record{Kind: model.KindCommandResponse, Response: a})
		if err != nil || k != kindResponses {
			t.Fatal(k, err)
		}
		if got, _, err := response.Decode(body); err != nil || *got != *a {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
}

// TestMarks: there are at most so many, and a place is found for each number that the log still has.
func TestMarks(t *testing.T) {
	t.Parallel()
	var m marks
	for n := range uint64(100_000) {
		m.add(place{model.Offset(2*n + 1), n})
	}
	if len(m.all) > maxMarks || m.all[0].Number != 0 {
		t.Errorf("%d marks from %v on", len(m.all), m.all[0])
	}
	m.trimmed(100_000)
	if m.all[0].At+1 < 100_000 {
		t.Errorf("the log begins behind %v", m.all[0])
	}
	m.rewound(place{At: 150_000})
	if m.all[len(m.all)-1].At > 150_000 {
		t.Errorf("%v", m.all[len(m.all)-1])
	}
}

// TestRepeatsAreKept: what is noted is there after it was saved and restored, and what is done with is forgotten.
func TestRepeatsAreKept(t *testing.T) {
	t.Parallel()
	r := NewRepeats()
	for at := model.Offset(1); at < 3*repeatSpan; at++ {
		r.Note(at, at%1000 == 7)
	}
	b, err := json.Marshal(r.save())
	if err != nil {
		t.Fatal(err)
	}
	var s savedRepeats
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	again := NewRepeats()
	again.restore(s)
	again.forget(repeatSpan)
	for at := model.Offset(1); at < 3*repeatSpan; at++ {
		if again.has(at) != (at%1000 == 7 && at >= repeatSpan) {
			t.Fatalf("offset %d: %v", at, again.has(at))
		}
	}
	if ok, _ := again.reached(1); ok {
		t.Error("nothing is applied yet")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := again.await(ctx, 1); err == nil {
		t.Error("it does not wait")
	}
	for _, bad := range []string{`{"1":""}`, `{"4096":"AAAA"}`, `{"0":"!"}`} {
		if err := json.Unmarshal([]byte(bad), &s); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

// TestAPlatformMakesRoom: where the operator wants that, the oldest messages that only the uplink still needs are dropped and counted before the log is full, their
// numbers are given to no others, and what the applier needs stays.
func TestAPlatformMakesRoom(t *testing.T) {
	t.Parallel()
	const all = 140
	dir := t.TempDir()
	set := func(s *Settings) { s.SpoolMaxBytes, s.WhenFull = 16<<20, dropOldest }
	p := openPlatform(t, dir, refusingAddress(t), set)
	body := append([]byte("sealed:"), bytes.Repeat([]byte{'x'}, 100<<10)...)
	for range all {
		p.append(t, nil, stamped(model.Record{Kind: model.KindRaw, Raw: body}))
	}
	poll.True(t, "everything is counted", func() bool { return p.Totals()["waiting"] == all })
	if err := p.makesRoom(); err != nil || p.Totals()["dropped"] != 0 {
		t.Errorf("%v, %v: the applier needs all of it", p.Totals(), err)
	}
	_, last := p.log.Bounds()
	if err := p.trims.Trim(0, last); err != nil {
		t.Fatal(err)
	}
	if err := p.makesRoom(); err != nil {
		t.Fatal(err)
	}
	dropped := p.Totals()["dropped"]
	if s := p.log.Stats(); dropped == 0 || dropped > all/4 || s.Bytes > s.MaxBytes {
		t.Errorf("%v, %+v", p.Totals(), s)
	}
	p.stop()
	w := startWeirAbove(t)
	p = openPlatform(t, dir, "127.0.0.1:"+w.Port(), set)
	p.handedOver(t, all-dropped)
	if got := p.Totals(); got["dropped"] != dropped {
		t.Errorf("%v", got)
	}
	w.with(func() {
		for _, above := range w.have {
			if above.Has(uint64(dropped)) || !above.Has(uint64(dropped)+1) || !above.Has(all) {
				t.Errorf("above is %v, %d were dropped", above, dropped)
			}
		}
	})
}

// TestATenantThatIsErased leaves nothing beside the log.
func TestATenantThatIsErased(t *testing.T) {
	t.Parallel()
	p := openPlatform(t, t.TempDir(), refusingAddress(t), nil)
	for _, topic := range []string{"weir/acme/devices/pump/events", "weir/acme2/devices/pump/events", "weir/acme/devices/fan/events"} {
		if err := p.letters.add(&DeadLetter{Topic: topic, Reason: "not-authorized", Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	p.book.ended(lineKey{Tenant: "acme"}, "stored")
	p.book.ended(lineKey{Tenant: "acme2"}, "stored")
	if err := p.EraseTenant("acme"); err != nil {
		t.Fatal(err)
	}
	if err := p.letters.add(&DeadLetter{Topic: "weir/acme3/devices/pump/events"}); err != nil {
		t.Fatal(err)
	}
	left, err := p.DeadLetters(10)
	if err != nil || len(left) != 2 || left[0].Topic != "weir/acme3/devices/pump/events" || left[1].Topic != "weir/acme2/devices/pump/events" {
		t.Errorf("%+v, %v", left, err)
	}
	if lines := p.Ledger(); len(lines) != 1 || lines[0].Tenant != "acme2" {
		t.Errorf("%+v", lines)
	}
	if state, err := os.ReadFile(p.state.dir + "/" + stateName); err != nil || bytes.Contains(state, []byte(`"acme"`)) {
		t.Errorf("%s, %v", state, err)
	}
}
