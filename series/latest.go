package series

import (
	"context"
	"slices"
	"strings"

	"weir/model"
	"weir/store"
)

// location is the latest position of a device.
type location = store.LatestLocation

// latest is the row of the latest value of the series.
func (a *activity) latest() *store.LatestMeasurement {
	m := &store.LatestMeasurement{ID: a.id, Device: a.dev.id, DeviceToken: a.dev.token, Metric: a.metric, Value: a.value,
		Unit: a.labels.unit, DataType: a.labels.dataType, Mark: a.labels.mark, Occurred: a.occurred, Created: a.created, Updated: a.received}
	m.Classifier, m.HasClassifier = classifierOf(a.classifier)
	return m
}

// PutLocation updates the latest position of a device: a strictly newer event time replaces it. The
// applier calls it for each location entry, in the order of the log; the event itself is a row of the store.
func (s *Series) PutLocation(l *store.LatestLocation, at model.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at <= s.base {
		return
	}
	h := s.active
	h.last = max(h.last, at)
	have := h.locations[l.Device]
	if have != nil && l.Occurred <= have.Occurred {
		return
	}
	next := *l
	next.Location, next.Created = store.StoredLocation(l.Location), l.Updated
	if have == nil {
		s.charge(h, locationBytes)
	} else {
		next.Created = have.Created
	}
	h.locations[l.Device] = &next
}

// LatestMeasurements returns the newest measurement of each metric of a device by event time, by metric.
func (s *Series) LatestMeasurements(ctx context.Context, deviceID int64) ([]store.LatestMeasurement, error) {
	all, err := s.LatestMeasurementsOf(ctx, []int64{deviceID})
	return all[deviceID], err
}

// LatestMeasurementsOf is LatestMeasurements of some devices, by their row ids.
func (s *Series) LatestMeasurementsOf(ctx context.Context, devices []int64) (map[int64][]store.LatestMeasurement, error) {
	var out map[int64][]store.LatestMeasurement
	err := s.read(ctx, func(tx store.Tx, snap snapshot) error {
		newer := make(map[int64][]store.LatestMeasurement, len(devices))
		for _, id := range devices {
			var err error
			if newer[id], err = s.latestOf(snap, id); err != nil {
				return err
			}
		}
		var err error
		if out, err = store.LatestMeasurements(tx, devices...); err != nil {
			return err
		}
		for _, id := range devices {
			out[id] = mergeLatest(out[id], newer[id])
		}
		return nil
	})
	return out, err
}

// latestOf returns the latest values in the heads that a snapshot's rows lack, oldest head first.
func (s *Series) latestOf(snap snapshot, deviceID int64) ([]store.LatestMeasurement, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	hs, err := s.headsOf(snap)
	dev := s.devices[deviceID]
	if err != nil || dev == nil || dev.gone {
		return nil, err
	}
	var out []store.LatestMeasurement
	for _, h := range hs {
		for _, sr := range dev.series {
			if a := sr.in(h); a != nil {
				out = append(out, *a.latest())
			}
		}
	}
	return out, nil
}

func mergeLatest(rows, newer []store.LatestMeasurement) []store.LatestMeasurement {
	at := make(map[int64]int, len(rows))
	for i := range rows {
		at[rows[i].ID] = i
	}
	for _, m := range newer {
		i, ok := at[m.ID]
		if !ok {
			at[m.ID] = len(rows)
			rows = append(rows, m)
		} else if m.Occurred > rows[i].Occurred {
			m.Created = rows[i].Created
			rows[i] = m
		}
	}
	slices.SortFunc(rows, func(a, b store.LatestMeasurement) int { return strings.Compare(a.Metric, b.Metric) })
	return rows
}

// LatestLocations returns the newest positions of devices, in no order, without devices that never sent a location.
func (s *Series) LatestLocations(ctx context.Context, devices []int64) ([]store.LatestLocation, error) {
	var out []store.LatestLocation
	err := s.read(ctx, func(tx store.Tx, snap snapshot) error {
		newer, err := s.locationsOf(snap, devices)
		if err != nil {
			return err
		}
		rows, err := store.LatestLocations(tx, devices)
		if err != nil {
			return err
		}
		byDevice := make(map[int64]store.LatestLocation, len(rows))
		for _, l := range append(rows, newer...) {
			have, ok := byDevice[l.Device]
			if ok && l.Occurred <= have.Occurred {
				continue
			}
			if ok {
				l.Created = have.Created
			}
			byDevice[l.Device] = l
		}
		out = out[:0]
		for _, id := range devices {
			if l, ok := byDevice[id]; ok {
				out = append(out, l)
				delete(byDevice, id)
			}
		}
		return nil
	})
	return out, err
}

func (s *Series) locationsOf(snap snapshot, devices []int64) ([]store.LatestLocation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	hs, err := s.headsOf(snap)
	if err != nil {
		return nil, err
	}
	var out []store.LatestLocation
	for _, h := range hs {
		for _, id := range devices {
			if l := h.locations[id]; l != nil {
				out = append(out, *l)
			}
		}
	}
	return out, nil
}
