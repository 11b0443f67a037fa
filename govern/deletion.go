package govern

import (
	"context"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/erase"
)

// TokenHold is how long the token of a deleted tenant stays reserved at least: devices that still send with it must not reach
// another tenant.
const TokenHold = 12 * time.Hour

// SettleTime is how long nothing of a deleted tenant may turn up any more until its erase is over: messages and counts that were on
// their way when it was deleted have come to rest by then.
const SettleTime = 5 * time.Minute

// DeclareTenants notes the tenants that the site files of the configuration declare: these are not deleted, the next start would make
// them again.
func (g *Govern) DeclareTenants(tokens []string) { g.index.declare(tokens) }

// DeleteTenant deletes a tenant: with the commit its people, programs and devices are refused, and its erase begins, which removes all
// that it had in the background. It is refused while the tenant has memberships. It returns false when there is no such
// tenant, or it is deleted already.
func (g *Govern) DeleteTenant(ctx context.Context, by *model.Principal, token string) (deleted bool, err error) {
	if err := g.Tenants.MayWrite(by); err != nil {
		return false, err
	}
	// The next start would make it again from the site files.
	if g.index.declares(token) {
		return false, &model.Error{
			Code:    model.CodeInUse,
			Kind:    "tenant",
			Token:   token,
			Message: "tenant \"" + token + "\" is declared by the site files of the configuration, which would make it again",
			Hint:    "take it out of the site files, start the instance again if it runs, then delete it",
		}
	}
	err = g.writer.Mutate(ctx, by, func(c *store.Change) error {
		t, err := g.Tenants.Table.Get(c, 0, token)
		if err != nil || t == nil || t.PurgeEpoch != 0 {
			return err
		}
		// A tenant that people use is not deleted by mistake.
		members, err := store.MembershipsIn(c, t.ID)
		if err != nil {
			return err
		}
		if members > 0 {
			return model.InUse("tenant", token, "membership")
		}
		deleted = true
		return g.endAccess(c, t)
	})
	return deleted && err == nil, err
}

// endAccess ends all access to a tenant. What it is called goes at once, the rest of its row with the last of the erase.
func (g *Govern) endAccess(c *store.Change, t *Tenant) error {
	// From the record of this change on messages of its devices are dead letters.
	old := *t
	t.Enabled = false
	if err := setTenantViews(c, &old, t); err != nil {
		return err
	}
	// The epoch lies after everything that was issued in the tenant.
	if err := erase.Begin(c, erase.Tenant{ID: t.ID, Token: t.Token}, max(c.At, t.NotBefore)+1); err != nil {
		return err
	}
	// Only after the commit: connections are closed and the erase begins.
	c.OnCommit(func() {
		g.index.remove(t.ID)
		if g.onSwitch != nil {
			g.onSwitch(t.Token, false)
		}
		if g.onDelete != nil {
			g.onDelete()
		}
	})
	return nil
}

// PurgeState is active, or purging while the tenant is deleted and erased.
func (t *Tenant) PurgeState() string {
	if t.PurgeEpoch != 0 {
		return "purging"
	}
	return "active"
}

// Deleted reports whether the tenant with the row id is deleted: nothing is written for it any more.
func (g *Govern) Deleted(tenant int64) bool { return g.index.isGone(tenant) }

// refuseDeleted refuses a change of a tenant that is deleted.
func refuseDeleted(t *Tenant) error {
	if t.PurgeEpoch != 0 {
		return errDeleted(t.Token)
	}
	return nil
}

func errDeleted(token string) error {
	return &model.Error{
		Code:    model.CodeConflict,
		Kind:    "tenant",
		Token:   token,
		Message: "conflict: tenant \"" + token + "\" is deleted and its data is being erased",
	}
}

// checkReserved refuses the token of a new tenant while it is that of a deleted one.
func checkReserved(tx store.Tx, token string) error {
	reserved, err := erase.Reserved(tx, token)
	if err != nil || !reserved {
		return err
	}
	return &model.Error{
		Code:    model.CodeConflict,
		Reason:  model.ReasonTokenReserved,
		Kind:    "tenant",
		Token:   token,
		Field:   "token",
		Message: "conflict: token of a tenant must be unique, \"" + token + "\" is reserved by a deleted tenant for 12 hours after the deletion and until its data is erased",
		Hint:    "choose another token, or wait until this one is free: weir tenant deletions shows how far the erase is",
	}
}

// DeletionWait is what the deletion of a tenant waits for.
type DeletionWait string

// The waits, in their order.
const (
	WaitStores    DeletionWait = "STORES"     // something is left in a store
	WaitSettle    DeletionWait = "SETTLE"     // nothing is, and nothing may turn up for SettleTime
	WaitTokenHold DeletionWait = "TOKEN_HOLD" // all is erased, the token is reserved
	WaitNone      DeletionWait = "NONE"       // complete, the token is free
)

// Deletion is the deletion of a tenant as operators see it.
type Deletion struct{ erase.Deletion }

// Awaiting says what the deletion waits for, and until when where that is known.
func (d *Deletion) Awaiting() (wait DeletionWait, until model.Micros) {
	switch since := d.CleanSince(); {
	case d.Completed != 0:
		return WaitNone, 0
	case d.Erased != 0:
		return WaitTokenHold, d.Epoch + model.Micros(TokenHold.Microseconds())
	case since != 0:
		return WaitSettle, since + model.Micros(SettleTime.Microseconds())
	}
	return WaitStores, 0
}

// BlockedBy says what keeps the rest of the data, one line for each store.
func (d *Deletion) BlockedBy() []string {
	lines := []string{}
	for _, p := range d.Parts {
		switch {
		case p.LastError != "":
			lines = append(lines, string(p.Part)+": "+p.LastError)
		case !p.Complete && p.Retaining != "":
			lines = append(lines, string(p.Part)+": "+p.Retaining)
		}
	}
	return lines
}

// Deletions returns a page of the deletions, newest first, and how many there are.
func (g *Govern) Deletions(ctx context.Context, by *model.Principal, page store.Page, f erase.Filter) (all []Deletion, total int64, err error) {
	if err := g.Tenants.MayRead(by); err != nil {
		return nil, 0, err
	}
	err = store.Read(ctx, g.store, func(tx store.Tx) error {
		found, n, err := erase.List(tx, page, f)
		total = n
		for _, d := range found {
			all = append(all, Deletion{d})
		}
		return err
	})
	return all, total, err
}
