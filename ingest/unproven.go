package ingest

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
)

// Bounds of what is kept of unauthenticated senders.
const (
	maxUnproven     = 200
	maxUnprovenText = 200 // bytes of a text
)

// Unproven is what one sender did that no credential, device or tenant of this instance stands for: connections that were refused and
// messages that were not stored, for the same reason.
type Unproven struct {
	First, Last time.Time
	Count       int64
	Transport   string
	Tenant      string // as named
	Device      string // as named
	Reason      string
	Detail      string // of the last one
}

type unprovenKey struct{ transport, tenant, device, reason string }

// UnprovenSenders keeps the last senders that are not known, so that the operator sees a device that was set up with the wrong name or
// credential. It holds at most maxUnproven; the one that was seen least recently makes room. A nil one keeps nothing.
type UnprovenSenders struct {
	evicted prometheus.Counter

	mu  sync.Mutex
	all map[unprovenKey]*Unproven
}

// NewUnprovenSenders returns an empty list.
func NewUnprovenSenders(reg prometheus.Registerer) *UnprovenSenders {
	u := &UnprovenSenders{all: map[unprovenKey]*Unproven{}, evicted: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_unproven_senders_evicted_total",
		Help: "Unauthenticated senders that were forgotten because others came."})}
	if reg != nil {
		reg.MustRegister(u.evicted, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_ingest_unproven_senders", Help: "Unauthenticated senders that are shown to the operator."},
			func() float64 {
				u.mu.Lock()
				defer u.mu.Unlock()
				return float64(len(u.all))
			}))
	}
	return u
}

// unproven reports whether a reason says that the sender is not known.
func unproven(r Reason) bool {
	switch r {
	case ReasonUnknownTenant, ReasonUnknownDevice, ReasonBadCredential, ReasonUnauthenticated, ReasonThrottled, ReasonNotAuthorized:
		return true
	}
	return false
}

// note keeps something that a sender did.
func (u *UnprovenSenders) note(at model.Nanos, transport, tenant, device, reason, detail string) {
	if u == nil {
		return
	}
	key := unprovenKey{transport, bounded(tenant), bounded(device), reason}
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.all[key]
	if s == nil {
		// Bounded: an attacker can name any number of devices.
		if len(u.all) >= maxUnproven {
			u.evict()
		}
		s = &Unproven{First: at.Time(), Transport: transport, Tenant: key.tenant, Device: key.device, Reason: reason}
		u.all[key] = s
	}
	s.Last, s.Detail = at.Time(), bounded(detail)
	s.Count++
}

func (u *UnprovenSenders) evict() {
	var oldest unprovenKey
	var found *Unproven
	for k, s := range u.all {
		if found == nil || s.Last.Before(found.Last) {
			oldest, found = k, s
		}
	}
	delete(u.all, oldest)
	u.evicted.Inc()
}

// bounded bounds a text that a sender has chosen.
func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxUnprovenText)], "") }

// List returns the senders, the one that was seen last first.
func (u *UnprovenSenders) List() []Unproven {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]Unproven, 0, len(u.all))
	for _, s := range u.all {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Unproven) int { return b.Last.Compare(a.Last) })
	return out
}
