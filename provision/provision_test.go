package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/auth"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/registry"
	"weir/store"
)

var (
	acme  = fixture.Member("ada", "acme", 1, model.DeviceRead, model.DeviceWrite)
	other = fixture.Member("bob", "other", 2, model.DeviceRead, model.DeviceWrite)
	guest = fixture.Member("eve", "acme", 1, model.DeviceRead)

	here = netip.MustParseAddr("192.0.2.1")
)

// tenants are acme and other.
type tenants struct{ disabled string }

func (tenants) TokenOf(id int64) string { return []string{"", "acme", "other"}[id] }

func (t *tenants) Lookup(token string) (int64, bool, bool) {
	return map[string]int64{"acme": 1, "other": 2}[token], token != t.disabled, true
}

// secrets counts the password hashes that clients of the doors cause.
type secrets struct {
	*auth.SharedSecrets
	mu     sync.Mutex
	hashed int
}

func (s *secrets) Verify(ctx context.Context, encoded, secret string, spend func() error) (bool, error) {
	return s.SharedSecrets.Verify(ctx, encoded, secret, func() error {
		err := spend()
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hashed++
		}
		return err
	})
}

type bench struct {
	*Provision
	testing.TB
	clock   *fixture.Clock
	tenants *tenants
	secrets *secrets
	r       *registry.Registry
}

func newBench(t testing.TB, limits registry.DeviceSettings) *bench {
	t.Helper()
	db := fixture.Store(t)
	b := &bench{TB: t, clock: fixture.NewClock(time.UnixMicro(1_700_000_000_000_000)), tenants: &tenants{}}
	hasher := auth.NewHasher(auth.Params{MemoryKiB: 8, Passes: 1, Lanes: 1}, nil)
	writer := store.Direct{Store: db, Now: b.clock.Now}
	b.r = registry.New(registry.Config{DeviceSettings: limits}, registry.Deps{Store: db, Writer: writer, Sealer: store.NewVault([32]byte{7}), Hasher: hasher,
		Removals: []registry.Removal{RemoveDeviceRows}})
	b.secrets = &secrets{SharedSecrets: auth.NewSharedSecrets(hasher)}
	b.Provision = New(ProfileSettings{ProfilesPerTenant: 3}, Deps{Registry: b.r, Store: db, Writer: writer, Hasher: hasher, Secrets: b.secrets, Tenants: b.tenants, Now: b.clock.Now})
	for _, by := range []*model.Principal{acme, other} {
		for _, typ := range []string{"pump", "valve"} {
			if _, err := b.r.Types.Create(t.Context(), by, store.Patch{"token": typ}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b
}

func (b *bench) profile(by *model.Principal, token, key, strategy string) *Profile {
	b.Helper()
	p := store.Patch{"token": token, "provisionSecret": "secret", "strategy": strategy, "deviceTypeToken": "pump", "enabled": true}
	if key != "" {
		p["provisionKey"] = key
	}
	f, err := b.Profiles.Create(b.Context(), by, p)
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// asks is what a device asks.
func asks(key, secret, device string) []byte {
	return fmt.Appendf(nil, `{"provisionKey":%q,"provisionSecret":%q,"deviceToken":%q}`, key, secret, device)
}

func (b *bench) count(outcome string) float64 {
	return testutil.ToFloat64(b.m.requests.WithLabelValues(outcome))
}

// provisions asks, and wants a status and that the outcome is counted.
func (b *bench) provisions(what string, body []byte, status int, outcome string) *Reply {
	b.Helper()
	before := b.count(outcome)
	r := b.Provision.Provision(b.Context(), body)
	if r.Status != status || b.count(outcome) != before+1 {
		b.Errorf("%s: %d %q, want %d; %q counted %v times", what, r.Status, r.Text, status, outcome, b.count(outcome)-before)
	}
	return r
}

func (b *bench) refused(what string, err error, code model.Code, text string) {
	b.Helper()
	if model.CodeOf(err) != code || err == nil || !strings.Contains(err.Error(), text) {
		b.Errorf("%s: %v (%s), want %s with %q", what, err, model.CodeOf(err), code, text)
	}
}

// A key of the own tenant is not unique, by name; one of another tenant reads as a bad one does.
func TestAProvisionKeyIsUniqueInTheInstance(t *testing.T) {
	t.Parallel()
	b := newBench(t, registry.DeviceSettings{})
	first := b.profile(acme, "line", "", AllowNew)
	if len(first.Key) != 36 {
		t.Errorf("a key that was made: %q", first.Key)
	}
	create := func(by *model.Principal, key any) error {
		_, err := b.Profiles.Create(t.Context(), by, store.Patch{"token": "x", "provisionKey": key, "provisionSecret": "secret", "strategy": AllowNew, "deviceTypeToken": "pump", "enabled": true})
		return err
	}
	b.refused("taken in the own tenant", create(acme, first.Key), model.CodeConflict, "must be unique, \""+first.Key+"\" is in use")
	bad := create(other, "a b")
	b.refused("a bad one", bad, model.CodeInvalidInput, "provisionKey")
	for what, key := range map[string]any{"taken elsewhere": first.Key, "empty": "", "too long": strings.Repeat("k", maxKeyBytes+1)} {
		if err := create(other, key); err == nil || err.Error() != bad.Error() || model.CodeOf(err) != model.CodeInvalidInput {
			t.Errorf("%s: %v, want what a bad one gets: %v", what, err, bad)
		}
	}
	b.profile(other, "line", "theirs", AllowNew)
	_, err := b.Profiles.Update(t.Context(), acme, "line", store.Patch{"provisionKey": "theirs"})
	if err == nil || err.Error() != bad.Error() {
		t.Errorf("an update: %v", err)
	}
	if f, err := b.Profiles.Update(t.Context(), acme, "line", store.Patch{"provisionKey": first.Key, "name": "Line"}); err != nil || f.Key != first.Key {
		t.Errorf("its own key again: %v", err)
	}
	if f, err := b.Profiles.Update(t.Context(), acme, "line", store.Patch{"provisionKey": "a:b/c"}); err != nil || f.Key != "a:b/c" {
		t.Errorf("another key: %v", err)
	}
}

func TestWhatAProfileMayBe(t *testing.T) {
	t.Parallel()
	b := newBench(t, registry.DeviceSettings{})
	b.profile(acme, "line", "k", AllowNew)
	valid := store.Patch{"token": "x", "provisionSecret": "secret", "strategy": AllowNew, "deviceTypeToken": "pump", "enabled": true}
	for field, bad := range map[string]any{"provisionSecret": " ", "strategy": "ANY", "deviceTypeToken": "none", "enabled": nil, "credentialType": "MQTT_BASIC", "metadata": "{"} {
		p := store.Patch{field: bad}
		for name, v := range valid {
			if name != field {
				p[name] = v
			}
		}
		_, err := b.Profiles.Create(t.Context(), acme, p)
		b.refused("a create with "+field, err, model.CodeInvalidInput, field)
		if field != "credentialType" {
			_, err = b.Profiles.Update(t.Context(), acme, "line", store.Patch{field: bad})
			b.refused("an update with "+field, err, model.CodeInvalidInput, field)
		}
	}
	_, err := b.Profiles.Create(t.Context(), acme, store.Patch{"token": "x", "provisionSecret": strings.Repeat("s", maxSecretBytes+1), "strategy": AllowNew, "deviceTypeToken": "pump", "enabled": true})
	b.refused("a long secret", err, model.CodeInvalidInput, "provisionSecret")
	_, err = b.r.Types.Delete(t.Context(), acme, "pump")
	b.refused("its device type", err, model.CodeInUse, "a provisioning profile")
	b.profile(acme, "b", "", AllowNew)
	b.profile(acme, "c", "", AllowNew)
	_, err = b.Profiles.Create(t.Context(), acme, valid)
	b.refused("a fourth", err, model.CodeLimitExceeded, "limits.provisioning_profiles_per_tenant: a tenant has at most 3")
	_, err = b.Profiles.Create(t.Context(), guest, valid)
	b.refused("without the authority", err, model.CodeForbidden, "device:write")
	for _, token := range []string{"line", "b", "c"} {
		if gone, err := b.Profiles.Delete(t.Context(), acme, token); !gone || err != nil {
			t.Error(gone, err)
		}
	}
	if gone, err := b.r.Types.Delete(t.Context(), acme, "pump"); !gone || err != nil {
		t.Errorf("a type that no profile names: %v %v", gone, err)
	}
}

// Every refusal reads alike; what was wrong is counted.
func TestEveryRefusalOfADeviceReadsAlike(t *testing.T) {
	t.Parallel()
	b := newBench(t, registry.DeviceSettings{DevicesPerTenant: 1})
	b.profile(acme, "line", "k", AllowNew)
	b.profile(acme, "stock", "stock", CheckPreProvisioned)
	update := func(p store.Patch) {
		t.Helper()
		if _, err := b.Profiles.Update(t.Context(), acme, "line", p); err != nil {
			t.Fatal(err)
		}
	}
	refusals := []*Reply{
		b.provisions("an unknown key", asks("none", "secret", "d"), 403, outcomeKey),
		b.provisions("a wrong secret", asks("k", "wrong", "d"), 403, outcomeSecret),
		b.provisions("a device that does not exist", asks("stock", "secret", "d"), 403, outcomeStrategy),
	}
	update(store.Patch{"enabled": false})
	refusals = append(refusals, b.provisions("a disabled profile", asks("k", "secret", "d"), 403, outcomeDisabled))
	update(store.Patch{"enabled": true, "expiresAt": model.MicrosOf(b.clock.Now().Add(time.Minute))})
	made := b.provisions("before it expires", asks("k", "secret", "d"), 200, outcomeCreated)
	refusals = append(refusals, b.provisions("one device more than there may be", asks("k", "secret", "e"), 403, outcomeCeiling))
	b.clock.Step(time.Minute)
	refusals = append(refusals, b.provisions("once it has expired", asks("k", "secret", "d"), 403, outcomeExpired))
	update(store.Patch{"expiresAt": nil})
	b.tenants.disabled = "acme"
	refusals = append(refusals, b.provisions("a disabled tenant", asks("k", "secret", "d"), 403, outcomeTenant))
	b.tenants.disabled = ""
	if again := b.provisions("repeated", asks("k", "secret", "d"), 200, outcomeRepeated); again.Answer.CredentialID != made.Answer.CredentialID || again.Answer.Created {
		t.Errorf("%+v, first %+v", again.Answer, made.Answer)
	}
	b.use(made.Answer.CredentialID)
	refusals = append(refusals, b.provisions("after the first use", asks("k", "secret", "d"), 403, outcomeUsed))
	for i, r := range refusals {
		if r.Text != refusals[0].Text || string(r.Body()) != `{"status":403}` || r.RetryAfter != 0 {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if _, err := b.r.Devices.Update(t.Context(), acme, "d", store.Patch{"deviceTypeToken": "valve"}); err != nil {
		t.Fatal(err)
	}
	b.provisions("another type", asks("k", "secret", "d"), 409, outcomeType)
}

// use signs in with an access token of acme.
func (b *bench) use(token string) {
	b.Helper()
	rows, err := b.r.Credentials.Find(b.Context(), 1, registry.AccessToken, auth.HashSecret(token))
	if err != nil || len(rows) != 1 || !rows[0].Unused {
		b.Fatalf("%+v %v", rows, err)
	}
	if err := b.Used(b.Context(), rows[0].ID); err != nil {
		b.Fatal(err)
	}
	if rows, err = b.r.Credentials.Find(b.Context(), 1, registry.AccessToken, auth.HashSecret(token)); err != nil || rows[0].Unused {
		b.Errorf("after its use: %+v %v", rows, err)
	}
}

// A device with a credential of another origin gets none: whoever has the secret of the fleet could otherwise become any of its
// devices. The same holds for the own one that an operator has disabled.
func TestADeviceInUseGetsNoCredential(t *testing.T) {
	t.Parallel()
	b := newBench(t, registry.DeviceSettings{})
	b.profile(acme, "line", "k", AllowNew)
	if _, _, err := b.r.Devices.Add(t.Context(), acme, store.Patch{"token": "d", "deviceTypeToken": "pump"}); err != nil {
		t.Fatal(err)
	}
	b.provisions("an operator's credential", asks("k", "secret", "d"), 403, outcomeUsed)
	b.provisions("its own", asks("k", "secret", "e"), 200, outcomeCreated)
	rows, err := b.r.Credentials.ByToken(t.Context(), acme, nil)
	if err == nil {
		rows, _, err = b.r.Credentials.List(t.Context(), acme, store.Page{})
	}
	for _, row := range rows {
		if _, e := b.r.Credentials.Update(t.Context(), acme, row.Token, store.Patch{"enabled": false}); e != nil {
			err = errors.Join(err, e)
		}
	}
	if err != nil || len(rows) != 2 {
		t.Fatal(len(rows), err)
	}
	b.provisions("its own, disabled", asks("k", "secret", "e"), 403, outcomeUsed)
	for _, row := range rows {
		if _, err := b.r.Credentials.Delete(t.Context(), acme, row.Token); err != nil {
			t.Fatal(err)
		}
	}
	b.provisions("its credential was deleted", asks("k", "secret", "e"), 200, outcomeMinted)
}

// Many requests of one device at once make one device with one credential.
func TestRequestsAtOnceMakeOneDevice(t *testing.T) {
	t.Parallel()
	b := newBench(t, registry.DeviceSettings{})
	b.profile(acme, "line", "k", AllowNew)
	var replies [8]*Reply
	var asking sync.WaitGroup
	for i := range replies {
		asking.Go(func() { replies[i] = b.Provision.Provision(t.Context(), asks("k", "secret", "d")) })
	}
	asking.Wait()
	created := 0
	for _, r := range replies {
		if r.Status != 200 || r.Answer.CredentialID != replies[0].Answer.CredentialID {
			t.Fatalf("%+v", r)
		}
		if r.Answer.Created {
			created++
		}
	}
	rows, total, err := b.r.Credentials.List(t.Context(), acme, store.Page{})
	if created != 1 || total != 1 || err != nil {
		t.Errorf("%d made the device, %d credentials %v %v", created, total, rows, err)
	}
}

// Addresses are limited before anything is looked at; a key only by devices that have its secret; password hashes all together.
func TestRequestsAreLimited(t *testing.T) {
	t.Parallel()
	b := newBench(t, registry.DeviceSettings{})
	b.profile(acme, "line", "k", AllowNew)
	for range perMinute {
		if b.Throttled(here) != 0 {
			t.Fatal("an address is refused before its limit")
		}
	}
	if wait := b.Throttled(here); wait != 6 {
		t.Errorf("the eleventh request waits %d s", wait)
	}
	if b.Throttled(netip.MustParseAddr("192.0.2.2")) != 0 {
		t.Error("another address pays for it")
	}
	v6 := netip.MustParseAddr("2001:db8::1")
	for range perMinute {
		b.Throttled(v6)
	}
	if b.Throttled(netip.MustParseAddr("2001:db8::ffff")) == 0 || b.Throttled(netip.MustParseAddr("2001:db8:0:1::1")) != 0 {
		t.Error("IPv6 counts by /64")
	}
	b.clock.Step(6 * time.Second)
	if b.Throttled(here) != 0 || b.Throttled(here) == 0 {
		t.Error("six seconds later one more is admitted")
	}
	// Guesses are as many as there may be hashes, whoever sends them, and nothing of the key is used up.
	for i := range hashBurst {
		b.provisions("a guess", asks("k", fmt.Sprint(i), "d"), 403, outcomeSecret)
	}
	if r := b.provisions("a guess too many", asks("k", "x", "d"), 429, outcomeHashes); r.RetryAfter != 1 || b.secrets.hashed != hashBurst {
		t.Errorf("%+v, %d hashes", r, b.secrets.hashed)
	}
	b.clock.Step(time.Second)
	b.provisions("the right one", asks("k", "secret", "d"), 200, outcomeCreated)
	hashed := b.secrets.hashed
	for range perMinute - 1 {
		b.provisions("it is remembered", asks("k", "secret", "d"), 200, outcomeRepeated)
	}
	if b.secrets.hashed != hashed {
		t.Errorf("a secret that was right is hashed again, %d times", b.secrets.hashed-hashed)
	}
	if r := b.provisions("the eleventh with the key", asks("k", "secret", "e"), 429, outcomeKeyRate); r.RetryAfter != 6 {
		t.Errorf("%+v", r)
	}
	for i := range 2 * maxAddresses {
		b.Throttled(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	if n := b.addresses.len(); n > maxAddresses {
		t.Errorf("%d addresses are kept", n)
	}
}

// A changed secret is another one at once.
func TestAChangedSecretIsNotRemembered(t *testing.T) {
	t.Parallel()
	b := newBench(t, registry.DeviceSettings{})
	b.profile(acme, "line", "k", AllowNew)
	b.provisions("the first secret", asks("k", "secret", "d"), 200, outcomeCreated)
	g, err := b.Admit(t.Context(), "k", "secret")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Profiles.Update(t.Context(), acme, "line", store.Patch{"provisionSecret": "second"}); err != nil {
		t.Fatal(err)
	}
	b.provisions("the former secret", asks("k", "secret", "d"), 403, outcomeSecret)
	if r := b.Enroll(t.Context(), g, []byte(`{"deviceToken":"d"}`)); r.Status != 403 {
		t.Errorf("a connection that has proven the former secret: %+v", r)
	}
	b.provisions("the second secret", asks("k", "second", "d"), 200, outcomeRepeated)
}

var requests = []struct {
	body, device string // "" is refused
	metadata     string
}{
	{`{"deviceToken":"d"}`, "d", ""},
	{` {"deviceToken":"d","unknown":[1]}`, "d", ""},
	{`{"deviceToken":"d","metadata":{"a":[1,2.50]}}`, "d", `{"a":[1,2.50]}`},
	{`{"deviceToken":"d","metadata":"{\"a\":1}"}`, "d", `{"a":1}`},
	{`{"deviceToken":"d","metadata":null,"name":null}`, "d", ""},
	{`{"deviceToken":"d","metadata":"null"}`, "", ""},
	{`{"deviceToken":"d","metadata":"{"}`, "", ""},
	{`{"deviceToken":"d","metadata":"` + strings.Repeat("1", maxMetadata+1) + `"}`, "", ""},
	{`{"deviceToken":"d","name":"` + strings.Repeat("x", maxName+1) + `"}`, "", ""},
	{`{"deviceToken":"d","name":"a\u0000"}`, "", ""},
	{`{"deviceToken":"d","name":1}`, "", ""},
	{`{"deviceToken":"a b"}`, "", ""},
	{`{"deviceToken":null}`, "", ""},
	{`{}`, "", ""}, {`[]`, "", ""}, {`null`, "", ""}, {``, "", ""}, {`"d"`, "", ""},
	{"{\"deviceToken\":\"d\",\"name\":\"\xff\"}", "", ""},
	{`{"deviceToken":"d","x":"` + strings.Repeat("x", MaxBody) + `"}`, "", ""},
}

func TestRequests(t *testing.T) {
	t.Parallel()
	for _, c := range requests {
		q, err := ParseRequest([]byte(c.body))
		switch {
		case c.device == "" && replyOf(err).Status != 400:
			t.Errorf("%.60s: %v", c.body, err)
		case c.device != "" && (err != nil || q.Device != c.device || string(q.Metadata) != c.metadata):
			t.Errorf("%.60s: %+v %v", c.body, q, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	for _, c := range requests {
		f.Add([]byte(c.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := ParseRequest(body)
		if err != nil {
			if r := replyOf(err); r.Status != 400 || r.Text == "" {
				t.Fatalf("%+v", r)
			}
			return
		}
		if !model.ValidToken(q.Device) || len(q.Metadata) > maxMetadata || q.Metadata != nil && !json.Valid(q.Metadata) {
			t.Fatalf("%+v", q)
		}
	})
}
