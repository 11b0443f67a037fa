package channel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"weir/internal/delivery"
	"weir/model"
)

// FuzzConfigs: what Check takes can be sent, and what it refuses has a path.
func FuzzConfigs(f *testing.F) {
	for _, k := range Kinds() {
		f.Add(k.ID, k.Example, true)
	}
	f.Add("smtp", `{"host": "a", "from": "=?utf-8?q?=0D=0A?= <a@b>", "security": "none"}`, false)
	f.Add("webhook", `{"url": "http://a", "headers": {"x-a": "\t", "content-type": "a"}, "authHeader": "x", "authScheme": ""}`, true)
	nowhere := errors.New("nowhere")
	env := Env{Now: func() time.Time { return at }, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, nowhere }}
	f.Fuzz(func(t *testing.T, typ, config string, has bool) {
		err := Check(typ, config, has, true)
		if e, ok := errors.AsType[*model.Error](err); err != nil && (!ok || e.Code != model.CodeInvalidInput || e.Field == "" || len(e.Error()) > 10_000) {
			t.Fatalf("%v", err)
		}
		secret := ""
		if has {
			secret = "s3cret"
		}
		// A channel that may be saved comes as far as its first connection.
		sent := delivery.Of(Send(t.Context(), env, Channel{typ, config, secret}, single(nil)))
		if err == nil && !errors.Is(sent, nowhere) || err != nil && errors.Is(sent, nowhere) {
			t.Fatalf("check %v, send %+v", err, sent)
		}
	})
}

// FuzzHeaders: a header that is taken stays within its line.
func FuzzHeaders(f *testing.F) {
	f.Add("X-Site", "a\tb")
	f.Add("x-WEIR-a", "b")
	f.Add("a\r\nb", "c\r\nd: e")
	f.Fuzz(func(t *testing.T, name, value string) {
		kept, err := delivery.CheckHeader(name, value)
		if err != nil {
			return
		}
		if strings.ContainsAny(kept+value, "\r\n\x00") || strings.ContainsAny(kept, ": ") || !strings.EqualFold(kept, name) || strings.HasPrefix(strings.ToLower(name), "x-weir-") {
			t.Fatalf("%q: %q becomes %q", name, value, kept)
		}
		if again, err := delivery.CheckHeader(kept, value); err != nil || again != kept {
			t.Fatalf("%q becomes %q", kept, again)
		}
	})
}

// FuzzRecipients: addresses that are taken stay within their commands and headers, and mean the same when they are read again.
func FuzzRecipients(f *testing.F) {
	f.Add("ops@example.com")
	f.Add(`"Ops, \"night\"" <b@example.com>`)
	f.Add("=?utf-8?b?4pyT?= <a@b>")
	f.Add("a: b@c;")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = ParseRecipients("smtp", text)
		_, _ = ParseRecipients("webhook", text)
		a, err := parseAddress(text)
		if err != nil {
			return
		}
		if strings.ContainsAny(a.Address, " <>\"\r\n,;:()\x00") || strings.Count(a.Address, "@") != 1 {
			t.Fatalf("%q is taken for %q", text, a.Address)
		}
		w := &world{env: Env{Now: func() time.Time { return at }}}
		m := single(nil)
		m.Recipients = []string{text, "ops@example.com"}
		header, _ := readMail(t, text, composed(t, w, m))
		if !strings.HasSuffix(header["To"], "<"+a.Address+">, <ops@example.com>") {
			t.Fatalf("%q is sent as %q", text, header["To"])
		}
	})
}

// FuzzMails: no text breaks a mail.
func FuzzMails(f *testing.F) {
	for _, text := range hostile {
		if len(text) < 1000 {
			f.Add(text, text)
		}
	}
	f.Fuzz(func(t *testing.T, one, other string) {
		w := &world{env: Env{Now: func() time.Time { return at }, Instance: other}}
		m := single(func(a *Alarm) {
			a.AlarmKey, a.OriginatorName, a.RuleDescription, a.Message, a.Link, a.Severity = one, other, one, other, one, other
		})
		header, text := readMail(t, one, composed(t, w, m))
		if header["Subject"] != strings.TrimSpace(m.normal().subject()) || text != m.normal().text(&w.env) {
			t.Fatalf("%q %q", header["Subject"], text)
		}
		if strings.Count(text, "\nWhat to do:\n") > 1 || strings.Count(text, "\n-- \n") != 1 {
			t.Fatalf("%q", text)
		}
	})
}

// FuzzReplies: a reply of a mail server is bounded, whatever it is.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("220 mail.example.com\r\n"))
	f.Add([]byte("250-a\r\n250-b\n250 c\r\n"))
	f.Add([]byte("250-a\r\n550 c\r\n"))
	f.Add(bytes.Repeat([]byte("250-x\r\n"), 200))
	f.Fuzz(func(t *testing.T, sent []byte) {
		client, server := net.Pipe()
		s := &session{ctx: t.Context()}
		s.use(client)
		go func() {
			_, _ = io.Copy(server, bytes.NewReader(sent))
			_ = server.Close()
		}()
		code, lines, err := s.reply()
		_ = client.Close()
		if err == nil && (code < 200 || code > 599 || len(lines) == 0 || len(lines) > maxReplyLines) || err != nil && lines != nil {
			t.Fatalf("%d %q %v", code, lines, err)
		}
		if err == nil && len(statusOf(lines[0])) > 9 {
			t.Fatalf("status %q", statusOf(lines[0]))
		}
	})
}
