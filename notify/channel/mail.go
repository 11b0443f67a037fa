package channel

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"unicode/utf8"
)

// compose returns a mail as bytes, lines ended by CRLF, without the transparency of SMTP. Each value of a header is encoded where it is not plain ASCII, so none can
// end its line.
func compose(env *Env, from *mail.Address, to []*mail.Address, m *Message) []byte {
	var b bytes.Buffer
	field := func(name, value string) { b.WriteString(name + ": " + value + "\r\n") }
	domain := from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	field("Date", env.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	field("From", address(from))
	field("To", addresses(to))
	field("Subject", encodedText(m.subject(), len("Subject: ")))
	field("Message-ID", messageID(domain, "message", env.Instance, m.tenant(), m.Key))
	if m.Kind == Single { // mails about one alarm make a thread, whichever of them comes first
		thread := messageID(domain, "alarm", env.Instance, m.tenant(), m.Alarms[0].AlarmToken)
		field("In-Reply-To", thread)
		field("References", thread)
	}
	field("Auto-Submitted", "auto-generated")
	field("MIME-Version", "1.0")
	field("Content-Type", "text/plain; charset=utf-8")
	field("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(m.text(env))) // a buffer takes all
	_ = w.Close()
	return b.Bytes()
}

// messageID derives an id of a few parts: the same of the same, whatever characters they have.
func messageID(domain string, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		n := sha256.Sum256([]byte(p))
		h.Write(n[:])
	}
	return "<" + hex.EncodeToString(h.Sum(nil)[:16]) + "@" + domain + ">"
}

// address is an address in a header.
func address(a *mail.Address) string {
	name := line(a.Name, maxName)
	if name == "" {
		return "<" + a.Address + ">"
	}
	if plain(name) {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `" <` + a.Address + ">"
	}
	return encodedText(name, 0) + "\r\n <" + a.Address + ">"
}

// addresses are one or more addresses, each on its line.
func addresses(all []*mail.Address) string {
	texts := make([]string, len(all))
	for i, a := range all {
		texts[i] = address(a)
	}
	return strings.Join(texts, ",\r\n ")
}

// plain reports whether a text means itself in a header: readers decode what looks like an encoded word, wherever it is.
func plain(text string) bool {
	return !strings.Contains(text, "=?") && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f })
}

// Bounds of a line of a header, RFC 2047, section 2.
const (
	headerLine = 76
	wordFrame  = len("=?utf-8?b??=")
)

// encodedText writes a text for a header, of whose first line used characters are taken: as it stands when it is plain and fits, else as encoded words (RFC 2047), each on its line.
func encodedText(text string, used int) string {
	if plain(text) && used+len(text) <= headerLine {
		return text
	}
	var words []string
	for text != "" {
		room := (headerLine - used - wordFrame) / 4 * 3
		n := 0
		for n < len(text) {
			_, size := utf8.DecodeRuneInString(text[n:])
			if n+size > room {
				break
			}
			n += size
		}
		words = append(words, "=?utf-8?b?"+base64.StdEncoding.EncodeToString([]byte(text[:n]))+"?=")
		text, used = text[n:], 1
	}
	return strings.Join(words, "\r\n ")
}
