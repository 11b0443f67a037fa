package app

import (
	"context"
	"errors"
	"time"

	"weir/auth"
	"weir/config"
	"weir/health"
	"weir/ingest"
	"weir/model"
	"weir/store"
)

// intake is the one way into the log, which all transports share.
type intake struct {
	*base
	store    *database
	spool    *logStore
	entities *entities
	applier  *applier
	gauge    *ingest.Gauge
	into     *ingest.Intake
}

// countsInterval is how long the counts of the transports may wait for a batch to ride in before one is made for them.
const countsInterval = 10 * time.Second

// Start implements component.
func (i *intake) Start(_, life context.Context) error {
	// The gauge says how full log and disk are; the intake refuses or slows senders by it.
	i.gauge = ingest.NewGauge(ingest.GaugeConfig{
		Log:          i.spool.log,
		Applied:      i.applier.ingest.Applied,
		Disk:         i.disk,
		DiskSettings: i.cfg.Spool.DiskSettings,
		Done:         i.spool.appliedOnly(),
		Throttle:     i.applier.throttle,
		Logger:       i.log,
		Registry:     i.metrics,
	})
	i.into = ingest.NewIntake(intakeConfig(i.cfg),
		ingest.IntakeDeps{
			Log:          i.spool.log,
			Counts:       i.spool.counts,
			Stamp:        i.spool.clock.Stamp,
			Verify:       i.verify,
			Ceiling:      i.entities.Govern,
			Pressure:     i.gauge,
			Throttle:     i.applier.throttle,
			Seal:         i.store.vault.Seal,
			KeepRejected: i.keepRejected,
			Tap:          i.applier.tap,
			Rates:        i.applier.rates,
			Logger:       i.log,
			Registry:     i.metrics,
		})
	// Counts of refusals travel in batches of the log. RunCounts makes one where no message does.
	i.runPart(life, "pressure", i.gauge.Run)
	i.runPart(life, "intake", i.into.Run)
	i.runPart(life, "transport counts", func(ctx context.Context) error { return i.into.RunCounts(ctx, countsInterval) })
	return nil
}

// Stop answers what was accepted.
func (i *intake) Stop(ctx context.Context) error { return i.into.Shut(ctx) }

func intakeConfig(cfg config.Config) ingest.IntakeConfig {
	return ingest.IntakeConfig{AuthSettings: cfg.Auth.AuthSettings, HoldSettings: cfg.Broker.HoldSettings}
}

// disk is what is free on the disk of the data directory, and how large it is.
func (i *intake) disk() (free, size int64, err error) {
	fs, err := health.ThisMachine().FileSystem(i.cfg.DataDir)
	return int64(fs.FreeBytes), int64(fs.Bytes), err
}

// verify asks auth about the credential in a body.
func (i *intake) verify(ctx context.Context, c ingest.Claim) (ingest.Proof, model.Verdict, error) {
	p, err := i.entities.verifier.Verify(ctx, auth.Claim{
		Tenant:     c.Tenant,
		Type:       c.Type,
		ID:         c.ID,
		Secret:     c.Secret,
		From:       c.From,
		Spend:      c.Spend,
		Connecting: true,
	})
	// Tell a credential that is wrong (a verdict, counted for the sender) from a check that could not be made (the sender
	// tries again).
	if err != nil {
		verdict, refused := auth.VerdictOf(err)
		switch {
		case errors.Is(err, auth.ErrSpent):
			return ingest.Proof{}, model.VerdictBad, ingest.ErrSpent
		case errors.Is(err, auth.ErrBusy):
			return ingest.Proof{}, model.VerdictBad, &model.Error{Code: model.CodeUnavailable, Message: "too many credentials are being checked", Err: err}
		case !refused:
			return ingest.Proof{}, model.VerdictBad, err
		}
		return ingest.Proof{}, verdict, nil
	}
	return ingest.Proof{Credential: p.CredentialID, DeviceID: p.DeviceID, Device: p.Device, TenantID: p.TenantID}, model.VerdictOK, nil
}

// rejectedBytes bounds the buffer of rejected payloads of unauthenticated senders.
const rejectedBytes = 16 << 20

// keepRejected puts copies of bodies that were refused into the rejected-payload buffer.
func (i *intake) keepRejected(ctx context.Context, ds []*store.DeadLetter) error {
	return i.store.db.Write(ctx, store.Results, func(tx store.Tx) error {
		// Trim in the same transaction: the buffer is within its bound at each commit.
		for _, d := range ds {
			if err := store.AddDeadLetter(tx, d); err != nil {
				return err
			}
		}
		_, err := store.TrimRejected(tx, rejectedBytes)
		return err
	})
}
