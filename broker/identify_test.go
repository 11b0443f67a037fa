package broker

import (
	"strings"
	"testing"
)

// A device that cannot connect learns nothing; the operator is told what is wrong with its user name or client id, without
// any part of what may be a credential.
func TestTheOperatorSeesWhatIsWrongWithAConnect(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-of-the-device"
	for name, c := range map[string]struct {
		clientID, user, password string
		tenant, mistake          string
	}{
		"nothing":                   {"", "", "", "", "there is no user name: write it as TENANT:ACCESS_TOKEN"},
		"a client id alone":         {"foo", "", "", "", "there is no user name: write it as TENANT:ACCESS_TOKEN"},
		"the token as password":     {"foo", "", secret, "", "there is a password and no user name: the access token belongs into the user name, write it as TENANT:ACCESS_TOKEN"},
		"the token as user name":    {"foo", secret, "", "", "the user name has no tenant: write it as TENANT:ACCESS_TOKEN"},
		"no tenant before the mark": {"foo", ":" + secret, "", "", "the user name does not begin with the token of a tenant: write it as TENANT:ACCESS_TOKEN"},
		"an impossible tenant":      {"foo", secret + "!:x", "", "", "the user name does not begin with the token of a tenant: write it as TENANT:ACCESS_TOKEN"},
		"no credential":             {"weir:acme:d", "acme:", "", "acme", "the user name has no credential after the tenant: write it as TENANT:ACCESS_TOKEN"},
		"no client id":              {"", "acme:" + secret, "", "acme", "there is no client id: it is weir:acme:DEVICE"},
		"a foreign client id":       {"foo", "acme:" + secret, "", "acme", `client id "foo" is not weir:acme:DEVICE`},
		"a generated client id":     {"auto-3F2A:b:c d", "acme:" + secret, "", "acme", `client id "auto-3F2A:b:c d" is not weir:acme:DEVICE`},
		"another instance":          {"plant:acme:d", "acme:" + secret, "", "acme", `client id "plant:acme:d" does not begin with weir, the id of this instance`},
		"another tenant":            {"weir:globex:d", "acme:" + secret, "", "acme", `client id "weir:globex:d" names another tenant than the user name, acme`},
		"an empty suffix":           {"weir:acme:d:", "acme:" + secret, "", "acme", `the suffix of client id "weir:acme:d:" must have 1 to 128 bytes`},
		"control characters":        {"a\x1b[31m", "acme:" + secret, "", "acme", `client id "a\x1b[31m" is not weir:acme:DEVICE`},
		"a long client id":          {strings.Repeat("x", 500), "acme:" + secret, "", "acme", `client id "` + strings.Repeat("x", 64) + `"… is not weir:acme:DEVICE`},
		"all is well":               {"weir:acme:d", "acme:" + secret, "", "acme", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := connect{clientID: c.clientID, user: c.user, password: c.password}
			id, mistake := p.identify("weir")
			if mistake != c.mistake || id.tenant != c.tenant {
				t.Errorf("tenant %q, mistake %q", id.tenant, mistake)
			}
			if strings.Contains(mistake, secret) {
				t.Error("the mistake shows a credential")
			}
		})
	}
}
