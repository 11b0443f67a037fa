package gql

import (
	"context"

	"weir/gql/engine"
	"weir/model"
	"weir/registry"
)

// Snippet is a command or a program that sends a reading of a device.
type Snippet struct {
	Title    string `gql:"title"`
	Language string `gql:"language"`
	Text     string `gql:"text"`
}

// SnippetMaker returns the ways in which a device of a tenant sends a reading with an access token. host is the name under which the
// caller reaches the instance, "" where that is not known; it stands for listeners on every interface.
type SnippetMaker func(tenant, device, accessToken, host string) ([]Snippet, error)

// RegisterSnippets registers deviceSnippets in the device-management area.
func RegisterSnippets(a *Area, r *registry.Registry, snippets SnippetMaker) {
	a.Type("DeviceSnippet", Snippet{})
	a.Query("deviceSnippets", Requires(model.DeviceWrite), engine.Do(func(ctx context.Context, in struct {
		Device     string  `gql:"deviceToken"`
		Credential string  `gql:"credentialToken"`
		Host       *string `gql:"host"`
	}) (any, error) {
		by := PrincipalFrom(ctx)
		devices, err := r.Devices.Rows.ByToken(ctx, by, []string{in.Device})
		if err == nil && len(devices) == 0 {
			err = model.NotFound("device", in.Device)
		}
		if err != nil {
			return nil, err
		}
		credentials, err := r.Credentials.Rows.ByToken(ctx, by, []string{in.Credential})
		if err == nil && (len(credentials) == 0 || credentials[0].DeviceID != devices[0].ID) {
			err = model.NotFound("device credential", in.Credential)
		}
		if err != nil {
			return nil, err
		}
		if credentials[0].Type != registry.AccessToken {
			return nil, model.Invalid("credentialToken", "the credential %.80q is no access token: the secret of another kind cannot be shown", in.Credential)
		}
		secret, err := r.Credentials.ID(credentials[0])
		if err != nil {
			return nil, err
		}
		host := ""
		if in.Host != nil {
			host = *in.Host
		}
		return snippets(by.Tenant, in.Device, secret, host)
	}))
}
