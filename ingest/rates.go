package ingest

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/store"
)

// Bounds of the rates: an hour in slots of 10 s, and how many counts of a tenant at a transport there are in all slots together. The oldest
// slots make room.
const (
	RateSlot      = 10 * time.Second
	rateSlots     = 360
	maxRateCounts = 20_000
)

// RatePoint is what came in during a slot at one transport, and the outcomes of these very messages as far as they are known.
type RatePoint struct {
	At        time.Time
	Transport string
	Received  int64
	Outcomes  map[store.Outcome]int64
}

type rateKey struct{ tenant, transport string }

// rateCount counts the messages of a slot. The array is indexed by rateIndex.
type rateCount [6]uint32

// rateOutcomes are the outcomes in the order of a rateCount, which begins with those that were received.
var rateOutcomes = [...]store.Outcome{store.OutcomeReceived, store.OutcomeStored, store.OutcomeDuplicate, store.OutcomeDeadLetter, store.OutcomeRefused, store.OutcomeDropped}

// Rates counts the messages of the last hour in memory, by the time of their receipt. A nil Rates counts nothing.
type Rates struct {
	left prometheus.Counter

	mu     sync.Mutex
	slots  [rateSlots]map[rateKey]*rateCount // slot n at n % rateSlots
	newest int64
	held   int
	// The count that was added to last, most often the next one, too.
	last     rateKey
	lastSlot int64
	found    *rateCount
}

// NewRates returns empty rates.
func NewRates(reg prometheus.Registerer) *Rates {
	r := &Rates{left: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_rates_left_out_total",
		Help: "Messages that the rates of the last hour do not show: too many tenants sent in one slot of 10 s."})}
	if reg != nil {
		reg.MustRegister(r.left, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_ingest_rates_counts", Help: "Counts of a tenant at a transport in the rates of the last hour."},
			func() float64 {
				r.mu.Lock()
				defer r.mu.Unlock()
				return float64(r.held)
			}))
	}
	return r
}

func slotOf(at model.Nanos) int64 { return int64(at) / int64(RateSlot) }

// Received counts a message that was received now.
func (r *Rates) Received(tenant, transport string, at model.Nanos) {
	if r != nil {
		r.add(tenant, transport, at, 0, true)
	}
}

// Ended counts the outcome of a message that was received at a time.
func (r *Rates) Ended(tenant, transport string, at model.Nanos, o store.Outcome) {
	if r == nil {
		return
	}
	if i := slices.Index(rateOutcomes[:], o); i > 0 {
		r.add(tenant, transport, at, i, false)
	}
}

// add counts one message. advance says that its time is now, so that the hour ends with it.
func (r *Rates) add(tenant, transport string, at model.Nanos, i int, advance bool) {
	slot := slotOf(at)
	key := rateKey{tenant, transport}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found != nil && r.lastSlot == slot && r.last == key {
		r.found[i]++
		return
	}
	// Only receipts move the hour on; outcomes may come late.
	if advance {
		r.advance(slot)
	}
	if slot > r.newest || slot <= r.newest-rateSlots { // received before this hour, or before a clock was set back
		return
	}
	counts := r.slots[slot%rateSlots]
	c := counts[key]
	if c == nil {
		if r.held >= maxRateCounts && !r.dropOldest(slot) {
			r.left.Inc()
			return
		}
		c = &rateCount{}
		if counts == nil {
			counts = map[rateKey]*rateCount{}
			r.slots[slot%rateSlots] = counts
		}
		counts[key] = c
		r.held++
	}
	c[i]++
	r.last, r.lastSlot, r.found = key, slot, c
}

// advance makes a slot the newest. A clock that was set back by more than the hour begins again.
func (r *Rates) advance(slot int64) {
	if slot > r.newest-rateSlots && slot <= r.newest {
		return
	}
	// Empty the slots that are used again.
	from := max(r.newest+1, slot-rateSlots+1)
	if slot <= r.newest {
		from = slot - rateSlots + 1
	}
	for n := from; n <= slot; n++ {
		r.empty(n)
	}
	r.newest = slot
}

func (r *Rates) empty(slot int64) {
	at := (slot%rateSlots + rateSlots) % rateSlots
	r.held -= len(r.slots[at])
	r.slots[at] = nil
	r.found = nil
}

// dropOldest empties the oldest slot that has counts, unless that is the one to be counted in.
func (r *Rates) dropOldest(but int64) bool {
	for n := max(r.newest-rateSlots+1, 0); n <= r.newest; n++ {
		if len(r.slots[n%rateSlots]) > 0 {
			if n == but {
				return false
			}
			r.empty(n)
			return true
		}
	}
	return false
}

// Of returns what came in for a tenant from a time on, oldest first; slots in which nothing came are left out.
func (r *Rates) Of(tenant string, since model.Nanos) []RatePoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []RatePoint{}
	for n := max(r.newest-rateSlots+1, slotOf(since), 0); n <= r.newest; n++ {
		for key, c := range r.slots[n%rateSlots] {
			if key.tenant != tenant {
				continue
			}
			p := RatePoint{At: time.Unix(0, n*int64(RateSlot)).UTC(), Transport: key.transport, Received: int64(c[0]), Outcomes: map[store.Outcome]int64{}}
			for i := 1; i < len(c); i++ {
				p.Outcomes[rateOutcomes[i]] = int64(c[i])
			}
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b RatePoint) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Transport, b.Transport)) })
	return out
}
