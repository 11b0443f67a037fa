package registry

import (
	"context"
	"maps"
	"slices"
	"sync"

	"weir/model"
	"weir/registry/selector"
	"weir/store"
	"weir/store/entity"
	"weir/store/relations"
)

// The values of the keys that selectors in use name are in the metadata view whatever their type. Many devices may have one: values come
// into it some at a time before a version of a group becomes effective, and leave it so after none names their key any more. What a
// device is a member of follows from the version alone, and so changes for all devices at one place in the log.

// AttributeKeys are the keys of attributes that selectors in use name, of all tenants.
type AttributeKeys struct {
	store     store.Store
	writer    store.Writer
	perChange int64 // values that come into the view or leave it by one change
	work      *keyWork
	// used are the keys that selectors in use name.
	used func(tx store.Tx, tenant int64) (map[string]bool, error)
}

// keyWork is what goes on with keys outside of changes.
type keyWork struct {
	mu        sync.Mutex
	preparing map[tenantKey]int // publishes that bring the key's values in
	left      map[int64]bool    // tenants with values to be taken out
	nudge     chan struct{}
}

type tenantKey struct {
	tenant int64
	key    string
}

func newKeyWork() *keyWork {
	return &keyWork{preparing: map[tenantKey]int{}, left: map[int64]bool{}, nudge: make(chan struct{}, 1)}
}

// prepare keeps the values of keys in the view until done is called.
func (w *keyWork) prepare(tenant int64, keys []string) (done func()) {
	// While the count is above zero Empty leaves these keys alone.
	w.count(tenant, keys, 1)
	return sync.OnceFunc(func() {
		w.count(tenant, keys, -1)
		w.leave(tenant)
	})
}

func (w *keyWork) count(tenant int64, keys []string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		if w.preparing[tenantKey{tenant, key}] += n; w.preparing[tenantKey{tenant, key}] == 0 {
			delete(w.preparing, tenantKey{tenant, key})
		}
	}
}

func (w *keyWork) prepared(tenant int64, key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.preparing[tenantKey{tenant, key}] > 0
}

// leave notes that tenants may have values to be taken out.
func (w *keyWork) leave(tenants ...int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tenant := range tenants {
		w.left[tenant] = true
	}
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// take returns a tenant that was noted, false when there is none.
func (w *keyWork) take() (tenant int64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for tenant = range w.left {
		delete(w.left, tenant)
		return tenant, true
	}
	return 0, false
}

// addKeys adds the keys that a selector over devices names.
func (gs *Groups) addKeys(to map[string]bool, body *GroupSnapshot) error {
	condition, err := gs.selectors.Compile(body.Selector, body.MemberType)
	if err == nil {
		for _, key := range selector.Keys(condition) {
			to[key] = true
		}
	}
	return err
}

// use makes all values of the keys that selectors in use name effective, and ends those of the keys that none names any more, as far
// as one change may. Numbers are effective anyway.
func (ks *AttributeKeys) use(c *store.Change, tenant int64, now map[string]bool) error {
	keys, err := relations.KeysInUse(c, tenant)
	if err != nil {
		return err
	}
	// As many as one change may take out; the rest is left to Empty.
	left, err := ks.emptySome(c, tenant, keys, now)
	if err != nil {
		return err
	}
	if left {
		c.OnCommit(func() { ks.work.leave(tenant) })
	}
	// The rest of the values: prepare has left no more than one change can take.
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, err := ks.fill(c, tenant, key, keys[key], -1); err != nil {
			return err
		}
	}
	return nil
}

// fill makes the values of a key effective for the first devices after a row id, at most limit of them (-1: all), and returns how
// many there were.
func (ks *AttributeKeys) fill(c *store.Change, tenant int64, key string, after, limit int64) (n int64, err error) {
	if after == relations.AllDevices || limit == 0 {
		return 0, nil
	}
	// Remember how far it came, so that the next change goes on from there.
	through := after
	err = relations.OtherThanNumbers(c, tenant, key, after, limit, func(device int64, value model.AttributeView) error {
		n, through = n+1, device
		return entity.SetViews(c, entity.View{Kind: model.ViewAttribute, Key: model.AttributeKey(device, ScopeShared, key), Body: value})
	})
	// Fewer than were asked for: there are no more.
	if n != limit {
		through = relations.AllDevices
	}
	if err == nil {
		err = relations.ReachKey(c, tenant, key, through)
	}
	return n, err
}

// emptySome ends the values of those keys that are not in use, of as many devices as one change may; left says that there are more.
func (ks *AttributeKeys) emptySome(c *store.Change, tenant int64, keys map[string]int64, used map[string]bool) (left bool, err error) {
	// From the last device backwards, so that what is left is a prefix.
	room := ks.perChange
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if used[key] || ks.work.prepared(tenant, key) {
			continue
		}
		devices, err := relations.LastOtherThanNumbers(c, tenant, key, keys[key], room)
		if err != nil {
			return false, err
		}
		for _, device := range devices {
			if err := entity.SetViews(c, entity.View{Kind: model.ViewAttribute, Key: model.AttributeKey(device, ScopeShared, key)}); err != nil {
				return false, err
			}
		}
		var through int64
		if n := int64(len(devices)); n < room {
			room -= n
		} else {
			through, room, left = keys[key], 0, true
			if n > 0 {
				through = devices[n-1] - 1
			}
		}
		if err := relations.ReachKey(c, tenant, key, through); err != nil {
			return false, err
		}
	}
	return left, nil
}

// prepare makes the values of keys effective that selectors are about to name, but for so many as the change that brings them into
// use can take. done is called after that change, or without it.
func (ks *AttributeKeys) prepare(ctx context.Context, by *model.Principal, names map[string]bool) (done func(), err error) {
	if store.InChange(ctx) || len(names) == 0 {
		return func() {}, nil
	}
	// Keep the values from being taken out between the steps.
	sorted := slices.Sorted(maps.Keys(names))
	done = ks.work.prepare(by.TenantID, sorted)
	for {
		// Many small changes: one for all values would hold the writer for long.
		ready, err := ks.ready(ctx, by.TenantID, sorted)
		if err == nil && !ready {
			err = ks.writer.Mutate(ctx, by, func(c *store.Change) error { return ks.fillSome(c, by.TenantID, sorted) })
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			done()
			return nil, err
		}
		if ready {
			return done, nil
		}
	}
}

// ready reports whether one change can make the rest of the values of keys effective.
func (ks *AttributeKeys) ready(ctx context.Context, tenant int64, names []string) (ready bool, err error) {
	room := ks.perChange
	err = store.Read(ctx, ks.store, func(tx store.Tx) error {
		keys, err := relations.KeysInUse(tx, tenant)
		for _, key := range names {
			if err != nil || keys[key] == relations.AllDevices {
				continue
			}
			var n int64
			n, err = relations.CountOtherThanNumbers(tx, tenant, key, keys[key], room+1)
			room -= n
		}
		return err
	})
	return room >= 0, err
}

// fillSome makes as many values of keys effective as one change may.
func (ks *AttributeKeys) fillSome(c *store.Change, tenant int64, names []string) error {
	keys, err := relations.KeysInUse(c, tenant)
	room := ks.perChange
	for _, key := range names {
		if err != nil {
			break
		}
		var n int64
		n, err = ks.fill(c, tenant, key, keys[key], room)
		room -= n
	}
	return err
}

// Left receives when there is something for EmptyKeys to do. The first pass takes what a process before this one has left.
func (ks *AttributeKeys) Left() <-chan struct{} { return ks.work.nudge }

// Find has EmptyKeys look at all tenants.
func (ks *AttributeKeys) Find(ctx context.Context) error {
	var tenants []int64
	err := store.Read(ctx, ks.store, func(tx store.Tx) (err error) {
		tenants, err = relations.TenantsWithKeys(tx)
		return err
	})
	if err == nil {
		ks.work.leave(tenants...)
	}
	return err
}

// Empty takes values out of the metadata view whose keys no selector in use names any more.
func (ks *AttributeKeys) Empty(ctx context.Context) error {
	for {
		// A tenant at a time, and some values of it in each change.
		tenant, ok := ks.work.take()
		if !ok {
			return nil
		}
		for left := true; left; {
			// Look first: an empty change would be written for nothing.
			err := store.Read(ctx, ks.store, func(tx store.Tx) (err error) {
				left, err = ks.anyUnused(tx, tenant)
				return err
			})
			if err == nil && left {
				err = ks.writer.Mutate(ctx, nil, func(c *store.Change) (err error) {
					left, err = ks.emptyUnused(c, tenant)
					return err
				})
			}
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				// Keep the tenant for the next try.
				ks.work.leave(tenant)
				return err
			}
		}
	}
}

func (ks *AttributeKeys) emptyUnused(c *store.Change, tenant int64) (left bool, err error) {
	keys, err := relations.KeysInUse(c, tenant)
	if err != nil {
		return false, err
	}
	used, err := ks.used(c, tenant)
	if err != nil {
		return false, err
	}
	return ks.emptySome(c, tenant, keys, used)
}

// anyUnused reports whether there is a key for emptyUnused.
func (ks *AttributeKeys) anyUnused(tx store.Tx, tenant int64) (bool, error) {
	keys, err := relations.KeysInUse(tx, tenant)
	if err != nil || len(keys) == 0 {
		return false, err
	}
	used, err := ks.used(tx, tenant)
	for key := range keys {
		if !used[key] && !ks.work.prepared(tenant, key) {
			return true, err
		}
	}
	return false, err
}

// usedKeys are the keys that selectors in use name.
func (gs *Groups) usedKeys(tx store.Tx, tenant int64) (map[string]bool, error) {
	u, err := gs.inUse(tx, tenant)
	if err != nil {
		return nil, err
	}
	// Only groups of devices have selectors that read these values.
	versions, keys := u.versions(), map[string]bool{}
	maps.DeleteFunc(versions, notOfDevices(u.groups))
	for version := range versions {
		body, err := gs.versions.Body(tx, u.groups[version.group].ID, version.version)
		if err == nil {
			err = gs.addKeys(keys, body)
		}
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}
