package app

import (
	"weir/config"
	"weir/dashboard"
	"weir/gql"
	"weir/store/entity"
)

// dashboards are what viewers draw.
func dashboards() Capability {
	var all *dashboard.Dashboards
	return Capability{
		Name: "dashboards",
		Make: func(h Handed) {
			all = dashboard.New(h.Config.Limits.DashboardSettings, dashboard.Deps{
				Base:        h.Base,
				AnswerBytes: h.AnswerBytes,
				Registerer:  h.Metrics,
			})
		},
		Kinds: func() *entity.Catalog { return all.Kinds },
		Areas: []Area{{
			AreaSpec: gql.AreaSpec{Area: dashboard.Area, Example: `{
  dashboards(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token name description updatedAt }
    pagination { totalRecords }
  }
}
`},
			Register: func(g *gql.Area, k Known) { g.Entities(k.Catalog) },
		}},
		Reload: func(c config.Config) { all.SetLimits(c.Limits.DashboardSettings) },
	}
}
