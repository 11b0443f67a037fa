package auth

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrBusy: so many callers wait for a password hash that another one would wait too long.
var ErrBusy = errors.New("auth: too many password checks are waiting")

// Lane tells who asks for a hash.
type Lane uint8

// The lanes. Each has one place of its own; a door may also use the API's while nobody there needs it.
const (
	LaneAPI  Lane = iota // sign-in, setting passwords
	LaneDoor             // device credentials
)

func (l Lane) String() string {
	if l == LaneDoor {
		return "transport"
	}
	return "api"
}

// Callers that may wait for a place, by lane. A place serves some ten to thirty hashes a second, so the last in line
// waits a few seconds.
const (
	maxWaitingAPI  = 32
	maxWaitingDoor = 256
)

// Hasher runs password hashes, at most two at a time: a hash takes 19 MiB and a whole core, and strangers can ask for
// one. One of the two places is the doors', so that neither a storm of reconnecting devices keeps the operator out nor a
// storm of sign-ins the devices.
type Hasher struct {
	params  Params
	dummy   phc // what a password is compared with where there is no hash, so that nobody learns that from the time
	places  [2]chan struct{}
	waiting [2]atomic.Int64
	m       hasherMetrics
}

// NewHasher makes a hasher. Zero Params mean the default.
func NewHasher(p Params, reg prometheus.Registerer) *Hasher {
	if p == (Params{}) {
		p = defaultParams
	}
	h := &Hasher{params: p, dummy: phc{Params: p, salt: make([]byte, saltBytes), key: make([]byte, keyBytes)}}
	for i := range h.places {
		h.places[i] = make(chan struct{}, 1)
	}
	h.m = newHasherMetrics(reg, h)
	return h
}

// Hash hashes a password that a person chose, on the API's place.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	release, err := h.hold(ctx, LaneAPI)
	if err != nil {
		return "", err
	}
	defer release()
	return h.params.hash(password), nil
}

// Verify reports whether password belongs to the encoded hash, and whether the hash is to be renewed because the
// parameters have changed. An empty encoded hash costs the same time and matches nothing.
func (h *Hasher) Verify(ctx context.Context, l Lane, encoded, password string) (ok, renew bool, err error) {
	release, err := h.hold(ctx, l)
	if err != nil {
		return false, false, err
	}
	defer release()
	return h.check(encoded, password)
}

// check is Verify for whoever holds a place.
func (h *Hasher) check(encoded, password string) (ok, renew bool, err error) {
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

// hold waits for a place. release must be called once.
func (h *Hasher) hold(ctx context.Context, l Lane) (release func(), err error) {
	if h.waiting[l].Add(1) > h.maxWaiting(l) {
		h.waiting[l].Add(-1)
		h.m.refused.WithLabelValues(l.String()).Inc()
		return nil, ErrBusy
	}
	defer h.waiting[l].Add(-1)
	place, err := h.place(ctx, l)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	return func() {
		<-place
		h.m.seconds.WithLabelValues(l.String()).Observe(time.Since(begun).Seconds())
	}, nil
}

func (h *Hasher) maxWaiting(l Lane) int64 {
	if l == LaneDoor {
		return maxWaitingDoor
	}
	return maxWaitingAPI
}

// place takes the lane's own place, or for a door the API's when it is idle. A door never queues for the API's place:
// it would stand before sign-ins there.
func (h *Hasher) place(ctx context.Context, l Lane) (chan struct{}, error) {
	own := h.places[l]
	select {
	case own <- struct{}{}:
		return own, nil
	default:
	}
	if l == LaneDoor {
		select {
		case h.places[LaneAPI] <- struct{}{}: // never while somebody waits for it: he has it before it is free
			return h.places[LaneAPI], nil
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
