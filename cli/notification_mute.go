package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
)

// shownMute is a mute as the API shows it.
type shownMute struct {
	Token    string  `json:"token"`
	AlarmKey *string `json:"alarmKey,omitempty"`
	Device   *string `json:"deviceToken,omitempty"`
	Group    *string `json:"groupToken,omitempty"`
	Severity *string `json:"severity,omitempty"`
	Until    string  `json:"until"`
	Reason   *string `json:"reason,omitempty"`
	By       string  `json:"createdBy"`
	HeldBack int64   `json:"heldBack"`
	EndedAt  *string `json:"endedAt,omitempty"`
}

var shownMutes = noticeKind[shownMute]{list: "mutes", typ: "NotificationMute", query: "notificationMutes",
	fields: `token alarmKey deviceToken groupToken severity until reason createdBy heldBack endedAt`,
	table: func(w io.Writer, rows []shownMute) {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "TOKEN\tMATCHES\tUNTIL\tENDED\tHELD BACK\tBY\tREASON")
		for _, x := range rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", x.Token, x.matches(), x.Until, orDash(x.EndedAt), x.HeldBack, printable(x.By), orDash(x.Reason))
		}
		_ = t.Flush()
	}}

// matches says which alarms a mute matches.
func (x *shownMute) matches() string {
	var parts []string
	for _, m := range []struct {
		name  string
		value *string
	}{{"alarm", x.AlarmKey}, {"device", x.Device}, {"group", x.Group}, {"severity", x.Severity}} {
		if m.value != nil {
			parts = append(parts, m.name+" "+printable(*m.value))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "all")
}

func newMuteList(c *command) *cobra.Command {
	var limit int
	return withLimit(&cobra.Command{
		Use:   "list TENANT",
		Short: "List the notification mutes of a tenant, newest first",
		Long: "List the notification mutes of a tenant: which alarms they match, until when, by whom\n" +
			"and why, and how many messages they have held back. Those that have ended are\n" +
			"listed until they are deleted.",
		Example: "  weir notify mute list acme",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return shownMutes.show(cmd.Context(), c, args[0], limit, gqlVars{})
		},
	}, &limit)
}

// muteFlags are the options of a new mute.
type muteFlags struct {
	alarm, device, group, severity string
	all                            bool
	span                           time.Duration
	until, reason                  string
}

// end is when the mute ends.
func (f *muteFlags) end(now time.Time) (time.Time, error) {
	switch {
	case (f.span != 0) == (f.until != ""):
		return now, usageError{errors.New("give --for, such as --for 4h, or --until")}
	case f.until != "":
		at, err := model.ParseTime(f.until)
		if err != nil {
			return now, usageError{fmt.Errorf("--until: %q is no time such as 2030-01-01T08:00:00Z", f.until)}
		}
		return at, nil
	case f.span < 0:
		return now, usageError{errors.New("--for must be positive")}
	}
	return now.Add(f.span), nil
}

// request is the request of the API.
func (f *muteFlags) request(token string, now time.Time) (gqlVars, error) {
	end, err := f.end(now)
	if err != nil {
		return nil, err
	}
	r := gqlVars{"token": token, "until": end.UTC().Format(time.RFC3339Nano)}
	for name, value := range map[string]string{"alarmKey": f.alarm, "deviceToken": f.device, "groupToken": f.group, "severity": f.severity} {
		if value != "" {
			r[name] = value
		}
	}
	if matches := len(r) > 2; matches == f.all {
		return nil, usageError{errors.New("give what the mute matches, with --alarm, --device, --group or --severity, or --all for every alarm of the tenant")}
	}
	if f.reason != "" {
		r["reason"] = f.reason
	}
	return r, nil
}

func newMuteAdd(c *command) *cobra.Command {
	var f muteFlags
	cmd := &cobra.Command{
		Use:   "add TENANT TOKEN",
		Short: "Hold messages back for a while",
		Long: "Hold the notifications of some alarms back for a while. A mute matches alarms that have\n" +
			"all that the options name, and changes no alarm. At its end one message to each\n" +
			"channel lists the alarms that it held back and that are still active and not\n" +
			"acknowledged.",
		Example: "  weir notify mute add acme pump-work --device pump-1 --for 4h --reason 'new seals'\n  weir notify mute add acme freeze --all --until 2030-01-01T08:00:00Z",
		Args:    exactly("the tenant's token", "the mute's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := f.request(args[1], time.Now())
			if err != nil {
				return err
			}
			var got struct{ Made shownMute }
			document := `mutation($r: NotificationMuteCreateRequest!) { made: createNotificationMute(request: $r) { ` + shownMutes.fields + ` } }`
			if err := c.askTenant(cmd.Context(), args[0], notificationArea, document, gqlVars{"r": request}, &got); err != nil {
				return err
			}
			c.show(&got.Made, func(w io.Writer) {
				fmt.Fprintf(w, "mute %s holds messages back until %s: %s\n", got.Made.Token, got.Made.Until, got.Made.matches())
			})
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.alarm, "alarm", "", "alarms with this `KEY`")
	fs.StringVar(&f.device, "device", "", "alarms of this device")
	fs.StringVar(&f.group, "group", "", "alarms of the devices of this static `GROUP`")
	choiceVar(fs, &f.severity, "severity", "", model.AlarmSeverities(), "alarms of this severity")
	fs.BoolVar(&f.all, "all", false, "every alarm of the tenant")
	spanVar(fs, &f.span, "for", 0, "how long, such as 4h or 2d")
	fs.StringVar(&f.until, "until", "", "the `TIME` at which it ends, such as 2030-01-01T08:00:00Z")
	fs.StringVar(&f.reason, "reason", "", "why, as people read it")
	return cmd
}

func newMuteEnd(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "end TENANT TOKEN",
		Short: "End a mute now",
		Long: "End a mute now, instead of at its time. What it held back and is still active is\n" +
			"notified within a minute. It stays listed. One that has ended already stays as it is.",
		Example: "  weir notify mute end acme pump-work",
		Args:    exactly("the tenant's token", "the mute's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			api := tenantAPI{op, args[0]}
			x, err := notice(cmd.Context(), api, &shownMutes, "mute", args[1])
			if err != nil {
				return err
			}
			if until, err := model.ParseTime(x.Until); x.EndedAt == nil && (err != nil || until.After(time.Now())) {
				var got struct{ Ended shownMute }
				document := `mutation($t: String!, $r: NotificationMuteUpdateRequest!) { ended: updateNotificationMute(token: $t, request: $r) { ` + shownMutes.fields + ` } }`
				request := gqlVars{"until": time.Now().UTC().Format(time.RFC3339Nano)}
				if err := api.run(cmd.Context(), notificationArea, document, gqlVars{"t": args[1], "r": request}, &got); err != nil {
					return err
				}
				x = &got.Ended
			}
			c.show(x, func(w io.Writer) {
				fmt.Fprintf(w, "mute %s ended at %s, it held back %s\n", x.Token, x.Until, count(int(x.HeldBack), "message"))
			})
			return nil
		},
	}
}
