package store

import (
	"context"
	"sync"
	"time"

	"weir/model"
)

// A change waits for the disk, and while a large one is synced nothing else is: on a slow disk the acknowledgements of all devices
// wait for it. So what the callers of a tenant write in one change, and over time, has a bound. The operator of the machine has none.
const (
	maxChangeBytes = 512 << 10       // of the rows of a change besides its largest one, which may be a document
	paceRate       = 512 << 10       // bytes a second of a tenant
	paceBurst      = 1 << 20         // after a quiet time
	paceWait       = 5 * time.Second // a change that would wait longer is refused
)

// Pace is what the callers of each tenant may still write. The zero value is ready; it is safe for concurrent use.
type Pace struct {
	mu      sync.Mutex
	tenants map[int64]*credit // of those that have written lately
}

// credit is what a tenant may write at a time; below 0 it has to wait.
type credit struct {
	bytes float64
	at    time.Time
}

// of returns what a tenant may write now. It needs the lock.
func (p *Pace) of(tenant int64, now time.Time) float64 {
	c := p.tenants[tenant]
	if c == nil {
		return paceBurst
	}
	if c.bytes, c.at = c.bytes+now.Sub(c.at).Seconds()*paceRate, now; c.bytes >= paceBurst {
		delete(p.tenants, tenant)
		return paceBurst
	}
	return c.bytes
}

// wait waits until a tenant may write.
func (p *Pace) wait(ctx context.Context, tenant int64) error {
	p.mu.Lock()
	owed := -p.of(tenant, time.Now())
	p.mu.Unlock()
	if owed <= 0 {
		return nil
	}
	until := time.Duration(owed / paceRate * float64(time.Second))
	if until > paceWait {
		return errPace(until)
	}
	t := time.NewTimer(until)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func errPace(until time.Duration) error {
	return model.Errorf(model.CodeThrottled, "throttled: the changes of the tenant write more than %d KiB a second, try again in %d s", paceRate>>10, int(until.Seconds())+1)
}

// take takes n bytes, also on credit: as many as a change may write whose largest row is given. Changes at the same time may all have
// waited.
func (p *Pace) take(tenant, n, largest int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	left := p.of(tenant, now) - float64(n)
	if left < -float64(largest+maxChangeBytes) {
		return errPace(time.Duration(-left / paceRate * float64(time.Second)))
	}
	p.set(tenant, left, now)
	return nil
}

// give gives back what a change has taken that was not committed.
func (p *Pace) give(tenant, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.set(tenant, p.of(tenant, now)+float64(n), now)
}

func (p *Pace) set(tenant int64, bytes float64, now time.Time) {
	if p.tenants == nil {
		p.tenants = map[int64]*credit{}
	}
	p.tenants[tenant] = &credit{bytes, now}
}

// Wrote notes that the change writes n bytes of rows, and refuses what its caller may not write.
func (c *Change) Wrote(n int64) error {
	if c.pace == nil {
		return nil
	}
	largest := max(c.largest, n)
	if c.wrote+n-largest > maxChangeBytes {
		return c.refuse(GrowthSize, model.Errorf(model.CodeLimitExceeded, "one change may write at most %d KiB of rows besides the largest: make several of it", maxChangeBytes>>10))
	}
	if err := c.pace.take(c.paced, n, largest); err != nil {
		c.refused = true
		return c.growth.throttled(err)
	}
	c.wrote, c.largest = c.wrote+n, largest
	return nil
}
