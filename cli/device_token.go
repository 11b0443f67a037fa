package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/model"
	"weir/operate"
)

const (
	accessToken = "ACCESS_TOKEN"
	// lent marks the access tokens that are lent for a send; lentFor is how long one is good if it is not taken back.
	lent    = `{"temporary":true}`
	lentFor = 5 * time.Minute
)

// credentials are those of a device, oldest first, with their ids.
func (a tenantAPI) credentials(ctx context.Context, device string) ([]credential, error) {
	const document = `query($c: DeviceCredentialSearchCriteria!) { deviceCredentials(criteria: $c) {
		results { id token credentialType credentialId enabled expiresAt createdAt }
	} }`
	type row struct {
		credential
		RowID string `json:"id"`
	}
	var rows []row
	for page := 1; ; page++ {
		var found struct{ DeviceCredentials struct{ Results []row } }
		criteria := gqlVars{"pageNumber": page, "pageSize": operate.MaxDevicePage, "device": device}
		if err := a.run(ctx, deviceArea, document, gqlVars{"c": criteria}, &found); err != nil {
			return nil, err
		}
		rows = append(rows, found.DeviceCredentials.Results...)
		if len(found.DeviceCredentials.Results) < operate.MaxDevicePage {
			break
		}
	}
	number := func(r row) int64 {
		n, _ := strconv.ParseInt(r.RowID, 10, 64) // a row id
		return n
	}
	slices.SortFunc(rows, func(x, y row) int { return cmp.Compare(number(x), number(y)) })
	out := make([]credential, len(rows))
	for i, r := range rows {
		out[i] = r.credential
	}
	return out, nil
}

// addToken gives a device an access token of 256 random bits; until is when it ends, nil for never.
func (a tenantAPI) addToken(ctx context.Context, device string, until *time.Time) (token, secret string, err error) {
	var bits [32]byte
	var id [16]byte
	_, _ = rand.Read(bits[:]) // never fails
	_, _ = rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // a UUID of version 4 (RFC 9562)
	token = fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	secret = hex.EncodeToString(bits[:])
	request := gqlVars{"token": token, "deviceToken": device, "credentialType": accessToken, "credentialId": secret, "enabled": true}
	if until != nil {
		request["expiresAt"], request["metadata"] = until.UTC().Format(time.RFC3339Nano), lent
	}
	const document = `mutation($r: DeviceCredentialCreateRequest) { createDeviceCredential(request: $r) { token } }`
	return token, secret, a.run(ctx, deviceArea, document, gqlVars{"r": request}, nil)
}

func (a tenantAPI) removeCredential(ctx context.Context, token string) error {
	return a.run(ctx, deviceArea, `mutation($token: String!) { deleteDeviceCredential(token: $token) }`, gqlVars{"token": token}, nil)
}

// lentToken is an access token of a few minutes, with which a command sends in the name of a device.
type lentToken struct{ credential, secret string }

// lend lends a token of a device, and removes those that were lent before and have ended.
func (a tenantAPI) lend(ctx context.Context, device string) (*lentToken, error) {
	if err := a.known(ctx, a.listHint(), device); err != nil {
		return nil, err
	}
	if err := a.dropLent(ctx, device); err != nil {
		return nil, err
	}
	token, secret, err := a.addToken(ctx, device, new(time.Now().Add(lentFor)))
	return &lentToken{token, secret}, err
}

// dropLent removes the tokens that were lent and have ended.
func (a tenantAPI) dropLent(ctx context.Context, device string) error {
	const document = `query($c: DeviceCredentialSearchCriteria!) { deviceCredentials(criteria: $c) { results { token expiresAt metadata } } }`
	var found struct {
		DeviceCredentials struct {
			Results []struct {
				Token     string
				ExpiresAt *time.Time
				Metadata  *string
			}
		}
	}
	criteria := gqlVars{"pageNumber": 1, "pageSize": operate.MaxDevicePage, "device": device, "credentialType": accessToken}
	if err := a.run(ctx, deviceArea, document, gqlVars{"c": criteria}, &found); err != nil {
		return err
	}
	for _, c := range found.DeviceCredentials.Results {
		if c.Metadata != nil && *c.Metadata == lent && c.ExpiresAt != nil && c.ExpiresAt.Before(time.Now()) {
			if err := a.removeCredential(ctx, c.Token); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeBack removes a temporary token. It is no error if the token was removed before.
func (a tenantAPI) takeBack(ctx context.Context, t *lentToken) error {
	if err := a.removeCredential(ctx, t.credential); err != nil && model.CodeOf(err) != model.CodeNotFound {
		return err
	}
	return nil
}
