package connectors

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"weir/internal/delivery"
	"weir/internal/guard"
	"weir/model"
	"weir/store"
)

// signatureHeader is the header with the signature of a call.
const signatureHeader = "X-Weir-Signature"

// Call makes the call of a URL. Its error is a *Failure.
func (c *Connectors) Call(ctx context.Context, tenant int64, d *model.Dispatch) error {
	if c.deps.Guard == nil {
		return errResting
	}
	to, err := c.call(ctx, tenant, d)
	return c.note(ctx, "httpCall", d.Tenant, to, err)
}

// call returns the destination, for the log.
func (c *Connectors) call(ctx context.Context, tenant int64, d *model.Dispatch) (to string, err error) {
	if d.HTTPCall == nil {
		return "", fail(Invalid, "the order names no URL")
	}
	u, err := guard.CheckURL(d.HTTPCall.URL, "http", "https")
	if err != nil {
		return "", fail(Invalid, "the URL %v", err)
	}
	to = hostPort(u)
	var secret *signIn
	if d.HTTPCall.SecretRef != "" {
		if err := c.read(ctx, func(tx store.Tx) (err error) {
			secret, err = c.secretOf(tx, tenant, d.HTTPCall.SecretRef, u)
			return err
		}); err != nil {
			return to, err
		}
	}
	req, err := request(ctx, u, d, secret, c.deps.Now())
	if err != nil {
		return to, fail(Invalid, "the call cannot be made of the order")
	}
	value, release, err := c.pool.get(ctx, poolKey{kind: callPool, id: tenant, target: u.Scheme + "://" + to}, tenant, "", func(context.Context) (closer, error) {
		return c.transport(d.Tenant), nil
	})
	if err != nil {
		return to, err
	}
	defer release()
	resp, err := value.(*transport).RoundTrip(req)
	if err != nil {
		return to, err
	}
	return to, delivery.Judge(resp, secret != nil, c.deps.Now())
}

// request is what is sent. The headers of a rule were checked when it was compiled.
func request(ctx context.Context, u *url.URL, d *model.Dispatch, secret *signIn, now time.Time) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader([]byte(d.Payload)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "weir")
	for _, h := range d.HTTPCall.Headers {
		req.Header.Set(h[0], h[1])
	}
	req.Header.Set(delivery.KeyHeader, d.Key)
	switch {
	case secret == nil:
	case secret.use == UseSignature:
		req.Header.Set(signatureHeader, signature(secret.value, d.Payload, now))
	default:
		req.Header.Set("Authorization", "Bearer "+secret.value)
	}
	return req, nil
}

// signature is t=<seconds since the epoch>,v1=<hex of HMAC-SHA-256 over "<seconds>.<body>">: the receiver computes the same with the secret, and
// refuses a call whose time is not about now.
func signature(key, body string, now time.Time) string {
	seconds := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(seconds + "." + body)) // never fails
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// transport keeps the connections to one destination of one tenant.
type transport struct {
	http.RoundTripper
	idle func()
}

func (c *Connectors) transport(tenant string) *transport {
	t := c.deps.Guard.Transport(tenant)
	t.DisableKeepAlives, t.MaxIdleConnsPerHost, t.IdleConnTimeout = false, c.deps.AtOnce, idleTime
	return &transport{t, t.CloseIdleConnections}
}

// Done implements closer: a transport connects again by itself.
func (t *transport) Done() <-chan struct{} { return nil }

// Close implements closer.
func (t *transport) Close() error {
	t.idle()
	return nil
}
