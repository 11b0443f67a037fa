package app

import (
	"context"

	"weir/alarm"
	"weir/config"
	"weir/gql"
	"weir/health"
	"weir/ingest"
	"weir/operate"
	"weir/store"
)

// alarms are what rules raise and operators acknowledge: folded in the transaction of the edges, an addition to the API of devices.
func alarms() Capability {
	var (
		all    *alarm.Alarms
		tenant func(id int64) string
	)
	return Capability{
		Name: "alarms",
		Make: func(h Handed) {
			tenant = h.Tenants.TokenOf
			all = alarm.New(h.Config.Limits.TenantSettings, alarm.Deps{
				Store:      h.Store,
				Writer:     h.Writer,
				Moved:      h.Alarmed,
				Registerer: h.Metrics,
			})
		},
		RemoveDevice: func(tx store.Tx, tenantID, deviceID int64) error { return all.RemoveDevice(tx, tenantID, deviceID) },
		Areas: []Area{{
			AreaSpec: gql.AreaSpec{Area: "device-management"},
			Register: func(g *gql.Area, k Known) { gql.RegisterAlarms(g, all, k.Registry) },
		}},
		Results: func() []ingest.Projection { return []ingest.Projection{ingest.AlarmResults(all)} },
		Checks: func() []health.Check {
			return []health.Check{{ID: "alarms", Look: func(context.Context) health.Finding {
				refused := all.Refused()
				return operate.AlarmsFinding(refused, tenant(refused.TenantID))
			}}}
		},
		Reload: func(c config.Config) { all.SetLimits(c.Limits.TenantSettings) },
		Close:  func() { all.Events.Close() },
	}
}
