package command

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/commands"
)

const tenant = 7

// world is a service over a fresh store, with a carrier whose devices connect and disconnect at the test's word.
type world struct {
	testing.TB
	*Service
	db      store.Store
	clock   *fixture.Clock
	carrier *carrier
	devices map[string]int64
	ceiling int64
	set     Settings
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, db: fixture.Store(t), clock: fixture.NewClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)), devices: map[string]int64{}, ceiling: 10_000,
		set: Settings{PresenceGated: true, Reserve: 0.2}}
	w.start()
	return w
}

// start starts the service, for the second time as after a crash: sessions are gone, and nobody reports what became of their packets.
func (w *world) start() {
	w.carrier = &carrier{w: w, traits: Traits{Name: "mqtt", Sources: []string{"mqtt1"}, Unacknowledged: 30 * time.Second, Connected: true}, live: map[int64]bool{}}
	w.Service = New(w.set, Deps{Store: w.db, Writer: store.Direct{Store: w.db, Now: w.clock.Now}, Judge: w.judge, Ceiling: func(int64) int64 { return w.ceiling }, Now: w.clock.Now,
		Targets: func(_ context.Context, _ *model.Principal, group string, _ *int64, limit int) (Target, error) {
			if group != "all" {
				return Target{Refused: reject("GROUP_NOT_FOUND", "entity group %q does not exist", group)}, nil
			}
			return Target{Devices: w.tokens()}, nil
		}})
	w.Carry(w.carrier)
}

func (w *world) judge(_ store.Tx, _ int64, devices []string, name string, _ *string) (all []Verdict, err error) {
	for _, d := range devices {
		v := Verdict{Device: d, DeviceID: w.devices[d]}
		switch {
		case v.DeviceID == 0:
			v.Rejection = *reject(NoDevice, "there is no device %q", d)
		case name == "unknown":
			v.Rejection = *reject("COMMAND_NOT_IN_VOCABULARY", "not declared")
		}
		all = append(all, v)
	}
	return all, nil
}

func (w *world) tokens() (all []string) {
	for d := range w.devices {
		all = append(all, d)
	}
	slices.Sort(all)
	return all
}

// device makes a device that was seen on an event source, "" for one that was never seen.
func (w *world) device(token, source string) int64 {
	id := int64(len(w.devices) + 1)
	w.devices[token] = id
	if source != "" {
		w.tx(func(tx store.Tx) error {
			return store.PutActivity(tx, &store.DeviceState{TenantID: tenant, DeviceID: id, ActivitySource: source, HasActivity: true, LastActivity: 1})
		})
	}
	return id
}

func (w *world) tx(fn func(store.Tx) error) {
	w.Helper()
	if err := w.db.Write(w.Context(), store.Durable, fn); err != nil {
		w.Fatal(err)
	}
}

// settle runs the loop of the service until nothing is left to do at this time.
func (w *world) settle() {
	w.Helper()
	for range 10_000 {
		w.due(w.clock.Now())
		busy, err := w.step(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if !busy {
			return
		}
	}
	w.Fatal("the loop does not come to rest")
}

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	w.Helper()
	for step := 10 * time.Second; d > 0; d -= step {
		w.clock.Step(min(step, d))
		w.settle()
	}
}

func (w *world) order(o Order) (c *Command, refused *Rejection) {
	w.Helper()
	if o.TenantID == 0 {
		o.TenantID = tenant
	}
	if o.Name == "" {
		o.Name = "open"
	}
	w.tx(func(tx store.Tx) (err error) {
		c, refused, err = w.Create(tx, o)
		return err
	})
	return c, refused
}

// orderAs orders a command as a caller of the API.
func (w *world) orderAs(o Order) (c *Command, refused *Rejection) {
	w.Helper()
	if o.Name == "" {
		o.Name = "open"
	}
	c, refused, err := w.Order(w.Context(), caller(), o)
	if err != nil {
		w.Fatal(err)
	}
	return c, refused
}

func (w *world) get(token string) (c *Command) {
	w.Helper()
	if err := w.db.Read(w.Context(), func(tx store.Tx) (err error) {
		c, err = commands.Get(tx, tenant, token)
		return err
	}); err != nil || c == nil {
		w.Fatalf("there is no command %q: %v", token, err)
	}
	return c
}

func (w *world) expect(token string, s State) *Command {
	w.Helper()
	c := w.get(token)
	if c.State != s {
		w.Fatalf("%s is %s, want %s", token, c.State, s)
	}
	return c
}

func (w *world) answer(r Response) (done Answered) {
	w.Helper()
	r.TenantID, r.At = tenant, model.NanosOf(w.clock.Now())
	w.tx(func(tx store.Tx) (err error) {
		done, err = w.Answer(tx, r)
		return err
	})
	return done
}

func caller() *model.Principal {
	return &model.Principal{Kind: model.AccessCaller, Subject: "ann", Tenant: "acme", TenantID: tenant}
}

// carrier is a transport of a test. It claims at once when it is offered a device that is live.
type carrier struct {
	w      *world
	traits Traits
	live   map[int64]bool
	asleep time.Duration
	flying []Dispatch // sent, and without an end
	full   bool       // no device can take a packet that it has not claimed
	taking func()     // before a packet is taken that was not claimed; nil: nothing happens
	all    []Dispatch
	over   []string // dispatches that took long and are over, by nonce
}

func (c *carrier) Traits() Traits { return c.traits }

func (c *carrier) Reach(device int64) Reach {
	switch live, known := c.live[device]; {
	case live:
		return Present
	case known:
		return Absent
	}
	return Unknown
}

func (c *carrier) Offer(device int64) bool {
	if !c.live[device] {
		return false
	}
	c.w.Claim(device, c.traits.Name, func(d Dispatch, ok bool) {
		if ok {
			c.flying, c.all = append(c.flying, d), append(c.all, d)
		}
	})
	return true
}

func (c *carrier) Ready(device int64) bool { return c.live[device] && !c.full }

func (c *carrier) Take(d Dispatch) {
	if c.taking != nil {
		c.taking()
	}
	if !c.live[d.DeviceID] {
		c.end(d, Lost)
		return
	}
	c.flying, c.all = append(c.flying, d), append(c.all, d)
}

func (c *carrier) Over(_ int64, _, nonce string) { c.over = append(c.over, nonce) }

func (c *carrier) Rhythm(int64) (time.Duration, bool) { return c.asleep, c.asleep > 0 }

func (c *carrier) connect(device int64) {
	c.live[device] = true
	c.w.Reachable(device)
	c.w.settle()
}

// disconnect ends the session: the packets that were not acknowledged are lost.
func (c *carrier) disconnect(device int64) {
	c.hangUp(device)
	c.w.settle()
}

func (c *carrier) hangUp(device int64) {
	delete(c.live, device)
	c.flying = slices.DeleteFunc(c.flying, func(d Dispatch) bool {
		if d.DeviceID == device {
			c.end(d, Lost)
		}
		return d.DeviceID == device
	})
}

func (c *carrier) end(d Dispatch, e End) {
	c.w.Ended(Receipt{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Carrier: c.traits.Name, End: e, Text: "no"})
}

// ends reports the end of the oldest packet under way.
func (c *carrier) ends(e End) Dispatch {
	c.w.Helper()
	if len(c.flying) == 0 {
		c.w.Fatal("no packet is under way")
	}
	d := c.flying[0]
	c.flying = c.flying[1:]
	c.end(d, e)
	c.w.settle()
	return d
}

func name(i int) string { return fmt.Sprintf("c%d", i) }
