package series

import (
	"cmp"
	"context"
	"slices"

	"weir/model"
	"weir/store"
)

// The catalog knows the series of the devices that were heard since the head before last: a silent device is forgotten
// when the head after its own is written, and read from the store when it speaks again. Ids are given out in the order
// in which series first appear in the log, so that a replay gives the same ones.

// device is a device that the catalog knows. Only the applier and Release change it, under the room's lock.
type device struct {
	id       int64
	tenantID int64
	token    string
	heard    uint32 // head in which it was last heard
	gone     bool
	series   []*series // by metric
}

// series is one metric of one device.
type series struct {
	id     int64
	metric string
	dev    *device
	act    *activity // in the head in which it was last heard
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

// tenant is what a tenant's series are counted by.
type tenant struct {
	count int64 // without those of deleted devices
	last  int64 // last id given out, 0 for none
}

func (d *device) find(metric string) (int, bool) {
	return slices.BinarySearchFunc(d.series, metric, func(s *series, m string) int { return cmp.Compare(s.metric, m) })
}

// Admit says whether a message's readings may become series: whether they are all there already or the limits per
// device and tenant leave room for those that are not. It counts nothing: Put does.
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
	ok := len(fresh) <= s.room(tenantID, dev)
	if !ok {
		s.m.refused.Inc()
	}
	return ok, nil
}

// AdmitPart is Admit reading by reading, for a message of which a part is better than nothing: it returns those that fit.
func (s *Series) AdmitPart(ctx context.Context, tenantID, deviceID int64, readings []model.Reading) ([]model.Reading, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	dev, err := s.hearing(ctx, tenantID, deviceID)
	if err != nil {
		return nil, err
	}
	var fresh []string
	var fit []model.Reading
	room := s.room(tenantID, dev)
	for _, r := range readings {
		if _, ok := dev.find(r.Metric); !ok && !slices.Contains(fresh, r.Metric) {
			if len(fresh) >= room {
				continue
			}
			fresh = append(fresh, r.Metric)
		}
		fit = append(fit, r)
	}
	return fit, nil
}

// room is how many series the device may still open. The lock is held.
func (s *Series) room(tenantID int64, dev *device) int {
	count := int64(0)
	if t := s.tenants[tenantID]; t != nil {
		count = t.count
	}
	return int(min(int64(s.cfg.SeriesPerDevice-len(dev.series)), int64(s.cfg.SeriesPerTenant)-count))
}

// hearing returns the catalog's device, read from the store when it was not heard for a while. The read lock is held, and
// given up meanwhile.
func (s *Series) hearing(ctx context.Context, tenantID, deviceID int64) (*device, error) {
	if dev := s.heard(deviceID); dev != nil {
		return dev, nil
	}
	s.mu.RUnlock()
	defer s.mu.RLock()
	return s.device(ctx, tenantID, deviceID)
}

// heard returns the catalog's device when it was heard in the active head, nil otherwise. The lock is held.
func (s *Series) heard(id int64) *device {
	if dev := s.devices[id]; dev != nil && dev.heard == s.active.seq {
		return dev
	}
	return nil
}

// device returns the catalog's device, read from the store when it was not heard for a while. It is called by the
// applier only and keeps the device from being forgotten with the frozen head.
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
	// Release may have forgotten it since; what it knows is still right, for only this goroutine adds to it.
	s.devices[id] = dev
	dev.heard = s.active.seq
	s.active.devices = append(s.active.devices, dev)
	s.charge(s.active, deviceBytes+int64(len(dev.series))*seriesBytes)
	return dev, nil
}

func (s *Series) loadDevice(ctx context.Context, tenantID, id int64) (*device, error) {
	dev := &device{id: id, tenantID: tenantID}
	err := s.st.Read(ctx, func(tx store.Tx) error {
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
		// The order of the database's collation need not be ours.
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

// loadTenants reads what ids are given out.
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

// Forget ends a device: its series stop counting and what was last known of it goes. Its history stays. The applier
// calls it at the control record that ends the device.
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
