package channel

import (
	"errors"
	"strings"
	"testing"

	"weir/internal/delivery"
	"weir/model"
)

func TestEveryKindIsDescribedWhole(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		if k.Label == "" || k.Description == "" || k.Secret == "" || len(k.Fields) == 0 {
			t.Errorf("%s lacks a part of its description", k.ID)
		}
		if err := Check(k.ID, k.Example, true, true); err != nil {
			t.Errorf("%s: its own example is refused: %v", k.ID, err)
		}
		for _, f := range k.Fields {
			if f.Doc == "" || f.Kind == "" || f.Max == 0 {
				t.Errorf("%s.%s lacks a part of its description", k.ID, f.Name)
			}
		}
	}
}

// TestConfigsThatAreRefused has the path of the field and what is wrong with it. "" is accepted.
func TestConfigsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ, config string
		has, off    bool // a secret; disabled
		want        string
	}{
		{typ: "sms", config: `{}`, want: `channelType: "sms" is none of smtp, webhook`},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com"}`},
		{typ: "smtp", config: `{"host": "192.0.2.1", "from": "W <weir@example.com>", "port": 25, "security": "none"}`},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com", "username": "u"}`, has: true},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com", "username": "u"}`, off: true},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com", "username": "u"}`, want: "secret: is required with a username: the password"},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com", "username": "u", "security": "none"}`, has: true,
			want: "config.username: is never sent without TLS: the security must be starttls or tls"},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com", "username": "u", "security": "none"}`, off: true,
			want: "config.username: is never sent without TLS: the security must be starttls or tls"},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com", "username": "u\r\nRSET"}`, has: true, want: "config.username: must not hold control characters or line breaks"},
		{typ: "smtp", config: `{"host": "mail.example.com\r\n", "from": "weir@example.com"}`, want: "config.host: must name a host: letters, digits and hyphens between points, or an address"},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com\r\nBcc: x@example.com"}`, want: "config.from: must not hold control characters or line breaks"},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "a@example.com, b@example.com"}`, want: "config.from: must be one mail address, such as ops@example.com"},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "=?utf-8?q?a=0D=0AX:?= <a@example.com>"}`, want: "config.from: must be one mail address, such as ops@example.com"},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com", "security": "ssl"}`, want: `config.security: "ssl" is none of starttls, tls, none`},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com", "port": 0}`, want: "config.port: 0 is not a whole number from 1 to 65535"},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com", "port": "25"}`, want: "config.port: must be a whole number, not a string"},
		{typ: "smtp", config: `{"from": "weir@example.com"}`, want: "config.host: is required"},
		{typ: "smtp", config: `{"host": "", "from": "weir@example.com"}`, want: "config.host: must not be empty"},
		{typ: "smtp", config: `{"host": "mail.example.com", "from": "weir@example.com", "password": "x"}`, want: "config.password: unknown field"},
		{typ: "smtp", config: `[]`, want: "config: the config must be a JSON object, not an array"},
		{typ: "smtp", config: ``, want: "config: the config is not valid JSON"},

		{typ: "webhook", config: `{"url": "https://hooks.example.com/x"}`},
		{typ: "webhook", config: `{"url": "http://hooks.example.com", "method": "PUT", "headers": {"X-Site": "a\tb", "content-type": "text/plain"}}`, has: true},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "authHeader": "X-Token", "authScheme": ""}`, has: true},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "auth": "header", "authHeader": "authorization"}`, has: true},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "auth": "none"}`},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "auth": "none"}`, has: true, want: `secret: is never sent with auth "none"`},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "auth": "bearer"}`, want: `secret: is required with auth "bearer"`},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "auth": "bearer"}`, off: true, want: `secret: is required with auth "bearer"`},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "authScheme": "Token"}`, want: `secret: is required with auth "header"`},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "auth": "digest"}`, want: `config.auth: "digest" is none of none, bearer, header`},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "auth": "bearer", "authHeader": "X-Token"}`, has: true, want: `config.authHeader: belongs to auth "header"`},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "authHeader": "Host"}`, has: true, want: "config.authHeader: is reserved: Weir sets it"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "authHeader": "x-weir-key"}`, has: true, want: "config.authHeader: is reserved: Weir sets it"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "authHeader": "a b"}`, has: true, want: "config.authHeader: is no name of a header"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "authHeader": "x-key", "headers": {"X-Key": "a"}}`, has: true, want: "config.authHeader: is one of headers, too"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "authScheme": "To ken"}`, has: true, want: "config.authScheme: must consist of printable ASCII characters without spaces"},
		{typ: "webhook", config: `{"url": "https://u:p@hooks.example.com"}`, want: "config.url: must not hold a user name or password"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com/#a"}`, want: "config.url: must not have a fragment"},
		{typ: "webhook", config: `{"url": "ftp://hooks.example.com"}`, want: "config.url: must be an absolute URL that begins with https:// or http://"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com\r\nX: y"}`, want: "config.url: must be a URL"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "method": "GET"}`, want: `config.method: "GET" is none of POST, PUT, PATCH`},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "headers": {"authorization": "x"}}`, want: "config.headers.authorization: is reserved: Weir sets it"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "headers": {"PROXY-x": "x"}}`, want: "config.headers.PROXY-x: is reserved: Weir sets it"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "headers": {"tE": "x"}}`, want: "config.headers.tE: is reserved: Weir sets it"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "headers": {"X-A": "x", "x-a": "y"}}`, want: "config.headers.x-a: given twice"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "headers": {"X-A": "x\r\nY: z"}}`, want: "config.headers.X-A: must not hold control characters"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "headers": {"X A": "x"}}`, want: `config.headers."X A": is no name of a header`},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "headers": {"X-A": 1}}`, want: "config.headers.X-A: must be a string, not a number"},
		{typ: "webhook", config: `{"url": "https://hooks.example.com", "headers": ` + manyHeaders(33) + `}`, want: "config.headers: at most 32 elements are allowed"},
	} {
		err := Check(c.typ, c.config, c.has, !c.off)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s %s (secret %t, disabled %t): %v, want %s", c.typ, c.config, c.has, c.off, err, c.want)
		}
		if e, ok := errors.AsType[*model.Error](err); err != nil && (!ok || e.Code != model.CodeInvalidInput) {
			t.Errorf("%s: %v is no INVALID_INPUT", c.config, err)
		}
	}
}

func manyHeaders(n int) string {
	var all []string
	for i := range n {
		all = append(all, `"x-`+strings.Repeat("a", i+1)+`": "v"`)
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func TestRecipientsThatAreRefused(t *testing.T) {
	t.Parallel()
	const one = "must be one mail address, such as ops@example.com"
	for _, c := range []struct{ typ, text, want string }{
		{"smtp", `["ops@example.com", "Größe <a.b+c@sub.example.com>"]`, ""},
		{"smtp", ``, "recipients: at least one is required"},
		{"smtp", `[]`, "recipients: at least one is required"},
		{"smtp", `"ops@example.com"`, "recipients: must be an array, not a string"},
		{"smtp", `["ops@example.com"`, "recipients: the recipients must be a JSON array of strings"},
		{"smtp", `["ops@example.com"], "x": ["y"]`, "recipients: the recipients must be a JSON array of strings"},
		{"smtp", `["ops@example.com", 1]`, "recipients[1]: must be a string, not a number"},
		{"smtp", `["ops@example.com", ""]`, "recipients[1]: must not be empty"},
		{"smtp", `["ops"]`, "recipients[0]: " + one},
		{"smtp", `["a@example.com, b@example.com"]`, "recipients[0]: " + one},
		{"smtp", `["a@example.com b@example.com"]`, "recipients[0]: " + one},
		{"smtp", `["team: a@example.com;"]`, "recipients[0]: " + one},
		{"smtp", `["a@example.com\r\nBcc: b@example.com"]`, "recipients[0]: must not hold control characters or line breaks"},
		{"smtp", `["\"a b\"@example.com"]`, "recipients[0]: " + one},
		{"smtp", `["\"a>\"@example.com"]`, "recipients[0]: " + one},
		{"smtp", `["größe@example.com"]`, "recipients[0]: must have letters"},
		{"smtp", `["a@größe.example"]`, "recipients[0]: must name a domain"},
		{"smtp", `["a@[192.0.2.1]"]`, "recipients[0]: must"},
		{"smtp", `["` + strings.Repeat("a", 65) + `@example.com"]`, "recipients[0]: must have an address of at most 254 bytes, 1 to 64 before the @"},
		{"smtp", `["` + strings.Repeat("a", 400) + `"]`, "recipients[0]: has 400 bytes, at most 320 are allowed"},
		{"smtp", `["a@example.com"` + strings.Repeat(`, "a@example.com"`, 50) + `]`, "recipients: at most 50"},
		{"webhook", ``, ""},
		{"webhook", `["#night-shift"]`, ""},
		{"webhook", `["a\nb"]`, "recipients[0]: must not hold control characters or line breaks"},
		{"sms", `[]`, "channelType"},
	} {
		list, err := ParseRecipients(c.typ, c.text)
		if c.want == "" && (err != nil || c.text != "" && len(list) == 0) || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s %s: %v %v, want %s", c.typ, c.text, list, err, c.want)
		}
	}
}

func TestSecretsThatCannotBeSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ, secret string
		ok          bool
	}{{"webhook", "s3cret", true}, {"webhook", "se\r\nX: cret", false}, {"webhook", "se cret", false}, {"webhook", "größe", false},
		{"smtp", "größe and \r\n all", true}, {"smtp", "se\x00cret", false}, {"sms", "x", false}} {
		err := CheckSecret(c.typ, c.secret)
		if (err == nil) != c.ok || err != nil && strings.Contains(err.Error(), "cret") && !strings.HasPrefix(err.Error(), "secret: must") {
			t.Errorf("%s %q: %v", c.typ, c.secret, err)
		}
	}
	w := newWorld(t)
	if f := delivery.Of(w.send(t, Channel{"webhook", `{"url": "http://hooks.example.com"}`, "a\r\nb"}, single(nil))); f.Outcome != Invalid || strings.Contains(f.Text, "\r") {
		t.Errorf("%+v", f)
	}
}
