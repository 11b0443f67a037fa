package registry

import (
	"context"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// access is how a part of the registry reads rows and changes them.
type access struct {
	store   store.Store
	waiting store.Store // reads what a device waits for
	writer  store.Writer
}

// mutate runs fn as one change, for who may write devices.
func (a *access) mutate(ctx context.Context, by *model.Principal, fn func(*store.Change) error) error {
	if err := demand(by, mayWrite); err != nil {
		return err
	}
	return a.writer.Mutate(ctx, by, fn)
}

// mayReadDevices refuses a principal that may not read devices.
func mayReadDevices(by *model.Principal) error { return demand(by, mayRead) }

// demand refuses a principal that lacks one of the authorities, or has no tenant.
func demand(by *model.Principal, needs []model.Authority) error {
	if err := entity.Demand(by, needs); err != nil {
		return err
	}
	_, err := entity.TenantOf(by)
	return err
}
