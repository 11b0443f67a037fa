package command

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/commands"
)

func (w *world) batch(o BatchOrder) (b *Batch, refused *BatchRejection) {
	w.Helper()
	if o.Name == "" {
		o.Name = "open"
	}
	b, refused, err := w.OrderBatch(w.Context(), caller(), o)
	if err != nil {
		w.Fatal(err)
	}
	return b, refused
}

func (w *world) getBatch(token string) (b *Batch) {
	w.Helper()
	if err := w.db.Read(w.Context(), func(tx store.Tx) (err error) {
		b, err = commands.GetBatch(tx, tenant, token)
		return err
	}); err != nil || b == nil {
		w.Fatalf("there is no batch %q: %v", token, err)
	}
	return b
}

// fleet makes n devices that are connected.
func (w *world) fleet(n int) {
	for i := range n {
		w.carrier.live[w.device(fmt.Sprintf("d%03d", i), "mqtt1")] = true
	}
}

func TestABatchReachesItsDevices(t *testing.T) {
	w := newWorld(t)
	w.fleet(250)
	b, refused := w.batch(BatchOrder{Token: "all", Devices: w.tokens(), Payload: new("{}")})
	if refused != nil || b.Resolved != 250 || b.Accepted != 250 {
		t.Fatal(b, refused)
	}
	w.settle()
	if n := len(w.carrier.all); n != 250 {
		t.Fatalf("%d were sent", n)
	}
	if c := w.expect("all-001", sent); c.Batch != "all" || c.CreatedAt != w.get("all-250").CreatedAt {
		t.Fatalf("%+v", c)
	}
	again, _ := w.batch(BatchOrder{Token: "all", Name: "other", Devices: []string{"none"}})
	if again.ID != b.ID || again.Name != "open" {
		t.Fatal("the same token does not return the stored batch")
	}
}

func TestRefusalsOfABatch(t *testing.T) {
	w := newWorld(t)
	w.fleet(3)
	w.ceiling = 10
	w.order(Order{Token: "mixed-1", Device: "d000"}) // takes the token of a command of the batch
	many := make([]string, MaxBatch+1)
	for i := range many {
		many[i] = fmt.Sprint("x", i)
	}
	bad := new("{")
	for _, c := range []struct {
		o    BatchOrder
		want string
	}{
		{BatchOrder{Devices: []string{"d000"}, Group: new("all"), Payload: bad}, BatchAmbiguous},
		{BatchOrder{Payload: bad}, BatchAmbiguous},
		{BatchOrder{Devices: many, Payload: bad}, NotJSON},
		{BatchOrder{Devices: many, Metadata: bad}, MetadataNotJSON},
		{BatchOrder{Devices: many, ExpiresAt: bad}, BadExpiry},
		{BatchOrder{Devices: many}, BatchTooLarge},
		{BatchOrder{Group: new("none")}, BatchUnusable},
		{BatchOrder{Devices: []string{"d000", "none"}}, BatchPartial},
		{BatchOrder{Devices: many[:20]}, BatchPartial},
		{BatchOrder{Group: new("all"), Name: "unknown"}, BatchPartial},
	} {
		c.o.Token = "b"
		if b, refused := w.batch(c.o); b != nil || refused == nil || refused.Code != c.want {
			t.Errorf("%+v: %+v, want %s", c.o, refused, c.want)
		}
	}
	b, refused := w.batch(BatchOrder{Token: "mixed", Devices: []string{"d000", "none", "d001", "gone", "d001"}, AllowPartial: true})
	var counts []RefusalCount
	if refused != nil || json.Unmarshal([]byte(b.Counts), &counts) != nil {
		t.Fatal(refused)
	}
	sum := b.Accepted
	for _, c := range counts {
		sum += c.Count
	}
	if b.Resolved != 4 || b.Accepted != 1 || sum != b.Resolved {
		t.Fatalf("%+v %v", b, counts)
	}
	for i := range 7 {
		w.order(Order{Token: name(i), Device: "d002"})
	}
	if _, refused := w.batch(BatchOrder{Token: "full", Group: new("all")}); refused == nil || refused.Code != HeldCeiling || *refused.Resolved != 3 {
		t.Fatal(refused)
	}
	if b, refused := w.batch(BatchOrder{Token: "empty", Devices: []string{}}); refused != nil || b.Resolved != 0 {
		t.Fatal(refused)
	}
}

func TestABatchThatFailsStopsAndIsResumedOrCalledOff(t *testing.T) {
	w := newWorld(t)
	w.fleet(200)
	pace, percent := int64(60), 50.0
	if _, refused := w.batch(BatchOrder{Token: "all", Group: new("all"), MaxPerMinute: &pace, StopPercent: &percent}); refused != nil {
		t.Fatal(refused)
	}
	fails := func() {
		for len(w.carrier.flying) > 0 {
			d := w.carrier.ends(Acknowledged)
			w.answer(Response{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Error: new("jammed")})
		}
	}
	for range 60 {
		w.clock.Step(time.Second)
		w.settle()
		fails()
	}
	b := w.getBatch("all")
	if b.State != model.BatchStopped || b.StopReason == "" || b.Failed != 10 {
		t.Fatalf("%+v", b)
	}
	n := len(w.carrier.all)
	w.pass(5 * time.Minute)
	if len(w.carrier.all) != n || n > 12 {
		t.Fatalf("%d were sent, and %d after the stop", n, len(w.carrier.all)-n)
	}
	if _, err := w.ResumeBatch(t.Context(), caller(), "all"); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.clock.Step(2 * time.Second)
	w.settle()
	if len(w.carrier.all) == n {
		t.Fatal("nothing is sent after it was resumed")
	}
	n = len(w.carrier.all)
	done, err := w.CancelBatch(t.Context(), caller(), "all")
	if err != nil || done.Matched != 200 || done.Finished != 10 || done.Cancelled+done.Sent != 190 {
		t.Fatal(done, err)
	}
	for _, d := range w.carrier.flying { // what was under way comes back
		w.carrier.end(d, Lost)
	}
	w.pass(5 * time.Minute)
	if len(w.carrier.all) != n {
		t.Fatal("sent after it was called off")
	}
	for i := range 200 {
		if c := w.get(fmt.Sprintf("all-%03d", i+1)); !c.State.Final() {
			t.Fatalf("%s is %s", c.Token, c.State)
		}
	}
	if _, err := w.ResumeBatch(t.Context(), caller(), "all"); err == nil {
		t.Fatal("a batch that was called off goes on")
	}
}

func TestThePaceOfABatchHoldsOverARestart(t *testing.T) {
	for _, pace := range []int64{7, 60, 600} {
		t.Run(fmt.Sprint(pace), func(t *testing.T) {
			w := newWorld(t)
			w.fleet(300)
			if _, refused := w.batch(BatchOrder{Token: "all", Devices: w.tokens(), MaxPerMinute: &pace}); refused != nil {
				t.Fatal(refused)
			}
			var sentAt []time.Duration
			var now time.Duration
			for i := range 130 {
				if i == 40 { // a stop that lasts
					w.start()
					for _, id := range w.devices {
						w.carrier.live[id] = true
					}
					w.clock.Step(10 * time.Minute)
					now += 10 * time.Minute
				}
				before := len(w.carrier.all)
				w.clock.Step(time.Second)
				now += time.Second
				w.settle()
				for range len(w.carrier.all) - before {
					sentAt = append(sentAt, now)
				}
				for len(w.carrier.flying) > 0 {
					w.carrier.ends(Acknowledged)
				}
			}
			for i := range sentAt {
				if j := i + int(pace); j < len(sentAt) && sentAt[j]-sentAt[i] < time.Minute {
					t.Fatalf("%d were sent within %s", pace+1, sentAt[j]-sentAt[i])
				}
			}
			if want := min(int(pace)*2*9/10, 280); len(sentAt) < want {
				t.Fatalf("%d were sent in 130 s, want at least %d", len(sentAt), want)
			}
		})
	}
}

func TestABatchThatWasNotCompletedIsNoBatch(t *testing.T) {
	w := newWorld(t)
	w.fleet(3)
	b := &Batch{TenantID: tenant, Token: "half", Name: "open", TargetKind: model.BatchOfList, Accepted: 3, Resolved: 3, Refusals: "[]", Counts: "[]", State: model.BatchMaking, Expires: 1 << 60}
	w.tx(func(tx store.Tx) error {
		if err := commands.InsertBatch(tx, b); err != nil {
			return err
		}
		if err := commands.Count(tx, tenant, queued, 3); err != nil {
			return err
		}
		return commands.Insert(tx, &Command{TenantID: tenant, Token: "half-1", DeviceID: 1, Device: "d000", Name: "open", State: queued, Expires: 1 << 60, BatchID: b.ID, Batch: "half"}, true)
	})
	w.start()
	for _, id := range w.devices {
		w.carrier.live[id] = true
	}
	w.settle()
	if len(w.carrier.all) > 0 {
		t.Fatal("sent")
	}
	w.tx(func(tx store.Tx) error {
		if n, err := commands.Undelivered(tx, tenant); err != nil || n != 0 {
			t.Fatal(n, err)
		}
		return nil
	})
	if b, refused := w.batch(BatchOrder{Token: "half", Devices: w.tokens()}); refused != nil || b.Accepted != 3 {
		t.Fatal(refused)
	}
}
