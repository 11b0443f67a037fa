package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// shownChannel is a notification channel as the API shows it.
type shownChannel struct {
	Token       string   `json:"token"`
	Name        *string  `json:"name,omitempty"`
	Description *string  `json:"description,omitempty"`
	Type        string   `json:"channelType"`
	Config      jsonText `json:"config,omitempty"`
	HasSecret   bool     `json:"hasSecret"`
	Enabled     bool     `json:"enabled"`
	UpdatedAt   string   `json:"updatedAt"`
}

var shownChannels = noticeKind[shownChannel]{list: "channels", typ: "NotificationChannel", query: "notificationChannels",
	fields: `token name description channelType config hasSecret enabled updatedAt`,
	table: func(w io.Writer, rows []shownChannel) {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "TOKEN\tTYPE\tENABLED\tSECRET\tCHANGED")
		for _, x := range rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", x.Token, x.Type, yesNo(x.Enabled), yesNo(x.HasSecret), x.UpdatedAt)
		}
		_ = t.Flush()
	}}

func newChannelList(c *command) *cobra.Command {
	var limit int
	return withLimit(&cobra.Command{
		Use:   "list TENANT",
		Short: "List the notification channels of a tenant, newest first",
		Long: "List the notification channels of a tenant: their type, whether they are enabled,\n" +
			"whether a secret is stored, and when they were last changed.",
		Example: "  weir notify channel list acme",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return shownChannels.show(cmd.Context(), c, args[0], limit, gqlVars{})
		},
	}, &limit)
}

func newChannelShow(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "show TENANT TOKEN",
		Short:   "Show a notification channel",
		Example: "  weir notify channel show acme duty",
		Args:    exactly("the tenant's token", "the channel's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := inTenant(cmd.Context(), c, args[0], func(a tenantAPI) (*shownChannel, error) {
				return notice(cmd.Context(), a, &shownChannels, "channel", args[1])
			})
			if err != nil {
				return err
			}
			c.show(x, x.print)
			return nil
		},
	}
}

func (x *shownChannel) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "channel\t%s\nname\t%s\ntype\t%s\nenabled\t%s\nsecret\t%s\nconfig\t%s\nchanged\t%s\n", x.Token, orDash(x.Name), x.Type, yesNo(x.Enabled), yesNo(x.HasSecret),
		printable(string(x.Config)), x.UpdatedAt)
	_ = t.Flush()
	if !x.Enabled {
		fmt.Fprintln(w, "it is disabled: nothing is delivered over it")
	}
}

func newChannelTest(c *command) *cobra.Command {
	var to []string
	cmd := &cobra.Command{
		Use:   "test TENANT TOKEN",
		Short: "Send a message over a notification channel",
		Long: "Send one marked message over a notification channel, with its stored config and\n" +
			"secret, as a notification would: through the destination guard and the ceiling of\n" +
			"the tenant. It is sent over a disabled channel, too. A mail needs a recipient. At\n" +
			"most six a minute for a tenant.",
		Example: "  weir notify channel test acme duty --to ann@example.com",
		Args:    exactly("the tenant's token", "the channel's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v := gqlVars{"t": args[1]}
			if len(to) > 0 {
				recipients, err := json.Marshal(to)
				if err != nil {
					return err
				}
				v["r"] = string(recipients)
			}
			var got struct{ Done connectorTest }
			const document = `mutation($t: String!, $r: String) { done: testNotificationChannel(token: $t, recipients: $r) { ok outcome detail elapsedMs } }`
			if err := c.askTenant(cmd.Context(), args[0], notificationArea, document, v, &got); err != nil {
				return err
			}
			return c.showTest(&got.Done)
		},
	}
	cmd.Flags().StringArrayVar(&to, "to", nil, "a `RECIPIENT`; may be repeated")
	return cmd
}
