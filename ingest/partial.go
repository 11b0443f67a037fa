package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"weir/model"
	"weir/store"
)

// namesSetAside is how many of the readings that are set aside are named.
const namesSetAside = 20

// setAside is what a series limit kept out of a message whose other readings are stored.
type setAside struct {
	readings, of int
	names        []string // of the first of them
}

// admitPart returns the readings of a message that the series limits admit.
func (s *seriesProjection) admitPart(ctx context.Context, e *Event) (fit []model.Reading, err error) {
	err = s.retry.until(ctx, "the series of a device cannot be read", func() (err error) {
		fit, err = s.series.AdmitPart(ctx, e.TenantID, e.DeviceID, e.Record.Message.Measurements)
		return err
	})
	return fit, err
}

// part leaves in the event's record the readings that the series limits admit; false says that they admit none. The record
// itself is shared and stays as it is.
func (s *resolver) part(ctx context.Context, e *Event) (bool, error) {
	fit, err := s.results.readings.admitPart(ctx, e)
	if err != nil || len(fit) == 0 {
		return false, err
	}
	e.aside = newSetAside(e.Record.Message.Measurements, fit)
	rec, m := *e.Record, *e.Record.Message
	m.Measurements, rec.Message = fit, &m
	e.Record = &rec
	s.times(e) // of the entries that are left
	return true, nil
}

func newSetAside(all, fit []model.Reading) *setAside {
	a := &setAside{readings: len(all) - len(fit), of: len(all)}
	for i := range all {
		m := all[i].Metric
		kept := slices.ContainsFunc(fit, func(f model.Reading) bool { return f.Metric == m })
		if !kept && len(a.names) < namesSetAside && !slices.Contains(a.names, m) {
			a.names = append(a.names, m)
		}
	}
	return a
}

// ofSetAside is the dead letter that names readings that were set aside. Its kind is one of its own: in the ledger the
// message is stored.
func ofSetAside(e *Event) *store.DeadLetter {
	r := e.Record
	return &store.DeadLetter{Tenant: r.Account, Occurred: r.Received.Wall.Micros(), Kind: store.DeadLetterReadings, Reason: string(ReasonSeriesLimit),
		Source: r.Source, Attempts: 1, Subject: r.Device, Epoch: e.At.Epoch, Offset: e.At.Offset, Detail: shorten(strings.Join(e.aside.names, " ")),
		Summary: fmt.Sprintf("%d of %d readings would open more series than the device or the tenant may have (limits.series_per_device, "+
			"limits.series_per_tenant); the others are stored", e.aside.readings, e.aside.of)}
}
