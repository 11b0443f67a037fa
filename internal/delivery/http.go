package delivery

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
)

// KeyHeader is the header with the idempotency key.
const KeyHeader = "X-Weir-Idempotency-Key"

// Bounds of what is read of a reply. It is for the log alone; a connection whose reply is longer is not used again.
const (
	shownReply = 512
	MaxReply   = 8 << 10
)

// finalStatuses are those that another attempt will hardly change.
var finalStatuses = []int{400, 401, 403, 404, 405, 410, 413, 415, 422}

// MaxRetryAfter bounds what a target asks for.
const MaxRetryAfter = time.Hour

// Judge reads a reply to its end, as far as it is bounded, closes it, and returns what it means: nil or a *Failure. secret says that the request
// held one: a reply may repeat what it was sent, so nothing of it is kept.
func Judge(resp *http.Response, secret bool, now time.Time) error {
	defer resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, MaxReply)) // it was delivered, whatever follows
		return nil
	}
	f := Refused(resp, now)
	shown, _ := io.ReadAll(io.LimitReader(resp.Body, shownReply)) // as much as there is
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, MaxReply))
	if !secret && len(shown) > 0 {
		f.Cause, f.Own = fmt.Errorf("the reply begins %q", shown), true
	}
	return f
}

// Refused is what the status of a reply outside 2xx means; it reads nothing of the body.
func Refused(resp *http.Response, now time.Time) *Failure {
	f := Fail(Retry, "HTTP %d", resp.StatusCode)
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		f.Text += " (redirects are not followed)"
	}
	if slices.Contains(finalStatuses, resp.StatusCode) {
		f.Tries = FewTries
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		f.After = RetryAfter(resp.Header.Get("Retry-After"), now)
	}
	return f
}

// RetryAfter reads a header Retry-After, a number of seconds or a date: how long to wait, at most an hour; 0 when it says nothing.
func RetryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 63); err == nil {
		return time.Duration(min(seconds, uint64(MaxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}

// reserved are headers that Weir or the protocol sets, in their canonical form.
var reserved = []string{"Authorization", "Host", "Content-Length", "Transfer-Encoding", "Connection", "Te", "Trailer", "Upgrade", "Expect", "Keep-Alive"}

// CheckHeader refuses a header that a user may not set, and returns the canonical form of its name.
func CheckHeader(name, value string) (string, error) {
	if name == "" || strings.ContainsFunc(name, notInToken) {
		return "", errors.New("is no name of a header")
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	if slices.Contains(reserved, name) || strings.HasPrefix(name, "X-Weir-") || strings.HasPrefix(name, "Proxy-") {
		return "", errors.New("is reserved: Weir sets it")
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", errors.New("must not hold control characters")
	}
	return name, nil
}

// notInToken reports characters that no token of RFC 9110, section 5.6.2, has.
func notInToken(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// CheckHeaderSecret refuses a secret that cannot be sent in a header. The error does not show it.
func CheckHeaderSecret(secret string) error {
	if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("must consist of printable ASCII characters without spaces")
	}
	return nil
}
