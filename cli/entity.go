package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"weir/model"
	"weir/operate"
)

// The areas of the API that commands about entities use.
const (
	deviceArea = "device-management"
	stateArea  = "device-state"
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
