package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

const notificationArea = "notification-management"

func newNotifyGroup(c *command) *cobra.Command {
	return group("notify", "Notifications of alarms: channels, policies, mutes",
		group("channel", "Channels to people", newChannelList(c), newChannelShow(c), newChannelTest(c)),
		group("policy", "Who is notified of which alarms", newPolicyList(c), newPolicyShow(c)),
		group("mute", "What is not notified for a while", newMuteList(c), newMuteAdd(c), newMuteEnd(c)),
		newStates(c))
}

// noticeKind is what a command of weir notify lists.
type noticeKind[T any] struct {
	list   string // key of the list in JSON, and in text
	typ    string // of the API: typ + "SearchCriteria"
	query  string // of the list
	fields string // what is selected of one
	table  func(w io.Writer, rows []T)
}

// show shows the first entities of a tenant, newest first.
func (k *noticeKind[T]) show(ctx context.Context, c *command, tenant string, limit int, criteria gqlVars) error {
	if err := checkLimit(limit, operate.MaxDevicePage); err != nil {
		return err
	}
	criteria["pageNumber"], criteria["pageSize"] = 1, limit
	var got entityPage[T]
	document := fmt.Sprintf(`query($c: %sSearchCriteria!) { found: %s(criteria: $c) { results { %s } pagination { totalRecords } } }`, k.typ, k.query, k.fields)
	if err := c.askTenant(ctx, tenant, notificationArea, document, gqlVars{"c": criteria}, &got); err != nil {
		return err
	}
	rows, total := append([]T{}, got.Found.Results...), got.Found.Pagination.TotalRecords
	c.show(map[string]any{"tenant": tenant, "total": total, k.list: rows}, func(w io.Writer) {
		if len(rows) == 0 {
			fmt.Fprintf(w, "tenant %s has no notification %s\n", tenant, k.list)
			return
		}
		k.table(w, rows)
		printMore(w, len(rows), total)
	})
	return nil
}

// notice returns a channel, a policy or a mute by its token. what is the command of the kind, and its name in errors.
func notice[T any](ctx context.Context, a tenantAPI, k *noticeKind[T], what, token string) (*T, error) {
	document := fmt.Sprintf(`query($t: [String!]!) { found: %sByToken(tokens: $t) { %s } }`, k.query, k.fields)
	var got struct{ Found []T }
	if err := a.run(ctx, notificationArea, document, gqlVars{"t": []string{token}}, &got); err != nil {
		return nil, err
	}
	if len(got.Found) == 0 {
		missing := model.NotFound("notification "+what, token)
		missing.Hint = fmt.Sprintf("see what there is with: weir notify %s list %s", what, a.tenant)
		return nil, missing
	}
	return &got.Found[0], nil
}

// withLimit adds --limit of a list.
func withLimit(cmd *cobra.Command, limit *int) *cobra.Command {
	cmd.Flags().IntVar(limit, "limit", 50, fmt.Sprintf("at most this many, up to %d", operate.MaxDevicePage))
	return cmd
}

// numberText is a number with its unit, - where there is none.
func numberText(n *int64, unit string) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%d%s", *n, unit)
}

// shownState is what was notified of an alarm, as the API shows it.
type shownState struct {
	Alarm         string  `json:"alarmToken"`
	Key           string  `json:"alarmKey"`
	Severity      string  `json:"severity"`
	First         *string `json:"firstNotifiedAt,omitempty"`
	Last          *string `json:"lastNotifiedAt,omitempty"`
	Count         int64   `json:"notifyCount"`
	Acknowledged  *string `json:"acknowledgedAt,omitempty"`
	Cleared       *string `json:"clearedAt,omitempty"`
	Level         int64   `json:"escalationLevel"`
	LastEscalated *string `json:"lastEscalatedAt,omitempty"`
}

var shownStates = noticeKind[shownState]{list: "states", typ: "NotificationState", query: "notificationStates",
	fields: `alarmToken alarmKey severity firstNotifiedAt lastNotifiedAt notifyCount acknowledgedAt clearedAt escalationLevel lastEscalatedAt`,
	table: func(w io.Writer, rows []shownState) {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "ALARM\tSEVERITY\tNOTIFIED\tLAST\tLEVEL\tACKNOWLEDGED\tCLEARED\tTOKEN")
		for _, x := range rows {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\n", printable(x.Key), x.Severity, x.Count, orDash(x.Last), x.Level, orDash(x.Acknowledged), orDash(x.Cleared), x.Alarm)
		}
		_ = t.Flush()
	}}

func newStates(c *command) *cobra.Command {
	var limit int
	var alarm, severity string
	cmd := &cobra.Command{
		Use:   "states TENANT",
		Short: "Show what was notified of which alarms, newest first",
		Long: "Show what was notified of the alarms of a tenant: how often, when last, and at which\n" +
			"level of escalation. It is kept for a week after the alarm was cleared\n" +
			"(notifications.state_retention).",
		Example: "  weir notify states acme\n  weir notify states acme --severity CRITICAL --json",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			criteria := gqlVars{}
			if alarm != "" {
				criteria["alarmKey"] = alarm
			}
			if severity != "" {
				criteria["severity"] = severity
			}
			return shownStates.show(cmd.Context(), c, args[0], limit, criteria)
		},
	}
	cmd.Flags().StringVar(&alarm, "alarm", "", "of one alarm key")
	choiceVar(cmd.Flags(), &severity, "severity", "", model.AlarmSeverities(), "of one severity")
	return withLimit(cmd, &limit)
}
