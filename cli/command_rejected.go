package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"weir/model"
)

// rejected is the error for a command that was not made. Its code is that of the rejection, as the API names it, and its hint says what to do.
func (a tenantAPI) rejected(ctx context.Context, code, reason string, request gqlVars) error {
	text := func(member string) string { s, _ := request[member].(string); return s }
	e := &model.Error{Code: model.Code(code), Message: code + ": " + reason}
	switch code {
	case "PAYLOAD_NOT_JSON":
		e.Hint = `give a JSON object in single quotes, such as --payload '{"celsius":21}'`
	case "EXPIRES_AT_INVALID":
		e.Hint = "--ttl is at least 1m"
	case "DEVICE_NOT_FOUND":
		e.Hint = "see what there is with: weir device list " + a.tenant
	case "COMMAND_NOT_IN_VOCABULARY", "PAYLOAD_SCHEMA_VIOLATION":
		e.Hint = a.commandHint(ctx, text("deviceToken"), text("name"))
	case "TOKEN_IN_USE":
		e.Hint = fmt.Sprintf("see that command with: weir command show %s %s; without --token a new token is made", a.tenant, text("token"))
	case "HELD_CEILING_EXCEEDED":
		e.Hint = fmt.Sprintf("see what waits with: weir command list %s --status HELD; cancel what need not wait, or raise governance.held_command_ceiling", a.tenant)
	}
	return e
}

// commandHint says which commands a device takes, or which parameters the named one has; "" where that cannot be found.
func (a tenantAPI) commandHint(ctx context.Context, device, name string) string {
	var got struct {
		Found *struct {
			Commands []struct {
				CommandKey      string
				ParameterSchema *string
			}
		}
	}
	const document = `query($d: String!) { found: deviceCommandVocabulary(deviceToken: $d) { commands { commandKey parameterSchema } } }`
	if a.run(ctx, "device-management", document, gqlVars{"d": device}, &got) != nil || got.Found == nil {
		return ""
	}
	var keys []string
	for _, c := range got.Found.Commands {
		keys = append(keys, c.CommandKey)
		if c.CommandKey == name && c.ParameterSchema != nil {
			return parameterHint(name, *c.ParameterSchema)
		}
	}
	switch {
	case len(keys) == 0:
		return ""
	case len(keys) > maxNamed:
		keys = append(keys[:maxNamed:maxNamed], "…")
	}
	return fmt.Sprintf("the published version of its profile declares: %s", printable(strings.Join(keys, ", ")))
}

// maxNamed is how many commands or parameters a hint names.
const maxNamed = 20

// parameterHint names the parameters of a command, with their types.
func parameterHint(name, schema string) string {
	var declared []struct {
		Name     string
		Kind     *string
		DataType *string
		Required bool
	}
	if json.Unmarshal([]byte(schema), &declared) != nil {
		return ""
	}
	var all []string
	for i, p := range declared {
		if i == maxNamed {
			all = append(all, "…")
			break
		}
		text := p.Name
		switch {
		case p.DataType != nil:
			text += " " + *p.DataType
		case p.Kind != nil:
			text += " " + *p.Kind
		}
		if p.Required {
			text += " (required)"
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return fmt.Sprintf("%s has no parameters", printable(name))
	}
	return printable(fmt.Sprintf("the parameters of %s: %s", name, strings.Join(all, ", ")))
}
