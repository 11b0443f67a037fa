package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
)

func newLwM2MGroup(c *command) *cobra.Command {
	return group("lwm2m", "Look at LwM2M devices: registrations, objects, observations", newLwM2MList(c), newLwM2MShow(c), newLwM2MModelGroup(c))
}

// lwm2mRegistration is a device as the LwM2M server knows it.
type lwm2mRegistration struct {
	DeviceToken    string             `json:"deviceToken"`
	Endpoint       string             `json:"endpoint"`
	Version        string             `json:"version"`
	Lifetime       int                `json:"lifetime"`
	Binding        string             `json:"binding"`
	QueueMode      bool               `json:"queueMode"`
	Awake          bool               `json:"awake"`
	Session        string             `json:"session"`
	Security       *string            `json:"security"`
	ConnectionID   bool               `json:"connectionId"`
	Address        *string            `json:"address"`
	RegisteredTime time.Time          `json:"registeredTime"`
	LastHeardTime  time.Time          `json:"lastHeardTime"`
	ExpiresTime    time.Time          `json:"expiresTime"`
	Objects        []lwm2mObject      `json:"objects"`
	Observations   []lwm2mObservation `json:"observations"`
	Refused        []lwm2mRefusal     `json:"refused"`
}

type lwm2mObject struct {
	Path    string  `json:"path"`
	Version *string `json:"version"`
}

type lwm2mObservation struct {
	Paths         []string   `json:"paths"`
	Format        string     `json:"format"`
	Confirmed     bool       `json:"confirmed"`
	LastValueTime *time.Time `json:"lastValueTime"`
}

type lwm2mRefusal struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

func newLwM2MList(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "list TENANT",
		Short:   "List the LwM2M devices that are registered",
		Long:    "List the LwM2M devices of a tenant that are registered with the running instance,\nat most 1000.",
		Example: "  weir lwm2m list acme\n  weir lwm2m list acme --json",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := c.registrations(cmd.Context(), args[0], nil)
			if err != nil {
				return err
			}
			c.show(all, func(w io.Writer) { printRegistrations(w, all) })
			return nil
		},
	}
}

func newLwM2MShow(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "show TENANT DEVICE",
		Short: "Show the registration of an LwM2M device",
		Long: "Show the registration of an LwM2M device with the running instance: its session, its\n" +
			"objects, what is observed of it, and what is not, with the reason.",
		Example: "  weir lwm2m show acme meter-1",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := c.registrations(cmd.Context(), args[0], []string{args[1]})
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return &model.Error{Code: model.CodeNotFound, Message: fmt.Sprintf("no LwM2M device %q of tenant %s is registered", args[1], args[0]),
					Hint: fmt.Sprintf("see those that are with: weir lwm2m list %s; a device registers once it has shaken hands with its key: weir device show %[1]s %s lists its credentials", args[0], args[1])}
			}
			c.show(all[0], func(w io.Writer) { printRegistration(w, &all[0]) })
			return nil
		},
	}
}

// registrations are those of some devices of a tenant, or with nil of all.
func (c *command) registrations(ctx context.Context, tenant string, devices []string) ([]lwm2mRegistration, error) {
	const document = `query($tokens: [String!]) { lwm2mRegistrations(deviceTokens: $tokens) {
		deviceToken endpoint version lifetime binding queueMode awake session security connectionId address registeredTime lastHeardTime expiresTime
		objects { path version } observations { paths format confirmed lastValueTime } refused { path reason }
	} }`
	to, err := c.client(ctx)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	vars := gqlVars{}
	if devices != nil {
		vars["tokens"] = devices
	}
	var found struct{ Lwm2mRegistrations []lwm2mRegistration }
	err = tenantAPI{to, tenant}.run(ctx, deviceArea, document, vars, &found)
	return found.Lwm2mRegistrations, err
}

func printRegistrations(w io.Writer, all []lwm2mRegistration) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no LwM2M device is registered")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DEVICE\tENDPOINT\tVERSION\tLIFETIME\tREACHABLE\tSESSION\tADDRESS\tOBSERVED\tREFUSED\tLAST HEARD")
	for i := range all {
		r := &all[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%ds\t%s\t%s\t%s\t%d\t%d\t%s\n", r.DeviceToken, printable(r.Endpoint), r.Version, r.Lifetime, r.reachable(), strings.ToLower(r.Session), orDash(r.Address),
			len(r.Observations), len(r.Refused), timeText(&r.LastHeardTime))
	}
	_ = t.Flush() // the reader has gone
}

// reachable says whether commands reach the device now.
func (r *lwm2mRegistration) reachable() string {
	switch {
	case r.Awake:
		return "yes"
	case r.QueueMode:
		return "asleep"
	}
	return "no"
}

func printRegistration(w io.Writer, r *lwm2mRegistration) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("device", "%s", r.DeviceToken)
	row("endpoint", "%s", printable(r.Endpoint))
	row("version", "%s", r.Version)
	row("registered", "%s, lifetime %d s, ends %s", timeText(&r.RegisteredTime), r.Lifetime, timeText(&r.ExpiresTime))
	row("last heard", "%s", timeText(&r.LastHeardTime))
	queue := ""
	if r.QueueMode {
		queue = ", queue mode"
	}
	row("reachable", "%s%s", r.reachable(), queue)
	id := ", no connection id"
	if r.ConnectionID {
		id = ", connection id"
	}
	if r.Session == "NONE" {
		row("session", "none: the device shakes hands again")
	} else {
		row("session", "%s, %s%s, %s", strings.ToLower(r.Session), orDash(r.Security), id, orDash(r.Address))
	}
	var objects []string
	for _, o := range r.Objects {
		text := o.Path
		if o.Version != nil {
			text += " (" + *o.Version + ")"
		}
		objects = append(objects, text)
	}
	row("objects", "%s", printable(strings.Join(objects, " ")))
	for _, o := range r.Observations {
		state := ""
		if !o.Confirmed {
			state = ", asked with its next message"
		}
		row("observed", "%s in %s, last value %s%s", strings.Join(o.Paths, " "), o.Format, timeText(o.LastValueTime), state)
	}
	for _, o := range r.Refused {
		row("not observed", "%s: %s", o.Path, printable(o.Reason))
	}
	_ = t.Flush() // the reader has gone
}
