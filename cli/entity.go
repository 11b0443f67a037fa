package cli

import (
	"context"
	"encoding/json"
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

// noDevice refuses a device that does not exist.
func (a tenantAPI) noDevice(token, hint string) error {
	e := model.NotFound("device", token)
	e.Hint = hint
	return e
}

// known checks that devices exist.
func (a tenantAPI) known(ctx context.Context, hint string, tokens ...string) error {
	const document = `query($tokens: [String!]!) { devicesByToken(tokens: $tokens) { token } }`
	for len(tokens) > 0 {
		page := tokens[:min(len(tokens), operate.MaxDevicePage)]
		var found struct{ DevicesByToken []struct{ Token string } }
		if err := a.run(ctx, deviceArea, document, gqlVars{"tokens": page}, &found); err != nil {
			return err
		}
		have := map[string]bool{}
		for _, d := range found.DevicesByToken {
			have[d.Token] = true
		}
		for _, token := range page {
			if !have[token] {
				return a.noDevice(token, hint)
			}
		}
		tokens = tokens[len(page):]
	}
	return nil
}

// listHint is what to do about a device that does not exist.
func (a tenantAPI) listHint() string {
	return fmt.Sprintf("see what there is with: weir device list %s", a.tenant)
}
