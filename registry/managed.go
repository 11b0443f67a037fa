package registry

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weir/internal/edgewire"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// What a Weir above says of the devices of a site is kept as rows that it manages: read-only here, while edge.uplink.sync is on.

// ManagedTokens are the tokens of the rows of a tenant that a Weir above manages, by kind.
type ManagedTokens struct {
	Types, Profiles, Devices, Fences []string
}

// Manage marks the rows with these tokens as managed by a Weir above, and no others of those that it managed before: these stay, and may be changed
// and deleted again. by is the device as which this instance signs in there. It returns how many rows are managed no more.
func (r *Registry) Manage(c *store.Change, by string, tokens ManagedTokens) (released int, err error) {
	for _, mark := range []func() (int, error){
		func() (int, error) {
			return markManaged(c, r.Types, by, tokens.Types, func(t *DeviceType) **string { return &t.ManagedBy })
		},
		func() (int, error) {
			return markManaged(c, r.Profiles.Kind, by, tokens.Profiles, func(p *DeviceProfile) **string { return &p.ManagedBy })
		},
		func() (int, error) {
			return markManaged(c, r.Devices.Kind, by, tokens.Devices, func(d *Device) **string { return &d.ManagedBy })
		},
		func() (int, error) {
			return markManaged(c, r.GeoFences.Kind, by, tokens.Fences, func(f *GeoFence) **string { return &f.ManagedBy })
		},
	} {
		n, err := mark()
		if err != nil {
			return 0, err
		}
		released += n
	}
	return released, nil
}

// manageAtOnce is how many rows are looked up by one query.
const manageAtOnce = 256

func markManaged[T any](c *store.Change, k *entity.Kind[T], by string, tokens []string, field func(*T) **string) (released int, err error) {
	tenant := c.By.TenantID
	managed, err := k.Table.By(c, tenant, "managed_by", by)
	if err != nil {
		return 0, err
	}
	// Compare what is managed with what should be.
	wanted := make(map[string]bool, len(tokens))
	for _, token := range tokens {
		wanted[token] = true
	}
	set := func(row *T, to *string) error {
		*field(row) = to
		return k.Table.Save(c, row, "managed_by")
	}
	for _, row := range managed {
		// A row that is released stays: it may have readings.
		if token := k.Table.Token(row); !wanted[token] {
			if err := set(row, nil); err != nil {
				return 0, err
			}
			released++
		} else {
			delete(wanted, token)
		}
	}
	var fresh []string
	for token := range wanted {
		fresh = append(fresh, token)
	}
	// In one order, so that a repeat writes the same.
	slices.Sort(fresh)
	for some := range slices.Chunk(fresh, manageAtOnce) {
		rows, err := k.Table.ByToken(c, tenant, some)
		if err != nil {
			return 0, err
		}
		for _, row := range rows {
			if err := set(row, new(by)); err != nil {
				return 0, err
			}
		}
	}
	return released, nil
}

// managedCredential begins the tokens of credentials that a Weir above manages; its id there follows.
const managedCredential = "above-"

// Follow makes the credentials of the devices that a Weir above manages what it says: hashes, with which devices sign in here as they do there.
// One whose id another credential of the tenant has is left out, that one stays: left is how many. by is the device as which this instance signs in there.
func (cs *Credentials) Follow(ctx context.Context, tenant string, tenantID int64, by string, all []edgewire.Device) (left int, err error) {
	principal := model.Service("edge", tenant, tenantID, model.DeviceRead, model.DeviceWrite)
	err = cs.mutate(entity.Managing(ctx), principal, func(c *store.Change) error {
		left = 0
		devices, err := cs.devices.Table.By(c, tenantID, "managed_by", by)
		if err != nil {
			return err
		}
		// By device, and in chunks: a site may have thousands.
		wanted := make(map[string][]edgewire.Credential, len(all))
		for _, d := range all {
			wanted[d.Token] = d.Credentials
		}
		for some := range slices.Chunk(devices, manageAtOnce) {
			ids := make([]any, len(some))
			for i, d := range some {
				ids[i] = d.ID
			}
			rows, err := cs.Table.By(c, tenantID, "device_id", ids...)
			if err != nil {
				return err
			}
			have := map[int64]map[string]*DeviceCredential{}
			for _, row := range rows {
				// Credentials that were made here are the site's own.
				if !strings.HasPrefix(row.Token, managedCredential) {
					continue
				}
				if have[row.DeviceID] == nil {
					have[row.DeviceID] = map[string]*DeviceCredential{}
				}
				have[row.DeviceID][row.Token] = row
			}
			for _, d := range some {
				n, err := cs.followDevice(c, d, have[d.ID], wanted[d.Token])
				if err != nil {
					return err
				}
				left += n
			}
		}
		return nil
	})
	return left, err
}

// followDevice makes the managed credentials of a device those that are wanted, and returns how many it left out.
func (cs *Credentials) followDevice(c *store.Change, d *Device, have map[string]*DeviceCredential, wanted []edgewire.Credential) (left int, err error) {
	named := make(map[string]bool, len(wanted))
	for _, w := range wanted {
		token := managedCredential + strconv.FormatInt(w.ID, 10)
		named[token] = true
		row := &DeviceCredential{Token: token, DeviceID: d.ID, Type: w.Type, IDHash: w.IDHash, Enabled: true}
		row.TenantID = d.TenantID
		if w.Password != "" {
			row.ValueHash = &w.Password
		}
		if w.Expires > 0 {
			row.ExpiresAt = new(model.Micros(w.Expires))
		}
		// Nothing to do for one that is as it was.
		old := have[token]
		if old != nil && old.Type == row.Type && old.IDHash == row.IDHash && text(old.ValueHash) == text(row.ValueHash) && sameMicros(old.ExpiresAt, row.ExpiresAt) {
			continue
		}
		if old != nil { // it is made again: what it verified is forgotten
			if _, err := cs.Remove(c, token); err != nil {
				return left, err
			}
		}
		// The id of a credential is unique in the tenant: the site's own wins.
		taken, err := cs.Table.By(c, d.TenantID, "id_hash", w.IDHash)
		if err != nil {
			return left, err
		}
		if len(taken) > 0 {
			left++
			continue
		}
		if err := cs.Table.Insert(c, row); err != nil {
			return left, err
		}
		if err := cs.changed(c, nil, row); err != nil {
			return left, err
		}
	}
	// Those that the Weir above no longer names go.
	for _, token := range slices.Sorted(maps.Keys(have)) {
		if named[token] {
			continue
		}
		if _, err := cs.Remove(c, token); err != nil {
			return left, err
		}
	}
	return left, nil
}

func sameMicros(a, b *model.Micros) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// Placed returns the tokens and active versions of the published profiles of a tenant with rules with placement EDGE, by row id.
func (ps *Profiles) Placed(ctx context.Context, tenantID int64) (tokens map[int64]string, versions map[int64]int64, err error) {
	tokens = map[int64]string{}
	versions = map[int64]int64{}
	err = store.Read(ctx, ps.store, func(tx store.Tx) error {
		active, err := ps.versions.Effective(tx, tenantID)
		if err != nil {
			return err
		}
		for id, s := range active {
			if !slices.ContainsFunc(s.Rules, func(rule SnapshotRule) bool { return rule.Enabled && rule.Placement == model.PlacementEdge }) {
				continue
			}
			p, err := ps.Table.GetByID(tx, tenantID, id)
			if err != nil {
				return err
			}
			if p != nil && p.ActiveVersion != nil {
				tokens[id], versions[id] = p.Token, *p.ActiveVersion
			}
		}
		return nil
	})
	return tokens, versions, err
}
