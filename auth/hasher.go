package auth

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrBusy is returned when so many callers wait for a password hash that another one would wait too long.
var ErrBusy = errors.New("auth: too many password checks are waiting")

// Lane is the kind of caller that needs a hash.
type Lane uint8

// The lanes. Each has one slot; a transport may also use the API's slot while it is idle.
const (
	LaneAPI       Lane = iota // sign-in, setting passwords
	LaneTransport             // device credentials
)

func (l Lane) String() string {
	if l == LaneTransport {
		return "transport"
	}
	return "api"
}

// Maximum number of waiting callers per lane. A slot serves some ten to thirty hashes a second, so the last caller in
// line waits a few seconds.
const (
	maxWaitingAPI       = 32
	maxWaitingTransport = 256
)

// Hasher runs password hashes, at most two at a time: a hash takes 19 MiB and a whole core, and
// unauthenticated clients can ask for one. One of the two slots belongs to the transports, so that neither a storm of
// reconnecting devices keeps the operator out nor a storm of sign-ins the devices.
type Hasher struct {
	params  Params
	dummy   phc // compared with where there is no hash, so that the response time does not reveal it
	slots   [2]chan struct{}
	waiting [2]atomic.Int64
	m       hasherMetrics
}

// NewHasher makes a hasher. Zero Params mean the default.
func NewHasher(p Params, reg prometheus.Registerer) *Hasher {
	if p == (Params{}) {
		p = defaultParams
	}
	// The dummy has the same cost as a real hash.
	h := &Hasher{params: p, dummy: phc{Params: p, salt: make([]byte, saltBytes), key: make([]byte, keyBytes)}}
	for i := range h.slots {
		h.slots[i] = make(chan struct{}, 1)
	}
	h.m = newHasherMetrics(reg, h)
	return h
}

// Hash hashes a password that a person chose, in the API's lane.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	release, err := h.hold(ctx, LaneAPI)
	if err != nil {
		return "", err
	}
	defer release()
	return h.params.hash(password), nil
}

// Verify reports whether password belongs to the encoded hash, and whether the hash must be renewed because the
// parameters have changed. An empty encoded hash costs the same time and matches nothing.
func (h *Hasher) Verify(ctx context.Context, l Lane, encoded, password string) (ok, renew bool, err error) {
	release, err := h.hold(ctx, l)
	if err != nil {
		return false, false, err
	}
	defer release()
	return h.check(encoded, password)
}

// check is Verify for a caller that holds a slot.
func (h *Hasher) check(encoded, password string) (ok, renew bool, err error) {
	// Too long to match, and hashed all the same, as far as it is allowed to cost.
	if len(password) > MaxPasswordBytes {
		password, encoded = password[:MaxPasswordBytes], ""
	}
	stored := h.dummy
	if encoded != "" {
		if stored, err = parsePHC(encoded); err != nil {
			return false, false, err
		}
	}
	ok = stored.matches(password) && encoded != ""
	return ok, stored.Params != h.params, nil
}

// After a wrong password of a device its slot stays taken for coolDown times as long as the hash took, at least a millisecond:
// clients that guess have a quarter of the slots' processor time, and devices with the right password all of it.
const coolDown = 3

// attempt checks the password of a client that has proven nothing yet. ready is asked once the slot is taken.
func (h *Hasher) attempt(ctx context.Context, l Lane, ready func() error, encoded, password string) (bool, error) {
	// First the slot, then ready: what it says may have changed while this call waited.
	free, err := h.acquire(ctx, l)
	if err != nil {
		return false, err
	}
	if err := ready(); err != nil {
		free()
		return false, err
	}
	begun := time.Now()
	ok, _, err := h.check(encoded, password)
	took := time.Since(begun)
	h.m.seconds.WithLabelValues(l.String()).Observe(took.Seconds())
	// A wrong password holds its slot for longer, so that guessing gets a part of the processor only.
	if ok || err != nil || l != LaneTransport {
		free()
	} else {
		time.AfterFunc(coolDown*max(took, time.Millisecond), free)
	}
	return ok, err
}

// hold waits for a slot. release must be called once.
func (h *Hasher) hold(ctx context.Context, l Lane) (release func(), err error) {
	free, err := h.acquire(ctx, l)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	return func() {
		free()
		h.m.seconds.WithLabelValues(l.String()).Observe(time.Since(begun).Seconds())
	}, nil
}

// acquire waits for a slot, unless too many wait. free must be called once.
func (h *Hasher) acquire(ctx context.Context, l Lane) (free func(), err error) {
	// Count first, then compare: two callers at once must not both pass the bound.
	if h.waiting[l].Add(1) > h.maxWaiting(l) {
		h.waiting[l].Add(-1)
		h.m.refused.WithLabelValues(l.String()).Inc()
		return nil, ErrBusy
	}
	defer h.waiting[l].Add(-1)
	slot, err := h.slot(ctx, l)
	if err != nil {
		return nil, err
	}
	return func() { <-slot }, nil
}

func (h *Hasher) maxWaiting(l Lane) int64 {
	if l == LaneTransport {
		return maxWaitingTransport
	}
	return maxWaitingAPI
}

// slot takes the lane's own slot, or for a transport the API's when it is idle. A transport never queues for the API's
// slot, where it would delay sign-ins.
func (h *Hasher) slot(ctx context.Context, l Lane) (chan struct{}, error) {
	// The lane's own slot, when it is free.
	own := h.slots[l]
	select {
	case own <- struct{}{}:
		return own, nil
	default:
	}
	if l == LaneTransport {
		select {
		case h.slots[LaneAPI] <- struct{}{}: // never while a sign-in waits: the slot passes to it before it becomes free
			return h.slots[LaneAPI], nil
		default:
		}
	}
	select {
	case own <- struct{}{}:
		return own, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
