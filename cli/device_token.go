package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"weir/model"
	"weir/operate"
)

const accessToken = "ACCESS_TOKEN"

// lentFor is how long a lent access token is valid if it is not taken back.
const lentFor = 5 * time.Minute

// credentials are those of a device, oldest first, without secrets.
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
		if out[i] = r.credential; r.Type == accessToken {
			out[i].ID = "" // the secret itself
		}
	}
	return out, nil
}

// issuedToken is a new access token of a device.
type issuedToken struct {
	AccessToken string
	Credential  issuedCredential
}

type issuedCredential struct {
	Token  string
	Device struct{ DeviceType struct{ Token string } }
}

// issueToken gives a device a further access token, until an end where there is one.
func (a tenantAPI) issueToken(ctx context.Context, device string, until *time.Time) (*issuedToken, error) {
	request := gqlVars{"deviceToken": device, "replace": false}
	if until != nil {
		request["expiresAt"] = until.UTC().Format(time.RFC3339Nano)
	}
	const document = `mutation($r: AccessTokenRequest!) { issueAccessToken(request: $r) {
		accessToken credential { token device { deviceType { token } } }
	} }`
	var out struct{ IssueAccessToken issuedToken }
	err := a.run(ctx, deviceArea, document, gqlVars{"r": request}, &out)
	return &out.IssueAccessToken, a.located(err, "")
}

// lend issues an access token of a few minutes, with which a command sends in the name of a device.
func (a tenantAPI) lend(ctx context.Context, device string) (*issuedToken, error) {
	return a.issueToken(ctx, device, new(time.Now().Add(lentFor)))
}

// takeBack removes a lent token. It is no error that it has been removed already.
func (a tenantAPI) takeBack(ctx context.Context, t *issuedToken) error {
	const document = `mutation($token: String!) { deleteDeviceCredential(token: $token) }`
	err := a.run(ctx, deviceArea, document, gqlVars{"token": t.Credential.Token}, nil)
	if model.CodeOf(err) == model.CodeNotFound {
		return nil
	}
	return err
}
