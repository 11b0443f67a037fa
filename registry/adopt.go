package registry

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// ErrNotAdopted says that no device has the external id, and none was made: adoption does not make devices, or a limit is reached.
var ErrNotAdopted = errors.New("registry: no device has the external id")

// Adoption asks for the device that somebody outside names by an id of their own, such as the topic of a source that the operator has
// configured.
type Adoption struct {
	Tenant     string
	TenantID   int64
	ExternalID string // 1 to 256 characters
	// ByToken says that a device with the token ExternalID is meant, too, where none has the external id. TokenFirst says that it is meant
	// even where another device has the external id.
	ByToken    bool
	TokenFirst bool
	// Make says that a device that does not exist is made, of the type DeviceType, with the token PREFIX-SLUG-12 hexadecimal digits; with
	// Plain its token is the external id, which has to be one.
	Make       bool
	Plain      bool
	Prefix     string // of the token: sp, mq
	DeviceType string // token
	Max        int64  // of devices of the tenant with the prefix; 0: as many as limits.devices_per_tenant allows
}

// Bounds of adoption.
const (
	maxAdopted      = 50_000 // devices and absences that are remembered
	madePerSecond   = 100    // of a tenant
	slugOfToken     = 128 - 12 - 1
	digitsOfToken   = 12
	maxMakingTenant = 1024 // tenants whose pace is remembered
)

// Adoptions find the devices that others name by an id of their own, and make them where that is wanted.
type Adoptions struct {
	access
	devices *entity.Kind[Device]
	known   *adoptionCache
}

// adoptionCache remembers which device an external id means, as long as no device changes that it could be.
type adoptionCache struct {
	mu      sync.Mutex
	entries map[adoptionKey]*list.Element
	order   *list.List // most recent first
	changes uint64     // of devices: a lookup that began before one is not remembered

	making sync.Mutex           // one device is made at a time
	pace   map[int64]time.Time  // when the next device of a tenant may be made; guarded by making
	made   map[prefixKey]*int64 // devices of a tenant by prefix; guarded by making
}

type prefixKey struct {
	tenant int64
	prefix string
}

type adoptionKey struct {
	tenant     int64
	id         string
	tokenFirst bool
}

func (a *Adoption) key() adoptionKey { return adoptionKey{a.TenantID, a.ExternalID, a.TokenFirst} }

type adopted struct {
	key     adoptionKey
	binding model.Binding // DeviceID 0: no device has the id
	byToken bool          // the device was found by its token
}

func newAdoptionCache() *adoptionCache {
	return &adoptionCache{entries: map[adoptionKey]*list.Element{}, order: list.New(), pace: map[int64]time.Time{}, made: map[prefixKey]*int64{}}
}

// Adopt returns the device that the external id means. made says that it was made now. The error is ErrNotAdopted, with the *model.Error of
// a limit where one is the reason, or a fault of the store. A tenant gets at most 100 devices a second; more of them wait.
func (as *Adoptions) Adopt(ctx context.Context, a Adoption) (b model.Binding, made bool, err error) {
	// Most messages name a device that was found before: ask the store only otherwise.
	found, known, began := as.known.get(a.key(), a.ByToken || a.TokenFirst)
	if !known {
		if found, err = as.find(ctx, a); err != nil {
			return model.Binding{}, false, err
		}
		as.known.put(found, began)
	}
	if found.binding.DeviceID != 0 {
		return found.binding, false, nil
	}
	// Only now, since a device that exists is returned in any case.
	if !a.Make {
		return model.Binding{}, false, ErrNotAdopted
	}
	return as.makeDevice(ctx, a)
}

// find reads the device.
func (as *Adoptions) find(ctx context.Context, a Adoption) (*adopted, error) {
	found := &adopted{key: a.key()}
	err := store.Read(ctx, as.waiting, func(tx store.Tx) error { return as.findIn(tx, a, found) })
	return found, err
}

func (as *Adoptions) findIn(tx store.Tx, a Adoption, found *adopted) error {
	byToken := func() (d *Device, err error) {
		if (a.ByToken || a.TokenFirst) && model.ValidToken(a.ExternalID) {
			d, err = as.devices.Table.Get(tx, a.TenantID, a.ExternalID)
			found.byToken = d != nil
		}
		return d, err
	}
	byExternalID := func() (*Device, error) {
		rows, err := as.devices.Table.By(tx, a.TenantID, "external_id", a.ExternalID)
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		return rows[0], nil
	}
	// The order says what a name means that is both a token and an external id.
	lookups := [...]func() (*Device, error){byExternalID, byToken}
	if a.TokenFirst {
		lookups = [...]func() (*Device, error){byToken, byExternalID}
	}
	for _, lookup := range lookups {
		d, err := lookup()
		if err != nil {
			return err
		}
		if d != nil {
			found.binding = model.Binding{Tenant: a.Tenant, TenantID: a.TenantID, Device: d.Token, DeviceID: d.ID}
			return nil
		}
	}
	found.byToken = a.ByToken || a.TokenFirst // neither
	return nil
}

// ExternalIDOf returns the external id of a device, "" for none.
func (as *Adoptions) ExternalIDOf(ctx context.Context, b model.Binding) (id string, err error) {
	err = store.Read(ctx, as.waiting, func(tx store.Tx) error {
		d, err := as.devices.Table.Get(tx, b.TenantID, b.Device)
		if d != nil && d.ID == b.DeviceID && d.ExternalID != nil {
			id = *d.ExternalID
		}
		return err
	})
	return id, err
}

// makeDevice makes the device, unless another call has made it meanwhile.
func (as *Adoptions) makeDevice(ctx context.Context, a Adoption) (b model.Binding, made bool, err error) {
	w := as.known
	// One at a time: two messages of a new device must not make two.
	w.making.Lock()
	defer w.making.Unlock()
	if err := w.await(ctx, a.TenantID); err != nil {
		return model.Binding{}, false, err
	}
	// Look again inside of the change: another call may have made it while this one waited.
	counted := prefixKey{a.TenantID, a.Prefix}
	found := &adopted{key: a.key()}
	by := model.Service("auto-registration", a.Tenant, a.TenantID, model.DeviceRead, model.DeviceWrite)
	err = as.mutate(ctx, by, func(c *store.Change) error {
		made = false
		if err := as.findIn(c, a, found); err != nil || found.binding.DeviceID != 0 {
			return err
		}
		if err := as.admit(c, a, counted); err != nil {
			return err
		}
		token := a.ExternalID
		if !a.Plain {
			token = AdoptedToken(a.Prefix, a.ExternalID)
		}
		d, err := as.devices.Make(c, store.Patch{"token": token, "externalId": a.ExternalID, "deviceTypeToken": a.DeviceType})
		if err != nil {
			return err
		}
		made = true
		found.binding = model.Binding{Tenant: a.Tenant, TenantID: a.TenantID, Device: d.Token, DeviceID: d.ID}
		return nil
	})
	switch {
	case err == nil && made:
		// Counted only once it is committed.
		*w.made[counted]++
		return found.binding, true, nil
	case err == nil:
		return found.binding, false, nil
	case model.CodeOf(err) != "": // a limit, a type that does not exist
		return model.Binding{}, false, errors.Join(ErrNotAdopted, err)
	}
	return model.Binding{}, false, err
}

// admit counts the device against the limits of the tenant.
func (as *Adoptions) admit(c *store.Change, a Adoption, counted prefixKey) error {
	if as.known.made[counted] == nil {
		// Count once per prefix since the start; later devices are added.
		n, err := as.devices.Table.Count(c, a.TenantID, store.NotBelow("token", a.Prefix+"-"), store.NotAbove("token", a.Prefix+"."))
		if err != nil {
			return err
		}
		as.known.made[counted] = &n
	}
	if n := *as.known.made[counted]; a.Max > 0 && n >= a.Max {
		return model.OverLimit("max_devices", "at most %d devices are made of messages", a.Max)
	}
	return as.devices.Admit(c, 1)
}

// await keeps the pace at which devices of a tenant are made.
func (w *adoptionCache) await(ctx context.Context, tenant int64) error {
	now := time.Now()
	// Forgetting the pace costs at most one device that comes early.
	if len(w.pace) > maxMakingTenant {
		clear(w.pace)
	}
	next := w.pace[tenant]
	if wait := next.Sub(now); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now = next
	}
	w.pace[tenant] = now.Add(time.Second / madePerSecond)
	return nil
}

// get returns what is remembered of an id, and the number of changes at this moment.
func (w *adoptionCache) get(key adoptionKey, byToken bool) (*adopted, bool, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.entries[key]
	if !ok {
		return nil, false, w.changes
	}
	found := e.Value.(*adopted)
	// What was found by a token says nothing to a caller that does not look for tokens, and the other way round.
	if found.byToken && !byToken || found.binding.DeviceID == 0 && byToken != found.byToken {
		return nil, false, w.changes
	}
	w.order.MoveToFront(e)
	return found, true, w.changes
}

// put remembers what a lookup has found that began when there were so many changes.
func (w *adoptionCache) put(found *adopted, began uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A device has changed since the lookup began: what it found may be untrue.
	if w.changes != began {
		return
	}
	w.drop(found.key)
	w.entries[found.key] = w.order.PushFront(found)
	// The one that was asked for least recently goes.
	if len(w.entries) > maxAdopted {
		w.drop(w.order.Back().Value.(*adopted).key)
	}
}

func (w *adoptionCache) drop(key adoptionKey) {
	if e, ok := w.entries[key]; ok {
		w.order.Remove(e)
		delete(w.entries, key)
	}
}

// changed forgets what a change of a device may have made untrue. old and d may be nil.
func (w *adoptionCache) changed(tenant int64, ds ...*Device) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes++
	for _, d := range ds {
		if d == nil {
			continue
		}
		for _, first := range []bool{false, true} {
			w.drop(adoptionKey{tenant, d.Token, first})
			if d.ExternalID != nil {
				w.drop(adoptionKey{tenant, *d.ExternalID, first})
			}
		}
	}
}

// len is how many ids are remembered.
func (w *adoptionCache) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.entries)
}

// AdoptedToken is the token of a device that is made for an external id: PREFIX-SLUG-12 hexadecimal digits of its SHA-256. In the slug every
// character but letters, digits, - and _ is a -.
func AdoptedToken(prefix, externalID string) string {
	slug := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, externalID)
	sum := sha256.Sum256([]byte(externalID))
	// Cut the readable part; the digits keep tokens distinct.
	slug = slug[:min(len(slug), slugOfToken-len(prefix)-1)]
	return prefix + "-" + slug + "-" + hex.EncodeToString(sum[:])[:digitsOfToken]
}
