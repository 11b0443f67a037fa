package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

func (b *bench) find(p *model.Principal, credentialType, id string) []store.CredentialRow {
	b.Helper()
	return must(b.Credentials.Find(b.Context(), p.TenantID, credentialType, sha256.Sum256([]byte(id))))(b)
}

func TestCredentialsAreFoundByTheHashOfTheirID(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	_, _, d := b.seed()
	const secret = "bearer-secret-4711"
	c := must(b.Credentials.Create(ctx, acme, store.Patch{"token": "c", "deviceToken": "d", "credentialType": AccessToken,
		"credentialId": secret, "enabled": true, "expiresAt": "2030-01-02T03:04:05.123456Z"}))(t)
	want := store.CredentialRow{ID: c.ID, DeviceID: d.ID, Device: "d", Enabled: true, ExpiresAt: *c.ExpiresAt}
	if got := b.find(acme, AccessToken, secret); !slices.Equal(got, []store.CredentialRow{want}) {
		t.Errorf("found %+v, want %+v", got, want)
	}
	for what, got := range map[string][]store.CredentialRow{
		"another tenant": b.find(other, AccessToken, secret), "another type": b.find(acme, MQTTBasic, secret),
		"another id": b.find(acme, AccessToken, secret+"x"),
	} {
		if got != nil {
			t.Errorf("%s finds %+v", what, got)
		}
	}
	if id := must(b.Credentials.ID(c))(t); id != secret {
		t.Errorf("the id opens as %q", id)
	}
	moved := *c
	moved.Token = "d"
	if _, err := b.Credentials.ID(&moved); err == nil {
		t.Error("a sealed id opens in another credential's row")
	}
	for table, rows := range b.dump() {
		if all := strings.Join(rows, "\n"); strings.Contains(all, secret) {
			t.Errorf("table %s holds the secret: %s", table, all)
		}
	}
}

func TestAPasswordIsKeptAsAHash(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	must(b.Credentials.Create(ctx, acme, store.Patch{"token": "c", "deviceToken": "d", "credentialType": MQTTBasic,
		"credentialId": "user", "credentialValue": "hunter2", "enabled": true}))(t)
	hash := func() string {
		t.Helper()
		return b.find(acme, MQTTBasic, "user")[0].PasswordHash
	}
	if hash() != "$hash$7" {
		t.Errorf("hash %q", hash())
	}
	must(b.Credentials.Update(ctx, acme, "c", store.Patch{"enabled": false}))(t)
	if hash() != "$hash$7" {
		t.Errorf("an omitted value changed the hash to %q", hash())
	}
	must(b.Credentials.Update(ctx, acme, "c", store.Patch{"credentialValue": "correct horse"}))(t)
	if hash() != "$hash$13" {
		t.Errorf("hash %q after a new value", hash())
	}
	must(b.Credentials.Update(ctx, acme, "c", store.Patch{"credentialValue": nil}))(t)
	if hash() != "" {
		t.Errorf("hash %q after a null", hash())
	}
	must(b.Credentials.Update(ctx, acme, "c", store.Patch{"credentialValue": "x"}))(t)
	must(b.Credentials.Update(ctx, acme, "c", store.Patch{"credentialType": AccessToken}))(t)
	if got := b.find(acme, AccessToken, "user"); len(got) != 1 || got[0].PasswordHash != "" {
		t.Errorf("a credential that became an access token: %+v", got)
	}
	for table, rows := range b.dump() {
		if all := strings.Join(rows, "\n"); strings.Contains(all, "hunter2") || strings.Contains(all, "correct horse") {
			t.Errorf("table %s holds a password: %s", table, all)
		}
	}
}

func TestChangedCredentialsAreForgottenAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	c := must(b.Credentials.Create(ctx, acme, store.Patch{"token": "c", "deviceToken": "d", "credentialType": AccessToken,
		"credentialId": "one", "enabled": true}))(t)
	check := func(what string, want ...[2]int64) {
		t.Helper()
		if !slices.Equal(b.forgotten, want) {
			t.Errorf("%s: forgotten %v, want %v", what, b.forgotten, want)
		}
		b.forgotten = nil
	}
	check("create")
	must(b.Credentials.Update(ctx, acme, "c", store.Patch{"enabled": false}))(t)
	check("update", [2]int64{0, c.ID})
	must(b.Credentials.Update(ctx, acme, "c", store.Patch{}))(t)
	check("an update that names nothing")
	if _, err := b.Credentials.Update(ctx, acme, "c", store.Patch{"enabled": nil}); err == nil {
		t.Error("null was taken")
	}
	check("a refused update")
	must(b.Credentials.Delete(ctx, acme, "c"))(t)
	check("delete", [2]int64{0, c.ID})
	if got := b.find(acme, AccessToken, "one"); got != nil {
		t.Errorf("found %v", got)
	}
}

func TestCredentialsAreForgottenWhenTheChangeCanBeRead(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	must(b.Credentials.Create(ctx, acme, store.Patch{"token": "c", "deviceToken": "d", "credentialType": AccessToken,
		"credentialId": "one", "enabled": true}))(t)
	told := 0
	b.Devices.verified.invalidate = func(int64, int64) {
		told++
		if got := b.find(acme, AccessToken, "one"); got[0].Enabled {
			t.Error("told of a change that a verifier could not see yet")
		}
	}
	must(b.Credentials.Update(ctx, acme, "c", store.Patch{"enabled": false}))(t)
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

type busyHasher struct{}

func (busyHasher) Hash(context.Context, string) (string, error) {
	return "", errors.New("all places taken")
}

func TestABusyHasherRefusesAPassword(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	b.Credentials.hasher = busyHasher{}
	b.unchanged("busy", func() {
		_, err := b.Credentials.Create(t.Context(), acme, store.Patch{"token": "c", "deviceToken": "d", "credentialType": MQTTBasic,
			"credentialId": "user", "credentialValue": "pw", "enabled": true})
		b.refused("busy", err, model.CodeUnavailable, "credentialValue")
	})
}

func TestRefusedCredentialsWriteNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{CredentialsPerDevice: 2})
	ctx := t.Context()
	b.seed()
	cert := strings.Repeat("ab", 32)
	base := func(credentialType, id string) store.Patch {
		return store.Patch{"token": "new", "deviceToken": "d", "credentialType": credentialType, "credentialId": id, "enabled": true}
	}
	with := func(p store.Patch, field string, v any) store.Patch {
		p[field] = v
		return p
	}
	must(b.Credentials.Create(ctx, acme, with(base(X509Certificate, cert), "token", "cert")))(t)
	for what, c := range map[string]struct {
		p    store.Patch
		code model.Code
		text string
	}{
		"unknown type":          {base("RPK", "x"), model.CodeInvalidInput, "credentialType"},
		"empty id":              {base(AccessToken, ""), model.CodeInvalidInput, "credentialId"},
		"long id":               {base(AccessToken, strings.Repeat("x", 1025)), model.CodeInvalidInput, "credentialId"},
		"zero in the id":        {base(MQTTBasic, "a\x00b"), model.CodeInvalidInput, "credentialId"},
		"no hex":                {base(X509Certificate, "zz"+cert[2:]), model.CodeInvalidInput, "credentialId"},
		"upper case":            {base(X509Certificate, strings.ToUpper(cert)), model.CodeInvalidInput, "credentialId"},
		"short":                 {base(X509Certificate, cert[2:]), model.CodeInvalidInput, "credentialId"},
		"value on a token":      {with(base(AccessToken, "x"), "credentialValue", "v"), model.CodeInvalidInput, "credentialValue"},
		"value on a cert":       {with(base(X509Certificate, hex.EncodeToString(make([]byte, 32))), "credentialValue", "v"), model.CodeInvalidInput, "credentialValue"},
		"long value":            {with(base(MQTTBasic, "x"), "credentialValue", strings.Repeat("v", 1025)), model.CodeInvalidInput, "credentialValue"},
		"unknown device":        {with(base(AccessToken, "x"), "deviceToken", "nope"), model.CodeInvalidInput, "deviceToken"},
		"unreadable expiry":     {with(base(AccessToken, "x"), "expiresAt", "tomorrow"), model.CodeInvalidInput, "expiresAt"},
		"id in use in the type": {base(X509Certificate, cert), model.CodeConflict, "credentialId of a device credential must be unique"},
		"token in use":          {with(base(AccessToken, "x"), "token", "cert"), model.CodeConflict, "unique"},
	} {
		t.Run(what, func(t *testing.T) {
			b.unchanged(what, func() {
				_, err := b.Credentials.Create(ctx, acme, c.p)
				b.refused(what, err, c.code, c.text)
				if err != nil && (strings.Contains(err.Error(), cert) || strings.Contains(err.Error(), hashCredentialID(cert))) {
					t.Errorf("%s: the message shows the id: %v", what, err)
				}
			})
		})
	}
	must(b.Credentials.Create(ctx, acme, with(with(base(AccessToken, "x"), "credentialValue", ""), "expiresAt", "")))(t)
	b.unchanged("updates", func() {
		_, err := b.Credentials.Update(ctx, acme, "new", store.Patch{"credentialType": X509Certificate})
		b.refused("an id that is no certificate's", err, model.CodeInvalidInput, "credentialId")
		_, err = b.Credentials.Update(ctx, acme, "new", store.Patch{"credentialValue": "v"})
		b.refused("a value for a token", err, model.CodeInvalidInput, "credentialValue")
		_, err = b.Credentials.Create(ctx, acme, with(base(AccessToken, "y"), "token", "third"))
		b.refused("no room", err, model.CodeLimitExceeded, "at most 2 credentials of a device")
	})
	must(b.Credentials.Update(ctx, acme, "new", store.Patch{"credentialType": X509Certificate, "credentialId": strings.Repeat("cd", 32)}))(t)
}

func TestCredentialsAreListedByRemainingLife(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	for token, expires := range map[string]any{"b-never": nil, "a-never": nil, "soon": "2026-01-01T00:00:00Z", "late": "2036-01-01T00:00:00Z",
		"over": "1960-01-01T00:00:00Z"} {
		must(b.Credentials.Create(ctx, acme, store.Patch{"token": token, "deviceToken": "d", "credentialType": AccessToken,
			"credentialId": "id-" + token, "enabled": token != "soon", "expiresAt": expires}))(t)
	}
	type criteria = map[string]any
	tokens := func(s criteria, page store.Page) (got []string) {
		t.Helper()
		filters := must(b.Credentials.Info().Criteria(ctx, acme, s))(t)
		rows, _, err := b.Credentials.List(ctx, acme, page, filters...)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range rows {
			got = append(got, c.Token)
		}
		return got
	}
	for what, c := range map[string]struct {
		s    criteria
		page store.Page
		want []string
	}{
		"all":            {criteria{}, store.Page{}, []string{"a-never", "b-never", "late", "soon", "over"}},
		"second page":    {criteria{"device": nil}, store.Page{Number: 2, Size: 2}, []string{"late", "soon"}},
		"disabled":       {criteria{"enabled": false}, store.Page{}, []string{"soon"}},
		"by id":          {criteria{"credentialId": "id-late"}, store.Page{}, []string{"late"}},
		"by type":        {criteria{"credentialType": MQTTBasic}, store.Page{}, nil},
		"by device":      {criteria{"device": "d", "enabled": true}, store.Page{Size: 1}, []string{"a-never"}},
		"unknown device": {criteria{"device": "no such.device"}, store.Page{}, nil},
	} {
		if got := tokens(c.s, c.page); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestADeviceIsAddedWithItsAccessToken(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	operator := &model.Principal{Kind: model.LocalOperator, Subject: "local", Tenant: "acme", TenantID: 1}
	d, secret, err := b.Devices.Add(ctx, operator, store.Patch{"token": "new", "deviceTypeToken": "t", "name": "New"})
	if err != nil || len(secret) != 64 {
		t.Fatalf("%v, secret %q", err, secret)
	}
	if got := b.find(acme, AccessToken, secret); len(got) != 1 || got[0].DeviceID != d.ID || !got[0].Enabled || got[0].ExpiresAt != 0 {
		t.Errorf("found %+v", got)
	}
	second, err := b.Credentials.IssueToken(ctx, operator, TokenRequest{Device: "new"})
	if err != nil || second.Secret == secret || second.Credential.DeviceID != d.ID || !model.ValidToken(second.Credential.Token) {
		t.Errorf("second token: %+v, %v", second, err)
	}
	b.unchanged("refused", func() {
		_, _, err := b.Devices.Add(ctx, operator, store.Patch{"token": "new", "deviceTypeToken": "t"})
		b.refused("token in use", err, model.CodeConflict, "unique")
		_, err = b.Credentials.IssueToken(ctx, operator, TokenRequest{Device: "nope"})
		b.refused("no device", err, model.CodeNotFound, `device "nope"`)
		_, _, err = b.Devices.Add(ctx, &model.Principal{Kind: model.LocalOperator}, store.Patch{"token": "x", "deviceTypeToken": "t"})
		b.refused("no tenant", err, model.CodeUnauthenticated, "unauthenticated")
	})
}
