package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/model"
	"weir/operate"
)

func newAPI(c *command) *cobra.Command {
	var tenant, variables string
	ofTenants, ofInstance, resting := app.AreaNames()
	areas := slices.Concat(ofTenants, ofInstance)
	cmd := &cobra.Command{
		Use:   "api AREA QUERY",
		Short: "Run a GraphQL document as the local operator",
		Long: "Run a GraphQL query or mutation of an area as the local operator, without a\n" +
			"token, and print its data as JSON. QUERY is the document, - for stdin, or @ and\n" +
			"the name of a file. Without --tenant the command uses the only tenant that\n" +
			"there is. Errors go to stderr with their codes, and the exit code is 6.\n\n" +
			wrapped("The areas are "+strings.Join(ofTenants, ", ")+", and those of the instance, which take no tenant: "+strings.Join(ofInstance, ", ")+
				". In a data directory that no instance uses, the command serves "+strings.Join(resting, ", ")+"."),
		Example: "  weir api user-management-admin '{tenants{token enabled tier{token}}}'\n" +
			"  weir api device-management '{devices(criteria:{pageNumber:1,pageSize:10}){results{token name}}}'\n" +
			"  weir api event-processing @health.graphql --tenant acme --variables '{\"profile\":\"boiler\"}'",
		Args:      exactly("the area ("+strings.Join(areas, ", ")+")", "the query (- is stdin, @FILE a file)"),
		ValidArgs: areas,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := operate.GraphQLRequest{Area: args[0], Tenant: tenant}
			var err error
			if q.Query, err = c.document(args[1]); err != nil {
				return err
			}
			if q.Variables, err = c.variables(variables); err != nil {
				return err
			}
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			return c.runDocument(cmd.Context(), op, q)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "run it in this tenant (default: the only one)")
	cmd.Flags().StringVar(&variables, "variables", "", "variables as a JSON object, - for stdin, or @FILE")
	return cmd
}

func (c *command) runDocument(ctx context.Context, op operate.Target, q operate.GraphQLRequest) (err error) {
	if _, instance, _ := app.AreaNames(); q.Tenant == "" && !slices.Contains(instance, q.Area) {
		if q.Tenant, err = onlyTenant(ctx, op); err != nil {
			return err
		}
	}
	resp, err := operate.RunGraphQL.Ask(ctx, op, q)
	if err != nil {
		return err
	}
	if len(resp.Data) > 0 && string(resp.Data) != "null" {
		c.writeJSON(c.io.Stdout, resp.Data)
	}
	for _, hint := range resp.Extensions.Hints {
		c.note("hint: %s", hint)
	}
	return resp.Refusal()
}

// wrapped breaks a text of words into lines of a help text.
func wrapped(text string) string {
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > 79:
			out.WriteByte('\n')
			column = 0
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += len(word)
	}
	return out.String()
}

// onlyTenant is the tenant of an instance that has one.
func onlyTenant(ctx context.Context, op operate.Target) (string, error) {
	all, err := operate.ListTenants.Ask(ctx, op, operate.None{})
	if err != nil {
		return "", err
	}
	if len(all) == 1 {
		return all[0].Token, nil
	}
	return "", usageError{fmt.Errorf("--tenant is missing: there are %d tenants, see weir tenant list", len(all))}
}

// maxDocument bounds what is read from stdin or a file for one argument.
const maxDocument = 4 << 20

// document is an argument that may stand in a file: - is stdin, @FILE a file.
func (c *command) document(text string) (string, error) {
	in := c.io.Stdin
	file, named := strings.CutPrefix(text, "@")
	switch {
	case named:
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	case text != "-":
		return text, nil
	}
	b, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err == nil && len(b) > maxDocument {
		err = model.Errorf(model.CodeLimitExceeded, "%s is larger than %d MiB", cmp.Or(file, "stdin"), maxDocument>>20)
	}
	return string(b), err
}

func (c *command) variables(text string) (map[string]any, error) {
	if text == "" {
		return nil, nil
	}
	text, err := c.document(text)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // a large whole number stays what it is
	var v map[string]any
	if err := d.Decode(&v); err != nil || v == nil || d.More() {
		return nil, usageError{errors.New(`--variables must be one JSON object, such as {"token":"boiler-1"}`)}
	}
	return v, nil
}
