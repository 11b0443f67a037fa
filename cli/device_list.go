package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

func newDeviceList(c *command) *cobra.Command {
	var q deviceQuery
	var all bool
	cmd := &cobra.Command{
		Use:   "list TENANT",
		Short: "List the devices of a tenant, newest first",
		Long: "List the devices of a tenant, newest first, one page per call. PRESENCE is\n" +
			"connected or disconnected if the transport reports it, otherwise active or\n" +
			"silent, and - for a device that has never sent anything.",
		Example: "  weir device list acme\n  weir device list acme --type boiler --all --json",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.limit < 1 || q.limit > operate.MaxDevicePage || q.page < 1 {
				return usageError{fmt.Errorf("--limit must lie in 1..%d, --page counts from 1", operate.MaxDevicePage)}
			}
			l, err := inTenant(cmd.Context(), c, args[0], func(a tenantAPI) (*deviceList, error) {
				return a.listDevices(cmd.Context(), q, all)
			})
			if err != nil {
				return err
			}
			c.show(l, func(w io.Writer) { printDevices(w, l) })
			if left := l.Total - int64(len(l.Devices)); left > 0 && !c.json {
				c.note("%s of %s devices; see --page and --all", grouped(int64(len(l.Devices))), grouped(l.Total))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&q.deviceType, "type", "", "only devices of this type")
	cmd.Flags().IntVar(&q.limit, "limit", 100, fmt.Sprintf("maximum number on a page, up to %d", operate.MaxDevicePage))
	cmd.Flags().IntVar(&q.page, "page", 1, "number of the page")
	cmd.Flags().BoolVar(&all, "all", false, "all pages, starting with --page")
	return cmd
}

// deviceQuery is a page of a tenant's devices.
type deviceQuery struct {
	deviceType  string
	page, limit int
}

// deviceList is a page of devices, newest first.
type deviceList struct {
	Total   int64           `json:"total"` // of all pages
	Devices []deviceSummary `json:"devices"`
}

// deviceSummary is a device in a list. The names are those of the API.
type deviceSummary struct {
	Token      string  `json:"token"`
	Name       *string `json:"name"`
	Type       string  `json:"deviceTypeToken"`
	ExternalID *string `json:"externalId"`
	// Presence is connected or disconnected, by what the transport says of the connection; else active or silent, by when the
	// device was heard; "" for a device that was never heard.
	Presence string     `json:"presence,omitempty"`
	LastSeen *time.Time `json:"lastSeen,omitempty"`
}

// listDevices fetches a page, or all pages from it on.
func (a tenantAPI) listDevices(ctx context.Context, q deviceQuery, all bool) (*deviceList, error) {
	if q.deviceType != "" {
		if err := a.knownType(ctx, q.deviceType); err != nil {
			return nil, err
		}
	}
	if all {
		q.limit = operate.MaxDevicePage
	}
	list := &deviceList{Devices: []deviceSummary{}}
	for ; ; q.page++ {
		page, total, err := a.devicePage(ctx, q)
		if err != nil {
			return nil, err
		}
		list.Total, list.Devices = total, append(list.Devices, page...)
		if !all || len(page) < q.limit {
			return list, nil
		}
	}
}

// knownType checks that a device type exists.
func (a tenantAPI) knownType(ctx context.Context, token string) error {
	const document = `query($tokens: [String!]!) { deviceTypesByToken(tokens: $tokens) { token } }`
	var found struct{ DeviceTypesByToken []struct{ Token string } }
	err := a.run(ctx, deviceArea, document, gqlVars{"tokens": []string{token}}, &found)
	if err == nil && len(found.DeviceTypesByToken) == 0 {
		err = model.NotFound("device type", token)
	}
	return err
}

// devicePage fetches one page with the state of its devices.
func (a tenantAPI) devicePage(ctx context.Context, q deviceQuery) (page []deviceSummary, total int64, err error) {
	const document = `query($c: DeviceSearchCriteria!) { devices(criteria: $c) {
		results { token name externalId deviceType { token } }
		pagination { totalRecords }
	} }`
	criteria := gqlVars{"pageNumber": q.page, "pageSize": q.limit}
	if q.deviceType != "" {
		criteria["deviceType"] = q.deviceType
	}
	var found struct {
		Devices struct {
			Results    []deviceRow
			Pagination struct{ TotalRecords int64 }
		}
	}
	if err := a.run(ctx, deviceArea, document, gqlVars{"c": criteria}, &found); err != nil {
		return nil, 0, err
	}
	tokens := make([]string, len(found.Devices.Results))
	for i, d := range found.Devices.Results {
		tokens[i] = d.Token
	}
	states, err := a.states(ctx, tokens)
	if err != nil {
		return nil, 0, err
	}
	page = make([]deviceSummary, len(tokens))
	for i, d := range found.Devices.Results {
		page[i] = d.summary(states[d.Token])
	}
	return page, found.Devices.Pagination.TotalRecords, nil
}

// deviceRow is a device as the API shows it.
type deviceRow struct {
	Token      string
	Name       *string
	ExternalID *string
	DeviceType struct{ Token string }
}

func (d deviceRow) summary(s *deviceState) deviceSummary {
	out := deviceSummary{Token: d.Token, Name: d.Name, Type: d.DeviceType.Token, ExternalID: d.ExternalID}
	if s != nil {
		out.Presence, out.LastSeen = s.presence(), s.lastSeen()
	}
	return out
}

// deviceState is what was heard of a device.
type deviceState struct {
	DeviceToken        string
	Active             bool
	PresenceSource     string
	Source             *string
	LastConnectTime    *time.Time
	LastDisconnectTime *time.Time
	LastActivityTime   *time.Time
}

// states are those of devices that were heard, by token.
func (a tenantAPI) states(ctx context.Context, tokens []string) (map[string]*deviceState, error) {
	const document = `query($tokens: [String!]!) { deviceStatesByDeviceToken(deviceTokens: $tokens) {
		deviceToken active presenceSource source lastConnectTime lastDisconnectTime lastActivityTime
	} }`
	var found struct{ DeviceStatesByDeviceToken []deviceState }
	if err := a.run(ctx, stateArea, document, gqlVars{"tokens": tokens}, &found); err != nil {
		return nil, err
	}
	out := map[string]*deviceState{}
	for i := range found.DeviceStatesByDeviceToken {
		s := &found.DeviceStatesByDeviceToken[i]
		out[s.DeviceToken] = s
	}
	return out, nil
}

// The words for how a device is.
const (
	connected    = "connected"
	disconnected = "disconnected"
	active       = "active"
	silent       = "silent"
)

func (s *deviceState) presence() string {
	switch {
	case s.PresenceSource == "ASSERTED" && s.Active:
		return connected
	case s.PresenceSource == "ASSERTED":
		return disconnected
	case s.Active:
		return active
	}
	return silent
}

func (s *deviceState) lastSeen() (last *time.Time) {
	for _, t := range []*time.Time{s.LastActivityTime, s.LastConnectTime, s.LastDisconnectTime} {
		if t != nil && (last == nil || t.After(*last)) {
			last = t
		}
	}
	return last
}

func printDevices(w io.Writer, l *deviceList) {
	if len(l.Devices) == 0 {
		fmt.Fprintln(w, "no devices")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tTYPE\tNAME\tEXTERNAL ID\tPRESENCE\tLAST SEEN")
	for i := range l.Devices {
		d := &l.Devices[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Token, d.Type, orDash(d.Name), orDash(d.ExternalID), cmp.Or(d.Presence, "-"), timeText(d.LastSeen))
	}
	_ = t.Flush() // the reader has gone
}

func orDash(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return printable(*s)
}

func timeText(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
