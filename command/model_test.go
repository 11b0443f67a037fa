package command

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/commands"
)

// allowed is the life of a command as the reference says it, written down a second time: which states may follow one another between two
// looks, in which several events may have happened.
var allowed = map[State][]State{
	queued: {held, sent, parked, successful, failed, expired, cancelled, timedOut},
	held:   {queued, sent, parked, successful, failed, expired, cancelled, timedOut},
	parked: {sent, successful, failed, expired, cancelled, held, queued, timedOut},
	sent:   {held, queued, parked, successful, failed, timedOut, cancelled, expired},
}

func TestTheTableSaysWhatTheReferenceSays(t *testing.T) {
	for _, s := range model.CommandStates() {
		for e := range events {
			to, ok := next(s, e, false)
			switch {
			case s.Final() && ok:
				t.Errorf("%s is final and moves to %s", s, to)
			case ok && to != s && !slices.Contains(allowed[s], to):
				t.Errorf("%s moves to %s", s, to)
			case !ok && to != s:
				t.Errorf("%s is %s without a move", s, to)
			}
		}
	}
	for _, c := range []struct {
		from State
		e    event
		to   State
	}{{queued, expire, expired}, {held, expire, expired}, {parked, expire, expired}, {sent, expire, timedOut}, {sent, cancel, sent}, {sent, remove, cancelled},
		{parked, release, parked}, {held, release, queued}, {sent, lose, held}} {
		if to, _ := next(c.from, c.e, false); to != c.to {
			t.Errorf("%s, event %d: %s, want %s", c.from, c.e, to, c.to)
		}
	}
	for _, e := range []event{lose, unwrite, park} {
		if to, _ := next(sent, e, true); to != cancelled {
			t.Errorf("event %d of a batch that was called off: %s", e, to)
		}
	}
}

// random is a world in which anything happens, with what must hold whatever does.
type random struct {
	*world
	*rand.Rand
	tokens   []string
	seen     map[string]State
	order    map[int64][]string // tokens by device, in the order of their making
	sentOnce map[string]bool
	answered []Response
}

// TestAnythingMayHappenToACommand lets random events come to commands of several devices and compares what becomes of them with what the
// reference promises.
func TestAnythingMayHappenToACommand(t *testing.T) {
	for seed := range 10 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := &random{world: newWorld(t), Rand: rand.New(rand.NewPCG(uint64(seed), 5)), seen: map[string]State{}, order: map[int64][]string{}, sentOnce: map[string]bool{}}
			r.ceiling = 30
			for i := range 4 {
				r.device(fmt.Sprintf("d%d", i), []string{"mqtt1", "mqtt1", "mqtt1", "http1"}[i])
			}
			for range 250 {
				r.happen()
				r.check()
			}
			r.end()
		})
	}
}

func (r *random) happen() {
	device := int64(1 + r.IntN(4))
	packet := func() (d Dispatch, ok bool) {
		if len(r.carrier.flying) == 0 {
			return d, false
		}
		i := r.IntN(len(r.carrier.flying))
		d = r.carrier.flying[i]
		return d, true
	}
	land := func(d Dispatch) {
		r.carrier.flying = slices.DeleteFunc(r.carrier.flying, func(f Dispatch) bool { return f.Nonce == d.Nonce })
	}
	switch n := r.IntN(100); {
	case n < 20:
		token := name(len(r.tokens))
		o := Order{Token: token, Device: fmt.Sprintf("d%d", device-1), Service: r.IntN(2) == 0}
		if r.IntN(3) == 0 {
			o.Expires = model.MicrosOf(r.clock.Now().Add(time.Duration(1+r.IntN(300)) * time.Second))
			o.Exact = true
		}
		order := r.world.order
		if r.IntN(2) == 0 {
			order = r.world.orderAs
			if r.IntN(8) == 0 { // the device goes between the commit and the packet
				r.carrier.taking = func() { r.carrier.hangUp(device) }
			}
		}
		c, _ := order(o)
		r.carrier.taking = nil
		if c != nil {
			r.tokens = append(r.tokens, token)
			r.order[c.DeviceID] = append(r.order[c.DeviceID], token)
		}
	case n < 30:
		if device < 4 {
			r.carrier.connect(device)
		}
	case n < 37:
		r.carrier.disconnect(device)
	case n < 55:
		if d, ok := packet(); ok {
			land(d)
			r.carrier.end(d, []End{Acknowledged, Acknowledged, Acknowledged, Unconfirmed, Lost, Unwritten, Slept}[r.IntN(7)])
		}
	case n < 68: // an answer, to any dispatch there ever was
		if len(r.carrier.all) > 0 {
			d := r.carrier.all[len(r.carrier.all)-1-r.IntN(min(6, len(r.carrier.all)))]
			a := Response{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Success: r.IntN(4) > 0, Error: new("no")}
			if r.world.answer(a) == Moved {
				r.answered = append(r.answered, a)
			}
		}
	case n < 72: // the log is replayed: what moved something moves nothing
		for _, a := range r.answered {
			before := *r.get(a.Token)
			if got := r.world.answer(a); got != TooLate {
				r.Fatalf("the replay of an answer: %s", got)
			}
			if after := *r.get(a.Token); after.State != before.State || after.UpdatedAt != before.UpdatedAt {
				r.Fatalf("the replay of an answer changed %s", a.Token)
			}
		}
	case n < 77:
		if len(r.tokens) > 0 {
			if _, err := r.Cancel(r.Context(), caller(), r.tokens[r.IntN(len(r.tokens))]); err != nil {
				r.Fatal(err)
			}
		}
	case n < 90:
		r.clock.Step(time.Duration(r.IntN(60_000)) * time.Millisecond)
	case n < 92: // the clock is set back
		r.clock.Step(-time.Duration(r.IntN(20)) * time.Second)
	case n < 95: // a crash
		all := r.carrier.all
		r.start()
		r.carrier.all = all
	}
	if r.IntN(3) > 0 {
		r.settle()
	}
}

// check compares what is stored with what was before, and the counts with the rows.
func (r *random) check() {
	r.Helper()
	counts := map[State]int64{}
	for _, token := range r.tokens {
		c := r.get(token)
		was := r.seen[token]
		if was != "" && was != c.State && !slices.Contains(allowed[was], c.State) {
			r.Fatalf("%s went from %s to %s", token, was, c.State)
		}
		r.seen[token] = c.State
		if !c.State.Final() {
			counts[c.State]++
		}
		if c.State == sent && (c.Nonce == "" || c.Sent == nil) {
			r.Fatalf("%s is SENT without a dispatch", token)
		}
		if c.State != sent && c.Awaits != "" {
			r.Fatalf("%s is %s and awaits %s", token, c.State, c.Awaits)
		}
	}
	r.tx(func(tx store.Tx) error {
		open, err := commands.Open(tx)
		for _, s := range model.CommandStates() {
			if open[s] != counts[s] {
				r.Fatalf("%d commands are counted as %s, there are %d", open[s], s, counts[s])
			}
		}
		return err
	})
	first := map[int64][]string{}
	for _, d := range r.carrier.all {
		if !slices.Contains(first[d.DeviceID], d.Token) {
			first[d.DeviceID] = append(first[d.DeviceID], d.Token)
		}
	}
	for device, tokens := range first {
		i := 0
		for _, token := range r.order[device] {
			if i < len(tokens) && tokens[i] == token {
				i++
			}
		}
		if i < len(tokens) {
			r.Fatalf("device %d got %v first in this order", device, tokens)
		}
	}
}

// end lets every device connect and answer: nothing may be left that waits.
func (r *random) end() {
	r.pass(200 * time.Second)
	for d := range int64(3) {
		r.carrier.connect(d + 1)
	}
	for range 1000 {
		if len(r.carrier.flying) == 0 {
			break
		}
		d := r.carrier.ends(Acknowledged)
		r.world.answer(Response{DeviceID: d.DeviceID, Token: d.Token, Success: true})
		r.settle()
	}
	r.pass(400 * time.Second)
	for range 1000 {
		if len(r.carrier.flying) == 0 {
			break
		}
		d := r.carrier.ends(Acknowledged)
		r.world.answer(Response{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Success: true})
		r.settle()
	}
	for _, token := range r.tokens {
		if c := r.get(token); c.State.Undelivered() {
			r.Fatalf("%s for %s is %s although its device is there", token, c.Device, c.State)
		}
	}
}

func TestNothingIsRememberedOfDevicesWithoutCommands(t *testing.T) {
	w := newWorld(t)
	for i := range 50 {
		w.carrier.connect(w.device(fmt.Sprintf("d%d", i), "mqtt1"))
	}
	w.order(Order{Token: "c1", Device: "d7"})
	w.settle()
	w.carrier.ends(Acknowledged)
	if len(w.slots) > 0 {
		t.Fatalf("%d devices are remembered", len(w.slots))
	}
}
