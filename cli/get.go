package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newGet(c *command) *cobra.Command {
	var q operate.SiteSelection
	var output string
	tenants, instance := operate.SiteKinds()
	kinds := slices.Concat(tenants, instance)
	cmd := &cobra.Command{
		Use:   "get KIND [TOKEN]",
		Short: "List the entities of any kind, or show one of them as a site file does",
		Long: "List the entities of a kind, or show one of them with everything that a site\n" +
			"file declares of it, and no secret. Without --tenant the command uses the only\n" +
			"tenant that there is. -o yaml writes a site file, which can be edited and applied.\n\n" +
			wrapped("The kinds of a tenant are "+strings.Join(tenants, ", ")+"; those of the instance are "+strings.Join(instance, ", ")+"."),
		Example: "  weir get devices\n  weir get deviceProfiles boiler --tenant acme\n  weir get connectors -o yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usageError{fmt.Errorf("needs the kind (%s), and may name the token of one", strings.Join(kinds, ", "))}
			}
			return nil
		},
		ValidArgs: kinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "yaml" {
				return usageError{fmt.Errorf("-o %s: the only format besides --json is yaml", output)}
			}
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			if q.Kind = args[0]; len(args) > 1 {
				q.Name = args[1]
			}
			if q.Tenant == "" && !operate.KindOfInstance(q.Kind) {
				if q.Tenant, err = onlyTenant(cmd.Context(), op); err != nil {
					return err
				}
			}
			got, err := operate.GetEntities.Ask(cmd.Context(), op, q)
			if err != nil {
				return err
			}
			c.show(got, func(w io.Writer) {
				if output == "yaml" || q.Name != "" {
					fmt.Fprint(w, got.YAML)
					return
				}
				printGot(w, got)
			})
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Tenant, "tenant", "", "of this tenant (default: the only one)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "yaml: write a site file")
	return cmd
}

// printGot prints a line for each entity: its name, how it is called, and what is declared inside of it.
func printGot(w io.Writer, got *operate.Got) {
	if len(got.Entities) == 0 {
		fmt.Fprintf(w, "there are no %s\n", got.Kind)
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tNAME\tINSIDE")
	for _, e := range got.Entities {
		var inside []string
		for _, list := range slices.Sorted(maps.Keys(e.Inside)) {
			inside = append(inside, fmt.Sprintf("%d %s", len(e.Inside[list]), list))
		}
		name, _ := e.Fields["name"].(string)
		name, list := printable(name), strings.Join(inside, ", ")
		fmt.Fprintf(t, "%s\t%s\t%s\n", e.Name, orDash(&name), orDash(&list))
	}
	_ = t.Flush()
}

func newDescribe(c *command) *cobra.Command {
	var tenant string
	device := &cobra.Command{
		Use:     "device TOKEN",
		Short:   "Show the state of a device, as weir device show does",
		Example: "  weir describe device boiler-1",
		Args:    exactly("the device's token"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			if tenant == "" {
				if tenant, err = onlyTenant(cmd.Context(), op); err != nil {
					return err
				}
			}
			return c.describeDevice(cmd.Context(), op, tenant, args[0])
		},
	}
	device.Flags().StringVar(&tenant, "tenant", "", "of this tenant (default: the only one)")
	return group("describe", "What is known of one thing", device)
}
