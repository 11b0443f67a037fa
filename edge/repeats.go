package edge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"weir/model"
)

// repeatSpan is how many records share a part of Repeats.
const repeatSpan = 4096

// Repeats are the records of a platform's log that the applier has found to be repeats of others: they do not go up, and have no number. A bit for
// each record between the position of the uplink and the end of the log is the most that they take.
type Repeats struct {
	mu      sync.Mutex
	parts   map[model.Offset]*[repeatSpan / 8]byte // by the first offset
	through model.Offset
	changed chan struct{} // closed when through has moved past wanted
	wanted  model.Offset
}

// NewRepeats returns repeats of which nothing is known yet.
func NewRepeats() *Repeats {
	return &Repeats{parts: map[model.Offset]*[repeatSpan / 8]byte{}, changed: make(chan struct{})}
}

// Note notes that a record is applied, and whether it repeats another. Calls are in the order of the log.
func (r *Repeats) Note(at model.Offset, repeats bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if repeats {
		r.set(at)
	}
	r.move(at)
}

// Through notes that every record up to and including at is applied.
func (r *Repeats) Through(at model.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.move(at)
}

func (r *Repeats) move(at model.Offset) {
	if r.through = max(r.through, at); r.wanted != 0 && r.through >= r.wanted {
		close(r.changed)
		r.changed, r.wanted = make(chan struct{}), 0
	}
}

func (r *Repeats) set(at model.Offset) {
	first := at - at%repeatSpan
	p := r.parts[first]
	if p == nil {
		p = new([repeatSpan / 8]byte)
		r.parts[first] = p
	}
	p[(at-first)/8] |= 1 << ((at - first) % 8)
}

// has reports whether a record repeats another.
func (r *Repeats) has(at model.Offset) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := at - at%repeatSpan
	p := r.parts[first]
	return p != nil && p[(at-first)/8]&(1<<((at-first)%8)) != 0
}

// reached reports whether everything up to at is applied, and returns what is closed when that may be.
func (r *Repeats) reached(at model.Offset) (bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.through >= at {
		return true, nil
	}
	if r.wanted == 0 || at < r.wanted {
		r.wanted = at
	}
	return false, r.changed
}

// await waits until everything up to at is applied.
func (r *Repeats) await(ctx context.Context, at model.Offset) error {
	for {
		ok, changed := r.reached(at)
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget forgets what lies before an offset.
func (r *Repeats) forget(before model.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.parts, func(first model.Offset, _ *[repeatSpan / 8]byte) bool { return first+repeatSpan <= before })
}

// savedRepeats are they in a state.
type savedRepeats map[model.Offset]string

func (r *Repeats) save() savedRepeats {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := savedRepeats{}
	for first, p := range r.parts {
		out[first] = base64.StdEncoding.EncodeToString(p[:])
	}
	return out
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *savedRepeats) UnmarshalJSON(b []byte) error {
	var m map[model.Offset]string
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	for first, text := range m {
		if bits, err := base64.StdEncoding.DecodeString(text); err != nil || len(bits) != repeatSpan/8 || first%repeatSpan != 0 {
			return fmt.Errorf("repeats from offset %d on cannot be read", first)
		}
	}
	*s = m
	return nil
}

// restore takes over what a state has.
func (r *Repeats) restore(s savedRepeats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for first, text := range s {
		bits, _ := base64.StdEncoding.DecodeString(text) // it was checked when it was read
		p := r.parts[first]
		if p == nil {
			p = new([repeatSpan / 8]byte)
			r.parts[first] = p
		}
		for i := range bits {
			p[i] |= bits[i]
		}
	}
}

// Keep writes the position and what is known of repeats: before a checkpoint says that the applier will not say it again.
func (e *Edge) Keep() error { return e.keep() }
