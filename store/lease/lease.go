// Package lease is the SQL of leases: which of several nodes that share a store does what one alone may do. A lease is a value of the meta table.
// Times are those of the nodes' clocks, which are expected to agree within a second.
package lease

import (
	"encoding/json"
	"fmt"
	"time"

	"weir/model"
	"weir/store"
)

// Row is what is stored of a lease.
type Row struct {
	Node string `json:"node"` // that holds it, or has held it last
	// Run is the run of that node, so that a second one of the same name does not hold it, too; "": it was released.
	Run   string       `json:"run,omitempty"`
	Until model.Micros `json:"until"`          // it ends by itself
	Used  string       `json:"used,omitempty"` // the node that has used it last: one that took it may not have got that far
}

// Holder is a run of a node.
type Holder struct{ Node, Run string }

// Free reports whether nobody holds the lease at a time.
func (r *Row) Free(now time.Time) bool { return r.Run == "" || model.MicrosOf(now) >= r.Until }

func key(name string) string { return "lease/" + name }

// Get returns the row of a lease, an empty one when nobody has ever held it.
func Get(tx store.Tx, name string) (r Row, err error) {
	b, err := store.Meta(tx, key(name))
	if err != nil || b == nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%w: meta %s", store.ErrDamaged, key(name))
	}
	return r, nil
}

func put(tx store.Tx, name string, r Row) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return store.SetMeta(tx, key(name), b)
}

// Take gives a free lease to a holder for a time. With alone there is no other node: whoever else holds it is a run that has ended. The row is the
// one before; ok is false when another one holds the lease.
func Take(tx store.Tx, name string, by Holder, now time.Time, life time.Duration, alone bool) (before Row, ok bool, err error) {
	before, err = Get(tx, name)
	if err != nil || !alone && !before.Free(now) && before.Run != by.Run {
		return before, false, err
	}
	return before, true, put(tx, name, Row{Node: by.Node, Run: by.Run, Until: model.MicrosOf(now.Add(life)), Used: before.Used})
}

// Renew lengthens the lease of a holder; used notes that the holder's node uses it. ok is false when the lease is another's.
func Renew(tx store.Tx, name string, by Holder, now time.Time, life time.Duration, used bool) (ok bool, err error) {
	r, err := Get(tx, name)
	if err != nil || r.Run != by.Run {
		return false, err
	}
	r.Until = model.MicrosOf(now.Add(life))
	if used {
		r.Used = by.Node
	}
	return true, put(tx, name, r)
}

// Release frees the lease of a holder. One that is another's stays.
func Release(tx store.Tx, name string, by Holder) error {
	r, err := Get(tx, name)
	if err != nil || r.Run != by.Run {
		return err
	}
	r.Run, r.Until = "", 0
	return put(tx, name, r)
}
