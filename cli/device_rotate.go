package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newDeviceRotate(c *command) *cobra.Command {
	var yes, keep bool
	first := firstReading{c: c}
	cmd := &cobra.Command{
		Use:   "rotate TENANT TOKEN",
		Short: "Create a new access token for a device",
		Long: "Create a new access token for a device and print it once. The earlier access\n" +
			"tokens become invalid, and the connections that they opened end, unless --keep\n" +
			"is given. Credentials of other types are not changed.",
		Example: "  weir device rotate acme boiler-1\n  weir device rotate acme boiler-1 --keep --print-commands=curl",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.confirm(cmd.Context(), yes || keep, fmt.Sprintf("End all access tokens that device %s of tenant %s has?", args[1], args[0])); err != nil {
				return err
			}
			r := &rotation{tenantAPI: tenantAPI{tenant: args[0]}, ctx: cmd.Context(), keep: keep}
			return first.run(cmd, args[0], args[1], &tokenGift{
				give:   func(op operate.Target) (*operate.DeviceAdded, error) { return r.issue(op, args[1]) },
				text:   printRotated,
				finish: func(operate.Target, *operate.DeviceAdded) error { return r.endOld() },
				undo: func(ctx context.Context, _ operate.Target, _ *operate.DeviceAdded) error {
					return r.takeBack(ctx, r.issued)
				},
			})
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the existing access tokens valid")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	first.flags(cmd)
	return cmd
}

// rotation gives a device a new access token, and ends those that it had once the new one has been shown: one that nobody has seen replaces
// none.
type rotation struct {
	tenantAPI
	ctx    context.Context
	keep   bool
	old    []credential
	issued *issuedToken
}

func (r *rotation) issue(op operate.Target, device string) (*operate.DeviceAdded, error) {
	r.to = op
	at, err := operate.GetEntrances.Ask(r.ctx, op, operate.None{})
	if err != nil {
		return nil, err
	}
	if !r.keep {
		all, err := r.credentials(r.ctx, device)
		if err != nil {
			return nil, err
		}
		r.old = slices.DeleteFunc(all, func(c credential) bool { return c.Type != accessToken })
	}
	if r.issued, err = r.issueToken(r.ctx, device, nil); err != nil {
		return nil, err
	}
	return &operate.DeviceAdded{Tenant: r.tenant, Token: device, Type: r.issued.Credential.Device.DeviceType.Token, Removed: len(r.old),
		Secret: r.issued.AccessToken, Entrances: *at}, nil
}

// endOld ends the tokens that the device had. Until then both are valid: an interruption locks no device out.
func (r *rotation) endOld() error {
	for _, c := range r.old {
		if err := r.takeBack(r.ctx, &issuedToken{Credential: issuedCredential{Token: c.Token}}); err != nil {
			return fmt.Errorf("the new access token is valid, and so are earlier ones, which could not be ended: %w", err)
		}
	}
	return nil
}

func printRotated(w io.Writer, d *operate.DeviceAdded, host string) {
	fmt.Fprintf(w, "device %s of tenant %s has a new access token; %s ended\n", d.Token, d.Tenant, count(d.Removed, "old one"))
	printToken(w, d, host)
}
