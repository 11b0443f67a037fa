package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

const deliveryArea = "command-delivery"

func newCommandGroup(c *command) *cobra.Command {
	return group("command", "Commands to devices", newCommandSend(c), newCommandList(c), newCommandShow(c), newCommandCancel(c))
}

// sentCommand is a command as the API shows it. The names in JSON are those of the API; payloads are JSON themselves.
type sentCommand struct {
	Token     string     `json:"token"`
	Device    string     `json:"deviceToken"`
	Name      string     `json:"name"`
	Payload   jsonText   `json:"payload,omitempty"`
	Status    string     `json:"status"`
	Queued    *time.Time `json:"queuedTime,omitempty"`
	Sent      *time.Time `json:"sentTime,omitempty"`
	Delivered *time.Time `json:"deliveredTime,omitempty"`
	Responded *time.Time `json:"respondedTime,omitempty"`
	Expires   *time.Time `json:"expiresAt,omitempty"`
	Response  jsonText   `json:"responsePayload,omitempty"`
	Error     *string    `json:"error,omitempty"`
	Batch     *string    `json:"batchToken,omitempty"`
	Progress  *string    `json:"progress,omitempty"`
}

// jsonText is JSON that the API shows as text.
type jsonText json.RawMessage

// UnmarshalJSON reads the text.
func (j *jsonText) UnmarshalJSON(b []byte) error {
	var s *string
	if err := json.Unmarshal(b, &s); err != nil || s == nil {
		return err
	}
	*j = jsonText(*s)
	return nil
}

// MarshalJSON writes what the text holds.
func (j jsonText) MarshalJSON() ([]byte, error) { return json.RawMessage(j).MarshalJSON() }

const commandFields = `token deviceToken name payload status queuedTime sentTime deliveredTime respondedTime expiresAt responsePayload error batchToken progress`

func (s *sentCommand) final() bool { return model.CommandState(s.Status).Final() }

func (s *sentCommand) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, value)
		}
	}
	at := func(when *time.Time) string {
		if when == nil {
			return ""
		}
		return when.Local().Format(time.RFC3339)
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	line("command", s.Token)
	line("device", s.Device)
	line("name", s.Name)
	line("payload", string(s.Payload))
	line("status", s.Status)
	line("progress", text(s.Progress))
	line("queued", at(s.Queued))
	line("sent", at(s.Sent))
	line("delivered", at(s.Delivered))
	line("answered", at(s.Responded))
	line("ends", at(s.Expires))
	line("answer", string(s.Response))
	line("error", text(s.Error))
	line("batch", text(s.Batch))
	_ = t.Flush()
}

// waitEvery is how often a waiting send looks at its command.
const waitEvery = 200 * time.Millisecond

func newCommandSend(c *command) *cobra.Command {
	var token, payload string
	var ttl, wait time.Duration
	cmd := &cobra.Command{
		Use:   "send TENANT DEVICE NAME",
		Short: "Send a command to a device",
		Long: "Send a command to a device. One for a device that is not there is held until it is\n" +
			"back, at most for the life of the command (--ttl).\n\n" +
			"With --wait the command waits until the device has answered, and fails unless the\n" +
			"answer is a success. With --token a repeat returns the first command, so that a\n" +
			"send whose result was lost can be repeated.",
		Example: "  weir command send acme boiler-1 setpoint --payload '{\"celsius\":21}' --wait 30s",
		Args:    exactly("the tenant's token", "the device's token", "the command key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			if token == "" {
				var b [8]byte
				_, _ = rand.Read(b[:]) // never fails
				token = "cli-" + hex.EncodeToString(b[:])
			}
			request := gqlVars{"token": token, "deviceToken": args[1], "name": args[2]}
			if payload != "" {
				request["payload"] = payload
			}
			if ttl > 0 {
				request["expiresAt"] = time.Now().Add(ttl).UTC().Format(time.RFC3339Nano)
			}
			api := tenantAPI{op, args[0]}
			sent, err := api.sendCommand(cmd.Context(), request)
			if err != nil {
				return err
			}
			if wait > 0 {
				if sent, err = api.awaitCommand(cmd.Context(), sent, wait); err != nil {
					return err
				}
			}
			c.show(sent, sent.print)
			switch {
			case wait <= 0 || sent.Status == string(model.CommandSuccessful):
				return nil
			case sent.final():
				return &model.Error{Code: model.CodeUnavailable, Message: fmt.Sprintf("the command %s is %s", sent.Token, sent.Status)}
			}
			return &model.Error{Code: model.CodeUnavailable, Message: fmt.Sprintf("the command %s is %s after %s: the device has not answered", sent.Token, sent.Status, wait),
				Hint: fmt.Sprintf("see what becomes of it with: weir command show %s %s", args[0], sent.Token)}
		},
	}
	cmd.Flags().StringVar(&payload, "payload", "", "parameters of the command, JSON")
	cmd.Flags().StringVar(&token, "token", "", "idempotency key (default: a random one)")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "life of the command, at least 1m (default: commands.default_ttl)")
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long for the answer")
	return cmd
}

// sendCommand makes a command. A rejection is an error.
func (a tenantAPI) sendCommand(ctx context.Context, request gqlVars) (*sentCommand, error) {
	var got struct {
		Made struct {
			Command   *sentCommand
			Rejection *struct{ Code, Reason string }
		}
	}
	const document = `mutation($r: CommandCreateRequest!) { made: createCommand(request: $r) { command { ` + commandFields + ` } rejection { code reason } } }`
	if err := a.run(ctx, deliveryArea, document, gqlVars{"r": request}, &got); err != nil {
		return nil, err
	}
	if r := got.Made.Rejection; r != nil {
		return nil, a.rejected(ctx, r.Code, r.Reason, request)
	}
	return got.Made.Command, nil
}

// awaitCommand waits until a command is final, at most for a time, and returns it as it is then.
func (a tenantAPI) awaitCommand(ctx context.Context, sent *sentCommand, wait time.Duration) (*sentCommand, error) {
	end := time.NewTimer(wait)
	defer end.Stop()
	look := time.NewTicker(waitEvery)
	defer look.Stop()
	for !sent.final() {
		select {
		case <-ctx.Done():
			return sent, ctx.Err()
		case <-end.C:
			return a.oneCommand(ctx, sent.Token)
		case <-look.C:
		}
		var err error
		if sent, err = a.oneCommand(ctx, sent.Token); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

func (a tenantAPI) oneCommand(ctx context.Context, token string) (*sentCommand, error) {
	var got struct{ Found []*sentCommand }
	if err := a.run(ctx, deliveryArea, `query($t: [String!]!) { found: commandsByToken(tokens: $t) { `+commandFields+` } }`, gqlVars{"t": []string{token}}, &got); err != nil {
		return nil, err
	}
	if len(got.Found) == 0 {
		e := model.NotFound("command", token)
		e.Hint = "see what there is with: weir command list " + a.tenant
		return nil, e
	}
	return got.Found[0], nil
}

func newCommandShow(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "show TENANT TOKEN",
		Short:   "Show a command and its answer",
		Example: "  weir command show acme cli-5f0d2c9be1a76348",
		Args:    exactly("the tenant's token", "the command's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withCommand(cmd.Context(), args, tenantAPI.oneCommand)
		},
	}
}

func newCommandCancel(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel TENANT TOKEN",
		Short: "Cancel a command that is not sent yet",
		Long: "Cancel a command that is QUEUED, HELD or PARKED. A command that is sent cannot be\n" +
			"taken back: it is shown as it is.",
		Example: "  weir command cancel acme cli-5f0d2c9be1a76348",
		Args:    exactly("the tenant's token", "the command's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withCommand(cmd.Context(), args, func(a tenantAPI, ctx context.Context, token string) (*sentCommand, error) {
				var got struct{ Done *sentCommand }
				err := a.run(ctx, deliveryArea, `mutation($t: String!) { done: cancelCommand(token: $t) { `+commandFields+` } }`, gqlVars{"t": token}, &got)
				return got.Done, err
			})
		},
	}
}

// withCommand shows what an operation returns of a command.
func (c *command) withCommand(ctx context.Context, args []string, do func(tenantAPI, context.Context, string) (*sentCommand, error)) error {
	found, err := inTenant(ctx, c, args[0], func(a tenantAPI) (*sentCommand, error) {
		return do(a, ctx, args[1])
	})
	if err != nil {
		return err
	}
	c.show(found, found.print)
	return nil
}

// commandPage is what a list shows.
type commandPage struct {
	Tenant   string         `json:"tenant"`
	Total    int64          `json:"total"`
	Commands []*sentCommand `json:"commands"`
}

func newCommandList(c *command) *cobra.Command {
	var device, batch, status string
	var limit int
	var names []string
	for _, s := range model.CommandStates() {
		names = append(names, string(s))
	}
	cmd := &cobra.Command{
		Use:     "list TENANT",
		Short:   "List commands, newest first",
		Long:    "List the commands of a tenant, newest first: all of them, or those that the flags select.",
		Example: "  weir command list acme --device boiler-1\n  weir command list acme --status HELD --json",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLimit(limit, operate.MaxDevicePage); err != nil {
				return err
			}
			criteria := gqlVars{"pageNumber": 1, "pageSize": limit}
			for name, value := range map[string]string{"deviceToken": device, "batchToken": batch, "status": status} {
				if value != "" {
					criteria[name] = value
				}
			}
			var got entityPage[*sentCommand]
			const document = `query($c: CommandSearchCriteria!) { found: commands(criteria: $c) { results { ` + commandFields + ` } pagination { totalRecords } } }`
			if err := c.askTenant(cmd.Context(), args[0], deliveryArea, document, gqlVars{"c": criteria}, &got); err != nil {
				return err
			}
			page := &commandPage{args[0], got.Found.Pagination.TotalRecords, append([]*sentCommand{}, got.Found.Results...)}
			c.show(page, page.print)
			return nil
		},
	}
	cmd.Flags().StringVar(&device, "device", "", "of one device")
	cmd.Flags().StringVar(&batch, "batch", "", "of one batch")
	choiceVar(cmd.Flags(), &status, "status", "", names, "in one state: "+strings.Join(names, ", "))
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("at most this many, up to %d", operate.MaxDevicePage))
	return cmd
}

func (p *commandPage) print(w io.Writer) {
	if len(p.Commands) == 0 {
		fmt.Fprintf(w, "tenant %s has no such commands\n", p.Tenant)
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "QUEUED\tDEVICE\tNAME\tSTATUS\tTOKEN")
	for _, s := range p.Commands {
		queued := ""
		if s.Queued != nil {
			queued = s.Queued.Local().Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", queued, s.Device, s.Name, s.Status, s.Token)
	}
	_ = t.Flush()
	printMore(w, len(p.Commands), p.Total)
}
