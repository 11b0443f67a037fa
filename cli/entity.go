package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"weir/internal/yamldoc"
	"weir/model"
	"weir/operate"
)

// The areas of the API that commands about entities use.
const (
	deviceArea     = "device-management"
	stateArea      = "device-state"
	eventArea      = "event-management"
	processingArea = "event-processing"
	dashboardArea  = "dashboard-management"
)

// tenantAPI asks the resolvers of the API, in a tenant as the local operator: in the running instance, or in this process on
// a directory in which none runs.
type tenantAPI struct {
	to     operate.Target
	tenant string
}

type gqlVars map[string]any

// run runs a document of an area and decodes its data.
func (a tenantAPI) run(ctx context.Context, area, document string, v gqlVars, into any) error {
	resp, err := operate.RunGraphQL.Ask(ctx, a.to, operate.GraphQLRequest{Area: area, Tenant: a.tenant, Query: document, Variables: v})
	if err != nil {
		return err
	}
	if err := resp.Err(); err != nil || into == nil {
		return err
	}
	return json.Unmarshal(resp.Data, into)
}

// askTenant runs a document of an area in a tenant, as tenantAPI.run does, over a way to the instance of its own.
func (c *command) askTenant(ctx context.Context, tenant, area, document string, v gqlVars, into any) error {
	_, err := inTenant(ctx, c, tenant, func(a tenantAPI) (struct{}, error) { return struct{}{}, a.run(ctx, area, document, v, into) })
	return err
}

// inTenant opens a way to the instance, returns what do finds in a tenant, and closes the way again.
func inTenant[T any](ctx context.Context, c *command, tenant string, do func(tenantAPI) (T, error)) (found T, err error) {
	to, err := c.operator(ctx)
	if err != nil {
		return found, err
	}
	defer to.Close()
	return do(tenantAPI{to, tenant})
}

// located adds to the refusal of a device that does not exist where the devices are listed, after a text.
func (a tenantAPI) located(err error, before string) error {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != model.CodeNotFound || e.Hint != "" {
		return err
	}
	out := *e
	out.Hint = fmt.Sprintf("%ssee what there is with: weir device list %s", before, a.tenant)
	return &out
}

// entityPage is a page of a list of the API.
type entityPage[T any] struct {
	Found struct {
		Results    []T
		Pagination struct{ TotalRecords int64 }
	}
}

// listAll returns every entity of a list query; the API has no larger page.
func listAll[T any](ctx context.Context, a tenantAPI, query, criteriaType, selection string, criteria gqlVars) ([]T, error) {
	document := fmt.Sprintf("query($c: %s!) { found: %s(criteria: $c) { results { %s } pagination { totalRecords } } }", criteriaType, query, selection)
	all := []T{}
	for page := 1; ; page++ {
		c := gqlVars{"pageNumber": page, "pageSize": operate.MaxDevicePage}
		maps.Copy(c, criteria)
		var got entityPage[T]
		if err := a.run(ctx, deviceArea, document, gqlVars{"c": c}, &got); err != nil {
			return nil, err
		}
		all = append(all, got.Found.Results...)
		if len(got.Found.Results) < operate.MaxDevicePage {
			return all, nil
		}
	}
}

// byToken returns the entity of a token; an error names the nearest one of the list query.
func byToken[T any](ctx context.Context, a tenantAPI, k listedKind, token string) (*T, error) {
	document := fmt.Sprintf("query($tokens: [String!]!) { found: %sByToken(tokens: $tokens) { %s } }", k.query, k.details)
	var got struct{ Found []T }
	if err := a.run(ctx, deviceArea, document, gqlVars{"tokens": []string{token}}, &got); err != nil {
		return nil, err
	}
	if len(got.Found) > 0 {
		return &got.Found[0], nil
	}
	all, err := listAll[struct{ Token string }](ctx, a, k.query, k.criteria, "token", nil)
	if err != nil {
		return nil, err
	}
	tokens := make([]string, len(all))
	for i := range all {
		tokens[i] = all[i].Token
	}
	missing := model.NotFound(k.name, token)
	missing.Hint = strings.TrimSpace(fmt.Sprintf("%s see what there is with: weir %s list %s", yamldoc.Suggest(token, tokens), k.command, a.tenant))
	return nil, missing
}

// listedKind is a kind of entity that a command lists and shows.
type listedKind struct {
	command  string // weir COMMAND list
	name     string // in errors
	query    string // of the list; with ByToken behind it, that of single ones
	criteria string // its input type
	details  string // what show selects
}
