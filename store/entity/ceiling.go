package entity

import (
	"weir/model"
	"weir/store"
)

// What concerns every kind alike is no method of Kind: those are compiled once for each kind.

// counts reports whether the number of rows is stored.
func (l *Ceiling) counts() bool { return l != nil && l.Counted }

// admit refuses n more rows where there would be more than the ceiling of a kind, if it has one. count counts those of a tenant.
func (l *Ceiling) admit(c *store.Change, kind *Info, n int64, count func(tx store.Tx, tenant int64, filters ...store.Filter) (int64, error)) error {
	if l == nil {
		return nil
	}
	tenant, whose := c.By.TenantID, "a tenant"
	if kind.Instance {
		tenant, whose = 0, "an instance"
	}
	var have int64
	var err error
	if l.Counted {
		have, err = store.AddRows(c, tenant, kind.Table, n)
	} else {
		have, err = count(c, tenant)
		have += n
	}
	if err != nil {
		return err
	}
	if maximum := l.Rows(); have > maximum {
		return model.OverLimit(l.Key, "%s has at most %d", whose, maximum)
	}
	return nil
}

// releaseTies removes what is tied to a row that goes by its type and token, and counts it out.
func (i *Info) releaseTies(c *store.Change, row *store.Row, token string) error {
	if i.Addressed != "" && i.untie != nil {
		if err := i.untie(c, i.Addressed, *row, token); err != nil {
			return err
		}
	}
	if !i.ceiling.counts() {
		return nil
	}
	_, err := store.AddRows(c, row.TenantID, i.Table, -1)
	return err
}
