package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/commands"
)

// connected is a world with a device that is there.
func connected(t *testing.T) (w *world, pump int64) {
	w = newWorld(t)
	pump = w.device("pump", "mqtt1")
	w.carrier.connect(pump)
	return w, pump
}

func (w *world) commits(do func()) uint64 {
	before := w.db.Stats().Commits
	do()
	return w.db.Stats().Commits - before
}

func TestACommandForADeviceThatIsThereLeavesWithItsTransaction(t *testing.T) {
	w, pump := connected(t)
	events := w.Events.Subscribe(nil, 10)
	defer events.Close()
	var c *Command
	if n := w.commits(func() { c, _ = w.orderAs(Order{Token: "c1", Device: "pump", Payload: new(`{"n":1}`)}) }); n != 1 {
		t.Errorf("%d transactions until the command left", n)
	}
	if c.State != queued || c.ID == 0 {
		t.Errorf("the caller got %+v", c)
	}
	now := w.expect("c1", sent)
	if now.Nonce == "" || now.Sent == nil || now.Awaits != "mqtt" || len(now.Earlier) != 0 {
		t.Fatalf("stored: %+v", now)
	}
	if len(w.carrier.flying) != 1 || w.carrier.flying[0].Token != "c1" || w.carrier.flying[0].Nonce != now.Nonce || w.carrier.flying[0].DeviceID != pump {
		t.Fatalf("on the way: %+v", w.carrier.flying)
	}
	for _, want := range []State{queued, sent} {
		got, err := events.Next(t.Context())
		if err != nil || got.Token != "c1" || got.ID != c.ID || got.State != want {
			t.Errorf("a follower got %+v, want %s", got, want)
		}
	}
	w.orderAs(Order{Token: "c2", Device: "pump"})
	w.settle()
	w.expect("c2", queued) // in its turn
	if again, _ := w.orderAs(Order{Token: "c1", Device: "pump", Payload: new(`{"n":1}`)}); again.ID != c.ID || again.State != sent {
		t.Errorf("the repeat: %+v", again)
	}
	w.carrier.ends(Acknowledged)
	w.expect("c2", sent)
	if c := w.expect("c1", sent); c.Delivered == nil {
		t.Error("no deliveredTime")
	}
	w.carrier.ends(Acknowledged)
	if len(w.slots) > 0 {
		t.Errorf("%d devices are remembered", len(w.slots))
	}
	if err := w.db.Read(t.Context(), func(tx store.Tx) error {
		open, err := commands.Open(tx)
		if open[sent] != 2 || open[queued] != 0 {
			t.Errorf("counted: %v", open)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// The commands of callers who order at the same time leave in the order of their rows, each once.
func TestCommandsThatAreOrderedTogetherLeaveInTheirOrder(t *testing.T) {
	w, _ := connected(t)
	const callers, each = 8, 10
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for k := range each {
				if _, _, err := w.Order(t.Context(), caller(), Order{Token: name(i*each + k), Device: "pump", Name: "open"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	w.settle()
	var ids []int64
	for range callers * each {
		ids = append(ids, w.get(w.carrier.ends(Acknowledged).Token).ID)
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != callers*each {
		t.Errorf("the rows left as %v", ids)
	}
}

func TestACommandWhoseDeviceGoesBeforeItsPacketIsHeld(t *testing.T) {
	w, pump := connected(t)
	w.carrier.taking = func() { delete(w.carrier.live, pump) }
	w.orderAs(Order{Token: "c1", Device: "pump"})
	w.carrier.taking = nil
	nonce := w.expect("c1", sent).Nonce
	w.orderAs(Order{Token: "c2", Device: "pump"})
	w.settle()
	w.expect("c1", held)
	w.expect("c2", held)
	w.carrier.connect(pump)
	if c := w.expect("c1", sent); c.Nonce == nonce || !slices.Equal(c.Earlier, []string{nonce}) {
		t.Errorf("sent again: %+v", c)
	}
	w.carrier.ends(Acknowledged)
	w.carrier.ends(Acknowledged)
	if len(w.carrier.all) != 2 {
		t.Errorf("%d packets", len(w.carrier.all))
	}
}

func TestWhatKeepsACommandFromLeavingAtOnce(t *testing.T) {
	in := func(w *world, d time.Duration) model.Micros { return model.MicrosOf(w.clock.Now().Add(d)) }
	for _, c := range []struct {
		name  string
		order Order
		first func(w *world, pump int64)
		then  State // of c1, when all is done
	}{
		{"nothing", Order{}, func(*world, int64) {}, sent},
		{"one before it waits for its acknowledgement", Order{}, func(w *world, _ int64) { w.orderAs(Order{Token: "c0", Device: "pump"}) }, queued},
		{"one before it is lost, and not yet stored as that", Order{}, func(w *world, pump int64) {
			w.orderAs(Order{Token: "c0", Device: "pump"})
			w.carrier.hangUp(pump)
			w.carrier.live[pump] = true
		}, queued},
		{"one before it waits", Order{}, func(w *world, pump int64) {
			w.carrier.disconnect(pump)
			w.order(Order{Token: "c0", Device: "pump"})
			w.settle()
			w.carrier.live[pump] = true
			w.Reachable(pump)
		}, queued},
		{"the carrier has no room", Order{}, func(w *world, _ int64) { w.carrier.full = true }, sent},
		{"the device is not there", Order{}, func(w *world, pump int64) { w.carrier.disconnect(pump) }, held},
		{"its life is as good as over", Order{Exact: true}, nil, queued},
		{"the tenant is deleted", Order{}, func(w *world, _ int64) { w.deps.Gone = func(int64) bool { return true } }, queued},
		{"what the run before left is not put right", Order{}, func(w *world, pump int64) {
			w.start()
			w.carrier.live[pump] = true
		}, sent},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, pump := connected(t)
			if c.first != nil {
				c.first(w, pump)
			} else {
				c.order.Expires = in(w, time.Second)
			}
			packets := len(w.carrier.all)
			o := c.order
			o.Token, o.Device = "c1", "pump"
			w.orderAs(o)
			at := w.get("c1").State
			if want := c.name == "nothing"; (at == sent) != want || (len(w.carrier.all) > packets) != want {
				t.Errorf("it is %s, %d packets left", at, len(w.carrier.all)-packets)
			}
			w.settle()
			w.expect("c1", c.then)
			if first := slices.IndexFunc(w.carrier.all, func(d Dispatch) bool { return d.Token == "c1" }); c.then == queued && first >= 0 {
				t.Errorf("packets: %+v", w.carrier.all)
			}
		})
	}
}

func TestACommandThatIsCancelledAtOnceIsSentAllTheSame(t *testing.T) {
	w, _ := connected(t)
	w.orderAs(Order{Token: "c1", Device: "pump"})
	if c, err := w.Cancel(t.Context(), caller(), "c1"); err != nil || c.State != sent {
		t.Fatalf("%+v, %v", c, err)
	}
	w.carrier.ends(Acknowledged)
	w.expect("c1", sent)
}

// failing is a Writer whose changes do not come to be.
type failing struct {
	store.Writer
	fail bool
}

var errFails = errors.New("the change fails")

func (f *failing) Mutate(ctx context.Context, by *model.Principal, fn func(*store.Change) error) error {
	return f.Writer.Mutate(ctx, by, func(c *store.Change) error {
		if err := fn(c); err != nil || !f.fail {
			return err
		}
		return errFails
	})
}

func TestACommandThatIsNotStoredDoesNotLeave(t *testing.T) {
	w, pump := connected(t)
	f := &failing{Writer: w.deps.Writer, fail: true}
	w.deps.Writer = f
	if _, _, err := w.Order(t.Context(), caller(), Order{Token: "c1", Device: "pump", Name: "open"}); !errors.Is(err, errFails) {
		t.Fatal(err)
	}
	if len(w.carrier.all) > 0 || len(w.slots) > 0 {
		t.Fatalf("packets %+v, %d devices are remembered", w.carrier.all, len(w.slots))
	}
	f.fail = false
	// In the change of somebody else, who may still fail.
	err := f.Mutate(t.Context(), caller(), func(c *store.Change) error {
		if _, _, err := w.Order(c.Context(), caller(), Order{Token: "c2", Device: "pump", Name: "open"}); err != nil {
			return err
		}
		return errFails
	})
	if !errors.Is(err, errFails) || len(w.carrier.all) > 0 || len(w.slots) > 0 {
		t.Fatalf("%v, packets %+v, %d devices are remembered", err, w.carrier.all, len(w.slots))
	}
	if err := f.Mutate(t.Context(), caller(), func(c *store.Change) error {
		_, _, err := w.Order(c.Context(), caller(), Order{Token: "c3", Device: "pump", Name: "open"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if len(w.carrier.flying) != 1 || w.carrier.ends(Acknowledged).Token != "c3" {
		t.Fatal("a command of the change of somebody else did not leave")
	}
	w.orderAs(Order{Token: "c4", Device: "pump"})
	if len(w.carrier.flying) != 1 || w.carrier.flying[0].DeviceID != pump {
		t.Fatal("the next command did not leave")
	}
}

// Whoever ends leaves no way open by which a command could leave.
func TestNothingLeavesAtOnceAfterTheEndOfRun(t *testing.T) {
	w, _ := connected(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	w.orderAs(Order{Token: "c1", Device: "pump"})
	w.expect("c1", queued)
}

// BenchmarkOrder is a command of a caller for a device that is there, until its packet is with the carrier, and its acknowledgement.
func BenchmarkOrder(b *testing.B) {
	for _, full := range []bool{false, true} {
		b.Run(map[bool]string{false: "straight", true: "claimed"}[full], func(b *testing.B) {
			w := newWorld(b)
			w.ceiling = 1 << 40
			w.carrier.connect(w.device("pump", "mqtt1"))
			w.carrier.full = full
			before, n := w.db.Stats().Commits, 0
			for b.Loop() {
				w.orderAs(Order{Token: fmt.Sprint("c", n), Device: "pump"})
				if full {
					w.settle()
				}
				n++
				b.StopTimer()
				w.carrier.ends(Acknowledged)
				b.StartTimer()
			}
			b.ReportMetric(float64(w.db.Stats().Commits-before)/float64(n), "commits/op")
		})
	}
}
