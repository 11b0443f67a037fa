package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"weir/model"
	"weir/rules"
	"weir/store"
)

// namesSetAside is how many readings that were set aside are named.
const namesSetAside = 20

// part returns the record with the readings that the series limits admit, nil when they admit none. The record itself is
// shared and stays as it is.
func (a *Applier) part(ctx context.Context, r *model.Record, what resolved) (part *model.Record, err error) {
	var fit []model.Reading
	if err = a.insist(ctx, "the series of a device cannot be read", func() (err error) {
		fit, err = a.Series.AdmitPart(ctx, what.tenant.ID, what.device.ID, r.Message.Measurements)
		return err
	}); err != nil || len(fit) == 0 {
		return nil, err
	}
	rec, m := *r, *r.Message
	m.Measurements, rec.Message = fit, &m
	return &rec, nil
}

// setAside counts the readings of a record that its part lacks, and names the first of them in a dead letter. Its kind is one
// of its own: in the ledger the message is stored.
func (a *Applier) setAside(at rules.Position, r, part *model.Record) {
	all, fit := r.Message.Measurements, part.Message.Measurements
	n := len(all) - len(fit)
	a.metrics.setAside.Add(float64(n))
	var names []string
	for i := range all {
		m := all[i].Metric
		kept := slices.ContainsFunc(fit, func(f model.Reading) bool { return f.Metric == m })
		if !kept && len(names) < namesSetAside && !slices.Contains(names, m) {
			names = append(names, m)
		}
	}
	d := &store.DeadLetter{Tenant: r.Account, Occurred: r.Received.Wall.Micros(), Kind: store.DeadLetterReadings, Reason: string(ReasonSeriesLimit),
		Source: r.Source, Attempts: 1, Subject: r.Device, Epoch: at.Epoch, Offset: at.Offset, Detail: shorten(strings.Join(names, " ")),
		Summary: fmt.Sprintf("%d of %d readings would open more series than the device or the tenant may have (limits.series_per_device, "+
			"limits.series_per_tenant); the others are stored", n, len(all))}
	a.keepDeadLetter(d)
}
