package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
)

func newProfile(c *command) *cobra.Command {
	return group("profile", "Device profiles of a tenant", newProfileList(c), newProfileShow(c))
}

var profileKind = listedKind{command: "profile", name: "device profile", query: "deviceProfiles", criteria: "DeviceProfileSearchCriteria",
	details: "token name description category activeVersion deviceTypeCount createdAt updatedAt " +
		"metricDefinitions { token metricKey dataType unit minValue maxValue outOfRange sourceNames } detectionRules { token name enabled definition }"}

// only is the kind with another selection.
func (k listedKind) only(selection string) listedKind {
	k.details = selection
	return k
}

// profileRow is a profile. The names are those of the API.
type profileRow struct {
	Token         string        `json:"token"`
	Name          *string       `json:"name"`
	Description   *string       `json:"description,omitempty"`
	Category      *string       `json:"category,omitempty"`
	ActiveVersion *int          `json:"activeVersion"` // null: never published
	TypeCount     int           `json:"deviceTypeCount"`
	CreatedAt     *time.Time    `json:"createdAt"`
	UpdatedAt     *time.Time    `json:"updatedAt"`
	Metrics       []metricRow   `json:"metricDefinitions"`
	Rules         []profileRule `json:"detectionRules"`
}

type metricRow struct {
	Token    string   `json:"token"`
	Metric   string   `json:"metricKey"`
	DataType string   `json:"dataType"`
	Unit     *string  `json:"unit,omitempty"`
	Min      *float64 `json:"minValue,omitempty"`
	Max      *float64 `json:"maxValue,omitempty"`
	// OutOfRange is what becomes of a value outside the range.
	OutOfRange string `json:"outOfRange"`
	// SourceNames are the other names under which devices send the metric.
	SourceNames []string `json:"sourceNames,omitempty"`
}

type profileRule struct {
	Token      string  `json:"token"`
	Name       *string `json:"name"`
	Enabled    bool    `json:"enabled"`
	Definition string  `json:"definition"`
}

func newProfileList(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "list TENANT",
		Short: "List the device profiles of a tenant",
		Long: "List the device profiles of a tenant, newest first: the active version (- for a\n" +
			"profile that was never published), and how many metrics, rules and device types\n" +
			"it has.",
		Example: "  weir profile list acme",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := inTenant(cmd.Context(), c, args[0], func(a tenantAPI) ([]profileRow, error) {
				return listAll[profileRow](cmd.Context(), a, profileKind.query, profileKind.criteria, profileKind.details, nil)
			})
			if err != nil {
				return err
			}
			c.show(map[string]any{"total": len(all), "profiles": all}, func(w io.Writer) { printProfiles(w, all) })
			return nil
		},
	}
}

func printProfiles(w io.Writer, all []profileRow) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no profiles")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tNAME\tVERSION\tMETRICS\tRULES\tTYPES")
	for i := range all {
		p := &all[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\n", p.Token, orDash(p.Name), versionText(p.ActiveVersion), len(p.Metrics), len(p.Rules), p.TypeCount)
	}
	_ = t.Flush() // the reader has gone
}

func versionText(v *int) string {
	if v == nil {
		return "-"
	}
	return strconv.Itoa(*v)
}

func newProfileShow(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "show TENANT PROFILE",
		Short:   "Show a device profile with its metrics and rules",
		Long:    "Show the draft of a device profile: its metrics with unit and range, and its\nrules. Only the active published version affects devices.",
		Example: "  weir profile show acme boiler",
		Args:    exactly("the tenant's token", "the profile's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := inTenant(cmd.Context(), c, args[0], func(a tenantAPI) (*profileRow, error) {
				return byToken[profileRow](cmd.Context(), a, profileKind, args[1])
			})
			if err != nil {
				return err
			}
			c.show(p, func(w io.Writer) { printProfile(w, p) })
			return nil
		},
	}
}

func printProfile(w io.Writer, p *profileRow) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "token\t%s\nname\t%s\nactive version\t%s\ndevice types\t%d\n", p.Token, orDash(p.Name), versionText(p.ActiveVersion), p.TypeCount)
	for i := range p.Metrics {
		m := &p.Metrics[i]
		fmt.Fprintf(t, "metric\t%s  %s%s\n", printable(m.Metric), m.DataType, m.text())
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		var def struct{ Type, Severity string }
		_ = json.Unmarshal([]byte(r.Definition), &def) // a draft may hold anything; then kind and severity are not shown
		state := ""
		if !r.Enabled {
			state = "  (disabled)"
		}
		fmt.Fprintf(t, "rule\t%s  %s %s%s\n", r.Token, printable(def.Type), printable(def.Severity), state)
	}
	_ = t.Flush() // the reader has gone
}

// text is the unit and the range of a metric.
func (m *metricRow) text() string {
	text := ""
	if m.Unit != nil {
		text += " in " + printable(*m.Unit)
	}
	if m.Min != nil {
		text += fmt.Sprintf(", from %v", *m.Min)
	}
	if m.Max != nil {
		text += fmt.Sprintf(", up to %v", *m.Max)
	}
	switch {
	case m.Min == nil && m.Max == nil:
	case m.OutOfRange == model.OutOfRangeRefuse:
		text += ", values outside are refused"
	case m.OutOfRange == model.OutOfRangeClamp:
		text += ", values outside are clamped"
	}
	if len(m.SourceNames) > 0 {
		text += ", sent as " + printable(strings.Join(m.SourceNames, ", "))
	}
	return text
}
