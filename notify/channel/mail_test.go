package channel

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	update      = flag.Bool("update", false, "write testdata/mails.txt again")
	galleryFile = flag.String("gallery", "", "write the gallery to this file, for other programs to send and to read")
)

// sample is a message and what a reader of mails has to see of it. The run with real clients reads the same file.
type sample struct {
	Name    string
	Message Message
	Subject string
	Text    string
}

// hostile are texts with which somebody might break a mail.
var hostile = map[string]string{
	"line breaks":          "a\r\nBcc: thief@example.net\r\n\r\nfaked\nb\rc",
	"other line breaks":    "a\u2028b\u2029c\u0085d\ve\ff",
	"an encoded word":      "=?utf-8?q?Bcc=3A_thief?= and =?utf-8?b?4pyT?=",
	"a broken word":        "=?utf-8?b?=?= ?= =?x?",
	"a short encoded word": "=?utf-8?q?x?=",
	"right to left":        "מנוע חם مرجل",
	"turned around":        "cod\u202Eexe.\u2066gpj",
	"emoji":                "🔥👩‍🔧🏭 boiler 🇩🇪",
	"combining marks":      "Z\u0351\u036B\u0343\u036A\u0302\u036B\u033D\u034F\u0334\u0319\u0324\u031E\u0349\u035A\u032F\u031E\u0320\u034Dalgo",
	"NUL and escapes":      "a\x00b\x1b[31mred\x7f\u009bc",
	"quotes and signs":     `"a" <b@example.net>, (c) \d; e=f: "`,
	"dots":                 ".\n..\n.",
	"spaces":               "   a \t  b\u00a0\u3000c   ",
	"a long word":          strings.Repeat("x", 10_000),
	"long and wide":        strings.Repeat("Wärmetauscher ", 800),
	"long with emoji":      strings.Repeat("🔥", 2_500),
	"nothing":              "",
	"only spaces":          " \r\n ",
	"one character":        "é",
	"equals":               "a=3D=20=\nb=",
	"looks like a begin":   "From root\n>From me",
	"tags and marks":       "\uFEFFa\U000E0041b",
}

func gallery() []sample {
	all := []sample{
		{Name: "an alarm", Message: single(nil)},
		{Name: "with all that is optional left out", Message: single(func(a *Alarm) {
			*a = Alarm{EventType: Raised, AlarmToken: a.AlarmToken, AlarmKey: a.AlarmKey, OriginatorType: a.OriginatorType, OriginatorID: a.OriginatorID, Severity: "MINOR", State: a.State,
				RaisedTime: a.RaisedTime, OccurredTime: a.OccurredTime}
		})},
		{Name: "escalated", Message: single(func(a *Alarm) {
			a.EventType, a.PreviousSeverity, a.OccurredTime = Escalated, "MAJOR", a.OccurredTime.Add(90_000_000_000)
		})},
		{Name: "still active", Message: single(func(a *Alarm) {
			a.EventType, a.Escalation, a.NotifyCount, a.FirstNotifiedTime, a.LastNotifiedTime = Renotified, 2, 3, a.RaisedTime.Add(1e9), a.RaisedTime.Add(600e9)
		})},
		{Name: "a digest", Message: digest(1000)},
		{Name: "a small digest", Message: digest(2)},
		{Name: "a test", Message: Message{Kind: Test, Recipients: []string{"ops@example.com"}, Key: "t-1", Tenant: "acme", Note: "Channel: night-shift"}},
		{Name: "the end of a mute", Message: func() Message { m := digest(3); m.Kind, m.Note = MuteEnd, "Mute: new pump"; return m }()},
		{Name: "names of recipients", Message: func() Message {
			m := single(nil)
			m.Recipients = []string{"Größe <a@example.com>", `"Ops, \"night\"" <b@example.com>`, "=?utf-8?q?caf=C3=A9?= <c@example.com>", "d@example.com"}
			return m
		}()},
	}
	for _, name := range sortedKeys(hostile) {
		text := hostile[name]
		all = append(all, sample{Name: "everywhere: " + name, Message: single(func(a *Alarm) {
			a.AlarmKey, a.OriginatorName, a.OriginatorID, a.OriginatorType, a.MetricKey, a.Message = text, text, text, text, text, text
			a.RuleName, a.RuleDescription, a.Link, a.Tenant, a.Severity, a.PreviousSeverity = text, text, text, text, text, text
		})}, sample{Name: "in the key: " + name, Message: single(func(a *Alarm) { a.AlarmKey = text })})
	}
	return all
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	for i := range keys {
		for j := i; j > 0 && keys[j] < keys[j-1]; j-- {
			keys[j], keys[j-1] = keys[j-1], keys[j]
		}
	}
	return keys
}

func digest(n int) Message {
	m := Message{Kind: Digest, Counts: map[string]int{"CRITICAL": n - n/2, "MINOR": n / 2}, Recipients: []string{"ops@example.com"}, Key: "d-1"}
	for i := range min(n, MaxAlarms+5) {
		m.Alarms = append(m.Alarms, alarmOf(func(a *Alarm) {
			a.AlarmToken += string(rune('a' + i%26))
			a.OriginatorName = "Boiler " + strings.Repeat("I", i%5+1)
			if i%2 == 1 && n < 10 {
				a.Severity = "MINOR"
			}
		}))
	}
	return m
}

// TestTheGalleryReadsAsItShould composes each mail and reads it again: nothing that a name or key holds gets into another place.
func TestTheGalleryReadsAsItShould(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := gallery()
	for i := range all {
		s := &all[i]
		s.Subject, s.Text = s.Message.normal().subject(), s.Message.normal().text(&w.env)
		header, text := readMail(t, s.Name, composed(t, w, s.Message))
		if header["Subject"] != strings.TrimSpace(s.Subject) {
			t.Errorf("%s: subject %q, want %q", s.Name, header["Subject"], s.Subject)
		}
		if text != s.Text {
			t.Errorf("%s: text %q, want %q", s.Name, text, s.Text)
		}
	}
	compareGolden(t, all)
}

// compareGolden holds what ordinary mails say against a file, and writes the whole gallery where it is asked for.
func compareGolden(t *testing.T, all []sample) {
	t.Helper()
	const file = "testdata/mails.txt"
	var got strings.Builder
	for _, s := range all {
		if !strings.Contains(s.Name, ": ") {
			got.WriteString("===== " + s.Name + "\nSubject: " + s.Subject + "\n\n" + s.Text + "\n")
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got.String() {
		t.Errorf("%s differs from what mails say (%v): write it again with -update and read the difference", file, err)
	}
	if *galleryFile == "" {
		return
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*galleryFile, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func composed(t *testing.T, w *world, m Message) []byte {
	t.Helper()
	from, err := parseAddress("Wärme <weir@example.com>")
	if err != nil {
		t.Fatal(err)
	}
	var to []*mail.Address
	for _, r := range m.Recipients {
		a, err := parseAddress(r)
		if err != nil {
			t.Fatal(err)
		}
		to = append(to, a)
	}
	return compose(&w.env, from, to, m.normal())
}

// wantHeaders are those of a mail, and no others; of one that is about several alarms without the thread.
var wantHeaders = []string{"Date", "From", "To", "Subject", "Message-Id", "In-Reply-To", "References", "Auto-Submitted", "Mime-Version", "Content-Type", "Content-Transfer-Encoding"}

// readMail checks the form of a mail to the byte, and returns the decoded headers and text.
func readMail(t testing.TB, name string, raw []byte) (map[string]string, string) {
	t.Helper()
	for l := range strings.Lines(string(raw)) {
		body, ended := strings.CutSuffix(l, "\r\n")
		if len(body) > 998 || strings.ContainsAny(body, "\r\n\x00") || !ended && l != "" && !strings.HasSuffix(string(raw), l) || strings.ContainsFunc(body, func(r rune) bool { return r >= 0x7f }) {
			t.Errorf("%s: line %.100q", name, l)
		}
	}
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%s: %v in %.2000q", name, err, raw)
	}
	header := map[string]string{}
	dec := new(mime.WordDecoder)
	for key, values := range m.Header {
		found := false
		for _, w := range wantHeaders {
			found = found || w == key
		}
		if !found || len(values) != 1 {
			t.Errorf("%s: header %s %q", name, key, values)
		}
		if header[key], err = dec.DecodeHeader(values[0]); err != nil {
			t.Errorf("%s: %s: %v", name, key, err)
		}
	}
	if _, err := mail.ParseAddressList(m.Header.Get("To")); err != nil {
		t.Errorf("%s: To: %v", name, err)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil || !utf8.Valid(text) {
		t.Errorf("%s: %v", name, err)
	}
	return header, strings.ReplaceAll(string(text), "\r\n", "\n")
}

// TestMailsOfAnAlarmMakeAThread, and their ids follow from the key alone.
func TestMailsOfAnAlarmMakeAThread(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	head := func(change func(m *Message)) map[string]string {
		m := single(nil)
		change(&m)
		header, _ := readMail(t, "", composed(t, w, m))
		return header
	}
	first, again := head(func(*Message) {}), head(func(m *Message) { m.Alarms[0].Message = "other" })
	next := head(func(m *Message) { m.Key = "n-18"; m.Alarms[0].EventType = Renotified })
	other := head(func(m *Message) { m.Alarms[0].AlarmToken = "ffff" })
	tenant := head(func(m *Message) { m.Alarms[0].Tenant = "globex" })
	if id := first["Message-Id"]; id != again["Message-Id"] || id == next["Message-Id"] || id == tenant["Message-Id"] || !strings.HasSuffix(id, "@example.com>") {
		t.Errorf("%v %v %v %v", first, again, next, tenant)
	}
	if r := first["References"]; r != next["References"] || r != first["In-Reply-To"] || r == other["References"] || r == tenant["References"] || r == first["Message-Id"] {
		t.Errorf("%v %v %v", first, next, other)
	}
	if first["Auto-Submitted"] != "auto-generated" || first["Date"] != "Fri, 02 Jan 2026 03:09:00 +0000" || first["From"] != "Wärme <weir@example.com>" {
		t.Errorf("%v", first)
	}
}

func TestTextsThatAreNoUTF8(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	header, text := readMail(t, "", composed(t, w, single(func(a *Alarm) { a.AlarmKey, a.RuleDescription = "a\xff\xc3b\x80", "c\xfe\nd" })))
	if header["Subject"] != "[CRITICAL] raised: a��b� (Boiler 1)" || !strings.Contains(text, "What to do:\n  c�\n  d\n") {
		t.Errorf("%q %q", header["Subject"], text)
	}
}
