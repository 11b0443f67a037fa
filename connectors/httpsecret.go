package connectors

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"weir/internal/delivery"
	"weir/internal/guard"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// HTTPSecret is a secret of calls of URLs: what secretRef "http/<token>" of an httpCall names. It is sent to its hosts alone, and over https
// alone.
type HTTPSecret struct {
	store.Row
	Token     string   `store:"token,token" gql:"token"`
	Hosts     []string `store:"hosts,required,nonempty,max=32" gql:"hosts"`
	Use       string   `store:"use,keep,oneof=BEARER|SIGNATURE" gql:"use"`
	HasSecret bool     `store:"has_secret,keep,hidden" gql:"hasSecret"`
}

// How a call uses a secret.
const (
	UseBearer    = "BEARER"    // it is sent: Authorization: Bearer <secret>
	UseSignature = "SIGNATURE" // it is never sent: it is the key of X-Weir-Signature
)

// secretScheme is what a secretRef begins with.
const secretScheme = "http/"

func (c *Connectors) httpSecrets(b entity.Base) *entity.Kind[HTTPSecret] {
	return entity.New(b, entity.Desc[HTTPSecret]{
		Kind: "HTTP secret", Type: "HttpSecret", Plural: "httpSecrets", Area: Area, Table: "http_secrets",
		Read: entity.Needs(model.ConnectorRead), Write: entity.Needs(model.ConnectorWrite),
		Secret: func(s *HTTPSecret) store.SecretName {
			return store.SecretName{TenantID: s.TenantID, Scope: store.ScopeTenant, Name: secretScheme + s.Token}
		},
		Valid: (*HTTPSecret).valid,
		Prepare: func(_ context.Context, _ *model.Principal, _ string, p store.Patch, create bool) error {
			secret, given := p["secret"].(string)
			switch {
			case create && secret == "":
				return model.Invalid("secret", "is required")
			case given && secret == "", !given && p["secret"] == nil && has(p, "secret"):
				return model.Invalid("secret", "must not be empty: delete the HTTP secret instead")
			case !given && !create && (has(p, "hosts") || has(p, "use")):
				return model.Invalid("secret", "is required: hosts and use change only together with the value")
			}
			return checkSecret(secret)
		},
		Ceiling: &entity.Ceiling{
			Key:  "limits.http_secrets_per_tenant",
			Rows: func() int64 { return c.limits.HTTPSecretsPerTenant },
		},
	})
}

func has(p store.Patch, field string) bool {
	_, named := p[field]
	return named
}

// checkSecret refuses a secret that cannot be sent in a header. No message shows it.
func checkSecret(secret string) error {
	if err := delivery.CheckHeaderSecret(secret); err != nil {
		return model.Invalid("value", "%v", err)
	}
	return nil
}

// valid checks the hosts and writes them in their normal form.
func (s *HTTPSecret) valid() (err error) {
	if s.Use == "" {
		s.Use = UseBearer
	}
	s.Hosts, err = NormalHosts(s.Hosts)
	return err
}

// NormalHosts is the form in which the hosts of an HTTP secret are kept: host:port in lower case, in their order, each once.
func NormalHosts(given []string) ([]string, error) {
	hosts := make([]string, 0, len(given))
	for _, h := range given {
		u, err := guard.CheckURL("https://"+h, "https")
		switch {
		case err != nil:
			return nil, model.Invalid("hosts", "%.80q %v", h, err)
		case u.Host != h:
			return nil, model.Invalid("hosts", "%.80q must be a host, or a host and a port, such as hooks.example.com:8443", h)
		}
		hosts = append(hosts, hostPort(u))
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}

// hostPort is the destination of a URL of https or http.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}

// SetSecret makes an HTTP secret or replaces its value, hosts and use together.
func (c *Connectors) SetSecret(ctx context.Context, by *model.Principal, token, value string, hosts []string, use string) (*HTTPSecret, error) {
	if value == "" {
		return nil, model.Invalid("value", "must not be empty")
	}
	p := store.Patch{"hosts": hosts, "use": use, "secret": value}
	have, err := c.Secrets.ByToken(ctx, by, []string{token})
	if err != nil {
		return nil, err
	}
	if len(have) > 0 {
		return c.Secrets.Update(ctx, by, token, p)
	}
	p["token"] = token
	return c.Secrets.Create(ctx, by, p)
}

// signIn is a secret that a call may use.
type signIn struct {
	use   string
	value string
}

// secretOf returns what a secretRef names, for a call of a URL; nil for a call without one.
func (c *Connectors) secretOf(tx store.Tx, tenant int64, ref string, to *url.URL) (*signIn, error) {
	if ref == "" {
		return nil, nil
	}
	token, ok := strings.CutPrefix(ref, secretScheme)
	if !ok || !model.ValidToken(token) {
		return nil, fail(Invalid, "secretRef must have the form http/<token>")
	}
	s, err := c.Secrets.Table.Get(tx, tenant, token)
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return nil, fail(Invalid, "there is no HTTP secret %q", token)
	case to.Scheme != "https":
		return nil, fail(Blocked, "the HTTP secret %q is sent over https only", token)
	case !slices.Contains(s.Hosts, hostPort(to)):
		return nil, fail(Blocked, "the HTTP secret %q is not for %s", token, hostPort(to))
	}
	value, ok, err := c.Secrets.Reveal(tx, s)
	if err != nil {
		return nil, fmt.Errorf("connectors: the HTTP secret %q cannot be read: %w", token, err)
	}
	if !ok {
		return nil, fail(Invalid, "the HTTP secret %q has no value", token)
	}
	return &signIn{s.Use, value}, nil
}
