// Package dashboard keeps the dashboards of tenants: drafts of what a viewer draws, which are published as versions. Weir keeps their
// definitions and does not read them.
package dashboard

import (
	"encoding/json"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/setting"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Area is the API that serves dashboards.
const Area = "dashboard-management"

// DashboardSettings are the keys of dashboards, in the section limits.
type DashboardSettings struct {
	//limit:what dashboards of a tenant
	//limit:chapter What is kept
	//limit:bound {}, a definition 1 MiB; less where memory is small, so that an answer has room for it
	//limit:keys limits.memory
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key
	//limit:cost of the bytes of the tenant's rows
	PerTenant int64 `yaml:"dashboards_per_tenant" default:"1000" zero:"default" doc:"Maximum number of dashboards of a tenant." reload:"yes"`
}

// keptVersions is how many versions of a dashboard are kept: a publish beyond it removes the oldest that are not effective.
const keptVersions = 100

// Deps are the collaborators of dashboards.
type Deps struct {
	entity.Base
	AnswerBytes int64                 // that an answer of the API has room for; 0: as many as any definition takes
	Registerer  prometheus.Registerer // nil: metrics are not registered
}

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

// Dashboards are the dashboards of all tenants. They are safe for concurrent use.
type Dashboards struct {
	*entity.Kind[Dashboard]
	Kinds *entity.Catalog // these

	limits      atomic.Pointer[DashboardSettings]
	pruned      prometheus.Counter // versions that a publish removed
	answerBytes int64
}

// New makes the dashboards of an instance.
func New(s DashboardSettings, d Deps) *Dashboards {
	ds := &Dashboards{
		answerBytes: d.AnswerBytes,
		pruned: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_dashboard_versions_removed_total",
			Help: "Versions of dashboards that a publish removed because there were more than are kept."}),
	}
	if d.Registerer != nil {
		d.Registerer.MustRegister(ds.pruned)
	}
	ds.SetLimits(s)
	ds.Kind = ds.describe(d.Base)
	ds.Kinds = entity.NewCatalog(ds)
	return ds
}

// Describe returns the kind without an instance, for those that ask for its description only.
func Describe() *entity.Catalog { return New(DashboardSettings{}, Deps{}).Kinds }

// SetLimits takes other limits.
func (ds *Dashboards) SetLimits(s DashboardSettings) {
	setting.FillDefaults(&s)
	ds.limits.Store(&s)
}

// describe makes the kind.
func (ds *Dashboards) describe(b entity.Base) *entity.Kind[Dashboard] {
	return entity.New(b, entity.Desc[Dashboard]{
		Kind:   "dashboard",
		Type:   "Dashboard",
		Plural: "dashboards",
		Area:   Area,
		Table:  "dashboards",
		Read:   entity.Needs(model.DashboardRead),
		Write:  entity.Needs(model.DashboardWrite),
		Valid:  (*Dashboard).check,
		Check:  ds.checkReadable,
		Ceiling: &entity.Ceiling{
			Key:  "limits.dashboards_per_tenant",
			Rows: func() int64 { return ds.limits.Load().PerTenant },
		},
		Filters:  []entity.Filter{{Name: "name", Of: func(part any) store.Filter { return store.Contains("name", part.(string)) }}},
		Versions: ds.versions(),
	})
}

// versions says what a publish freezes.
func (ds *Dashboards) versions() *entity.Versions[Dashboard, dashboardBody] {
	return &entity.Versions[Dashboard, dashboardBody]{
		Kind:   "dashboard version",
		Table:  "dashboard_versions",
		Owner:  "dashboard_id",
		Max:    keptVersions,
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
	}
}

func (d *Dashboard) check() error {
	if !strings.HasPrefix(strings.TrimLeft(d.Definition, " \t\r\n"), "{") {
		return model.Invalid("definition", "is no JSON object")
	}
	return nil
}

// checkReadable refuses a definition that the API could not answer with on an instance of little memory: what is accepted can be read.
func (ds *Dashboards) checkReadable(_ store.Tx, d *Dashboard, changed store.Changed) error {
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
