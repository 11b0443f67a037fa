package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

func newDeviceShow(c *command) *cobra.Command {
	var commands bool
	cmd := &cobra.Command{
		Use:   "show TENANT TOKEN",
		Short: "Show the state of a device",
		Long: "Show a device: its fields, its credentials without their secrets, its presence,\n" +
			"the latest value of each metric, the rules that fired last, and the newest dead\n" +
			"letters that name it.\n" +
			"Without a running instance, the values are as of the last stop.",
		Example: "  weir device show acme boiler-1",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if commands {
				return &model.Error{Code: model.CodeUnsupported, Message: "the commands need the access token, which cannot be shown again",
					Hint: fmt.Sprintf("make a new one, which ends the old: weir device rotate %s %s --print-commands", args[0], args[1])}
			}
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			return c.describeDevice(cmd.Context(), op, args[0], args[1])
		},
	}
	cmd.Flags().BoolVar(&commands, "print-commands", false, "not possible: the secret is shown once; see weir device rotate")
	return cmd
}

func (c *command) describeDevice(ctx context.Context, op operate.Target, tenant, token string) error {
	d, err := tenantAPI{op, tenant}.showDevice(ctx, token)
	if err != nil {
		return err
	}
	c.show(d, func(w io.Writer) { printDetails(w, d) })
	c.noteLag(ctx, op)
	return nil
}

// deviceDetails is all that is known of a device but its secrets.
type deviceDetails struct {
	deviceSummary
	Description    *string              `json:"description"`
	Metadata       *string              `json:"metadata"`
	CreatedAt      time.Time            `json:"createdAt"`
	UpdatedAt      time.Time            `json:"updatedAt"`
	LastConnect    *time.Time           `json:"lastConnectTime,omitempty"`
	LastDisconnect *time.Time           `json:"lastDisconnectTime,omitempty"`
	Source         string               `json:"source,omitempty"` // event source that was heard last
	Credentials    []credential         `json:"credentials"`
	Latest         []latestValue        `json:"latest"`
	Location       *location            `json:"location,omitempty"`
	Firings        []operate.Firing     `json:"firings"`     // the newest few
	DeadLetters    []operate.DeadLetter `json:"deadLetters"` // the newest few that name the device
}

// credential is one without its secrets.
type credential struct {
	Token string `json:"token"`
	Type  string `json:"credentialType"`
	// ID is the user name or the certificate's hash; that of an access token is the secret itself and is not shown.
	ID        string     `json:"credentialId,omitempty"`
	Enabled   bool       `json:"enabled"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
}

// latestValue is the newest value of a metric.
type latestValue struct {
	Metric   string    `json:"name"`
	Value    float64   `json:"value"`
	Unit     string    `json:"unit,omitempty"`
	Mark     string    `json:"outOfRange,omitempty"` // FLAGGED or CLAMPED
	Stale    bool      `json:"stale,omitempty"`      // the device is absent by assertion
	Occurred time.Time `json:"occurredTime"`
	Received time.Time `json:"receivedTime"`
}

// location is the newest position; a coordinate that the device did not give is null.
type location struct {
	Latitude  *float64  `json:"latitude"`
	Longitude *float64  `json:"longitude"`
	Occurred  time.Time `json:"occurredTime"`
}

// How many dead letters and firings of a device are shown.
const (
	shownDeadLetters = 5
	shownFirings     = 5
)

// showDevice gathers what is known of a device.
func (a tenantAPI) showDevice(ctx context.Context, token string) (*deviceDetails, error) {
	const document = `query($token: String!) { devicesByToken(tokens: [$token]) {
		token name externalId deviceType { token } description metadata createdAt updatedAt
	} }`
	var found struct {
		DevicesByToken []struct {
			deviceRow
			Description, Metadata *string
			CreatedAt, UpdatedAt  time.Time
		}
	}
	if err := a.run(ctx, deviceArea, document, gqlVars{"token": token}, &found); err != nil {
		return nil, err
	}
	if len(found.DevicesByToken) == 0 {
		return nil, a.located(model.NotFound("device", token), "")
	}
	d := found.DevicesByToken[0]
	states, err := a.states(ctx, []string{token})
	if err != nil {
		return nil, err
	}
	out := &deviceDetails{deviceSummary: d.summary(states[token]), Description: d.Description, Metadata: d.Metadata, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt}
	if s := states[token]; s != nil {
		out.LastConnect, out.LastDisconnect = s.LastConnectTime, s.LastDisconnectTime
		if s.Source != nil {
			out.Source = *s.Source
		}
	}
	if out.Credentials, err = a.credentials(ctx, token); err != nil {
		return nil, err
	}
	if err := a.latest(ctx, token, out); err != nil {
		return nil, err
	}
	fired, err := operate.ListFirings.Ask(ctx, a.to, operate.FiringQuery{Tenant: a.tenant, Device: token, Limit: shownFirings})
	if err != nil {
		return nil, err
	}
	out.Firings = fired.Firings
	out.DeadLetters, err = operate.ListDeadLetters.Ask(ctx, a.to, operate.DeadLetterQuery{Tenant: &a.tenant, Device: &token, Limit: shownDeadLetters})
	return out, err
}

// latest adds what was heard of a device last.
func (a tenantAPI) latest(ctx context.Context, token string, out *deviceDetails) error {
	const document = `query($token: String!) {
		latestMeasurements(deviceToken: $token) { name value unit outOfRange stale occurredTime updatedAt }
		latestLocation(deviceToken: $token) { latitude longitude occurredTime }
	}`
	var found struct {
		LatestMeasurements []struct {
			Name         string
			Value        float64
			Unit         *string
			OutOfRange   string
			Stale        bool
			OccurredTime time.Time
			UpdatedAt    time.Time
		}
		LatestLocation *struct {
			Latitude, Longitude *float64
			OccurredTime        time.Time
		}
	}
	if err := a.run(ctx, stateArea, document, gqlVars{"token": token}, &found); err != nil {
		return err
	}
	out.Latest = make([]latestValue, len(found.LatestMeasurements))
	for i, m := range found.LatestMeasurements {
		out.Latest[i] = latestValue{Metric: m.Name, Value: m.Value, Mark: m.OutOfRange, Stale: m.Stale, Occurred: m.OccurredTime, Received: m.UpdatedAt}
		if m.Unit != nil {
			out.Latest[i].Unit = *m.Unit
		}
	}
	if l := found.LatestLocation; l != nil {
		out.Location = &location{l.Latitude, l.Longitude, l.OccurredTime}
	}
	return nil
}

func printDetails(w io.Writer, d *deviceDetails) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("token", "%s", d.Token)
	row("type", "%s", d.Type)
	for _, f := range []struct {
		name  string
		value *string
	}{{"name", d.Name}, {"description", d.Description}, {"external id", d.ExternalID}, {"metadata", d.Metadata}} {
		if f.value != nil {
			row(f.name, "%s", orDash(f.value))
		}
	}
	row("made", "%s, changed %s", timeText(&d.CreatedAt), timeText(&d.UpdatedAt))
	row("presence", "%s", presenceText(d))
	for i := range d.Credentials {
		row("credential", "%s", credentialText(&d.Credentials[i]))
	}
	for i := range d.Latest {
		v := &d.Latest[i]
		unit := ""
		if v.Unit != "" {
			unit = " " + v.Unit
		}
		mark := ""
		if v.Mark != "" {
			mark = ", out of range (" + strings.ToLower(v.Mark) + ")"
		}
		if v.Stale {
			mark += ", stale: the device is absent"
		}
		row("latest", "%s = %v%s at %s%s", printable(v.Metric), v.Value, printable(unit), v.Occurred.UTC().Format(time.RFC3339Nano), mark)
	}
	if l := d.Location; l != nil && l.Latitude != nil && l.Longitude != nil {
		row("location", "%v, %v at %s", *l.Latitude, *l.Longitude, l.Occurred.UTC().Format(time.RFC3339Nano))
	}
	for i := range d.Firings {
		row("firing", "%s", firingText(&d.Firings[i]))
	}
	for _, l := range d.DeadLetters {
		row("dead letter", "%s  %s: %s", timeText(&l.Occurred), l.Reason, printable(l.Summary))
	}
	_ = t.Flush() // the reader has gone
}

func presenceText(d *deviceDetails) string {
	switch d.Presence {
	case "":
		return "never heard"
	case connected:
		return fmt.Sprintf("connected since %s, last seen %s", timeText(d.LastConnect), timeText(d.LastSeen))
	case disconnected:
		return fmt.Sprintf("disconnected since %s, last seen %s", timeText(d.LastDisconnect), timeText(d.LastSeen))
	}
	return fmt.Sprintf("%s, last seen %s over %s", d.Presence, timeText(d.LastSeen), cmp.Or(d.Source, "-"))
}

func credentialText(c *credential) string {
	text := fmt.Sprintf("%s %s, made %s", c.Type, c.Token, timeText(&c.CreatedAt))
	if c.ID != "" {
		text += ", id " + printable(c.ID)
	}
	if !c.Enabled {
		text += ", disabled"
	}
	if c.ExpiresAt != nil {
		text += ", expires " + timeText(c.ExpiresAt)
	}
	return text
}
