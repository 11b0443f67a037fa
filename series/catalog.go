package series

import (
	"cmp"
	"context"
	"slices"

	"weir/model"
	"weir/store"
)

// The catalog holds the series of the devices that sent readings since the head before last: a silent device is evicted
// when the head after its own is written, and read from the store with its next reading. Ids are assigned in the order in
// which series first appear in the log, so that a replay assigns the same ones.

// device is a device in the catalog. Only the applier and Release change it, under the lock of Series.
type device struct {
	id       int64
	tenantID int64
	token    string
	heard    uint32 // head with its last reading
	gone     bool
	series   []*series // by metric
}

// series is one metric of one device.
type series struct {
	id     int64
	metric string
	dev    *device
	act    *activity // in the head with its last reading
	frozen *activity // in the frozen head
}

// in returns the series' activity in a head, nil when it has none there.
func (sr *series) in(h *head) *activity {
	for _, a := range [...]*activity{sr.act, sr.frozen} {
		if a != nil && a.head == h {
			return a
		}
	}
	return nil
}

// tenant counts the series of a tenant.
type tenant struct {
	count int64 // without those of deleted devices
	last  int64 // last assigned id, 0 for none
}

func (d *device) find(metric string) (int, bool) {
	return slices.BinarySearchFunc(d.series, metric, func(s *series, m string) int { return cmp.Compare(s.metric, m) })
}

// Admit reports whether a message's readings may be stored: whether their series exist or the limits per device and
// tenant allow the new ones. It does not count new series: Put does.
func (s *Series) Admit(ctx context.Context, tenantID, deviceID int64, readings []model.Reading) (bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	dev, err := s.hearing(ctx, tenantID, deviceID)
	if err != nil {
		return false, err
	}
	var fresh []string
	for i := range readings {
		if _, ok := dev.find(readings[i].Metric); !ok && !slices.Contains(fresh, readings[i].Metric) {
			fresh = append(fresh, readings[i].Metric)
		}
	}
	if len(fresh) == 0 {
		return true, nil
	}
	ok := len(fresh) <= s.allowance(tenantID, dev)
	if !ok {
		s.m.refused.Inc()
	}
	return ok, nil
}

// AdmitPart is Admit for each reading of a message that may be stored in part: it returns the readings within the limits.
func (s *Series) AdmitPart(ctx context.Context, tenantID, deviceID int64, readings []model.Reading) ([]model.Reading, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	dev, err := s.hearing(ctx, tenantID, deviceID)
	if err != nil {
		return nil, err
	}
	var fresh []string
	var fit []model.Reading
	allowed := s.allowance(tenantID, dev)
	for _, r := range readings {
		if _, ok := dev.find(r.Metric); !ok && !slices.Contains(fresh, r.Metric) {
			if len(fresh) >= allowed {
				continue
			}
			fresh = append(fresh, r.Metric)
		}
		fit = append(fit, r)
	}
	return fit, nil
}

// allowance returns how many new series the device may have. The lock is held.
func (s *Series) allowance(tenantID int64, dev *device) int {
	count := int64(0)
	if t := s.tenants[tenantID]; t != nil {
		count = t.count
	}
	return int(min(int64(s.cfg.SeriesPerDevice-len(dev.series)), int64(s.cfg.SeriesPerTenant)-count))
}

// hearing returns the catalog's device and reads it from the store if necessary. The read lock is held, and released
// while the store is read.
func (s *Series) hearing(ctx context.Context, tenantID, deviceID int64) (*device, error) {
	if dev := s.heard(deviceID); dev != nil {
		return dev, nil
	}
	s.mu.RUnlock()
	defer s.mu.RLock()
	return s.device(ctx, tenantID, deviceID)
}

// heard returns the catalog's device if it has a reading in the active head, else nil. The lock is held.
func (s *Series) heard(id int64) *device {
	if dev := s.devices[id]; dev != nil && dev.heard == s.active.seq {
		return dev
	}
	return nil
}

// device returns the catalog's device and reads it from the store if necessary. Only the applier calls it. It keeps the
// device from being evicted with the frozen head.
func (s *Series) device(ctx context.Context, tenantID, id int64) (*device, error) {
	s.mu.RLock()
	dev, heard := s.devices[id], s.heard(id)
	s.mu.RUnlock()
	if heard != nil {
		return heard, nil
	}
	if dev == nil {
		var err error
		if dev, err = s.loadDevice(ctx, tenantID, id); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Release may have evicted it since; its content is still valid, for only this goroutine adds to it.
	s.devices[id] = dev
	dev.heard = s.active.seq
	s.active.devices = append(s.active.devices, dev)
	s.charge(s.active, deviceBytes+int64(len(dev.series))*seriesBytes)
	return dev, nil
}

func (s *Series) loadDevice(ctx context.Context, tenantID, id int64) (*device, error) {
	dev := &device{id: id, tenantID: tenantID}
	err := s.applier.Read(ctx, func(tx store.Tx) error {
		_, gen, err := store.CheckpointState(tx)
		if err != nil {
			return err
		}
		rows, err := store.SeriesOfDevice(tx, gen, id)
		if err != nil {
			return err
		}
		dev.series = make([]*series, 0, len(rows))
		for _, r := range rows {
			dev.token, dev.gone = r.DeviceToken, r.Gone
			dev.series = append(dev.series, &series{id: r.ID, metric: r.Metric, dev: dev})
		}
		// The database's collation may order them differently.
		slices.SortFunc(dev.series, func(a, b *series) int { return cmp.Compare(a.metric, b.metric) })
		return nil
	})
	return dev, err
}

// seriesOf returns the device's series of a metric, which gets an id if it is new. The lock is held.
func (s *Series) seriesOf(dev *device, p *Point) *series {
	i, ok := dev.find(p.Metric)
	if ok {
		return dev.series[i]
	}
	if dev.token == "" {
		dev.token = p.DeviceToken
	}
	sr := &series{id: s.nextID(p.TenantID), metric: p.Metric, dev: dev}
	dev.series = slices.Insert(dev.series, i, sr)
	s.active.fresh = append(s.active.fresh, freshSeries{sr, p.Received})
	s.charge(s.active, seriesBytes+int64(len(p.Metric)))
	return sr
}

func (s *Series) nextID(tenantID int64) int64 {
	t := s.tenants[tenantID]
	if t == nil {
		t = &tenant{}
		s.tenants[tenantID] = t
	}
	t.count++
	t.last++
	if t.last == 1 || store.SeriesGroup(t.last) != store.SeriesGroup(t.last-1) {
		s.lastGroup++
		t.last = s.lastGroup << store.SeriesGroupBits
	}
	return t.last
}

// loadTenants reads the assigned ids.
func (s *Series) loadTenants(tx store.Tx) error {
	counts, err := store.SeriesCounts(tx, s.gen)
	if err != nil {
		return err
	}
	for _, c := range counts {
		s.tenants[c.TenantID] = &tenant{count: c.Count, last: c.MaxID}
		s.lastGroup = max(s.lastGroup, store.SeriesGroup(c.MaxID))
	}
	return nil
}

// RemoveDevice ends a device: its series do not count any more and its latest values are removed. Its history stays. The
// applier calls it at the metadata change that ends the device.
func (s *Series) RemoveDevice(ctx context.Context, tenantID, deviceID int64) error {
	dev, err := s.device(ctx, tenantID, deviceID)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[tenantID]; t != nil && !dev.gone {
		t.count -= int64(len(dev.series))
	}
	dev.gone = true
	delete(s.active.locations, deviceID)
	s.active.ended = append(s.active.ended, deviceID)
	return nil
}
