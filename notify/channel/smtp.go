package channel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"strconv"
	"strings"

	"weir/internal/delivery"
	"weir/internal/guard"
	"weir/rules/strict"
)

// How a session with a mail server is protected.
const (
	startTLS = "starttls" // the session begins in the clear, and goes on under TLS or not at all
	overTLS  = "tls"      // from the first byte
	noTLS    = "none"
)

// The ports of mail submission, RFC 8314.
const (
	submission  = 587
	submissions = 465
)

func smtpKind() *Kind {
	return &Kind{ID: "smtp", Label: "Mail", Description: "Sends mails over an SMTP server.", Recipients: true,
		Fields: []strict.Field{
			{Name: "host", Kind: strict.TextField, Required: true, Max: 254, Check: guard.CheckHost, Doc: "Name or address of the mail server."},
			{Name: "port", Kind: strict.NumberField, Min: 1, Max: 65535, Doc: "Port; left out it is 587, or 465 with the security `tls`."},
			{Name: "from", Kind: strict.TextField, Required: true, Max: maxRecipient, Check: checkFrom, Doc: "Sender, one address, with or without a name: `Plant <weir@example.com>`."},
			{Name: "username", Kind: strict.TextField, Max: 256, Check: noControls, Doc: "User name at the mail server. The password is the secret."},
			{Name: "security", Kind: strict.TextField, Default: `"starttls"`, Max: 16, OneOf: []string{startTLS, overTLS, noTLS},
				Doc: "`starttls`: TLS is required and agreed upon in the session; `tls`: TLS from the first byte; `none`: in the clear, without a user name."},
		},
		Secret:      "the password that belongs to `username`",
		Example:     `{"host": "mail.example.com", "from": "Plant <weir@example.com>", "username": "weir"}`,
		check:       checkSMTP,
		checkSecret: checkPassword,
		send:        sendSMTP,
	}
}

func checkFrom(text string) error {
	_, err := parseAddress(text)
	return err
}

// checkPassword refuses what AUTH PLAIN cannot carry.
func checkPassword(secret string) error {
	if strings.ContainsRune(secret, 0) {
		return errors.New("must not hold a NUL character")
	}
	return nil
}

func checkSMTP(v *strict.Values, hasSecret, enabled bool) error {
	user := v.Texts["username"] != ""
	switch {
	case user && v.Texts["security"] == noTLS:
		return strict.Refuse("username", "is never sent without TLS: the security must be %s or %s", startTLS, overTLS)
	case user && !hasSecret && enabled:
		return strict.Refuse(secretField, "is required with a username: the password")
	}
	return nil
}

func sendSMTP(ctx context.Context, env *Env, v *strict.Values, secret string, m *Message) error {
	if err := checkSMTP(v, secret != "", true); err != nil {
		return delivery.Fail(delivery.Invalid, "the config of the channel is not valid: %v", err)
	}
	from, err := parseAddress(v.Texts["from"])
	if err != nil {
		return delivery.Fail(delivery.Invalid, "from %v", err)
	}
	if len(m.Recipients) == 0 || len(m.Recipients) > MaxRecipients {
		return delivery.Fail(delivery.Invalid, "the message has %d recipients, 1 to %d are possible", len(m.Recipients), MaxRecipients)
	}
	to := make([]*mail.Address, len(m.Recipients))
	for i, text := range m.Recipients {
		if to[i], err = parseAddress(text); err != nil {
			return delivery.Fail(delivery.Invalid, "recipient %d %v", i+1, err)
		}
	}
	s, err := openSession(ctx, env, server{host: v.Texts["host"], port: portOf(v), security: v.Texts["security"], username: v.Texts["username"], password: secret})
	if err != nil {
		return err
	}
	defer s.close()
	refused, why, err := s.mail(from.Address, to, compose(env, from, to, m))
	switch {
	case err != nil:
		return err
	case len(refused) == 0:
		return nil
	}
	u := &Undelivered{Failure: why}
	for _, i := range refused {
		u.Recipients = append(u.Recipients, m.Recipients[i])
	}
	u.Failure.Text = fmt.Sprintf("%d of %d recipients were refused: %s", len(refused), len(to), why.Text)
	return u
}

func portOf(v *strict.Values) string {
	port := int(v.Numbers["port"])
	switch {
	case port != 0:
	case v.Texts["security"] == overTLS:
		port = submissions
	default:
		port = submission
	}
	return strconv.Itoa(port)
}

// ownName is how Weir introduces itself to a mail server: the public name of the instance, else the address that the connection has, RFC 5321, section 4.1.3.
func ownName(env *Env, conn net.Conn) string {
	if u, err := url.Parse(env.BaseURL); err == nil && strings.Contains(u.Hostname(), ".") && guard.CheckHost(u.Hostname()) == nil && net.ParseIP(u.Hostname()) == nil {
		return u.Hostname()
	}
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	ip := net.ParseIP(host)
	switch {
	case err != nil || ip == nil:
		return "localhost"
	case ip.To4() == nil:
		return "[IPv6:" + ip.String() + "]"
	}
	return "[" + ip.String() + "]"
}
