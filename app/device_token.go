package app

import (
	"context"
	"time"

	"weir/model"
)

// DeviceTokens is the part of an Operator that is about the access tokens of devices.
type DeviceTokens interface {
	RotateDevice(ctx context.Context, d RotateDevice) (*DeviceAdded, error)
	LendToken(ctx context.Context, d DeviceName) (*LentToken, error)
	TakeBackToken(ctx context.Context, t LentToken) (*struct{}, error)
}

// RotateDevice asks for a new access token of a device.
type RotateDevice struct {
	DeviceName
	Keep bool `json:"keep,omitempty"` // the access tokens that it has stay good
}

// LentToken is an access token of a few minutes, with which somebody else sends in the name of a device.
type LentToken struct {
	Tenant     string `json:"tenant"`
	Credential string `json:"credential"` // its token
	Secret     string `json:"accessToken,omitempty"`
}

// lentFor is how long a lent token is good if nobody takes it back.
const lentFor = 5 * time.Minute

// RotateDevice implements Operator.
func (r rooms) RotateDevice(ctx context.Context, q RotateDevice) (*DeviceAdded, error) {
	by, err := r.within(q.Tenant)
	if err != nil {
		return nil, err
	}
	d, err := r.device(ctx, by, q.Token)
	if err != nil {
		return nil, err
	}
	out := &DeviceAdded{Tenant: q.Tenant, Token: q.Token, Instance: r.cfg.Instance.ID, MQTT: r.addrs.MQTT, Ingest: r.addrs.Ingest,
		Secure: r.secureDoors()}
	types, err := r.registry.Types.ByID(ctx, by, []int64{d.TypeID})
	if err != nil {
		return nil, err
	}
	for _, t := range types {
		out.Type = t.Token
	}
	if q.Keep {
		_, out.Secret, err = r.registry.AddAccessToken(ctx, by, q.Token)
	} else {
		out.Secret, out.Removed, err = r.registry.ReplaceAccessTokens(ctx, by, q.Token)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LendToken implements Operator.
func (r rooms) LendToken(ctx context.Context, q DeviceName) (*LentToken, error) {
	by, err := r.within(q.Tenant)
	if err != nil {
		return nil, err
	}
	if _, err := r.device(ctx, by, q.Token); err != nil {
		return nil, err
	}
	c, secret, err := r.registry.AddTemporaryToken(ctx, by, q.Token, model.MicrosOf(time.Now().Add(lentFor)))
	if err != nil {
		return nil, err
	}
	return &LentToken{Tenant: q.Tenant, Credential: c.Token, Secret: secret}, nil
}

// TakeBackToken implements Operator. It is no error that the token is gone.
func (r rooms) TakeBackToken(ctx context.Context, t LentToken) (*struct{}, error) {
	by, err := r.within(t.Tenant)
	if err != nil {
		return nil, err
	}
	_, err = r.registry.Credentials.Delete(ctx, by, t.Credential)
	return &struct{}{}, err
}

// RotateDevice implements Operator.
func (c *Client) RotateDevice(ctx context.Context, q RotateDevice) (*DeviceAdded, error) {
	return call[DeviceAdded](ctx, c, "device-rotate", q)
}

// LendToken implements Operator.
func (c *Client) LendToken(ctx context.Context, q DeviceName) (*LentToken, error) {
	return call[LentToken](ctx, c, "device-token-add", q)
}

// TakeBackToken implements Operator.
func (c *Client) TakeBackToken(ctx context.Context, t LentToken) (*struct{}, error) {
	t.Secret = "" // it is named, not shown
	return call[struct{}](ctx, c, "device-token-rm", t)
}
