package mqttsource

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"weir/store"
	"weir/store/lease"
)

// Times of a lease.
const (
	leaseLife  = 30 * time.Second
	leaseRenew = 10 * time.Second
	leaseLook  = time.Second // how often a node that stands by looks whether the source is free
	leaseWait  = 5 * time.Second
)

// errLost is returned when another node reads the source, or this one could not renew its lease in time.
var errLost = errors.New("mqttsource: the lease of the source is lost")

// ownership is the right of this node to read a source: a row of the store, which holds for leaseLife and is renewed each leaseRenew. Where no other
// process uses the store (alone) the node has it whatever the store says: a disk that is full ends no source.
type ownership struct {
	store  store.Store // nil: there are no leases
	name   string
	holder lease.Holder
	alone  bool
	now    func() time.Time

	until  atomic.Pointer[time.Time] // nil: not held
	before lease.Row                 // what Take found
}

func (t *Transport) newOwnership(source string) *ownership {
	return &ownership{store: t.deps.Store, name: t.Name() + "/" + source, holder: lease.Holder{Node: t.cfg.Node, Run: rand.Text()}, alone: t.cfg.Alone || t.deps.Store == nil, now: t.deps.Now}
}

// held reports whether this node may read the source now.
func (o *ownership) held() bool {
	until := o.until.Load()
	return until != nil && (o.alone || o.now().Before(*until))
}

// left is how long the lease still holds.
func (o *ownership) left() time.Duration {
	until := o.until.Load()
	switch {
	case until == nil:
		return 0
	case o.alone:
		return leaseLife
	}
	return until.Sub(o.now())
}

func (o *ownership) extend(from time.Time) { o.until.Store(new(from.Add(leaseLife))) }

func (o *ownership) write(ctx context.Context, do func(tx store.Tx) error) error {
	if o.store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaseWait)
	defer cancel()
	return o.store.Write(ctx, store.Results, do)
}

// take takes the lease if it is free. other is the node that holds it otherwise.
func (o *ownership) take(ctx context.Context) (ok bool, other string, err error) {
	from := o.now()
	err = o.write(ctx, func(tx store.Tx) (err error) {
		o.before, ok, err = lease.Take(tx, o.name, o.holder, from, leaseLife, o.alone)
		return err
	})
	if o.alone && ctx.Err() == nil {
		ok = true
	}
	if !ok || err != nil && !o.alone {
		return false, o.before.Node, err
	}
	o.extend(from)
	return true, "", err
}

// taken returns the node that holds the lease, "" when it can be taken.
func (o *ownership) taken(ctx context.Context) (node string, err error) {
	if o.store == nil || o.alone {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaseWait)
	defer cancel()
	err = o.store.Read(ctx, func(tx store.Tx) error {
		r, err := lease.Get(tx, o.name)
		if err == nil && !r.Free(o.now()) && r.Run != o.holder.Run {
			node = r.Node
		}
		return err
	})
	return node, err
}

// renew renews the lease; used notes that the source is read. It returns errLost when the lease is another's, and the error of the store otherwise.
func (o *ownership) renew(ctx context.Context, used bool) error {
	from, ok := o.now(), true
	err := o.write(ctx, func(tx store.Tx) (err error) {
		ok, err = lease.Renew(tx, o.name, o.holder, from, leaseLife, used)
		if o.alone && !ok && err == nil { // the disk was full when it was to be taken
			_, ok, err = lease.Take(tx, o.name, o.holder, from, leaseLife, true)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !ok:
		o.lose()
		return errLost
	}
	if used {
		o.before.Used = o.holder.Node
	}
	o.extend(from)
	return nil
}

// keep renews the lease until ctx ends or the lease is lost, which it reports.
func (o *ownership) keep(ctx context.Context) error {
	wait := leaseRenew
	for {
		// The lease ends at its time also while the store does not answer.
		timer := time.NewTimer(min(wait, max(o.left(), 0)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if !o.held() {
			return errLost
		}
		limited, cancel := context.WithTimeout(ctx, max(o.left(), 0))
		err := o.renew(limited, false)
		cancel()
		switch {
		case err == nil:
			wait = leaseRenew
		case errors.Is(err, errLost):
			return err
		default:
			wait = time.Second
		}
	}
}

// lose gives the right up without a word to the others.
func (o *ownership) lose() { o.until.Store(nil) }

// release frees the lease for other nodes. One that cannot be written ends by itself.
func (o *ownership) release(ctx context.Context) error {
	if o.until.Swap(nil) == nil {
		return nil
	}
	return o.write(context.WithoutCancel(ctx), func(tx store.Tx) error { return lease.Release(tx, o.name, o.holder) })
}

// resumes reports whether the broker's session of this node goes on: no other node has read the source since.
func (o *ownership) resumes() bool { return o.before.Used == "" || o.before.Used == o.holder.Node }
