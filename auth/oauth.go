package auth

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// OAuthClient is a program that may ask people for access on their behalf.
type OAuthClient struct {
	store.Row
	ClientID     string   `store:"client_id,token,dotted" gql:"clientId"`
	Name         *string  `store:"name,clear,max=128" gql:"name"`
	Description  *string  `store:"description,clear,max=1024" gql:"description"`
	Enabled      bool     `store:"enabled" gql:"enabled"`
	RedirectURIs []string `store:"redirect_uris,required,list,nonempty,max=32" gql:"redirectUris"`
	Scopes       []string `store:"scopes,required,list,nonempty,max=32" gql:"scopes"` // sorted
	SecretHash   *string  `store:"secret_hash,clear,secret,hidden" gql:"secretHash"`  // SHA-256 in hexadecimal digits; nil: a public client
}

// HasSecret reports whether the client proves itself by a secret.
func (c *OAuthClient) HasSecret() bool { return c.SecretHash != nil }

// secretField is the name by which CreateWithSecret hands the hash of a secret to the table. The API does not know it.
const secretField = "secretHash"

func hashText(secret string) string {
	hash := HashSecret(secret)
	return hex.EncodeToString(hash[:])
}

// ClientSecret is a client with the secret that was made for it, which is shown this once; nil for a public client.
type ClientSecret struct {
	Client *OAuthClient `gql:"client"`
	Secret *string      `gql:"clientSecret"`
}

// Scopes of OAuth clients.
var oauthScopes = []string{"location", "read-only"}

// maxRedirectURI is the maximum length of a redirect URI.
const maxRedirectURI = 2048

// Clients are the OAuth clients of an instance.
type Clients struct {
	*entity.Kind[OAuthClient]
	auth *Auth
}

func (a *Auth) describeClients(b entity.Base) *Clients {
	cs := &Clients{auth: a}
	cs.Kind = entity.New(b, entity.Desc[OAuthClient]{
		Kind:     "OAuth client",
		Type:     "OAuthClient",
		Plural:   "oauthClients",
		Area:     "user-management",
		Table:    "oauth_clients",
		Instance: true,
		Order:    "created_at DESC, client_id",
		Read:     entity.Needs(model.ClientRead),
		Write:    entity.Needs(model.ClientWrite),
		Ceiling: &entity.Ceiling{
			Key:  "limits.oauth_clients",
			Rows: func() int64 { return int64(cs.auth.live.Load().OAuthClients) },
		},
		Valid: (*OAuthClient).check,
		Check: func(_ store.Tx, c *OAuthClient, changed store.Changed) error {
			if changed.New {
				c.Enabled = true
			}
			return nil
		},
	})
	return cs
}

func (c *OAuthClient) check() error {
	for i, text := range c.RedirectURIs {
		if why := refusedRedirect(text); why != "" {
			return model.Invalid("redirectUris", "%.80q %s", text, why)
		}
		if slices.Contains(c.RedirectURIs[:i], text) {
			return model.Invalid("redirectUris", "%.80q is named twice", text)
		}
	}
	for _, scope := range c.Scopes {
		if !slices.Contains(oauthScopes, scope) {
			return model.Invalid("scopes", "%.40q is none of %s", scope, strings.Join(oauthScopes, ", "))
		}
	}
	// Sorted, so that equal sets are equal rows.
	slices.Sort(c.Scopes)
	c.Scopes = slices.Compact(c.Scopes)
	return nil
}

// refusedRedirect returns what is wrong with a redirect URI (RFC 6749, section 3.1.2, and RFC 8252, section 7.3): a code must
// not cross a network unencrypted.
func refusedRedirect(text string) string {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxRedirectURI:
		return "is longer than 2048 characters"
	case err != nil || u.Host == "" || u.Hostname() == "" || u.User != nil || strings.ContainsFunc(text, notInURI):
		return "is no absolute URI of a host"
	case strings.Contains(text, "#"):
		return "has a fragment"
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return ""
	}
	return "must be https, or http on a loopback host"
}

// notInURI reports characters that a URI has in their encoded form only (RFC 3986, section 2).
func notInURI(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"<>\^{|}`+"`", r) }

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// CreateWithSecret makes a client, with a secret where it is to be a confidential one.
func (cs *Clients) CreateWithSecret(ctx context.Context, by *model.Principal, p store.Patch, confidential bool) (*ClientSecret, error) {
	out := &ClientSecret{}
	if confidential {
		// The caller's patch stays as it is: it must not hold the hash.
		p = maps.Clone(p)
		out.Secret = new(MintSecret())
		p[secretField] = hashText(*out.Secret)
	}
	var err error
	out.Client, err = cs.Create(ctx, by, p)
	return out, err
}

// RotateSecret gives a client another secret; a public client becomes a confidential one.
func (cs *Clients) RotateSecret(ctx context.Context, by *model.Principal, clientID string) (*ClientSecret, error) {
	out := &ClientSecret{}
	return out, cs.edit(ctx, by, clientID, func(c *store.Change, row *OAuthClient) error {
		out.Client, out.Secret = row, new(MintSecret())
		row.SecretHash = new(hashText(*out.Secret))
		return cs.Table.Save(c, row, "secret_hash")
	})
}

// minClientSecret is the minimum length of a secret that a client brings: its hash is a fast one.
const minClientSecret = 32

// CheckClientSecret returns what is wrong with a secret that was made elsewhere.
func CheckClientSecret(secret string) error {
	if len(secret) < minClientSecret {
		return model.Invalid("secret", "must have at least %d random characters", minClientSecret)
	}
	return nil
}

// HasSecretOf reports whether a secret is the client's.
func (c *OAuthClient) HasSecretOf(secret string) bool {
	return c.SecretHash != nil && subtle.ConstantTimeCompare([]byte(*c.SecretHash), []byte(hashText(secret))) == 1
}

// SetSecret gives a client a secret that was made elsewhere; nil makes it a public one.
func (cs *Clients) SetSecret(ctx context.Context, by *model.Principal, clientID string, secret *string) error {
	var hash *string
	if secret != nil {
		if err := CheckClientSecret(*secret); err != nil {
			return err
		}
		hash = new(hashText(*secret))
	}
	return cs.edit(ctx, by, clientID, func(c *store.Change, row *OAuthClient) error {
		row.SecretHash = hash
		return cs.Table.Save(c, row, "secret_hash")
	})
}

// SetEnabled enables or disables a client.
func (cs *Clients) SetEnabled(ctx context.Context, by *model.Principal, clientID string, enabled bool) (out *OAuthClient, err error) {
	err = cs.edit(ctx, by, clientID, func(c *store.Change, row *OAuthClient) error {
		out = row
		if row.Enabled == enabled {
			return nil
		}
		row.Enabled = enabled
		return cs.Table.Save(c, row, "enabled")
	})
	return out, err
}

func (cs *Clients) edit(ctx context.Context, by *model.Principal, clientID string, fn func(*store.Change, *OAuthClient) error) error {
	if err := cs.MayWrite(by); err != nil {
		return err
	}
	return cs.auth.writer.Mutate(ctx, by, func(c *store.Change) error {
		row, err := cs.Must(c, 0, clientID)
		if err != nil {
			return err
		}
		return fn(c, row)
	})
}
