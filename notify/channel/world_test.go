package channel

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/guard"
	"weir/internal/test/testcerts"
)

// at is the time in tests.
var at = time.Date(2026, 1, 2, 3, 9, 0, 0, time.UTC)

// alarmOf is an alarm with all that an alarm may have.
func alarmOf(change func(a *Alarm)) Alarm {
	v := 95.5
	a := Alarm{EventType: Raised, AlarmToken: "0a1b2c", AlarmKey: "too-hot", OriginatorType: "device", OriginatorID: "boiler-1", Severity: "CRITICAL", State: "ACTIVE",
		RaisedTime: time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC), OccurredTime: time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC), MetricKey: "temp", Value: &v,
		OriginatorName: "Boiler 1", RuleName: "Too hot", RuleDescription: "Open the valve.\nCall the plant.", Tenant: "acme", Link: "https://weir.example.com/alarms/0a1b2c"}
	if change != nil {
		change(&a)
	}
	return a
}

func single(change func(a *Alarm)) Message {
	return Message{Kind: Single, Alarms: []Alarm{alarmOf(change)}, Recipients: []string{"ops@example.com"}, Key: "n-17"}
}

// world is what Send is handed: a guard that allows this machine's servers, and who trusts whom.
type world struct {
	ca  *testcerts.CA
	env Env
	tls *tls.Config // of servers
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ca, err := testcerts.NewCA("notify")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{ca: ca, tls: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}}}}
	w.env = Env{Roots: ca.Pool(), Instance: "weir", Now: func() time.Time { return at }, Dial: (&net.Dialer{}).DialContext}
	return w
}

// guarded makes connections through a guard that allows these addresses and no others.
func (w *world) guarded(t *testing.T, allowed ...string) {
	t.Helper()
	g, err := guard.New(guard.Config{Settings: guard.Settings{Allowed: allowed}, Own: func() ([]netip.Addr, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	w.env.Dial = g.Dial("acme")
}

// hook is a receiver of webhooks.
type hook struct {
	url    string
	mu     sync.Mutex
	asked  []*http.Request
	bodies []string
}

func (w *world) hook(t *testing.T, secure bool, answer http.HandlerFunc) *hook {
	t.Helper()
	h := &hook{}
	l := listen(t)
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		h.asked, h.bodies = append(h.asked, r), append(h.bodies, string(body))
		h.mu.Unlock()
		if answer != nil {
			answer(rw, r)
		}
	}), TLSConfig: w.tls}
	h.url = "http://" + l.Addr().String()
	if secure {
		h.url = "https://" + l.Addr().String()
		l = tls.NewListener(l, w.tls)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return h
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// mailbox is a mail server as RFC 5321 wants it. Each of its answers may be replaced.
type mailbox struct {
	addr     string
	security string
	tls      *tls.Config
	user     string // with password; "": none is asked for
	password string
	methods  string
	// answers replaces the answer to what begins with a text; "greeting" and "." stand for the begin and the end of a mail.
	answers map[string]string
	hurt    func(c net.Conn) // takes a connection over

	mu    sync.Mutex
	said  []string // by clients
	mails []string
}

func (w *world) mailbox(t testing.TB, security string, change func(m *mailbox)) *mailbox {
	t.Helper()
	m := &mailbox{security: security, tls: w.tls, methods: "PLAIN LOGIN"}
	if change != nil {
		change(m)
	}
	l := listen(t)
	m.addr = l.Addr().String()
	if security == overTLS {
		l = tls.NewListener(l, w.tls)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if m.hurt != nil {
					m.hurt(c)
					return
				}
				m.serve(c)
			}()
		}
	}()
	return m
}

func (m *mailbox) serve(c net.Conn) {
	in := bufio.NewReader(c)
	say := func(to, usual string) bool {
		for begin, answer := range m.answers {
			if strings.HasPrefix(to, begin) {
				usual = answer
			}
		}
		_, err := io.WriteString(c, usual+"\r\n")
		return err == nil
	}
	if !say("greeting", "220 mail.example.com ESMTP") {
		return
	}
	encrypted := m.security == overTLS
	for {
		l, err := in.ReadString('\n')
		if err != nil {
			return
		}
		l = strings.TrimRight(l, "\r\n")
		m.mu.Lock()
		m.said = append(m.said, l)
		m.mu.Unlock()
		switch verb, rest, _ := strings.Cut(l, " "); verb {
		case "EHLO":
			offer := "250-mail.example.com\r\n250-SIZE 1000000\r\n"
			if m.security == startTLS && !encrypted {
				offer += "250-STARTTLS\r\n"
			} else if m.user != "" {
				offer += "250-AUTH " + m.methods + "\r\n"
			}
			say(l, offer+"250 8BITMIME")
		case "STARTTLS":
			say(l, "220 2.0.0 Ready")
			s := tls.Server(c, m.tls)
			if s.Handshake() != nil {
				return
			}
			c, in, encrypted = s, bufio.NewReader(s), true
		case "AUTH":
			user, password := m.credentials(in, c, rest)
			if user == m.user && password == m.password {
				say(l, "235 2.7.0 Welcome")
			} else {
				say(l, "535 5.7.8 wrong: "+user+" "+password)
			}
		case "DATA":
			if !say(l, "354 Go on") {
				return
			}
			var mail strings.Builder
			for {
				l, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if l == ".\r\n" {
					break
				}
				mail.WriteString(strings.TrimPrefix(l, "."))
			}
			m.mu.Lock()
			m.mails = append(m.mails, mail.String())
			m.mu.Unlock()
			say(".", "250 2.0.0 Queued")
		case "QUIT":
			say(l, "221 Bye")
			return
		default:
			say(l, "250 2.1.0 Fine")
		}
	}
}

func (m *mailbox) credentials(in *bufio.Reader, c net.Conn, rest string) (user, password string) {
	ask := func() string {
		_, _ = io.WriteString(c, "334 go on\r\n")
		l, _ := in.ReadString('\n')
		text, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(l))
		return string(text)
	}
	method, initial, _ := strings.Cut(rest, " ")
	if method == "LOGIN" {
		return ask(), ask()
	}
	text, _ := base64.StdEncoding.DecodeString(initial)
	parts := strings.Split(string(text), "\x00")
	if len(parts) != 3 {
		return "", ""
	}
	return parts[1], parts[2]
}

// config is one for the mailbox.
func (m *mailbox) config(more string) string {
	host, port, _ := net.SplitHostPort(m.addr)
	text := fmt.Sprintf(`{"host": %q, "port": %s, "from": "Plant <weir@example.com>", "security": %q`, host, port, m.security)
	if m.user != "" {
		text += fmt.Sprintf(`, "username": %q`, m.user)
	}
	return text + more + "}"
}

func (m *mailbox) received() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string{}, m.mails...)
}

func (w *world) send(t *testing.T, c Channel, m Message) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return Send(ctx, w.env, c, m)
}
