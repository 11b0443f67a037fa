package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"weir/model"
)

// What the rows of a tenant take, and how far they may grow. Every write of a Table, and every version that is frozen, notes by
// how many bytes the rows of its tenant grow or shrink; Mutate stores the sums with the change. So a kind of entity that is
// added later is counted as the others are.

// rowBytes is what a row counts for in addition to its strings: its numbers and its entries in indexes.
const rowBytes = 64

// Growth is what bounds the growth of rows.
type Growth struct {
	// Limit is how many bytes the rows of a tenant may take.
	Limit func(tenant int64) int64
	// Disk refuses growth while the disk has no room for it; nil: the disk is not watched.
	Disk func() error
	// Metadata is the memory that the metadata view takes, of which all tenants share a bound; nil: it is not bounded.
	Metadata func() (held, limit int64)
	// Refused is called for each change that is refused; nil: not at all.
	Refused func(GrowthCause)
}

// GrowthCause is why a change is refused, as the label of the metric.
type GrowthCause string

// The causes.
const (
	GrowthBytes GrowthCause = "bytes" // the rows of the tenant take all that they may
	GrowthDisk  GrowthCause = "disk"  // the disk is nearly full
	GrowthSize  GrowthCause = "size"  // the change writes too much
	GrowthRate  GrowthCause = "rate"  // the changes of the tenant write too much

	GrowthMetadata GrowthCause = "metadata" // what the messages of all tenants are judged by takes all the memory that it may
	GrowthRows     GrowthCause = "rows"     // the tenant has as many rows of the kind as it may
)

// GrowthCauses are all of them.
func GrowthCauses() []GrowthCause {
	return []GrowthCause{GrowthBytes, GrowthDisk, GrowthSize, GrowthRate, GrowthRows, GrowthMetadata}
}

// Bounded is a Writer whose changes let rows grow only as far as Growth says, and write as much as Pace lets their callers. Changes
// that only remove rows are never refused, nor is internal work. A change that ends with CodeLimitExceeded for another reason, because
// there are as many of something as there may be, is counted as one of GrowthRows.
type Bounded struct {
	Writer
	Growth
	Pace Pace
	// Gone reports whether a tenant is deleted: changes in it are refused. nil: none is.
	Gone func(tenant int64) bool
}

// Mutate implements Writer.
func (b *Bounded) Mutate(ctx context.Context, by *model.Principal, fn func(*Change) error) error {
	if by != nil && by.TenantID != 0 && b.Gone != nil && b.Gone(by.TenantID) {
		return model.Errorf(model.CodeConflict, "conflict: the tenant %s is deleted and its data is being erased", by.Tenant)
	}
	paced := by != nil && by.Kind != model.LocalOperator && by.TenantID != 0 && !InChange(ctx)
	if paced {
		if err := b.Pace.wait(ctx, by.TenantID); err != nil {
			return b.throttled(err)
		}
	}
	var wrote int64
	err := b.Writer.Mutate(ctx, by, func(c *Change) error {
		c.growth = &b.Growth
		if paced {
			c.pace, c.paced = &b.Pace, by.TenantID
		}
		err := fn(c)
		if wrote = c.wrote; model.CodeOf(err) == model.CodeLimitExceeded && !c.refused && !InChange(ctx) {
			err = c.refuse(GrowthRows, err)
		}
		return err
	})
	if err != nil && wrote > 0 {
		b.Pace.give(by.TenantID, wrote)
	}
	return err
}

// throttled counts a change that is refused because others of the tenant have written too much.
func (g *Growth) throttled(err error) error {
	if model.CodeOf(err) == model.CodeThrottled {
		return g.refuse(GrowthRate, err)
	}
	return err
}

// usage is what the rows of a tenant take.
type usage struct{ stored, more int64 }

// usageKey is the key of the sum in the meta table.
func usageKey(tenant int64) string { return fmt.Sprintf("%s%d", usagePrefix, tenant) }

const usagePrefix = "tenant_bytes/"

// DropUsage removes the sum of a tenant that is removed.
func DropUsage(tx Tx, tenant int64) error { return SetMeta(tx, usageKey(tenant), nil) }

// UsedBytes returns what the rows of a tenant take, as the bound counts it.
func UsedBytes(tx Tx, tenant int64) (int64, error) {
	n, _, err := MetaInt(tx, usageKey(tenant))
	return n, err
}

// AllUsedBytes returns what the rows of all tenants take, by tenant, in one statement.
func AllUsedBytes(tx Tx) (map[int64]int64, error) {
	used := map[int64]int64{}
	return used, scanPairs(tx, used, `SELECT CAST(substr(key, ?) AS INTEGER), number FROM meta WHERE key >= ? AND key < ? AND number IS NOT NULL`,
		len(usagePrefix)+1, usagePrefix, strings.TrimSuffix(usagePrefix, "/")+"0") // 0 follows / in ASCII
}

// Admit refuses rows that would grow by n bytes where the bounds of the change do not allow it. What makes or grows a row asks
// before it writes; what makes many rows may ask for all of them first.
func (c *Change) Admit(tenant, n int64) error {
	if n <= 0 {
		return nil
	}
	c.grows = true
	g := c.growth
	if g == nil || c.By == nil {
		return nil
	}
	if g.Disk != nil {
		if err := g.Disk(); err != nil {
			return c.refuse(GrowthDisk, err)
		}
	}
	if tenant == 0 || g.Limit == nil {
		return nil
	}
	u, err := c.used(tenant)
	if err != nil {
		return err
	}
	if have, limit := u.stored+u.more, g.Limit(tenant); have+n > limit {
		return c.refuse(GrowthBytes, model.OverLimit(BytesKey, "the rows of the tenant take %d of %d bytes, %d more were asked for; delete what is not needed", have, limit, n))
	}
	return nil
}

// admitViews refuses changes of the metadata for which there is no memory, and those of a tenant that has had its share of a memory
// that becomes scarce. A row that is replaced counts as one more.
func (c *Change) admitViews() error {
	g := c.growth
	if g == nil || g.Metadata == nil || c.By == nil {
		return nil
	}
	var more int64
	for _, v := range c.views {
		if v.Body != nil {
			more += v.Memory()
		}
	}
	held, limit := g.Metadata()
	if more == 0 || held+more <= FreeMetadata(limit) {
		return nil
	}
	if c.By.Kind == model.LocalOperator || c.By.TenantID == 0 {
		if held+more > limit {
			return c.refuse(GrowthMetadata, model.OverLimit(MemoryKey, metadataWhat+" take %d KiB of the %d KiB of memory that this instance has for them, %d more were asked for; delete what is not needed, or give it more memory",
				held>>10, limit>>10, (more+1023)>>10))
		}
		return nil
	}
	taken, share, err := c.metadataShare(held, limit)
	if err != nil {
		return err
	}
	if held+more > limit || taken+more > share {
		return c.refuse(GrowthMetadata, model.OverLimit(MemoryKey, metadataWhat+" of the tenant take about %d KiB of memory, which becomes scarce on this instance; delete what is not needed, or have the operator give it more memory",
			taken>>10))
	}
	return nil
}

// metadataWhat is what takes the memory of the metadata view.
const metadataWhat = "devices, types, published profiles, attributes, groups, fences and what devices belong to"

// FreeMetadata is how much of the memory of the metadata view the tenants may take as they come; of the rest none gets more than its
// share, so that one tenant does not take all that the others and the tenants to come need.
func FreeMetadata(limit int64) int64 { return limit / 4 * 3 }

// metadataShare returns about how much of the memory of the metadata view the tenant of the change takes, by what its rows take of all
// rows, and what each tenant may have: as much as each of the others and one that is still to come.
func (c *Change) metadataShare(held, limit int64) (taken, share int64, err error) {
	used, err := AllUsedBytes(c)
	if err != nil {
		return 0, 0, err
	}
	var all, tenants int64
	for _, n := range used {
		all += n
	}
	if err := c.QueryRow(`SELECT count(*) FROM tenants`).Scan(&tenants); err != nil {
		return 0, 0, err
	}
	return int64(float64(held) * float64(used[c.By.TenantID]) / float64(max(all, 1))), limit / (max(tenants, 1) + 1), nil
}

// MemoryKey is the configuration key of the memory of the instance.
const MemoryKey = "limits.memory"

// BytesKey is the configuration key of the bytes that the rows of a tenant may take.
const BytesKey = "governance.registry_bytes"

// refuse counts that the change is refused for a cause, and returns err.
func (c *Change) refuse(cause GrowthCause, err error) error {
	if c.growth == nil {
		return err
	}
	c.refused = true
	return c.growth.refuse(cause, err)
}

func (g *Growth) refuse(cause GrowthCause, err error) error {
	if g.Refused != nil {
		g.Refused(cause)
	}
	return err
}

// Grown notes that the rows of a tenant take n bytes more, or less when n is negative.
func (c *Change) Grown(tenant, n int64) error {
	if tenant == 0 || n == 0 {
		return nil
	}
	u, err := c.used(tenant)
	if err == nil {
		u.more += n
	}
	return err
}

func (c *Change) used(tenant int64) (*usage, error) {
	if u := c.usage[tenant]; u != nil {
		return u, nil
	}
	stored, err := UsedBytes(c, tenant)
	if err != nil {
		return nil, err
	}
	if c.usage == nil {
		c.usage = map[int64]*usage{}
	}
	u := &usage{stored: stored}
	c.usage[tenant] = u
	return u, nil
}

// storeUsage stores the sums that the change has moved.
func (c *Change) storeUsage() error {
	for _, tenant := range slices.Sorted(maps.Keys(c.usage)) {
		u := c.usage[tenant]
		if u.more == 0 {
			continue
		}
		if err := SetMetaInt(c.Tx, usageKey(tenant), max(u.stored+u.more, 0)); err != nil {
			return err
		}
	}
	return nil
}

// metaCounted marks that the sums follow from the rows; a database of an older Weir has none. A migration that gives rows a column of
// strings removes it (DELETE FROM meta WHERE key = 'tenant_bytes'), so that they are counted again.
const metaCounted = "tenant_bytes"

// Counter adds what the rows of a table take to the sum of each tenant.
type Counter interface {
	CountBytes(tx Tx, sums map[int64]int64) error
}

// CounterFunc is a function as a Counter.
type CounterFunc func(tx Tx, sums map[int64]int64) error

// CountBytes implements Counter.
func (f CounterFunc) CountBytes(tx Tx, sums map[int64]int64) error { return f(tx, sums) }

// CountUsage counts what the rows of all tenants take, once in the life of a database: changes keep the sums from then on.
func CountUsage(ctx context.Context, st Store, counters ...Counter) error {
	var done bool
	err := st.Read(ctx, func(tx Tx) (err error) {
		_, done, err = MetaInt(tx, metaCounted)
		return err
	})
	if err != nil || done {
		return err
	}
	return st.Write(ctx, Results, func(tx Tx) error {
		sums := map[int64]int64{}
		for _, c := range counters {
			if err := c.CountBytes(tx, sums); err != nil {
				return err
			}
		}
		for _, tenant := range slices.Sorted(maps.Keys(sums)) {
			if err := SetMetaInt(tx, usageKey(tenant), sums[tenant]); err != nil {
				return err
			}
		}
		return SetMetaInt(tx, metaCounted, 1)
	})
}

// CountRows is CountBytes of a table whose rows have a tenant and these columns of strings.
func CountRows(tx Tx, sums map[int64]int64, table string, columns ...string) error {
	rows, err := tx.Query(`SELECT tenant_id, sum(` + RowSize(columns...) + `) FROM ` + table + ` GROUP BY tenant_id ORDER BY tenant_id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var tenant, n int64
		if err := rows.Scan(&tenant, &n); err != nil {
			return err
		}
		sums[tenant] += n
	}
	return rows.Err()
}

// RowSize is the expression of what a row with these columns of strings counts for.
func RowSize(columns ...string) string { return fmt.Sprint(rowBytes) + " + " + textSize(columns) }

// textSize is the expression of what columns of strings take.
func textSize(columns []string) string {
	if len(columns) == 0 {
		return "0"
	}
	return "coalesce(octet_length(" + strings.Join(columns, "), 0) + coalesce(octet_length(") + "), 0)"
}

// SizeOf is what a row of these values counts for, as RowSize has it.
func SizeOf(values ...any) int64 { return rowBytes + textBytes(values) }

func textBytes(values []any) (n int64) {
	for _, v := range values {
		rv := reflect.ValueOf(v)
		if rv.Kind() == reflect.Pointer {
			rv = rv.Elem() // nothing for nil
		}
		if rv.Kind() == reflect.String || rv.Kind() == reflect.Slice {
			n += int64(rv.Len())
		}
	}
	return n
}

// unavailable is the refusal of a change that the disk does not take.
func unavailable(err error) error {
	switch {
	case errors.Is(err, ErrFull):
		return &model.Error{Code: model.CodeUnavailable, Err: err, Message: "unavailable: the disk is full, nothing was changed; free some space"}
	case errors.Is(err, ErrUnwritable):
		return &model.Error{Code: model.CodeUnavailable, Err: err, Message: "unavailable: the disk refuses to be written, nothing was changed; see weir doctor"}
	}
	return err
}
