package notify

import (
	"sync"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/notices"
)

// maxHeld is of how many tenants the policies are in memory. When it is reached all are read again.
const maxHeld = 10_000

// held are the policies of tenants in memory, as they were committed last.
type held struct {
	mu      sync.Mutex
	tenants map[int64]*set
}

// set is what a tenant has: enabled policies with their rules, channels, and mutes that have not ended. It does not change.
type set struct {
	policies []*heldPolicy
	channels map[int64]*Channel
	mutes    []*Mute
	states   bool // something was notified of an alarm
}

// idle reports whether a move of an alarm leaves nothing to do.
func (s *set) idle() bool { return len(s.policies) == 0 && !s.states }

// heldPolicy is a policy as moves are compared with it.
type heldPolicy struct {
	throttle, escalateAfter time.Duration // 0: off
	maxEscalations          int64
	rules                   []boundRule
}

// forget lets the next move read what a tenant has, now and once the change is committed.
func (n *Notify) forget(c *store.Change, tenant int64) {
	n.drop(tenant)
	c.OnCommit(func() { n.drop(tenant) })
}

func (n *Notify) drop(tenant int64) {
	n.held.mu.Lock()
	defer n.held.mu.Unlock()
	delete(n.held.tenants, tenant)
}

// setOf returns what a tenant has. It is kept when the transaction that has read it is committed: one that is undone may have read what never was.
func (n *Notify) setOf(tx store.Tx, tenant int64) (*set, error) {
	n.held.mu.Lock()
	s := n.held.tenants[tenant]
	n.held.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := n.readSet(tx, tenant)
	if err != nil {
		return nil, err
	}
	tx.OnCommit(func() { n.keep(tenant, s) })
	return s, nil
}

func (n *Notify) keep(tenant int64, s *set) {
	n.held.mu.Lock()
	defer n.held.mu.Unlock()
	if n.held.tenants == nil || len(n.held.tenants) >= maxHeld {
		n.held.tenants = map[int64]*set{}
	}
	n.held.tenants[tenant] = s
}

func (n *Notify) readSet(tx store.Tx, tenant int64) (*set, error) {
	s := &set{channels: map[int64]*Channel{}}
	policies, err := n.Policies.Table.Select(tx, tenant, "id", store.Eq("enabled", true))
	if err != nil {
		return nil, err
	}
	for _, p := range policies {
		b, err := p.rules()
		if err != nil {
			return nil, err
		}
		h := &heldPolicy{throttle: seconds(p.Throttle), escalateAfter: seconds(p.EscalateAfter), maxEscalations: int64(n.cfg.MaxEscalations), rules: b.Rules}
		if p.MaxEscalations != nil {
			h.maxEscalations = *p.MaxEscalations
		}
		s.policies = append(s.policies, h)
	}
	if len(s.policies) > 0 {
		channels, err := n.Channels.Table.Select(tx, tenant, "id")
		if err != nil {
			return nil, err
		}
		for _, c := range channels {
			s.channels[c.ID] = c
		}
	}
	if s.states, err = notices.Any(tx, tenant); err != nil || s.idle() {
		return s, err
	}
	// Without a policy, too: what one mute has held back may be held back by another when it ends.
	s.mutes, err = n.Mutes.Table.Select(tx, tenant, "id", store.Null("ended_at"))
	return s, err
}

func seconds(n *int64) time.Duration {
	if n == nil {
		return 0
	}
	return time.Duration(*n) * time.Second
}

// muted returns the mute that holds back messages of an alarm, nil for none.
func (n *Notify) muted(tx store.Tx, s *set, a *model.Alarm) (*Mute, error) {
	now := model.MicrosOf(n.wall())
	for _, m := range s.mutes {
		if yes, err := n.holds(tx, m, a, now); err != nil || yes {
			return m, err
		}
	}
	return nil, nil
}
