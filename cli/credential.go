package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
)

func newCredential(c *command) *cobra.Command {
	return group("credential", "List, add and change the credentials of a device", newCredentialList(c), newCredentialAdd(c), newCredentialEnable(c), newCredentialDisable(c),
		newCredentialRm(c))
}

func newCredentialList(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "list TENANT DEVICE",
		Short: "List the credentials of a device, without secrets",
		Long: "List the credentials of a device, oldest first. Secrets are never shown: of an\n" +
			"access token neither the token nor a part of it, of a user name not the\n" +
			"password.",
		Example: "  weir credential list acme boiler-1",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			a := tenantAPI{op, args[0]}
			all, err := a.credentials(cmd.Context(), args[1])
			if err == nil && len(all) == 0 {
				err = a.sends(cmd.Context(), args[1], "")
			}
			if err != nil {
				return err
			}
			c.show(map[string]any{"total": len(all), "credentials": all}, func(w io.Writer) { printCredentials(w, all) })
			return nil
		},
	}
}

// printCredentials writes a line for each; the id follows below, since that of a certificate is as long as a line.
func printCredentials(w io.Writer, all []credential) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no credentials")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tTYPE\tENABLED\tEXPIRES")
	for i := range all {
		expires := "-"
		if all[i].ExpiresAt != nil {
			expires = all[i].ExpiresAt.UTC().Format(time.DateOnly)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", all[i].Token, all[i].Type, yesNo(all[i].Enabled), expires)
	}
	_ = t.Flush() // the reader has gone
	for i := range all {
		switch all[i].Type {
		case mqttBasic:
			fmt.Fprintf(w, "%s: user name %s\n", all[i].Token, printable(all[i].ID))
		case preSharedKey, bootstrapKey:
			fmt.Fprintf(w, "%s: identity %s\n", all[i].Token, printable(all[i].ID))
		case x509Certificate:
			fmt.Fprintf(w, "%s: SHA-256 of the certificate\n  %s\n", all[i].Token, printable(all[i].ID))
		}
	}
}

// The types of credentials besides access tokens, as the API names them.
const (
	mqttBasic       = "MQTT_BASIC"       // the id is a user name
	x509Certificate = "X509_CERTIFICATE" // the id is the SHA-256 of the certificate
	preSharedKey    = "PSK"              // the id is an identity of DTLS
	bootstrapKey    = "BOOTSTRAP_PSK"    // likewise
)

// newCredentialFlags are the options of weir credential add.
type newCredentialFlags struct {
	token, user, passwordFile, certificate string
	expires                                time.Duration
}

func newCredentialAdd(c *command) *cobra.Command {
	var f newCredentialFlags
	cmd := &cobra.Command{
		Use:   "add TENANT DEVICE",
		Short: "Add a user name with password, or a certificate, to a device",
		Long: "Let a device prove itself in a further way: by a user name and password over\n" +
			"MQTT, or by a TLS client certificate, of which the SHA-256 is stored. The\n" +
			"password is read from a terminal or from --password-file. Access tokens are made\n" +
			"by weir device rotate --keep.",
		Example: "  weir credential add acme boiler-1 --user boiler-1 --password-file secret.txt\n" +
			"  weir credential add acme boiler-1 --certificate boiler-1.pem --expires 365d",
		Args: exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := c.credentialRequest(&f, args[1])
			if err != nil {
				return err
			}
			const document = `mutation($r: DeviceCredentialCreateRequest!) { made: createDeviceCredential(request: $r) { ` + credentialFields + ` } }`
			return c.changeCredential(cmd.Context(), args[0], document, gqlVars{"r": request}, "added")
		},
	}
	cmd.Flags().StringVar(&f.user, "user", "", "user name for MQTT")
	cmd.Flags().StringVar(&f.passwordFile, "password-file", "", "file whose first line is the password; - is stdin (default: ask)")
	cmd.Flags().StringVar(&f.certificate, "certificate", "", "PEM file with the client certificate of the device")
	spanVar(cmd.Flags(), &f.expires, "expires", 0, "how long it is valid, such as 365d (default: for ever)")
	cmd.Flags().StringVar(&f.token, "token", "", "token of the credential (default: a random one)")
	return cmd
}

// credentialFields are what the API returns of a credential and may be shown. Access tokens are not made or changed with
// their id here.
const credentialFields = "token credentialType credentialId enabled expiresAt createdAt"

func (c *command) credentialRequest(f *newCredentialFlags, device string) (gqlVars, error) {
	if (f.user == "") == (f.certificate == "") {
		return nil, usageError{errors.New("give either --user or --certificate")}
	}
	request := gqlVars{"token": f.token, "deviceToken": device, "enabled": true}
	if f.token == "" {
		request["token"] = strings.ToLower(rand.Text())
	}
	if f.expires < 0 {
		return nil, usageError{errors.New("--expires must not be negative")}
	}
	if f.expires > 0 {
		request["expiresAt"] = time.Now().Add(f.expires).UTC().Format(time.RFC3339)
	}
	if f.certificate != "" {
		id, err := certificateID(f.certificate)
		request["credentialType"], request["credentialId"] = x509Certificate, id
		return request, err
	}
	password, err := c.password(f.passwordFile)
	request["credentialType"], request["credentialId"], request["credentialValue"] = mqttBasic, f.user, password
	return request, err
}

// certificateID is the id under which a device proves itself with the first certificate of a PEM file.
func certificateID(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" {
		return "", model.Invalid("certificate", "%s does not begin with a certificate in PEM", file)
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return "", model.Invalid("certificate", "%s: %v", file, err)
	}
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:]), nil
}

func newCredentialEnable(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "enable TENANT CREDENTIAL",
		Short:   "Accept a disabled credential again",
		Example: "  weir credential enable acme boiler-1-mqtt",
		Args:    exactly("the tenant's token", "the credential's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.switchCredential(cmd.Context(), args[0], args[1], true)
		},
	}
}

func newCredentialDisable(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "disable TENANT CREDENTIAL",
		Short: "Refuse a credential without removing it",
		Long: "Refuse a credential without removing it; connections that it proved end. weir\n" +
			"credential enable reverses it.",
		Example: "  weir credential disable acme boiler-1-mqtt",
		Args:    exactly("the tenant's token", "the credential's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.switchCredential(cmd.Context(), args[0], args[1], false)
		},
	}
}

func (c *command) switchCredential(ctx context.Context, tenant, token string, enabled bool) error {
	const document = `mutation($t: String!, $on: Boolean!) { made: updateDeviceCredential(token: $t, request: {enabled: $on}) { ` + credentialFields + ` } }`
	done := "disabled"
	if enabled {
		done = "enabled"
	}
	return c.changeCredential(ctx, tenant, document, gqlVars{"t": token, "on": enabled}, done)
}

// changeCredential runs a mutation that returns a credential as made.
func (c *command) changeCredential(ctx context.Context, tenant, document string, v gqlVars, done string) error {
	var got struct{ Made credential }
	if err := c.askTenant(ctx, tenant, deviceArea, document, v, &got); err != nil {
		return err
	}
	if got.Made.Type == accessToken {
		got.Made.ID = "" // the secret itself
	}
	c.show(got.Made, func(w io.Writer) { fmt.Fprintf(w, "credential %s %s\n", printable(got.Made.Token), done) })
	return nil
}

func newCredentialRm(c *command) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "rm TENANT CREDENTIAL",
		Short:   "Remove a credential",
		Long:    "Remove a credential; connections that it proved end. weir credential disable\nrefuses it and keeps it.",
		Example: "  weir credential rm acme boiler-1-mqtt --yes",
		Args:    exactly("the tenant's token", "the credential's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.confirm(cmd.Context(), yes, "Remove the credential "+args[1]+"?"); err != nil {
				return err
			}
			var got struct{ DeleteDeviceCredential bool }
			if err := c.askTenant(cmd.Context(), args[0], deviceArea, `mutation($t: String!) { deleteDeviceCredential(token: $t) }`, gqlVars{"t": args[1]}, &got); err != nil {
				return err
			}
			if !got.DeleteDeviceCredential {
				missing := model.NotFound("device credential", args[1])
				missing.Hint = "list those of a device with: weir credential list " + args[0] + " DEVICE"
				return missing
			}
			c.show(map[string]any{"removed": args[1]}, func(w io.Writer) { fmt.Fprintf(w, "credential %s removed\n", args[1]) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
