package channel

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"slices"
	"strings"
	"time"

	"weir/internal/delivery"
	"weir/internal/guard"
)

// server is a mail server and how to talk to it.
type server struct{ host, port, security, username, password string }

// session is a session with a mail server, RFC 5321. What the server sends is bounded in lines, bytes and time and is never shown to a tenant.
type session struct {
	ctx        context.Context
	conn       net.Conn
	in         *bufio.Reader
	stop       func() bool
	own        string
	extensions map[string]string // of the last EHLO, by keyword
	secret     bool              // the server was sent a password: nothing of its replies is kept
}

// Bounds of a reply. RFC 5321 has lines of 512 bytes.
const (
	maxReplyLine  = 2048
	maxReplyLines = 100
	shownReply    = 512
)

// errSpeaks says that the other side sends what no mail server does.
var errSpeaks = errors.New("channel: no reply of SMTP")

// openSession connects, agrees on TLS and signs in, as far as the server is to be used with them.
func openSession(ctx context.Context, env *Env, to server) (*session, error) {
	conn, err := env.Dial(ctx, "tcp", net.JoinHostPort(to.host, to.port))
	if err != nil {
		return nil, err
	}
	s := &session{ctx: ctx, own: ownName(env, conn)}
	s.use(conn)
	// What waits for the server ends with the context.
	s.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if err := s.begin(env, &to); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// use takes a connection. Nothing that was read of the one before counts.
func (s *session) use(conn net.Conn) { s.conn, s.in = conn, bufio.NewReaderSize(conn, maxReplyLine) }

func (s *session) begin(env *Env, to *server) error {
	security := guard.ClientTLS(env.Roots)
	security.ServerName = strings.TrimSuffix(to.host, ".")
	if to.security == overTLS {
		if err := s.encrypt(security); err != nil {
			return err
		}
	}
	if err := s.expect("the greeting", 220); err != nil {
		return err
	}
	if err := s.hello(); err != nil {
		return err
	}
	if to.security == startTLS {
		if _, offered := s.extensions["STARTTLS"]; !offered {
			return &delivery.Failure{Outcome: delivery.Retry, Tries: delivery.FewTries, Text: "the mail server does not offer STARTTLS, which the channel requires"}
		}
		if err := s.command("STARTTLS", "STARTTLS", 220); err != nil {
			return err
		}
		if s.in.Buffered() > 0 { // sent in the clear, to be taken for what the server says under TLS
			return &delivery.Failure{Outcome: delivery.Retry, Text: "the mail server sent more than its answer before TLS began"}
		}
		if err := s.encrypt(security); err != nil {
			return err
		}
		if err := s.hello(); err != nil {
			return err
		}
	}
	if to.username == "" {
		return nil
	}
	return s.signIn(to)
}

func (s *session) encrypt(security *tls.Config) error {
	conn := tls.Client(s.conn, security)
	if err := conn.HandshakeContext(s.ctx); err != nil {
		return s.broken(err)
	}
	s.use(conn)
	return nil
}

// hello introduces Weir and learns what the server offers.
func (s *session) hello() error {
	lines, err := s.exchange("EHLO", "EHLO "+s.own, 250)
	if err != nil {
		return err
	}
	s.extensions = map[string]string{}
	for _, l := range lines[1:] {
		keyword, rest, _ := strings.Cut(l, " ")
		s.extensions[strings.ToUpper(keyword)] = strings.ToUpper(rest)
	}
	return nil
}

// signIn presents the user name, under TLS only.
func (s *session) signIn(to *server) error {
	if _, encrypted := s.conn.(*tls.Conn); !encrypted {
		return delivery.Fail(delivery.Invalid, "a password is never sent without TLS")
	}
	encode := base64.StdEncoding.EncodeToString
	methods := strings.Fields(s.extensions["AUTH"])
	has := func(method string) bool {
		return slices.Contains(methods, method)
	}
	switch {
	case has("PLAIN"):
		s.secret = true
		return s.command("AUTH", "AUTH PLAIN "+encode([]byte("\x00"+to.username+"\x00"+to.password)), 235)
	case has("LOGIN"):
		if err := s.command("AUTH", "AUTH LOGIN", 334); err != nil {
			return err
		}
		if err := s.command("AUTH", encode([]byte(to.username)), 334); err != nil {
			return err
		}
		s.secret = true
		return s.command("AUTH", encode([]byte(to.password)), 235)
	}
	return &delivery.Failure{Outcome: delivery.Retry, Tries: delivery.FewTries, Text: "the mail server offers neither AUTH PLAIN nor AUTH LOGIN"}
}

// mail hands a mail over. refused are the positions of the recipients that the server does not take, and why the failure of those: it is
// worth further attempts if that of one of them is. The error is about the mail as a whole, which then no recipient has.
func (s *session) mail(from string, to []*mail.Address, message []byte) (refused []int, why *delivery.Failure, err error) {
	if err := s.command("MAIL FROM", "MAIL FROM:<"+from+">", 250); err != nil {
		return nil, nil, err
	}
	for i, a := range to {
		err := s.command("RCPT TO", "RCPT TO:<"+a.Address+">", 250, 251, 252)
		var r *refusal
		if err != nil && (!errors.As(err, &r) || r.code == 421) {
			return nil, nil, err
		}
		if err != nil {
			refused = append(refused, i)
			if f := r.failure(); why == nil || why.Tries != 0 && f.Tries == 0 {
				why = f
			}
		}
	}
	if len(refused) == len(to) {
		return nil, nil, why
	}
	if err := s.command("DATA", "DATA", 354); err != nil {
		return nil, nil, err
	}
	if err := s.command("the mail", stuffed(message), 250); err != nil {
		return nil, nil, err
	}
	return refused, why, nil
}

// stuffed is a mail with the transparency of SMTP and its end, without the last CRLF; RFC 5321, section 4.5.2.
func stuffed(message []byte) string {
	message = bytes.TrimSuffix(message, []byte("\r\n"))
	return strings.TrimPrefix(strings.ReplaceAll("\r\n"+string(message), "\r\n.", "\r\n.."), "\r\n") + "\r\n."
}

// goodbye is how long the server may take to answer QUIT: the mail is delivered.
const goodbye = time.Second

// close ends the session.
func (s *session) close() {
	if s.stop() {
		_ = s.conn.SetDeadline(time.Now().Add(goodbye))
		if _, err := s.conn.Write([]byte("QUIT\r\n")); err == nil {
			_, _, _ = s.reply() // whatever it says
		}
	}
	_ = s.conn.Close() // nothing waits in it
}

// command sends a line and wants one of these codes. what names it in a failure: a line may hold a secret.
func (s *session) command(what, line string, codes ...int) error {
	_, err := s.exchange(what, line, codes...)
	return err
}

func (s *session) exchange(what, line string, codes ...int) ([]string, error) {
	if _, err := s.conn.Write([]byte(line + "\r\n")); err != nil {
		return nil, s.broken(err)
	}
	return s.answer(what, codes...)
}

// expect waits for a reply with one of these codes.
func (s *session) expect(what string, codes ...int) error {
	_, err := s.answer(what, codes...)
	return err
}

func (s *session) answer(what string, codes ...int) ([]string, error) {
	code, lines, err := s.reply()
	if err != nil {
		return nil, s.broken(err)
	}
	if slices.Contains(codes, code) {
		return lines, nil
	}
	r := &refusal{what: what, code: code, status: statusOf(lines[0])}
	if !s.secret {
		r.said = fmt.Sprintf("%.*q", shownReply, strings.Join(lines, " "))
	}
	return nil, r
}

// reply reads a reply: its code and the texts of its lines.
func (s *session) reply() (code int, lines []string, err error) {
	for len(lines) < maxReplyLines {
		l, err := s.in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return 0, nil, errSpeaks
		}
		if err != nil {
			return 0, nil, err
		}
		l = bytes.TrimRight(l, "\r\n")
		if len(l) < 3 || l[0] < '2' || l[0] > '5' || !digit(l[1]) || !digit(l[2]) || len(l) > 3 && l[3] != ' ' && l[3] != '-' {
			return 0, nil, errSpeaks
		}
		c := int(l[0]-'0')*100 + int(l[1]-'0')*10 + int(l[2]-'0')
		if len(lines) > 0 && c != code {
			return 0, nil, errSpeaks
		}
		code = c
		lines = append(lines, string(l[min(4, len(l)):]))
		if len(l) == 3 || l[3] == ' ' {
			return code, lines, nil
		}
	}
	return 0, nil, errSpeaks
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// broken is the failure of a session that cannot go on.
func (s *session) broken(err error) error {
	switch {
	case errors.Is(err, errSpeaks):
		return &delivery.Failure{Outcome: delivery.Retry, Text: "the other side does not speak SMTP"}
	case s.ctx.Err() != nil:
		return s.ctx.Err()
	case guard.Outcome(err) == guard.OutcomeUnreachable: // the end of the stream
		return delivery.Connection(guard.OutcomeReset, err)
	}
	return err
}

// refusal is a reply with which a server turns something away.
type refusal struct {
	what   string // to what it replied
	code   int
	status string // enhanced status code (RFC 3463), "" for none
	said   string // for the operator; "" where a secret was sent
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("SMTP %d", r.code)
	if r.status != "" {
		text += " " + r.status
	}
	return text + " to " + r.what
}

// Unwrap returns the failure.
func (r *refusal) Unwrap() error { return r.failure() }

// failure is what a refusal means: what begins with 5 is tried twice.
func (r *refusal) failure() *delivery.Failure {
	f := &delivery.Failure{Outcome: delivery.Retry, Text: r.Error()}
	if r.code >= 500 {
		f.Tries = delivery.FewTries
	}
	if r.said != "" {
		f.Cause, f.Own = errors.New("the mail server said "+r.said), true
	}
	return f
}

// statusOf returns the enhanced status code at the begin of a reply, "" without one.
func statusOf(text string) string {
	word, _, _ := strings.Cut(text, " ")
	parts := strings.Split(word, ".")
	if len(parts) != 3 || len(parts[0]) != 1 {
		return ""
	}
	for _, p := range parts {
		if p == "" || len(p) > 3 || strings.Trim(p, "0123456789") != "" {
			return ""
		}
	}
	return word
}
