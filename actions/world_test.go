package actions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// world is a drain over a store in a bubble: its clock is that of the bubble. Kind "in" writes what it performs into meta, in its transaction;
// kind "out" sends to targets that a test makes as bad as it likes.
type world struct {
	*testing.T
	db      store.Store
	cfg     Config
	kinds   []Kind
	drain   *Drain
	stopped func()

	mu       sync.Mutex
	n        int // orders so far
	judge    func(o *Order) error
	target   func(ctx context.Context, o *Order) error
	sent     []sending
	deleted  map[int64]bool
	outbound map[string]time.Time // until which a tenant's ceiling is used up
	gap      time.Duration        // between two messages of a tenant that its ceiling admits; 0: none
}

// sending is one attempt outside.
type sending struct {
	what string // tenant/target/name of the order
	key  string
	at   time.Duration // since the start of the bubble
}

// bubble runs a test with a world.
func bubble(t *testing.T, cfg Config, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, db: fixture.Store(t), cfg: cfg, deleted: map[int64]bool{}, outbound: map[string]time.Time{},
			judge: func(*Order) error { return nil }, target: func(context.Context, *Order) error { return nil }}
		w.kinds = []Kind{{Name: "in", Letters: store.DeadLetterAction, Inside: w.inside}, {Name: "out", Letters: "connector-dispatch", Outside: w.outside},
			{Name: "alone", Letters: store.DeadLetterNotice, Alone: true, Outside: w.outside}}
		w.start()
		test(w)
		w.stop()
	})
}

var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when the clock of a bubble begins

func (w *world) start() {
	w.drain = New(w.cfg, Deps{Store: w.db, Tenants: w, Now: time.Now, Rand: func() float64 { return 0.5 }, Logger: slog.New(slog.DiscardHandler), Kinds: w.kinds})
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.drain.Run(ctx) }()
	w.stopped = func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
}

func (w *world) stop() { w.stopped() }

// TokenOf implements Tenants.
func (w *world) TokenOf(id int64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deleted[id] {
		return ""
	}
	return fmt.Sprintf("t%d", id)
}

// delete deletes a tenant.
func (w *world) delete(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted[id] = true
}

// TakeOutbound implements Tenants.
func (w *world) TakeOutbound(tenant string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait := time.Until(w.outbound[tenant]); wait > 0 {
		return wait
	}
	w.outbound[tenant] = time.Now().Add(w.gap)
	return 0
}

func (w *world) inside(tx store.Tx, o *Order) error {
	n, _, err := store.MetaInt(tx, "performed:"+o.Order.Key)
	if err == nil {
		err = store.SetMetaInt(tx, "performed:"+o.Order.Key, n+1)
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	judge := w.judge
	w.mu.Unlock()
	if err := judge(o); err != nil {
		return err
	}
	tx.OnCommit(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sent = append(w.sent, sending{name(o), o.Order.Key, time.Since(began)})
	})
	return nil
}

func (w *world) outside(ctx context.Context, o *Order) error {
	w.mu.Lock()
	w.sent = append(w.sent, sending{name(o), o.Order.Key, time.Since(began)})
	target := w.target
	w.mu.Unlock()
	return target(ctx, o)
}

func name(o *Order) string { return o.Tenant + "/" + o.Target + "/" + o.Dispatch.Payload }

// sendings are the attempts outside so far.
func (w *world) sendings() []sending {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sent)
}

// order writes an order as Apply does.
func (w *world) order(o model.Order, name string) {
	w.Helper()
	w.n++
	o.Key, o.Received, o.Occurred = fmt.Sprintf("key-%s-%d", name, w.n), model.NanosOf(time.Now()), model.MicrosOf(time.Now())
	body, err := json.Marshal(model.Dispatch{Kind: o.Kind, Key: o.Key, Device: fmt.Sprintf("d%d", o.DeviceID), Rule: "t1/p/1/r", Payload: name})
	o.Body = body
	w.must(err)
	w.must(w.db.Write(w.Context(), store.Results, func(tx store.Tx) error { return outbox.Add(tx, &o) }))
	w.drain.Wake()
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// after lets time pass and everything come to rest.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// performed are the attempts so far, in order.
func (w *world) performed() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sent {
		names = append(names, s.what)
	}
	return names
}

func (w *world) want(names ...string) {
	w.Helper()
	if got := w.performed(); !slices.Equal(got, names) {
		w.Errorf("performed %q, want %q", got, names)
	}
}

func (w *world) set(judge func(*Order) error, target func(context.Context, *Order) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if judge != nil {
		w.judge = judge
	}
	if target != nil {
		w.target = target
	}
}

// waiting are the rows of the outbox, oldest first.
func (w *world) waiting() (rows []outbox.Row) {
	w.must(w.db.Read(w.Context(), func(tx store.Tx) error {
		heads, err := outbox.After(tx, 0, 1000)
		for _, h := range heads {
			r, err := outbox.Read(tx, h.ID)
			if err != nil {
				return err
			}
			rows = append(rows, *r)
		}
		return err
	}))
	return rows
}

// letters are the open dead letters of a tenant, oldest first, as reason and what was to be performed.
func (w *world) letters(tenant string) (letters []store.DeadLetter) {
	w.must(w.db.Read(w.Context(), func(tx store.Tx) (err error) {
		letters, err = store.DeadLetters(tx, store.DeadLetterFilter{Tenant: &tenant, Open: true, Limit: 100_000})
		return err
	}))
	slices.Reverse(letters)
	return letters
}

func (w *world) reasons(tenant string) (out []string) {
	for _, l := range w.letters(tenant) {
		out = append(out, l.Reason+" "+l.Detail)
	}
	return out
}

func (w *world) ends(kind string, end Reason) int {
	return int(testutil.ToFloat64(w.drain.m.ends.WithLabelValues(kind, string(end))))
}

func out(tenant int64, target string) model.Order {
	return model.Order{TenantID: tenant, Kind: "out", Target: target, DeviceID: 1}
}

func in(tenant, device int64) model.Order {
	return model.Order{TenantID: tenant, Kind: "in", DeviceID: device}
}

var errTarget = errors.New("the target says no")
