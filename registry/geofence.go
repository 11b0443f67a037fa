package registry

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/registry/geometry"
	"weir/store"
	"weir/store/entity"
	"weir/store/fenceset"
)

// GeoFence is an area of the globe that rules ask for.
type GeoFence struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Geometry    string  `store:"geometry,required,json,max=262144" gql:"geometry"` // in its normal form
	Metadata    *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
	// ManagedBy is the device as which this instance signs in at the Weir above that manages the row, nil for none.
	ManagedBy *string `store:"managed_by" gql:"managedBy"`

	positions int64 // of the geometry, once it is checked
}

// maxFenceRequest bounds the values of a create or update.
const maxFenceRequest = 256 << 10

// FenceLimits are the ceilings of a tenant's fences.
type FenceLimits struct {
	Fences    int64 // geoFenceCeiling
	Positions int64 // geoFencePositionCeiling: of one fence
	Budget    int64 // geoFencePositionBudget: positions of all fences
}

// defaultFenceLimits are those where nothing says otherwise.
func defaultFenceLimits(string) FenceLimits { return FenceLimits{100, 512, 51200} }

// Fences are the geofences of all tenants, and the set that those of a tenant make up: each change of a geometry makes the next version of
// the set.
type Fences struct {
	*entity.Kind[GeoFence]
	store    store.Store
	limits   func(tenant string) FenceLimits
	versions int64              // kept of a tenant's set
	removed  prometheus.Counter // former geometries that went with an old version
}

// describe makes the kind.
func (fs *Fences) describe(b entity.Base) {
	fs.Kind = entity.New(b, entity.Desc[GeoFence]{
		Kind:    "geofence",
		Type:    "GeoFence",
		Plural:  "geoFences",
		Area:    area,
		Table:   "geofences",
		Read:    mayRead,
		Write:   entity.Needs(model.DeviceWrite, model.LocationRead),
		Delete:  mayWrite,
		Prepare: fs.prepare,
		Valid:   (*GeoFence).outline,
		Alone:   (*GeoFence).shape,
		Changed: fs.changed,
	})
}

// Kind is that of the geometry's envelope.
func (*GeoFence) Kind() string { return geometry.Polygon2D }

// prepare checks the geometry before the transaction, the ceiling of its positions first: the one writer must wait for neither.
func (fs *Fences) prepare(ctx context.Context, by *model.Principal, token string, p store.Patch, create bool) error {
	// Bound the request before it is parsed.
	size := 0
	for _, v := range p {
		text, _ := v.(string)
		size += len(text)
	}
	if size > maxFenceRequest {
		return model.OverLimit("request", "has %d bytes, at most %d", size, maxFenceRequest)
	}
	text, ok := p["geometry"].(string)
	if !ok {
		return nil
	}
	// Count the positions first: counting is cheap, checking the shape is not.
	_, positions, err := geometry.Outline(text)
	if err != nil {
		return err
	}
	if err := fs.admitPositions(ctx, by, token, int64(positions), create); err != nil {
		return err
	}
	// Store the normal form, so that equal shapes are equal texts.
	polygon, err := geometry.Parse(text)
	if err != nil {
		return err
	}
	p["geometry"] = polygon.String()
	return nil
}

// admitPositions refuses a geometry over the ceiling, but for one that has no more positions than the one that it replaces.
func (fs *Fences) admitPositions(ctx context.Context, by *model.Principal, token string, positions int64, create bool) error {
	ceiling := fs.limits(by.Tenant).Positions
	if positions <= ceiling {
		return nil
	}
	// After a ceiling was lowered a fence may still shrink.
	if !create {
		rows, err := fs.ByToken(ctx, by, []string{token})
		if err != nil {
			return err
		}
		for _, f := range rows {
			if _, before, err := geometry.Outline(f.Geometry); err == nil && positions <= int64(before) {
				return nil
			}
		}
	}
	return overPositions(positions, ceiling)
}

func overPositions(positions, ceiling int64) error {
	return model.OverLimit("geoFencePositionCeiling", "the geometry has %d positions over all rings, at most %d", positions, ceiling)
}

// outline is what a transaction does with the geometry: Prepare has looked at its shape.
func (f *GeoFence) outline() error {
	normal, positions, err := geometry.Outline(f.Geometry)
	if err != nil {
		return err
	}
	f.Geometry, f.positions = normal, int64(positions)
	return nil
}

func (f *GeoFence) shape() error {
	_, err := geometry.Parse(f.Geometry)
	return err
}

// changed makes the next version of the tenant's set where a geometry comes, changes or goes. It is the one place where
// versions are minted.
func (fs *Fences) changed(c *store.Change, old, f *GeoFence) error {
	var step fenceset.Step
	switch {
	case f == nil:
		step.Token = old.Token
	case old != nil && old.Geometry == f.Geometry:
		return nil
	default:
		step = fenceset.Step{Fence: fenceset.Fence{Token: f.Token, Geometry: f.Geometry}, Positions: f.positions}
	}
	// The set gets its next version; rules see fence and version in one change.
	tenant := c.By.TenantID
	version, before, removed, err := fenceset.Next(c, tenant, step, fs.versions)
	if err != nil {
		return err
	}
	if err := viewFence(c, tenant, step.Token, f, version); err != nil {
		return err
	}
	c.OnCommit(func() { fs.removed.Add(float64(removed)) })
	if step.Positions <= before {
		return nil // a lowered ceiling leaves what is there alone
	}
	return fs.admit(c, old == nil, step.Positions)
}

// admit holds the set as it is now against the ceilings of the tenant.
func (fs *Fences) admit(c *store.Change, fresh bool, positions int64) error {
	now, err := fenceset.SizeOf(c, c.By.TenantID)
	if err != nil {
		return err
	}
	switch limits := fs.limits(c.By.Tenant); {
	case fresh && now.Fences > limits.Fences:
		return model.OverLimit("geoFenceCeiling", "the tenant has at most %d geofences", limits.Fences)
	case positions > limits.Positions:
		return overPositions(positions, limits.Positions)
	case now.Positions > limits.Budget:
		return model.OverLimit("geoFencePositionBudget", "the geofences of the tenant would have %d positions, at most %d", now.Positions, limits.Budget)
	}
	return nil
}

// NewestVersion returns the newest version of the tenant's set of fences, 0 when it never had one.
func (fs *Fences) NewestVersion(ctx context.Context, by *model.Principal) (version int64, err error) {
	if err := fs.MayRead(by); err != nil {
		return 0, err
	}
	err = store.Read(ctx, fs.store, func(tx store.Tx) (err error) {
		version, err = fenceset.Current(tx, by.TenantID)
		return err
	})
	return version, err
}

// OfSet returns a page of a version of the tenant's set, in the order of tokens. Version 0 is empty; one that never was, or
// that is not kept any more, is refused.
func (fs *Fences) OfSet(ctx context.Context, by *model.Principal, version int64, page store.Page) (fences []fenceset.Fence, total int64, err error) {
	if err := fs.MayRead(by); err != nil {
		return nil, 0, err
	}
	err = store.Read(ctx, fs.store, func(tx store.Tx) error {
		if err := fs.keptSet(tx, by.TenantID, version); err != nil {
			return err
		}
		fences, total, err = fenceset.Page(tx, by.TenantID, version, page)
		return err
	})
	return fences, total, err
}

// HasSet refuses a version as OfSet does.
func (fs *Fences) HasSet(ctx context.Context, by *model.Principal, version int64) error {
	if err := fs.MayRead(by); err != nil {
		return err
	}
	return store.Read(ctx, fs.store, func(tx store.Tx) error { return fs.keptSet(tx, by.TenantID, version) })
}

func (fs *Fences) keptSet(tx store.Tx, tenant, version int64) error {
	newest, err := fenceset.Current(tx, tenant)
	switch oldest := max(newest-fs.versions+1, 1); {
	case err != nil || version == 0:
		return err
	case version < 0:
		return model.Invalid("version", "must not be negative")
	case version > newest:
		return model.Errorf(model.CodeNotFound, "version: the set of geofences has no version %d, the newest is %d", version, newest)
	case version < oldest:
		return model.Errorf(model.CodeNotFound, "version: version %d of the set of geofences is not kept any more, the oldest is %d", version, oldest)
	}
	return nil
}

// tokensOf returns the tokens of the tenant's geofences.
func (fs *Fences) tokensOf(ctx context.Context, tenant int64) (tokens []string, err error) {
	err = store.Read(ctx, fs.store, func(tx store.Tx) error {
		tokens, err = fenceset.Tokens(tx, tenant)
		return err
	})
	return append([]string{}, tokens...), err
}

// Tokens returns the tokens of the tenant's geofences.
func (fs *Fences) Tokens(ctx context.Context, by *model.Principal) ([]string, error) {
	if err := fs.MayRead(by); err != nil {
		return nil, err
	}
	return fs.tokensOf(ctx, by.TenantID)
}
