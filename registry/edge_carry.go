package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"weir/internal/carry"
	"weir/internal/edgewire"
	"weir/internal/ranges"
	"weir/model"
	"weir/store"
	"weir/store/installs"
)

// What an edge could not send is carried by hand: a file of its messages, sealed to the carry key of the instance.

// carryKeyName is where the key is kept.
var carryKeyName = store.SecretName{Scope: store.ScopeInstance, Name: "edge/carry-key"}

// carryKeys remembers the key once it was read.
type carryKeys struct {
	mu  sync.Mutex
	key *carry.PrivateKey
}

// CarryKey returns the carry key of the instance, which the first call makes. Errors are those of the store and of the vault.
func (es *Edges) CarryKey(ctx context.Context) (*carry.PrivateKey, error) {
	if es.vault == nil {
		return nil, nil
	}
	es.carry.mu.Lock()
	defer es.carry.mu.Unlock()
	if es.carry.key != nil {
		return es.carry.key, nil
	}
	// Once it is made the key stays: files that were sealed to it must open.
	var secret []byte
	read := func(tx store.Tx) (err error) {
		secret, _, err = es.vault.Get(tx, carryKeyName)
		return err
	}
	err := store.Read(ctx, es.store, read)
	if err == nil && secret == nil {
		fresh, err := carry.NewPrivateKey()
		if err != nil {
			return nil, err
		}
		made, err := fresh.Bytes()
		if err != nil {
			return nil, err
		}
		if err := es.writer.Mutate(ctx, model.Service("edge", "", 0), func(c *store.Change) error {
			if err := read(c); err != nil || secret != nil { // another node was quicker
				return err
			}
			secret = made
			return es.vault.Put(c, carryKeyName, secret)
		}); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	key, err := carry.ParsePrivateKey(secret)
	if err != nil {
		return nil, fmt.Errorf("the carry key of the edges is damaged: %w", err)
	}
	es.carry.key = key
	return key, nil
}

// Of returns the device of a token where it is an edge that may speak for devices. The error is ErrNoEdge or a fault of the store.
func (es *Edges) Of(ctx context.Context, tenant string, tenantID int64, device string) (b model.Binding, err error) {
	err = store.Read(ctx, es.waiting, func(tx store.Tx) error {
		d, err := es.devices.Table.Get(tx, tenantID, device)
		if err == nil && d == nil {
			err = ErrNoEdge
		}
		if err != nil {
			return err
		}
		b = model.Binding{Tenant: tenant, TenantID: tenantID, Device: d.Token, DeviceID: d.ID}
		return nil
	})
	if err != nil {
		return b, err
	}
	s, err := es.scopeOf(ctx, b)
	if err == nil && !s.edge {
		err = ErrNoEdge
	}
	return b, err
}

// MayCarry refuses what was carried from an installation that was on another machine before: of two copies of an installation nobody can say which
// messages have a number.
func (es *Edges) MayCarry(ctx context.Context, edge model.Binding, install, machine string) error {
	return store.Read(ctx, es.waiting, func(tx store.Tx) error {
		// Two machines with the same installation give the same number to different messages.
		all, err := installs.Of(tx, edge.DeviceID)
		if err != nil {
			return err
		}
		for _, i := range all {
			if i.ID == install && i.Machine != "" && machine != "" && i.Machine != machine {
				return &model.Error{Code: model.CodeConflict, Message: "the file is from a copy of an installation that was on another machine before: its numbers may be those of other messages",
					Hint: "let that edge connect once: it begins as an installation of its own; then export again"}
			}
		}
		return nil
	})
}

// Carried notes which numbers of an installation were carried by hand, by epoch. They are in the log.
func (es *Edges) Carried(ctx context.Context, edge model.Binding, install, machine string, numbers map[uint32]ranges.Set) error {
	by := model.Service("edge", edge.Tenant, edge.TenantID, model.DeviceRead, model.DeviceWrite)
	return es.mutate(ctx, by, func(c *store.Change) error {
		c.Unjournaled()
		all, err := installs.Of(c, edge.DeviceID)
		if err != nil {
			return err
		}
		// Find the installation, or note one that has never connected.
		var mine *installs.Install
		for _, i := range all {
			if i.ID == install {
				mine = i
			}
		}
		if mine == nil { // it has never said anything
			mine = installOf(edge, &edgewire.Hello{Install: install, Machine: machine}, c.At)
			if len(all) >= maxInstalls {
				if err := forgetInstall(c, all[len(all)-1]); err != nil {
					return err
				}
			}
		}
		// Add the numbers to those that were carried before.
		have := map[uint32]ranges.Set{}
		if err := json.Unmarshal([]byte(mine.Carried), &have); err != nil {
			return err
		}
		for epoch, more := range numbers {
			have[epoch] = mergeNumbers(have[epoch], more)
		}
		// The oldest epochs go.
		for len(have) > maxCarriedEpochs {
			oldest := uint32(0)
			for epoch := range have {
				if oldest == 0 || epoch < oldest {
					oldest = epoch
				}
			}
			delete(have, oldest)
		}
		mine.Carried = encode(have)
		return installs.Put(c, mine)
	})
}

// maxCarriedEpochs bounds the epochs of an installation of which numbers are kept that were carried. Of an older one the edge sends again what
// it still has, which is recognised by its numbers.
const maxCarriedEpochs = 16

// mergeNumbers are the numbers of two sets. Beyond the bound the lowest ranges are left out: what is said to be above has to be there.
func mergeNumbers(a, b ranges.Set) ranges.Set {
	out := ranges.Union(a, b)
	if over := len(out) - edgewire.MaxRanges; over > 0 {
		out = out[over:]
	}
	return out
}

// carriedOf are the numbers of an epoch that were carried.
func carriedOf(i *installs.Install, epoch uint32) (ranges.Set, error) {
	have := map[uint32]ranges.Set{}
	if err := json.Unmarshal([]byte(i.Carried), &have); err != nil {
		return nil, err
	}
	return have[epoch], nil
}
