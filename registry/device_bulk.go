package registry

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"weir/model"
	"weir/store"
)

// maxBulk is the most devices one createDevices makes.
const maxBulk = 1000

// Bulk describes the devices of one createDevices.
type Bulk struct {
	Type               string // token of their device type
	Count              int64
	StartIndex         *int64 // nil = 1
	TokenTemplate      string
	NameTemplate       *string
	ExternalIDTemplate *string
	Metadata           *string
}

// CreateBulk makes all devices of b, or none.
func (ds *Devices) CreateBulk(ctx context.Context, by *model.Principal, b Bulk) ([]*Device, error) {
	// Expand all templates first: an error in the last one makes nothing.
	patches, err := b.expand(ds.random)
	if err != nil {
		return nil, err
	}
	devices := make([]*Device, 0, len(patches))
	err = ds.mutate(ctx, by, func(c *store.Change) error {
		// The change may be tried again.
		devices = devices[:0]
		if err := ds.admit(c, b.Count); err != nil {
			return err
		}
		if err := c.Admit(c.By.TenantID, sizeOf(patches)); err != nil { // all of them, before the first is written
			return err
		}
		for _, p := range patches {
			d, err := ds.Make(c, p)
			if err != nil {
				return err
			}
			devices = append(devices, d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return devices, nil
}

// sizeOf is what the rows of patches count for.
func sizeOf(patches []store.Patch) (n int64) {
	for _, p := range patches {
		n += store.SizeOf(slices.Collect(maps.Values(p))...) - int64(len(p["deviceTypeToken"].(string)))
	}
	return n
}

// expand makes the fields of each device.
func (b Bulk) expand(random io.Reader) ([]store.Patch, error) {
	if b.Count < 1 || b.Count > maxBulk {
		return nil, model.Invalid("count", "must be from 1 to %d", maxBulk)
	}
	start := int64(1)
	if b.StartIndex != nil {
		start = *b.StartIndex
	}
	if start < 1 {
		return nil, model.Invalid("startIndex", "must be at least 1")
	}
	// Parse each template once for all devices.
	templates, err := b.templates()
	if err != nil {
		return nil, err
	}
	patches := make([]store.Patch, b.Count)
	for i := range patches {
		p := store.Patch{"deviceTypeToken": b.Type}
		if b.Metadata != nil {
			p["metadata"] = *b.Metadata
		}
		for field, t := range templates {
			if p[field], err = t.expand(start+int64(i), random); err != nil {
				return nil, fmt.Errorf("random part of %s: %w", field, err)
			}
		}
		// Check here, where the error can name the template.
		if err := model.CheckToken("tokenTemplate", p["token"].(string)); err != nil {
			return nil, err
		}
		patches[i] = p
	}
	return patches, nil
}

// templates returns the template of each device field that has one.
func (b Bulk) templates() (map[string]template, error) {
	token, err := parseTemplate("tokenTemplate", b.TokenTemplate, false)
	if err != nil {
		return nil, err
	}
	if !token.indexed() {
		return nil, model.Invalid("tokenTemplate", "needs {n} or {n:0Wd}")
	}
	templates := map[string]template{"token": token}
	if b.NameTemplate != nil {
		if templates["name"], err = parseTemplate("nameTemplate", *b.NameTemplate, false); err != nil {
			return nil, err
		}
	}
	if b.ExternalIDTemplate != nil {
		external, err := parseTemplate("externalIdTemplate", *b.ExternalIDTemplate, true)
		if err != nil {
			return nil, err
		}
		if b.Count > 1 && !external.varies() {
			return nil, model.Invalid("externalIdTemplate", "needs {n}, {n:0Wd} or {random} for more than one device")
		}
		templates["externalId"] = external
	}
	return templates, nil
}
