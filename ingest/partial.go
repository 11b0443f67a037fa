package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"weir/model"
	"weir/store"
)

// namesSetAside is how many readings that were set aside are named.
const namesSetAside = 20

// part reduces a partial message to the readings that the series limits admit, and notes the others in e. It reports false
// when they admit none. The record of the log is shared and stays as it is.
func (s *resolver) part(ctx context.Context, e *Event) (bool, error) {
	all := e.Record.Message.Measurements
	fit, err := s.results.readings.admitted(ctx, e.TenantID, e.DeviceID, all)
	if err != nil || len(fit) == 0 {
		return false, err
	}
	rest := fit
	for _, r := range all { // fit is in the order of all
		if len(rest) > 0 && rest[0] == r {
			rest = rest[1:]
		} else {
			e.SetAside = append(e.SetAside, r)
		}
	}
	rec, m := *e.Record, *e.Record.Message
	m.Measurements, rec.Message = fit, &m
	e.Record = &rec
	s.times(e)
	return true, nil
}

// admitted returns the readings that the series limits admit.
func (s *seriesProjection) admitted(ctx context.Context, tenant, device int64, all []model.Reading) (fit []model.Reading, err error) {
	err = s.retry.until(ctx, "the series of a device cannot be read", func() (err error) {
		fit, err = s.series.AdmitPart(ctx, tenant, device, all)
		return err
	})
	return fit, err
}

// setAside counts the readings that were set aside, and names the first of them in a dead letter. Its kind is one of its own: in
// the ledger the message is stored.
func (p *deadLetterProjection) setAside(e *Event, out *Effects) {
	p.aside.Add(float64(len(e.SetAside)))
	var names []string
	for _, r := range e.SetAside {
		if len(names) < namesSetAside && !slices.Contains(names, r.Metric) {
			names = append(names, r.Metric)
		}
	}
	r := e.Record
	p.keep(&store.DeadLetter{Tenant: r.Account, Occurred: r.Received.Wall.Micros(), Kind: store.DeadLetterReadings, Reason: string(ReasonSeriesLimit),
		Source: r.Source, Attempts: 1, Subject: r.Device, Epoch: e.At.Epoch, Offset: e.At.Offset, Detail: shorten(strings.Join(names, " ")),
		Summary: fmt.Sprintf("%d of %d readings would open more series than the device or the tenant may have (limits.series_per_device, "+
			"limits.series_per_tenant); the others are stored", len(e.SetAside), len(e.SetAside)+r.Readings())}, out)
}
