package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// shownPolicy is a notification policy as the API shows it.
type shownPolicy struct {
	Token          string       `json:"token"`
	Name           *string      `json:"name,omitempty"`
	Description    *string      `json:"description,omitempty"`
	Throttle       *int64       `json:"throttleSeconds,omitempty"`
	EscalateAfter  *int64       `json:"escalateAfterSeconds,omitempty"`
	MaxEscalations *int64       `json:"maxEscalations,omitempty"`
	Enabled        bool         `json:"enabled"`
	Rules          []noticeRule `json:"rules"`
	UpdatedAt      string       `json:"updatedAt"`
}

// noticeRule is a rule of a policy. Channel is nil when the channel was deleted.
type noticeRule struct {
	Severity string `json:"severity"`
	Channel  *struct {
		Token   string `json:"token"`
		Enabled bool   `json:"enabled"`
	} `json:"channel"`
	Recipients jsonText `json:"recipients,omitempty"`
}

var shownPolicies = noticeKind[shownPolicy]{list: "policies", typ: "NotificationPolicy", query: "notificationPolicies",
	fields: `token name description throttleSeconds escalateAfterSeconds maxEscalations enabled rules { severity channel { token enabled } recipients } updatedAt`,
	table: func(w io.Writer, rows []shownPolicy) {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "TOKEN\tENABLED\tRULES\tTHROTTLE\tESCALATES\tCHANGED")
		for _, x := range rows {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", x.Token, yesNo(x.Enabled), len(x.Rules), numberText(x.Throttle, "s"), numberText(x.EscalateAfter, "s"), x.UpdatedAt)
		}
		_ = t.Flush()
	}}

func newPolicyList(c *command) *cobra.Command {
	var limit int
	return withLimit(&cobra.Command{
		Use:   "list TENANT",
		Short: "List the notification policies of a tenant, newest first",
		Long: "List the notification policies of a tenant: whether they are enabled, how many rules\n" +
			"they have, the seconds of their throttle and until they escalate, and when they were\n" +
			"last changed.",
		Example: "  weir notify policy list acme",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return shownPolicies.show(cmd.Context(), c, args[0], limit, gqlVars{})
		},
	}, &limit)
}

func newPolicyShow(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "show TENANT TOKEN",
		Short:   "Show a notification policy: its rules and their channels",
		Example: "  weir notify policy show acme plant",
		Args:    exactly("the tenant's token", "the policy's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := inTenant(cmd.Context(), c, args[0], func(a tenantAPI) (*shownPolicy, error) {
				return notice(cmd.Context(), a, &shownPolicies, "policy", args[1])
			})
			if err != nil {
				return err
			}
			c.show(x, x.print)
			return nil
		},
	}
}

func (x *shownPolicy) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "policy\t%s\nname\t%s\nenabled\t%s\nthrottle\t%s\nescalates\t%s\nat most\t%s\nchanged\t%s\n", x.Token, orDash(x.Name), yesNo(x.Enabled), numberText(x.Throttle, "s"),
		numberText(x.EscalateAfter, "s"), numberText(x.MaxEscalations, " times"), x.UpdatedAt)
	_ = t.Flush()
	if len(x.Rules) == 0 {
		fmt.Fprintln(w, "it has no rules: it notifies no one")
	}
	for _, r := range x.Rules {
		to := "a channel that was deleted: delivers nothing"
		if r.Channel != nil {
			if to = "channel " + r.Channel.Token; len(r.Recipients) > 0 {
				to += " to " + printable(string(r.Recipients))
			}
			if !r.Channel.Enabled {
				to += ", which is disabled: delivers nothing"
			}
		}
		fmt.Fprintf(w, "%s: %s\n", r.Severity, to)
	}
}
