package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func newType(c *command) *cobra.Command {
	return group("type", "Device types of a tenant", newTypeList(c), newTypeShow(c))
}

var typeKind = listedKind{command: "type", name: "device type", query: "deviceTypes", criteria: "DeviceTypeSearchCriteria",
	details: "token name description manufacturer model createdAt updatedAt profile { token }"}

// typeRow is a device type. The names are those of the API.
type typeRow struct {
	Token        string     `json:"token"`
	Name         *string    `json:"name"`
	Description  *string    `json:"description,omitempty"`
	Manufacturer *string    `json:"manufacturer,omitempty"`
	Model        *string    `json:"model,omitempty"`
	Profile      *string    `json:"profileToken"` // null: its devices have no capabilities
	CreatedAt    *time.Time `json:"createdAt"`
	UpdatedAt    *time.Time `json:"updatedAt"`
}

// UnmarshalJSON reads what the API answers.
func (t *typeRow) UnmarshalJSON(b []byte) error {
	type fields typeRow
	var in struct {
		fields
		Nested *struct{ Token string } `json:"profile"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if *t = typeRow(in.fields); in.Nested != nil {
		t.Profile = &in.Nested.Token
	}
	return nil
}

func newTypeList(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "list TENANT",
		Short:   "List the device types of a tenant",
		Long:    "List the device types of a tenant, newest first, with the profile of each.",
		Example: "  weir type list acme",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := inTenant(cmd.Context(), c, args[0], func(a tenantAPI) ([]typeRow, error) {
				return listAll[typeRow](cmd.Context(), a, typeKind.query, typeKind.criteria, typeKind.details, nil)
			})
			if err != nil {
				return err
			}
			c.show(map[string]any{"total": len(all), "types": all}, func(w io.Writer) { printTypes(w, all) })
			return nil
		},
	}
}

func printTypes(w io.Writer, all []typeRow) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no device types")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tNAME\tPROFILE\tMANUFACTURER\tMODEL")
	for i := range all {
		d := &all[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", d.Token, orDash(d.Name), orDash(d.Profile), orDash(d.Manufacturer), orDash(d.Model))
	}
	_ = t.Flush() // the reader has gone
}

func newTypeShow(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "show TENANT TYPE",
		Short:   "Show a device type",
		Example: "  weir type show acme boiler",
		Args:    exactly("the tenant's token", "the type's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := inTenant(cmd.Context(), c, args[0], func(a tenantAPI) (*typeRow, error) {
				return byToken[typeRow](cmd.Context(), a, typeKind, args[1])
			})
			if err != nil {
				return err
			}
			c.show(d, func(w io.Writer) { printType(w, d) })
			return nil
		},
	}
}

func printType(w io.Writer, d *typeRow) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range []struct {
		name  string
		value *string
	}{{"token", &d.Token}, {"name", d.Name}, {"description", d.Description}, {"profile", d.Profile}, {"manufacturer", d.Manufacturer}, {"model", d.Model}} {
		fmt.Fprintf(t, "%s\t%s\n", f.name, orDash(f.value))
	}
	fmt.Fprintf(t, "made\t%s, changed %s\n", timeText(d.CreatedAt), timeText(d.UpdatedAt))
	_ = t.Flush() // the reader has gone
}
