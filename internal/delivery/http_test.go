package delivery

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// body is the body of a reply, which breaks off after its text if it does.
type body struct {
	io.Reader
	breaks bool
	read   int
	closed bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	if b.breaks && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

func reply(status int, text, retryAfter string) (*http.Response, *body) {
	b := &body{Reader: strings.NewReader(text)}
	r := &http.Response{StatusCode: status, Header: http.Header{}, Body: b}
	if retryAfter != "" {
		r.Header.Set("Retry-After", retryAfter)
	}
	return r, b
}

// TestWhatAStatusMeans goes over all of them: 2xx is delivered, whatever follows, and every other status is tried again, seldom where another attempt
// hardly changes it. Retry-After counts with 429 and 503 alone.
func TestWhatAStatusMeans(t *testing.T) {
	t.Parallel()
	few := map[int]bool{400: true, 401: true, 403: true, 404: true, 405: true, 410: true, 413: true, 415: true, 422: true}
	for status := 100; status <= 999; status++ {
		resp, b := reply(status, "text", "17")
		err := Judge(resp, false, noon)
		if !b.closed {
			t.Errorf("%d: the body is left open", status)
		}
		if status/100 == 2 {
			if err != nil {
				t.Errorf("%d: %v", status, err)
			}
			continue
		}
		f, ok := errors.AsType[*Failure](err)
		if !ok || f.Outcome != Retry || !strings.HasPrefix(f.Text, fmt.Sprintf("HTTP %d", status)) || strings.Contains(f.Text, "redirects are not followed") != (status/100 == 3) {
			t.Fatalf("%d: %v", status, err)
		}
		after, tries := time.Duration(0), 0
		if status == 429 || status == 503 {
			after = 17 * time.Second
		}
		if few[status] {
			tries = FewTries
		}
		if f.After != after || f.Tries != tries {
			t.Errorf("%d: after %s, %d tries", status, f.After, f.Tries)
		}
	}
}

// TestWhatIsKeptOfAReply: its first bytes for the operator, nothing of it for the tenant, nothing at all where the request held a secret. No more is
// read than the bound.
func TestWhatIsKeptOfAReply(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10*MaxReply)
	for name, c := range map[string]struct {
		status int
		text   string
		breaks bool
		secret bool
		want   string // Detail
		read   int
	}{
		"delivered, and the reply is long":   {status: 200, text: long, read: MaxReply},
		"delivered, and the reply breaks":    {status: 204, text: "half", breaks: true, read: 4},
		"an error with a text":               {status: 500, text: "no\nroom", want: `the reply begins "no\nroom"`, read: 7},
		"an error without a text":            {status: 500},
		"an error with a long text":          {status: 500, text: long, want: fmt.Sprintf("the reply begins %q", long[:shownReply]), read: shownReply + MaxReply},
		"an error that breaks":               {status: 500, text: "half", breaks: true, want: `the reply begins "half"`, read: 4},
		"an error that repeats what it got":  {status: 401, text: "Bearer s3cret is wrong", secret: true, read: 22},
		"a redirect that repeats the secret": {status: 302, text: "s3cret", secret: true, read: 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, b := reply(c.status, c.text, "")
			b.breaks = c.breaks
			err := Judge(resp, c.secret, noon)
			if b.read != c.read || !b.closed {
				t.Errorf("read %d bytes, want %d; closed: %v", b.read, c.read, b.closed)
			}
			if err == nil {
				if c.status/100 != 2 {
					t.Error("it counts as delivered")
				}
				return
			}
			f, ok := errors.AsType[*Failure](err)
			if !ok || f.Detail() != c.want {
				t.Fatalf("detail %q, want %q", f.Detail(), c.want)
			}
			if c.text != "" && strings.Contains(f.Text, c.text) || c.secret && strings.Contains(fmt.Sprintf("%+v %v", f, f.Unwrap()), "s3cret") {
				t.Errorf("%+v shows the reply", f)
			}
		})
	}
}

func TestWhatIsRefusedIsNotRead(t *testing.T) {
	t.Parallel()
	resp, b := reply(503, "text", "60")
	if f := Refused(resp, noon); f.After != time.Minute || f.Cause != nil || b.read > 0 || b.closed {
		t.Errorf("%+v, %d bytes are read", f, b.read)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		// Seconds: RFC 9110, section 10.2.3.
		"": 0, "0": 0, "1": time.Second, "007": 7 * time.Second, "3599": 3599 * time.Second, "3600": time.Hour, "3601": time.Hour, "9223372036854775807": time.Hour,
		// More than 63 bits are no number of seconds.
		"9223372036854775808": 0, "18446744073709551616": 0,
		"-1": 0, "+1": 0, "1.5": 0, " 5": 0, "5 ": 0, "5s": 0, "0x10": 0, "1e3": 0, "1_000": 0, "٣": 0,
		// Dates in the three forms of section 5.6.7.
		"Mon, 23 Nov 2026 12:00:30 GMT": 30 * time.Second, "Monday, 23-Nov-26 12:00:30 GMT": 30 * time.Second, "Mon Nov 23 12:00:30 2026": 30 * time.Second,
		"Mon, 23 Nov 2026 12:00:00 GMT": 0, "Mon, 23 Nov 2026 11:59:59 GMT": 0, "Thu, 01 Jan 1970 00:00:00 GMT": 0, "Mon, 01 Jan 0001 00:00:00 GMT": 0,
		"Mon, 23 Nov 2026 13:00:00 GMT": time.Hour, "Mon, 23 Nov 2026 13:00:01 GMT": time.Hour, "Fri, 31 Dec 9999 23:59:59 GMT": time.Hour,
		"Mon, 31 Feb 2026 12:00:30 GMT": 0, "Mon, 23 Nov 2026 25:00:00 GMT": 0, "2026-11-23T12:00:30Z": 0, "soon": 0, "\x00": 0, "17, 18": 0,
	} {
		if got := RetryAfter(text, noon); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, text := range []string{"", "17", "Mon, 23 Nov 2026 12:00:30 GMT", "Monday, 23-Nov-26 12:00:30 GMT", "Mon Nov 23 12:00:30 2026", "99999999999999999999", "-1"} {
		f.Add(text, noon.Unix())
	}
	f.Fuzz(func(t *testing.T, text string, now int64) {
		if got := RetryAfter(text, time.Unix(now, 0)); got < 0 || got > MaxRetryAfter {
			t.Error(got)
		}
	})
}

func TestHeadersThatAUserMaySet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want, refused string }{
		{"x-plant", "hall 3\tleft", "X-Plant", ""},
		{"Content-Type", "text/plain", "Content-Type", ""},
		{"x-umlaut", "käse", "X-Umlaut", ""},
		{"", "", "", "no name"}, {"x plant", "", "", "no name"}, {"x:plant", "", "", "no name"}, {"x\r\ny", "", "", "no name"}, {"kä", "", "", "no name"},
		{"authorization", "", "", "reserved"}, {"HOST", "", "", "reserved"}, {"te", "", "", "reserved"}, {"transfer-encoding", "", "", "reserved"}, {"keep-alive", "", "", "reserved"},
		{"proxy-authorization", "", "", "reserved"}, {"x-weir-idempotency-key", "", "", "reserved"}, {"X-WEIR-anything", "", "", "reserved"},
		{"x-plant", "a\r\nb: c", "", "control"}, {"x-plant", "a\x00", "", "control"}, {"x-plant", "a\x7f", "", "control"},
	} {
		got, err := CheckHeader(c.name, c.value)
		if got != c.want || (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%q: %q is %q, %v", c.name, c.value, got, err)
		}
	}
}

func TestSecretsThatFitAHeader(t *testing.T) {
	t.Parallel()
	for secret, ok := range map[string]bool{"s3cret!~": true, "": true, "two words": false, "tab\t": false, "line\nbreak": false, "käse": false, "\x7f": false, "\x00": false} {
		err := CheckHeaderSecret(secret)
		if (err == nil) != ok {
			t.Errorf("%q: %v", secret, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%v shows the secret", err)
		}
	}
}
