package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/model"
	"weir/store"
)

// watch opens a watcher that ends with the test.
func (w *world) watch(wants Watch) *Watcher {
	w.t.Helper()
	watcher, err := w.tap.Watch(wants)
	w.must(err)
	w.t.Cleanup(watcher.Close)
	return watcher
}

// seen returns what the watcher can fetch now.
func (w *world) seen(watcher *Watcher) ([]Sighting, int64) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	seen, left, err := watcher.Next(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		w.t.Fatal(err)
	}
	return seen, left
}

func fateOf(s Sighting) string {
	return strings.TrimSuffix(fmt.Sprintf("%s %s/%s %s %s %s %v", s.Transport, s.Tenant, s.Device, s.Outcome, s.Reason, s.Type, s.Values), " ")
}

func TestWhoWatchesSeesEachMessageEndOnceItsEndIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	w.apply()
	watcher := w.watch(Watch{})
	for _, body := range []string{temp(21.5), measurement("temp", 22, `,"altId":"a"`), measurement("temp", 22, `,"altId":"a"`), temp(900)} {
		w.send(w.arrival(1, body))
	}
	if seen, _ := w.seen(watcher); len(seen) > 0 {
		t.Errorf("seen before anything was applied: %+v", seen)
	}
	w.clock.advance(3 * time.Millisecond)
	w.apply()
	seen, left := w.seen(watcher)
	var got []string
	for _, s := range seen {
		got = append(got, fateOf(s))
		if s.Ended-s.Received != model.Nanos(3*time.Millisecond) || s.Offset == 0 || s.Bytes == 0 {
			t.Errorf("received %v, ended %v, offset %d, %d bytes", s.Received, s.Ended, s.Offset, s.Bytes)
		}
	}
	want := []string{"mqtt acme/d1 stored  Measurement [temp=21.5]", "mqtt acme/d1 stored  Measurement [temp=22]", "mqtt acme/d1 duplicate  Measurement [temp=22]",
		"mqtt acme/d1 dead letter invalid-value Measurement [temp=900]"}
	if !slices.Equal(got, want) || left != 0 {
		t.Errorf("saw\n%s\nand %d left out", strings.Join(got, "\n"), left)
	}
	if seen[1].AltID != "a" || !strings.Contains(seen[3].Why, "outside its declared range") {
		t.Errorf("altId %q, why %q", seen[1].AltID, seen[3].Why)
	}
}

func TestRefusalsAreSeenAtTheTransport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	w.apply()
	watcher := w.watch(Watch{})
	http := func(tenant, body string) *Arrival {
		return &Arrival{Transport: TransportHTTP, Source: "http1", Tenant: tenant, Body: []byte(body)}
	}
	refused := w.arrival(1, `{"eventType":`)
	w.send(refused)
	w.send(http("ghost", `{`))
	w.intake.Refuse(w.intake.Received(TransportMQTT, "mqtt1", "acme", 0), ReasonNoConsumer)
	w.ceiling.left, w.ceiling.unauthenticated = 0, 0
	w.send(w.arrival(1, temp(1)))
	mute := w.arrival(1, temp(2))
	mute.CannotRefuse = true
	w.send(mute)
	w.send(http("acme", `{"device":"d1","credentialType":"ACCESS_TOKEN","credentialId":"wrong","altId":"s3cret",`+
		`"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"7"}}]}}`))
	w.tap.ConnectionRefused(TransportMQTT, "mqtt1", "acme", "d1", "not-authorized", "", true)
	var got []string
	seen, _ := w.seen(watcher)
	for _, s := range seen {
		got = append(got, strings.TrimSpace(fateOf(s)))
	}
	want := []string{"mqtt acme/d1 refused undecodable  []", "http / refused undecodable  []", "mqtt acme/ refused no-consumer  []",
		"mqtt acme/d1 refused ceiling Measurement [temp=1]", "mqtt acme/d1 dropped ceiling Measurement [temp=2]",
		"http acme/d1 refused unauthenticated  []", "mqtt acme/d1 refused not-authorized  []"}
	if !slices.Equal(got, want) {
		t.Errorf("saw\n%s", strings.Join(got, "\n"))
	}
	if seen[1].Named != "ghost" || !seen[6].Connection || seen[5].AltID != "" || seen[5].Readings != 0 {
		t.Errorf("%+v", seen)
	}
}

// A packet that becomes no arrival is seen with its device and what is wrong with it.
func TestARefusedPacketIsSeenWithItsDeviceAndWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	watcher := w.watch(Watch{Device: "dev1"})
	w.intake.Refuse(w.intake.Received(TransportMQTT, "mqtt1", "acme", 7).Of("dev1", `topic "tele/x" is not its own`), ReasonNotAuthorized)
	seen, _ := w.seen(watcher)
	if len(seen) != 1 || seen[0].Device != "dev1" || seen[0].Tenant != "acme" || seen[0].Reason != ReasonNotAuthorized || seen[0].Why != `topic "tele/x" is not its own` {
		t.Errorf("%+v", seen)
	}
}

func TestNothingIsShownOfUnauthenticatedMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	w.apply()
	watcher := w.watch(Watch{})
	for _, tenant := range []string{"acme", "ghost"} {
		w.send(&Arrival{Transport: TransportHTTP, Source: "http1", Tenant: tenant, Body: []byte(`{"device":"d1","credentialType":"ACCESS_TOKEN","credentialId":"wrong-token",` +
			`"altId":"s3cret","eventType":"Measurement","occurredTime":"2026-03-01T11:00:00Z","payload":{"entries":[{"measurements":{"s3cret":"7"}}]}}`)})
	}
	w.apply()
	seen, _ := w.seen(watcher)
	if len(seen) != 2 {
		t.Fatalf("%d seen", len(seen))
	}
	for _, s := range seen {
		if s.Outcome != store.OutcomeDeadLetter || s.Device != "d1" {
			t.Errorf("%+v", s)
		}
		all := fmt.Sprintf("%+v", s)
		if s.Values != nil || s.Readings != 0 || s.AltID != "" || s.Occurred != 0 || strings.Contains(all, "s3cret") || strings.Contains(all, "wrong-token") {
			t.Errorf("too much is shown: %+v", s)
		}
	}
}

func TestAWatcherSeesWhatItAskedFor(t *testing.T) {
	t.Parallel()
	tap := NewTap(func() model.Nanos { return 1 }, nil)
	for name, c := range map[string]struct {
		wants Watch
		sees  []string
	}{
		"all":                       {Watch{}, []string{"a", "b", "c", "d"}},
		"a tenant":                  {Watch{Tenant: new("acme")}, []string{"a", "b", "d"}},
		"unauthenticated":           {Watch{Tenant: new("")}, []string{"c"}},
		"a device":                  {Watch{Device: "d1"}, []string{"a"}},
		"a device or none":          {Watch{Device: "d1", Unnamed: true}, []string{"a", "d"}},
		"a transport":               {Watch{Transport: TransportHTTP}, []string{"b", "c"}},
		"an outcome":                {Watch{Outcome: store.OutcomeStored}, []string{"a", "b"}},
		"an outcome at a transport": {Watch{Outcome: store.OutcomeStored, Transport: TransportMQTT}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := tap.Watch(c.wants)
			if err != nil {
				t.Fatal(err)
			}
			tap.show(ending{rec: &model.Record{Account: "acme", Device: "d1", Transport: TransportMQTT, Source: "a"}, outcome: store.OutcomeStored})
			tap.show(ending{rec: &model.Record{Account: "acme", Device: "d2", Transport: TransportHTTP, Source: "b"}, outcome: store.OutcomeStored})
			tap.show(ending{rec: &model.Record{Tenant: "ghost", Device: "d3", Transport: TransportHTTP, Source: "c"}, outcome: store.OutcomeDeadLetter})
			tap.show(ending{rec: &model.Record{Account: "acme", Transport: TransportMQTT, Source: "d"}, outcome: store.OutcomeRefused})
			seen, _, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range seen {
				got = append(got, s.Source)
			}
			if !slices.Equal(got, c.sees) {
				t.Errorf("%s: sees %v, not %v", name, got, c.sees)
			}
			w.Close()
		})
	}
}

// A watcher that fetches nothing holds a bounded number of messages, knows how many it has missed, and nothing waits.
func TestAFloodIsBoundedAndWhatIsLeftOutIsCounted(t *testing.T) {
	t.Parallel()
	tap := NewTap(func() model.Nanos { return 1 }, nil)
	w, err := tap.Watch(Watch{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	flood := func(from, to int) {
		for i := from; i < to; i++ {
			tap.show(ending{rec: &model.Record{Bytes: uint32(i)}, outcome: store.OutcomeStored})
		}
	}
	flood(0, 1000)
	seen, left, err := w.Next(t.Context())
	if err != nil || len(seen) != watchQueue || left != 1000-watchQueue || seen[watchQueue-1].Bytes != watchQueue-1 {
		t.Errorf("%d seen, %d left out, %v", len(seen), left, err)
	}
	flood(1000, 1002)
	seen, left, err = w.Next(t.Context())
	if err != nil || len(seen) != 2 || left != 0 || seen[0].Bytes != 1000 {
		t.Errorf("afterwards %d seen, %d left out, %v", len(seen), left, err)
	}
}

func TestWatchersComeAndGoWhileMessagesEnd(t *testing.T) {
	t.Parallel()
	tap := NewTap(func() model.Nanos { return 1 }, nil)
	stop := make(chan struct{})
	var all, telling sync.WaitGroup
	telling.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				tap.show(ending{rec: &model.Record{}, outcome: store.OutcomeStored})
			}
		}
	})
	for range 8 {
		all.Go(func() {
			for range 50 {
				w, err := tap.Watch(Watch{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, _, err := w.Next(t.Context()); err != nil {
					t.Error(err)
				}
				w.Close()
			}
		})
	}
	all.Wait()
	close(stop)
	telling.Wait()
	if tap.Busy() {
		t.Error("busy without a watcher")
	}
}

func TestTheTapTakesSoManyWatchersUntilOneGoes(t *testing.T) {
	t.Parallel()
	tap := NewTap(func() model.Nanos { return 1 }, nil)
	var last *Watcher
	for range maxWatchers {
		w, err := tap.Watch(Watch{})
		if err != nil {
			t.Fatal(err)
		}
		last = w
	}
	if _, err := tap.Watch(Watch{}); model.CodeOf(err) != model.CodeLimitExceeded {
		t.Errorf("one too many: %v", err)
	}
	ended := make(chan error)
	go func() {
		_, _, err := last.Next(context.Background())
		ended <- err
	}()
	last.Close()
	if err := <-ended; !errors.Is(err, ErrWatchEnded) {
		t.Error(err)
	}
	if _, err := tap.Watch(Watch{}); err != nil {
		t.Errorf("after one has gone: %v", err)
	}
}

// Without a watcher a message costs no memory, at the intake and after the log.
func TestATapWithoutWatchersCostsNothing(t *testing.T) {
	w := newWorld(t)
	w.applier.out = &Effects{}
	m := &arrival{Arrival: &Arrival{Transport: TransportMQTT, Tenant: "acme", Topic: "d1"}}
	if n := testing.AllocsPerRun(100, func() { w.intake.show(m, store.OutcomeRefused, "why") }); n != 0 {
		t.Errorf("%v allocations for a refusal", n)
	}
	w.furnish(1)
	w.send(w.arrival(1, temp(1)))
	w.apply()
	if w.applier.out.endings != nil {
		t.Error("endings are gathered without a watcher")
	}
	var none *Tap
	if none.Busy() {
		t.Error("a tap that is not there is busy")
	}
}

func BenchmarkTapWithoutWatchers(b *testing.B) {
	tap := NewTap(func() model.Nanos { return 1 }, nil)
	for b.Loop() {
		if tap.Busy() {
			b.Fatal("busy")
		}
	}
}

// A watcher that fetches nothing is the worst case of watching.
func BenchmarkTapWithAWatcherThatSleeps(b *testing.B) {
	tap := NewTap(func() model.Nanos { return 1 }, nil)
	w, err := tap.Watch(Watch{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	e := ending{rec: &model.Record{Account: "acme", Device: "d1"}, outcome: store.OutcomeStored}
	b.ReportAllocs()
	for b.Loop() {
		tap.show(e)
	}
}

// The watchers of one tenant do not take the places of others.
func TestTheTapTakesSoManyWatchersOfOneTenant(t *testing.T) {
	t.Parallel()
	tap, acme, globex := NewTap(func() model.Nanos { return 1 }, nil), "acme", "globex"
	for range maxTenantWatchers {
		if _, err := tap.Watch(Watch{Tenant: &acme}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tap.Watch(Watch{Tenant: &acme}); model.CodeOf(err) != model.CodeLimitExceeded || !strings.Contains(err.Error(), "16 others watch the tenant") {
		t.Errorf("one too many of acme: %v", err)
	}
	for _, other := range []Watch{{Tenant: &globex}, {}} {
		if _, err := tap.Watch(other); err != nil {
			t.Errorf("%+v: %v", other, err)
		}
	}
}
