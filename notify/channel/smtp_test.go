package channel

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/delivery"
	"weir/internal/test/loopback"
	"weir/internal/test/testcerts"
)

// TestWhatAMailServerCanAnswer replaces one answer of a server that otherwise takes everything.
func TestWhatAMailServerCanAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	few := delivery.FewTries
	for name, c := range map[string]struct {
		to, answer string
		want       delivery.Failure // without a Text: sent
	}{
		"no service":                   {"greeting", "554 5.3.2 go away", delivery.Failure{Outcome: Retry, Text: "SMTP 554 5.3.2 to the greeting", Tries: few}},
		"too busy":                     {"greeting", "421 4.3.2 later", delivery.Failure{Outcome: Retry, Text: "SMTP 421 4.3.2 to the greeting"}},
		"a greeting of several lines":  {"greeting", "220-a\r\n220-b\r\n220 c", delivery.Failure{}},
		"EHLO refused":                 {"EHLO", "502 no", delivery.Failure{Outcome: Retry, Text: "SMTP 502 to EHLO", Tries: few}},
		"no STARTTLS":                  {"EHLO", "250 hello", delivery.Failure{Outcome: Retry, Text: "the mail server does not offer STARTTLS, which the channel requires", Tries: few}},
		"STARTTLS fails":               {"STARTTLS", "454 4.7.0 not now", delivery.Failure{Outcome: Retry, Text: "SMTP 454 4.7.0 to STARTTLS"}},
		"more than the answer":         {"STARTTLS", "220 ready\r\n250-x\r\n250 AUTH PLAIN", delivery.Failure{Outcome: Retry, Text: "the mail server sent more than its answer before TLS began"}},
		"sender refused":               {"MAIL", "550 5.7.1 no", delivery.Failure{Outcome: Retry, Text: "SMTP 550 5.7.1 to MAIL FROM", Tries: few}},
		"recipient refused":            {"RCPT", "550 5.1.1 no such user", delivery.Failure{Outcome: Retry, Text: "SMTP 550 5.1.1 to RCPT TO", Tries: few}},
		"recipient later":              {"RCPT", "450 4.2.0 greylisted", delivery.Failure{Outcome: Retry, Text: "SMTP 450 4.2.0 to RCPT TO"}},
		"recipient elsewhere":          {"RCPT", "251 will forward", delivery.Failure{}},
		"closing":                      {"RCPT", "421 4.3.2 bye", delivery.Failure{Outcome: Retry, Text: "SMTP 421 4.3.2 to RCPT TO"}},
		"no data":                      {"DATA", "451 4.3.0 no", delivery.Failure{Outcome: Retry, Text: "SMTP 451 4.3.0 to DATA"}},
		"mail refused":                 {".", "552 5.3.4 too big", delivery.Failure{Outcome: Retry, Text: "SMTP 552 5.3.4 to the mail", Tries: few}},
		"mail later":                   {".", "452 4.3.1 full", delivery.Failure{Outcome: Retry, Text: "SMTP 452 4.3.1 to the mail"}},
		"QUIT refused":                 {"QUIT", "500 what", delivery.Failure{}},
		"no SMTP":                      {"greeting", "HTTP/1.1 400 Bad Request", delivery.Failure{Outcome: Retry, Text: "the other side does not speak SMTP"}},
		"two codes":                    {"MAIL", "250-a\r\n550 b", delivery.Failure{Outcome: Retry, Text: "the other side does not speak SMTP"}},
		"an oversized line":            {"MAIL", "250 " + strings.Repeat("x", 5000), delivery.Failure{Outcome: Retry, Text: "the other side does not speak SMTP"}},
		"lines without an end":         {"MAIL", strings.Repeat("250-x\r\n", 5000) + "250 x", delivery.Failure{Outcome: Retry, Text: "the other side does not speak SMTP"}},
		"a line of the longest length": {"MAIL", "250 " + strings.Repeat("x", 2042), delivery.Failure{}},
		"a bare code":                  {"MAIL", "250", delivery.Failure{}},
		"status that is none":          {"MAIL", "550 5.1.1.1 s3cr", delivery.Failure{Outcome: Retry, Text: "SMTP 550 to MAIL FROM", Tries: few}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := w.mailbox(t, startTLS, func(m *mailbox) { m.answers = map[string]string{c.to: c.answer} })
			err := w.send(t, Channel{"smtp", box.config(""), ""}, single(nil))
			if c.want.Text == "" {
				if err != nil || len(box.received()) != 1 {
					t.Errorf("%v %q", err, box.received())
				}
				return
			}
			if f := delivery.Of(err); f == nil || f.Outcome != c.want.Outcome || f.Text != c.want.Text || f.Tries != c.want.Tries || len(f.Detail()) > 2*shownReply {
				t.Errorf("%+v, want %+v", f, c.want)
			}
		})
	}
}

// TestServersThatMisbehave: none holds an attempt longer than its time, and what is not known to have been taken is tried again.
func TestServersThatMisbehave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	until := func(c net.Conn, end string) { // reads up to a line
		var b strings.Builder
		for one := make([]byte, 1); !strings.HasSuffix(b.String(), end); {
			if _, err := c.Read(one); err != nil {
				return
			}
			b.Write(one)
		}
	}
	for name, c := range map[string]struct {
		hurt func(c net.Conn)
		want delivery.Failure
	}{
		"never greets":   {func(c net.Conn) { until(c, "never") }, delivery.Failure{Outcome: Unreachable, Text: "the target did not answer in time"}},
		"closes at once": {func(net.Conn) {}, delivery.Failure{Outcome: Unreachable, Text: "the connection broke"}},
		"greets byte by byte": {func(c net.Conn) {
			for range 1_000_000 {
				if _, err := io.WriteString(c, "2"); err != nil {
					return
				}
				select {
				case <-t.Context().Done():
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		}, delivery.Failure{Outcome: Unreachable, Text: "the target did not answer in time"}},
		"greets without an end": {func(c net.Conn) {
			for range 1_000_000 {
				if _, err := io.WriteString(c, "220-x\r\n"); err != nil {
					return
				}
			}
		}, delivery.Failure{Outcome: Retry, Text: "the other side does not speak SMTP"}},
		"closes within the mail": {func(c net.Conn) {
			_, _ = io.WriteString(c, "220 x\r\n")
			for _, next := range []string{"250 x", "250 x", "250 x", "354 x"} {
				until(c, "\r\n")
				_, _ = io.WriteString(c, next+"\r\n")
			}
			until(c, "\r\n")
		}, delivery.Failure{Outcome: Unreachable, Text: "the connection broke"}},
		"does not answer to the mail": {func(c net.Conn) {
			_, _ = io.WriteString(c, "220 x\r\n")
			for _, next := range []string{"250 x", "250 x", "250 x", "354 x"} {
				until(c, "\r\n")
				_, _ = io.WriteString(c, next+"\r\n")
			}
			until(c, "\r\n.\r\n")
			until(c, "never")
		}, delivery.Failure{Outcome: Unreachable, Text: "the target did not answer in time"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := w.mailbox(t, noTLS, func(m *mailbox) { m.hurt = c.hurt })
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if c.want.Text != "the target did not answer in time" {
				ctx = t.Context()
			}
			if f := delivery.Of(Send(ctx, w.env, Channel{"smtp", box.config(""), ""}, single(nil))); f == nil || f.Outcome != c.want.Outcome || f.Text != c.want.Text {
				t.Errorf("%+v, want %+v", f, c.want)
			}
		})
	}
	t.Run("is away", func(t *testing.T) {
		t.Parallel()
		box := &mailbox{addr: loopback.Refusing(t), security: startTLS}
		if f := delivery.Of(w.send(t, Channel{"smtp", box.config(""), ""}, single(nil))); f.Outcome != Unreachable || f.Text != "the connection was refused" {
			t.Errorf("%+v", f)
		}
	})
}

// TestOneMailHasAllRecipients, and those who are refused alone are named.
func TestOneMailHasAllRecipients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.mailbox(t, overTLS, func(m *mailbox) {
		m.answers = map[string]string{"RCPT TO:<gone": "550 5.1.1 no", "RCPT TO:<later": "450 4.2.0 wait"}
	})
	m := single(nil)
	m.Recipients = []string{"A <a@example.com>", "Gone <gone@example.com>", "b@example.com", "later@example.com"}
	err := w.send(t, Channel{"smtp", box.config(""), ""}, m)
	u, ok := errors.AsType[*Undelivered](err)
	if !ok || !slices.Equal(u.Recipients, []string{"Gone <gone@example.com>", "later@example.com"}) || u.Failure.Tries != 0 || u.Error() != "2 of 4 recipients were refused: SMTP 450 4.2.0 to RCPT TO" ||
		delivery.Of(err).Outcome != Retry || len(box.received()) != 1 {
		t.Fatalf("%v %v", err, u)
	}
	m.Recipients = u.Recipients[:1]
	if _, partly := errors.AsType[*Undelivered](w.send(t, Channel{"smtp", box.config(""), ""}, m)); partly {
		t.Error("who refuses the only recipient has taken nothing")
	}
	for _, to := range [][]string{nil, {"x"}, slices.Repeat([]string{"a@example.com"}, 51)} {
		m.Recipients = to
		if f := delivery.Of(w.send(t, Channel{"smtp", box.config(""), ""}, m)); f.Outcome != Invalid {
			t.Errorf("%v: %+v", to, f)
		}
	}
}

func TestLinesWithDotsArrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.mailbox(t, noTLS, nil)
	for name, text := range hostile {
		m := single(func(a *Alarm) { a.RuleDescription, a.Link = text, "." })
		if err := w.send(t, Channel{"smtp", box.config(""), ""}, m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mails := box.received()
		if _, got := readMail(t, name, []byte(mails[len(mails)-1])); got != m.normal().text(&w.env)+"\n" && got != m.normal().text(&w.env) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := stuffed([]byte(".a\r\n..\r\nb.\r\n.\r\n")); got != "..a\r\n...\r\nb.\r\n..\r\n." {
		t.Errorf("%q", got)
	}
}

// TestCertificatesOfMailServersAreVerified with their names, in both ways of TLS.
func TestCertificatesOfMailServersAreVerified(t *testing.T) {
	t.Parallel()
	const refused = "no TLS connection: the certificate is not trusted, or the other side does not speak TLS"
	for _, security := range []string{startTLS, overTLS} {
		w := newWorld(t)
		box := w.mailbox(t, security, func(m *mailbox) { m.user, m.password = "weir", "s3cret" })
		other, err := testcerts.NewCA("other")
		if err != nil {
			t.Fatal(err)
		}
		w.env.Roots = other.Pool()
		f := delivery.Of(w.send(t, Channel{"smtp", box.config(""), "s3cret"}, single(nil)))
		if f.Outcome != Unreachable || f.Text != refused {
			t.Errorf("%s: %+v", security, f)
		}
		w.env.Roots = w.ca.Pool()
		w.env.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, box.addr)
		}
		config := strings.Replace(box.config(""), "127.0.0.1", "mail.example.com", 1)
		if f := delivery.Of(w.send(t, Channel{"smtp", config, "s3cret"}, single(nil))); f.Text != refused {
			t.Errorf("%s: another name: %+v", security, f)
		}
		for _, said := range box.said {
			if strings.HasPrefix(said, "AUTH") || strings.HasPrefix(said, "MAIL") {
				t.Errorf("%s: the server was sent %q", security, said)
			}
		}
	}
	w := newWorld(t)
	plain := w.mailbox(t, noTLS, nil)
	if f := delivery.Of(w.send(t, Channel{"smtp", strings.Replace(plain.config(""), noTLS, overTLS, 1), ""}, single(nil))); f.Text != refused {
		t.Errorf("%+v", f)
	}
}

// TestHowAPasswordIsPresented: over the methods of the server, and never in the clear.
func TestHowAPasswordIsPresented(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for methods, ok := range map[string]bool{"PLAIN": true, "LOGIN": true, "login plain": true, "CRAM-MD5": false, "": false} {
		box := w.mailbox(t, startTLS, func(m *mailbox) { m.user, m.password, m.methods = "wäir", "s3cret \x01", methods })
		err := w.send(t, Channel{"smtp", box.config(""), box.password}, single(nil))
		if ok != (err == nil) {
			t.Errorf("%q: %v", methods, err)
		}
		if f := delivery.Of(err); f != nil && (f.Text != "the mail server offers neither AUTH PLAIN nor AUTH LOGIN" || f.Tries != delivery.FewTries) {
			t.Errorf("%q: %+v", methods, f)
		}
	}
	box := w.mailbox(t, noTLS, func(m *mailbox) { m.user, m.password = "weir", "s3cret" })
	if f := delivery.Of(w.send(t, Channel{"smtp", box.config(""), "s3cret"}, single(nil))); f.Outcome != Invalid || len(box.said) != 0 {
		t.Errorf("%+v %q", f, box.said)
	}
	s := &session{conn: &net.TCPConn{}, extensions: map[string]string{"AUTH": "PLAIN"}}
	if f := delivery.Of(s.signIn(&server{username: "weir", password: "s3cret"})); f.Outcome != Invalid {
		t.Errorf("%+v", f)
	}
}

// TestNoSecretIsInAFailure, whatever the other side does with it.
func TestNoSecretIsInAFailure(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-0123456789"
	w := newWorld(t)
	see := func(name string, err error) {
		t.Helper()
		f := delivery.Of(err)
		if f == nil {
			t.Errorf("%s: no failure", name)
			return
		}
		for _, text := range []string{err.Error(), f.Text, f.Detail()} {
			for _, form := range []string{secret, "czNjcmV0LTAxMjM0NTY3ODk", "AHdlaXIAczNjcmV0LTAxMjM0NTY3ODk"} {
				if strings.Contains(text, form) {
					t.Errorf("%s: %q holds the secret", name, text)
				}
			}
		}
	}
	for _, to := range []string{"AUTH", "MAIL", "RCPT", "DATA", "."} {
		for _, methods := range []string{"PLAIN", "LOGIN"} {
			box := w.mailbox(t, overTLS, func(m *mailbox) {
				m.user, m.password, m.methods = "weir", secret, methods
				m.answers = map[string]string{to: "550 5.0.0 " + secret + " AHdlaXIAczNjcmV0LTAxMjM0NTY3ODk= czNjcmV0LTAxMjM0NTY3ODk="}
			})
			see(to+" "+methods, w.send(t, Channel{"smtp", box.config(""), secret}, single(nil)))
		}
	}
	box := w.mailbox(t, overTLS, func(m *mailbox) { m.user, m.password = "weir", "another" })
	see("wrong password", w.send(t, Channel{"smtp", box.config(""), secret}, single(nil)))
	see("a wrong config", Check("smtp", `{"host": "`+secret+`"}`, true, true))
	see("a line break", CheckSecret("webhook", secret+"\n"))
	see("in a header", w.send(t, Channel{"webhook", `{"url": "http://127.0.0.1:1"}`, secret + "\n"}, single(nil)))
	see("refused", w.send(t, Channel{"webhook", `{"url": "http://` + loopback.Refusing(t) + `/` + secret + `"}`, secret}, single(nil)))
	see("a wrong config at delivery", w.send(t, Channel{"webhook", `{"url": "http://u:` + secret + `@a.example"}`, secret}, single(nil)))
}

func TestHowWeirIntroducesItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for base, want := range map[string]string{"": "EHLO [127.0.0.1]", "https://weir.example.com/x": "EHLO weir.example.com", "http://10.0.0.1:80": "EHLO [127.0.0.1]", "http://localhost": "EHLO [127.0.0.1]", "::": "EHLO [127.0.0.1]"} {
		w.env.BaseURL = base
		box := w.mailbox(t, noTLS, nil)
		if err := w.send(t, Channel{"smtp", box.config(""), ""}, single(nil)); err != nil || box.said[0] != want {
			t.Errorf("%q: %v %q", base, err, box.said)
		}
	}
	for typ, want := range map[string]string{`{"host": "a.example", "from": "a@example.com"}`: "587", `{"host": "a.example", "from": "a@example.com", "security": "tls"}`: "465",
		`{"host": "a.example", "from": "a@example.com", "security": "none"}`: "587", `{"host": "a.example", "from": "a@example.com", "security": "tls", "port": 2525}`: "2525"} {
		if v, err := smtpKind().parse(typ); err != nil || portOf(v) != want {
			t.Errorf("%s: %v", typ, err)
		}
	}
}
