package registry

import (
	"encoding/json"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Dashboard is the draft of what a viewer draws. Weir keeps its definition and does not read it.
type Dashboard struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Definition  string  `store:"definition,required,json,large,max=1048576" gql:"definition"`
}

// dashboardBody is what a publish freezes, and a rollback copies back into the draft.
type dashboardBody struct {
	V           int     `json:"v"`
	Name        *string `json:"name,omitempty"`
	Description *string `json:"description,omitempty"`
	Definition  string  `json:"definition"`
}

// dashboardFormat is the version of dashboardBody.
const dashboardFormat = 1

// dashboards are the dashboards of all tenants.
type dashboards struct {
	limits      func() *DeviceSettings
	kept        int64              // versions of a dashboard
	pruned      prometheus.Counter // versions that a publish removed
	answerBytes int64              // that an answer of the API has room for; 0: as many as any definition takes
}

// describe makes the kind.
func (ds *dashboards) describe(b entity.Base) (kind *entity.Kind[Dashboard]) {
	kind = entity.New(b, entity.Desc[Dashboard]{
		Kind: "dashboard", Type: "Dashboard", Plural: "dashboards", Area: "dashboard-management", Table: "dashboards",
		Read: entity.Needs(model.DashboardRead), Write: entity.Needs(model.DashboardWrite),
		Valid: (*Dashboard).check, Check: ds.checkReadable,
		Admit: admitRows(func() *entity.Kind[Dashboard] { return kind }, "limits.dashboards_per_tenant",
			func() int64 { return ds.limits().DashboardsPerTenant }),
		Filters: []entity.Filter{{Name: "name", Of: func(part any) store.Filter { return store.Contains("name", part.(string)) }}},
		Versions: &entity.Versions[Dashboard, dashboardBody]{
			Kind: "dashboard version", Table: "dashboard_versions", Owner: "dashboard_id", Max: ds.kept,
			Pruned: func(n int64) { ds.pruned.Add(float64(n)) },
			Freeze: func(_ store.Tx, d *Dashboard) (*dashboardBody, error) {
				return &dashboardBody{dashboardFormat, d.Name, d.Description, d.Definition}, nil
			},
			Encode: func(b *dashboardBody) (string, error) {
				text, err := json.Marshal(b)
				return string(text), err
			},
			Decode: func(text string) (*dashboardBody, error) {
				b := new(dashboardBody)
				return b, json.Unmarshal([]byte(text), b)
			},
			Restore: func(d *Dashboard, b *dashboardBody) []string {
				d.Name, d.Description, d.Definition = b.Name, b.Description, b.Definition
				return []string{"name", "description", "definition"}
			},
		},
	})
	return kind
}

func (d *Dashboard) check() error {
	if !strings.HasPrefix(strings.TrimLeft(d.Definition, " \t\r\n"), "{") {
		return model.Invalid("definition", "is no JSON object")
	}
	return nil
}

// checkReadable refuses a definition that the API could not answer with on an instance of little memory: what is accepted can be read.
func (ds *dashboards) checkReadable(_ store.Tx, d *Dashboard, changed store.Changed) error {
	if ds.answerBytes <= 0 || !changed.New && !changed.Has("definition") {
		return nil
	}
	if n := escapedLen(d.Definition); n > ds.answerBytes {
		return model.OverLimit(store.MemoryKey, "the definition takes %d bytes of an answer, which has at most %d on this instance: make it smaller, or have the operator give the instance more memory", n, ds.answerBytes)
	}
	return nil
}

// escapedLen is how long a text is at most as a string of JSON.
func escapedLen(text string) int64 {
	n := int64(len(text)) + 2
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ':
			n += 5
		case c == '"' || c == '\\':
			n++
		}
	}
	return n
}
