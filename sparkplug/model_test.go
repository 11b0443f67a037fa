package sparkplug

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is a node, a network that loses, repeats and reorders what it sends, and a host. The plain model is what was sent: each value once, so that
// a value says which message of which device and metric it was in.
type world struct {
	t   *rapid.T
	m   *Machine
	now time.Time

	// The node.
	up      bool
	seq     uint8
	bdSeq   uint64
	epoch   uint64 // changes the aliases of the next birth
	shift   uint64 // of the aliases of this session
	devices map[string]bool
	at      uint64

	wire    []sent // on its way
	value   float64
	sent    map[float64]string // who and what each value is of
	arrived map[float64]int    // values that reached the host, and how often
	stored  map[float64]int
	dead    map[float64]int // in dead letters
	online  map[string]bool // as the host has asserted
	asked   bool
	log     []string
	bodies  map[string][]float64 // values of a message by its bytes
}

var worldMetrics = []string{"a", "b", "c"}

func (w *world) alias(device, name string) uint64 {
	return (uint64(len(device))*100+uint64(name[0])+w.shift)%7 + 10*uint64(len(device)) // few, so that sessions use them for other names
}

func (w *world) begin() pb {
	w.at++
	b := pb{}.varint(1, w.at).varint(3, uint64(w.seq))
	w.seq++
	return b
}

func (w *world) next(device, name string) float64 {
	w.value++
	w.sent[w.value] = device + "/" + name
	return w.value
}

func (w *world) send(kind Kind, device string, body pb, values []float64) {
	w.bodies[string(body)] = values
	w.wire = append(w.wire, sent{Topic{Kind: kind, Group: "g", Node: "n", Device: device}, body})
}

func (w *world) births(device string, body pb) (pb, []float64) {
	var values []float64
	for _, name := range worldMetrics {
		v := w.next(device, name)
		values = append(values, v)
		body = body.msg(2, pb{}.text(1, name).varint(2, w.alias(device, name)).varint(4, uint64(Double)).double(13, v))
	}
	return body, values
}

func (w *world) nodeBirth() {
	// A birth may bear any number. That of most nodes is 0; then, once in 256 lost births, the next message has the number that is expected by chance,
	// and nothing shows the loss.
	w.seq += 100
	w.shift = w.epoch
	body, values := w.births("", w.begin().msg(2, pb{}.text(1, "bdSeq").varint(4, uint64(Int64)).varint(11, w.bdSeq)))
	w.send(NBIRTH, "", body, values)
	for _, d := range sortedKeys(w.devices) {
		if w.devices[d] {
			w.deviceBirth(d)
		}
	}
}

func (w *world) deviceBirth(d string) {
	body, values := w.births(d, w.begin())
	w.send(DBIRTH, d, body, values)
}

func (w *world) data() {
	device, kind := "", NDATA
	for _, d := range sortedKeys(w.devices) {
		if w.devices[d] && rapid.Bool().Draw(w.t, "of "+d) {
			device, kind = d, DDATA
		}
	}
	name := rapid.SampledFrom(worldMetrics).Draw(w.t, "metric")
	v := w.next(device, name)
	w.send(kind, device, w.begin().msg(2, pb{}.varint(2, w.alias(device, name)).double(13, v)), []float64{v})
}

// deliver hands the i-th message on the wire to the host.
func (w *world) deliver(i int, keep bool) {
	s := w.wire[i]
	if !keep {
		w.wire = append(w.wire[:i:i], w.wire[i+1:]...)
	}
	before := w.m.Counts
	effects := w.m.Message(s.Topic, s.body, w.now)
	w.logf("%s %s of %v: %q", s.Kind, s.Device, w.bodies[string(s.body)], show(effects))
	if len(effects) > 0 || w.m.Counts.Repeats == before.Repeats && w.m.Counts.Stale == before.Stale { // else it is counted as one that says nothing new
		for _, v := range w.bodies[string(s.body)] {
			w.arrived[v]++
		}
	}
	w.take(effects)
}

func (w *world) logf(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.log[:min(len(w.log), 60)], "\n"))
}

func (w *world) deliverAll() {
	for len(w.wire) > 0 {
		w.deliver(0, false)
	}
}

func (w *world) take(effects []Effect) {
	for _, e := range effects {
		switch e.What {
		case Online:
			w.online[e.Device] = true
		case Offline:
			w.online[e.Device] = false
		case Readings:
			for _, s := range e.Samples {
				if got := e.Device + "/" + s.Name; w.sent[s.Value] != got {
					w.fatalf("the value %v of %s is stored as %s", s.Value, w.sent[s.Value], got)
				}
				w.stored[s.Value]++
			}
		case NoBirth:
			for _, v := range w.bodies[string(e.Body)] {
				w.dead[v]++
			}
		case Malformed:
			w.t.Fatalf("malformed: %s", e.Reason)
		}
	}
}

func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	effects := w.m.Tick(w.now)
	w.logf("after %s: %q", d, show(effects))
	w.take(effects)
	if len(w.m.Rebirths(w.now, true)) > 0 {
		w.asked = true
		w.logf("asked")
	}
}

// TestANodeOverABadNetwork: whatever is lost, repeated or overtaken, no value is ever stored as another's, what arrived is stored or a dead letter,
// and once the network is good again and rebirths are answered, presence and values are as the node says.
func TestANodeOverABadNetwork(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: start, m: NewMachine(Rules{ResumeWithin: 30 * time.Second, RebirthsPerSecond: 10,
			ReorderTimeout: time.Duration(rapid.IntRange(0, 3).Draw(t, "reorder")) * time.Second}),
			devices: map[string]bool{"d": true, "ee": false}, sent: map[float64]string{}, arrived: map[float64]int{}, stored: map[float64]int{}, dead: map[float64]int{},
			online: map[string]bool{}, bodies: map[string][]float64{}}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			w.step(rapid.IntRange(0, 13).Draw(t, "step"))
		}
		w.settle()
	})
}

func (w *world) step(what int) {
	switch {
	case what <= 3 && w.up:
		w.data()
	case what == 4 && !w.up:
		w.up = true
		w.bdSeq++
		w.nodeBirth()
	case what == 5 && w.up: // its connection ends; the will may come late
		w.up = false
		w.send(NDEATH, "", pb{}.varint(1, w.at).msg(2, pb{}.text(1, "bdSeq").varint(11, w.bdSeq)), nil)
		if rapid.Bool().Draw(w.t, "other aliases") {
			w.epoch++
		}
	case what == 6 && w.up:
		d := rapid.SampledFrom([]string{"d", "ee"}).Draw(w.t, "device")
		if w.devices[d] = !w.devices[d]; w.devices[d] {
			w.deviceBirth(d)
		} else {
			w.send(DDEATH, d, w.begin(), nil)
		}
	case what == 7 && w.asked && w.up:
		w.asked = false
		w.nodeBirth()
	case what == 8 && len(w.wire) > 0: // lost
		w.logf("lost %s", w.wire[0].Kind)
		w.wire = w.wire[1:]
	case what == 9 && len(w.wire) > 0: // repeated
		w.deliver(0, true)
	case what == 10 && len(w.wire) > 1: // overtaken
		// A broker keeps the order of two connections of a node, and a rebirth is a message as others: only between births messages overtake.
		to := slices.IndexFunc(w.wire, func(s sent) bool { return s.Kind == NBIRTH || s.Kind == NDEATH })
		if to < 0 {
			to = len(w.wire)
		}
		w.deliver(rapid.IntRange(0, max(to-1, 0)).Draw(w.t, "which"), false)
	case what == 11:
		w.pass(time.Duration(rapid.IntRange(100, 20_000).Draw(w.t, "ms")) * time.Millisecond)
	case what == 12 && rapid.Bool().Draw(w.t, "cut"): // what is on its way is lost
		w.take(w.m.LinkDown())
		cut := time.Duration(rapid.IntRange(0, 60).Draw(w.t, "s")) * time.Second
		w.logf("cut for %s, %d messages lost", cut, len(w.wire))
		w.wire = nil
		w.now = w.now.Add(cut)
		w.take(w.m.LinkUp(w.now))
	default:
		if len(w.wire) > 0 {
			w.deliver(0, false)
		}
	}
}

// settle makes the network good and answers what is asked, until all is quiet. The host must know all by then.
func (w *world) settle() {
	if !w.up {
		w.up = true
		w.bdSeq++
		w.nodeBirth()
	}
	w.data() // shows what was lost before
	w.deliverAll()
	for range 200 {
		w.pass(5 * time.Second)
		if w.asked {
			w.asked = false
			w.nodeBirth()
		}
		w.data()
		w.deliverAll()
	}
	n := w.m.nodes["g/n"]
	if n == nil || !n.synced || n.owes != "" || n.duplicate {
		w.fatalf("the node is not settled")
	}
	for device, up := range map[string]bool{"": true, "d": w.devices["d"], "ee": w.devices["ee"]} {
		if w.online[device] != up {
			w.fatalf("%q is online: %v, want %v", device, w.online[device], up)
		}
	}
	last := w.value
	w.data()
	w.deliverAll()
	if w.stored[last+1] != 1 {
		w.fatalf("a value of a settled node is not stored")
	}
	if w.m.HeldBytes() != 0 {
		w.fatalf("%d bytes are held", w.m.HeldBytes())
	}
	for v, times := range w.arrived {
		if got := w.stored[v] + w.dead[v]; got == 0 || got > times {
			w.fatalf("the value %v of %s arrived %d times, is stored %d times and %d times in dead letters", v, w.sent[v], times, w.stored[v], w.dead[v])
		}
	}
	for v := range w.stored {
		if w.arrived[v] == 0 {
			w.fatalf("a value that never arrived: %v", v)
		}
	}
}
