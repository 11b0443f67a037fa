package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"weir/actions"
	"weir/artifact"
	"weir/auth"
	"weir/command"
	"weir/config"
	"weir/connectors"
	"weir/govern"
	"weir/gql"
	"weir/internal/certs"
	"weir/internal/yamldoc"
	"weir/model"
	"weir/notify"
	"weir/provision"
	"weir/registry"
	"weir/site"
	"weir/store"
)

// Entities are the parts that know tenants, identities and devices. They need a store and no log: they serve on a directory in which
// nothing runs, too, where changes wait in the control table for the next start.
type Entities struct {
	Config config.Config
	// Listeners returns those of the instance; none where nothing runs.
	Listeners  func() Listeners
	Served     *certs.Reloader // the certificate of the listeners that speak TLS; nil for none
	Store      store.Store
	Govern     *govern.Govern
	Auth       *auth.Auth
	Registry   *registry.Registry
	Provision  *provision.Provision
	Commands   *command.Service
	Connectors *connectors.Connectors
	Notify     *notify.Notify
	Site       *site.Site
	Artifacts  *artifact.Service
	// Areas are the GraphQL areas that the API serves; where nothing runs those of entities and their state.
	Areas *gql.Server

	// Standing returns the targets of orders of rules that stand still; nil where nothing runs.
	Standing func() []actions.Standing

	sited atomic.Pointer[SiteStatus] // the last apply
}

// GraphQLRequest is a document for an area, run in a tenant.
type GraphQLRequest struct {
	Area      string         `json:"area"`
	Tenant    string         `json:"tenant"`
	Query     string         `json:"query"`
	Variables map[string]any `json:"variables,omitempty"`
}

// GraphQLResponse is its answer. Errors are those of the resolvers, with code and reason.
type GraphQLResponse struct {
	Data   json.RawMessage `json:"data,omitempty"`
	Errors []struct {
		Message string `json:"message"`
		// Path is that of the field, empty for an error in the document itself; Locations are places in the document.
		Path       []any                        `json:"path"`
		Locations  []struct{ Line, Column int } `json:"locations"`
		Extensions struct {
			Code   model.Code `json:"code"`
			Reason string     `json:"reason"`
		} `json:"extensions"`
	} `json:"errors,omitempty"`
	Extensions struct {
		Hints []string `json:"hints,omitempty"`
	} `json:"extensions,omitzero"`
}

// Err is the first refusal of the answer, nil when there is none.
func (r *GraphQLResponse) Err() error {
	if len(r.Errors) == 0 {
		return nil
	}
	e := r.Errors[0]
	if e.Extensions.Code == "" {
		return fmt.Errorf("%s; the log of the instance says more", e.Message)
	}
	return &model.Error{Code: e.Extensions.Code, Reason: e.Extensions.Reason, Message: e.Message}
}

// Refusal is every error of the answer in one, for the author of the document; nil when there is none. An error in the
// document itself is INVALID_INPUT.
func (r *GraphQLResponse) Refusal() error {
	var texts []string
	out := &model.Error{}
	for i := range r.Errors {
		e := &r.Errors[i]
		code := e.Extensions.Code
		if code == "" && len(e.Path) == 0 {
			code = model.CodeInvalidInput
		}
		if i == 0 {
			out.Code, out.Reason = code, e.Extensions.Reason
		}
		text := e.Message
		if len(e.Path) == 0 && len(e.Locations) > 0 {
			text = fmt.Sprintf("%d:%d: %s", e.Locations[0].Line, e.Locations[0].Column, text)
		}
		if code != "" {
			text += " (" + string(code) + ")"
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return nil
	}
	out.Message = strings.Join(texts, "\n")
	return out
}

// What waits on the way out, as package actions has it.
type (
	OutboxQuery = actions.Query
	Outbox      = actions.Waiting
	OutboxOrder = actions.WaitingOrder
)

// MaxOutbox is the maximum of targets, and of orders, in one answer.
const MaxOutbox = actions.MaxLimit

// outbox is what waits on the way out.
func (e *Entities) outbox(ctx context.Context, q OutboxQuery) (*Outbox, error) {
	var tenant int64
	if q.Tenant != "" {
		if err := e.knownTenant(&q.Tenant); err != nil {
			return nil, err
		}
		tenant, _, _ = e.Govern.Lookup(q.Tenant)
	}
	var standing []actions.Standing
	if e.Standing != nil {
		standing = e.Standing()
	}
	return actions.Look(ctx, e.Store, q, tenant, e.Govern.TokenOf, standing)
}

// graphQL runs a document as the local operator in a tenant.
func (e *Entities) graphQL(ctx context.Context, q GraphQLRequest) (*GraphQLResponse, error) {
	if areas := e.Areas.Areas(); !slices.Contains(areas, q.Area) {
		return nil, model.Invalid("area", "%q is not served here; the areas are %s", q.Area, strings.Join(slices.Sorted(slices.Values(areas)), ", "))
	}
	by := Local()
	if q.Tenant != "" || e.Areas.Plane(q.Area) == gql.TenantPlane {
		var err error
		if by, err = e.within(q.Tenant); err != nil {
			return nil, err
		}
	}
	body, err := json.Marshal(map[string]any{"query": q.Query, "variables": q.Variables})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	p := page{header: http.Header{}}
	e.Areas.Handler(q.Area, func(context.Context, gql.Credentials) (gql.Session, error) {
		return gql.Session{Principal: by}, nil
	}).ServeHTTP(&p, r)
	out := &GraphQLResponse{}
	return out, json.Unmarshal(p.Bytes(), out)
}

// deviceNamed returns a device that must exist.
func (e *Entities) deviceNamed(ctx context.Context, by *model.Principal, token string) (*registry.Device, error) {
	have, err := e.Registry.Devices.ByToken(ctx, by, []string{token})
	if err != nil {
		return nil, err
	}
	if len(have) == 0 {
		e := model.NotFound(e.Registry.Devices.Name(), token)
		e.Hint = fmt.Sprintf("see what there is with: weir device list %s", by.Tenant)
		return nil, e
	}
	return have[0], nil
}

// noTenant refuses a verb that names a tenant which does not exist. The hint names the nearest one.
func (e *Entities) noTenant(tenant string) error {
	err := model.NotFound("tenant", tenant)
	err.Hint = fmt.Sprintf("make it with: weir tenant create %s", tenant)
	if near := yamldoc.Suggest(tenant, e.Govern.TenantTokens()); near != "" {
		err.Hint = near + " list the tenants with: weir tenant list"
	}
	return err
}

// TokenQuery asks for tokens that begin with Prefix: of tenants, or of the devices of Tenant.
type TokenQuery struct {
	Tenant  string `json:"tenant,omitempty"`
	Devices bool   `json:"devices,omitempty"`
	Prefix  string `json:"prefix,omitempty"`
}

// shownTokens is how many tokens are offered at once.
const shownTokens = 100

// tokens returns what a shell may offer to complete a word, at most shownTokens of it.
func (o *Operator) tokens(ctx context.Context, q TokenQuery) ([]string, error) {
	if !q.Devices {
		all := slices.DeleteFunc(o.deps.Govern.TenantTokens(), func(t string) bool { return !strings.HasPrefix(t, q.Prefix) })
		slices.Sort(all)
		return all[:min(len(all), shownTokens)], nil
	}
	id, _, known := o.deps.Govern.Lookup(q.Tenant)
	if !known {
		return []string{}, nil
	}
	by := Local()
	by.Tenant, by.TenantID = q.Tenant, id
	devices, _, err := o.deps.Registry.Devices.List(ctx, by, store.Page{Size: shownTokens}, store.NotBelow("token", q.Prefix), store.NotAbove("token", q.Prefix+"~"))
	out := make([]string, len(devices))
	for i, d := range devices {
		out[i] = d.Token
	}
	return out, err
}
