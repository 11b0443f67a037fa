package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/setting"
	"weir/model"
	"weir/store"
)

// TestTokenKindsAndPlanes walks over every kind of token on every plane and as every argument.
func TestTokenKindsAndPlanes(t *testing.T) {
	h := newHouseWith(t, Config{InstanceID: "test", Settings: Settings{ServiceSecret: setting.NewSecret(strings.Repeat("s", 32))}})
	h.member("root@example.org", RoleTenantAdmin)
	h.ok(h.SetSystemRoles(t.Context(), operator, "root@example.org", []string{RoleSuperuser}))
	identity := h.signIn("root@example.org")
	pair := h.enter("root@example.org", "acme")
	service, err := h.sign(serviceClaims(h, "*"), h.keys.active())
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[Kind]string{KindIdentity: identity, KindAccess: pair.Access, KindRefresh: pair.Refresh, KindService: service,
		"strange": resign(t, h, pair.Access, func(c jwt.MapClaims) { c["typ"] = "strange" }), "": "x.y.z"}
	planes := map[Plane][]Kind{PlaneTenant: {KindAccess, KindService}, PlaneTenantSocket: {KindAccess}, PlaneIdentity: {KindIdentity}}
	for kind, token := range tokens {
		for plane, takes := range planes {
			if got, want := h.accepts(plane, token), slices.Contains(takes, kind); got != want {
				t.Errorf("a token of kind %q on plane %d: accepted %v, want %v", kind, plane, got, want)
			}
		}
		_, err := h.SelectTenant(t.Context(), token, "acme")
		if (err == nil) != (kind == KindIdentity) {
			t.Errorf("selectTenant with %q: %v", kind, err)
		}
		_, err = h.IdentityMemberships(token)
		if (err == nil) != (kind == KindIdentity) {
			t.Errorf("identityMemberships with %q: %v", kind, err)
		}
		_, err = h.Refresh(t.Context(), token)
		if (err == nil) != (kind == KindRefresh) {
			t.Errorf("refresh with %q: %v", kind, err)
		}
	}
	// Kind before authority: the wildcard of one plane opens nothing on the other.
	access, err := h.Authenticate(PlaneTenant, pair.Access, "")
	if err != nil || access.Has(model.UserWrite) || !access.Has(model.DeviceWrite) || access.Has(model.StateDemote) {
		t.Errorf("%+v, %v", access, err)
	}
	who := h.principalOf("root@example.org")
	if !who.Has(model.UserWrite) || who.Has(model.DeviceWrite) {
		t.Errorf("%+v", who)
	}
}

func serviceClaims(h *house, as ...model.Authority) *claims {
	c := h.base(KindService, "tester", serviceLife, 0)
	c.Authorities = as
	return c
}

// resign changes the claims of a token and signs it with the right key.
func resign(t *testing.T, h *house, token string, change func(jwt.MapClaims)) string {
	t.Helper()
	c := jwt.MapClaims{}
	if _, _, err := jwt.NewParser(jwt.WithJSONNumber()).ParseUnverified(token, c); err != nil {
		t.Fatal(err)
	}
	change(c)
	signed := jwt.NewWithClaims(jwt.SigningMethodRS256, c)
	signed.Header["kid"] = h.keys.active().kid
	s, err := signed.SignedString(h.keys.active().private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTokensThatDoNotVerify(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org", RoleTenantAdmin)
	good := h.enter("ada@example.org", "acme").Access
	if !h.accepts(PlaneTenant, good) {
		t.Fatal("the good one is refused")
	}
	now := h.clock.Now().Unix()
	header, rest, _ := strings.Cut(good, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	encode := func(v map[string]any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	sign := func(m jwt.SigningMethod, kid string, key any) string {
		c := jwt.MapClaims{}
		if _, _, err := jwt.NewParser(jwt.WithJSONNumber()).ParseUnverified(good, c); err != nil {
			t.Fatal(err)
		}
		token := jwt.NewWithClaims(m, c)
		token.Header["kid"] = kid
		s, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	kid, private := h.keys.active().kid, h.keys.active().private
	stranger, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	change := func(name string, v any) string {
		return resign(t, h, good, func(c jwt.MapClaims) {
			if c[name] = v; v == nil {
				delete(c, name)
			}
		})
	}
	for name, token := range map[string]string{
		"empty": "", "blank": " ", "no dots": "abc", "two parts": header + "." + payload, "four parts": good + ".x",
		"no signature": header + "." + payload + ".", "other signature": header + "." + payload + "." + signature[1:] + "A",
		"padding": good + "=", "newline": good + "\n", "newline inside": header + ".\n" + rest, "lower-case header": strings.ToLower(header) + "." + rest,
		"alg none":          encode(map[string]any{"alg": "none", "kid": kid}) + "." + payload + ".",
		"alg none, signed":  encode(map[string]any{"alg": "none", "kid": kid}) + "." + payload + "." + signature,
		"alg RS512":         sign(jwt.SigningMethodRS512, kid, private),
		"alg PS256":         sign(jwt.SigningMethodPS256, kid, private),
		"HS256 by modulus":  sign(jwt.SigningMethodHS256, kid, private.N.Bytes()),
		"stranger's key":    sign(jwt.SigningMethodRS256, kid, stranger),
		"stranger's kid":    sign(jwt.SigningMethodRS256, thumbprint(&stranger.PublicKey), stranger),
		"no kid":            sign(jwt.SigningMethodRS256, "", private),
		"expired":           change("exp", now-31),
		"no exp":            change("exp", nil),
		"exp as text":       change("exp", "4102444800"),
		"exp negative":      change("exp", -1),
		"exp huge":          change("exp", json.Number("1e300")),
		"not yet":           change("nbf", now+31),
		"other issuer":      change("iss", "weir:other"),
		"no issuer":         change("iss", nil),
		"other audience":    change("aud", []string{"other"}),
		"no audience":       change("aud", nil),
		"no iat":            change("iat", nil),
		"no jti":            change("jti", nil),
		"no kind":           change("typ", nil),
		"unknown subject":   change("sub", "eve@example.org"),
		"other tenant":      change("tenant", "globex"),
		"unknown tenant":    change("tenant", "nowhere"),
		"no tenant":         change("tenant", nil),
		"roles as a number": change("roles", 7),
		"too long":          good + strings.Repeat("A", maxTokenBytes),
	} {
		t.Run(name, func(t *testing.T) {
			p, err := h.Authenticate(PlaneTenant, token, "")
			if p != nil || !errors.Is(err, ErrToken) || model.CodeOf(err) != model.CodeUnauthenticated {
				t.Errorf("%+v, %v", p, err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "unauthenticated") {
				t.Errorf("message %q", err)
			}
			if expired := name == "expired"; err != nil && strings.Contains(err.Error(), "the token has expired") != expired {
				t.Errorf("message %q", err)
			}
		})
	}
	for name, token := range map[string]string{"within the leeway": change("exp", now-29), "leeway of nbf": change("nbf", now+29),
		"unknown claims": change("extra", 1)} {
		if !h.accepts(PlaneTenant, token) {
			t.Errorf("%s is refused", name)
		}
	}
}

func TestRevocationIsAtOnce(t *testing.T) {
	ctx := t.Context()
	const ada = "ada@example.org"
	both := map[Kind]bool{KindIdentity: true, KindAccess: true}
	access := map[Kind]bool{KindAccess: true}
	none := map[Kind]bool{}
	for name, c := range map[string]struct {
		do   func(h *house)
		ends map[Kind]bool
	}{
		"nothing":             {func(*house) {}, none},
		"password":            {func(h *house) { h.ok(h.SetPassword(ctx, operator, ada, "another one")) }, both},
		"disabled":            {func(h *house) { h.ok(h.SetIdentityEnabled(ctx, operator, ada, false)) }, both},
		"removed":             {func(h *house) { h.ok(h.DeleteIdentity(ctx, operator, ada)) }, both},
		"system roles":        {func(h *house) { h.ok(h.SetSystemRoles(ctx, operator, ada, nil)) }, both},
		"same system roles":   {func(h *house) { h.ok(h.SetSystemRoles(ctx, operator, ada, []string{RoleOperator})) }, none},
		"membership disabled": {func(h *house) { h.ok(h.SetMembershipEnabled(ctx, operator, ada, "acme", false)) }, access},
		"membership removed":  {func(h *house) { h.ok(h.RemoveMembership(ctx, operator, ada, "acme")) }, access},
		"membership roles":    {func(h *house) { h.ok(h.SetMembershipRoles(ctx, operator, ada, "acme", nil)) }, access},
		"authorities of a tenant role": {func(h *house) {
			h.ok(h.Roles.UpdateIn(ctx, operator, "", "mover", map[string]any{"authorities": []any{"location:read", "state:demote"}}))
		}, access},
		"authorities of a system role": {func(h *house) {
			h.ok(h.Roles.UpdateIn(ctx, operator, "", RoleOperator, map[string]any{"authorities": []any{"user:read"}}))
		}, both},
		"name of a role": {func(h *house) { h.ok(h.Roles.UpdateIn(ctx, operator, "", "mover", map[string]any{"name": "M"})) }, none},
		"same authorities": {func(h *house) {
			h.ok(h.Roles.UpdateIn(ctx, operator, "", "mover", map[string]any{"authorities": []any{"location:read"}}))
		}, none},
		"another person": {func(h *house) { h.ok(h.SetPassword(ctx, operator, "bob@example.org", "another one")) }, none},
		"a tenant made":  {func(h *house) { h.tenant("initech") }, none},
		"own name":       {func(h *house) { h.ok(h.UpdateProfile(ctx, h.principalOf(ada), map[string]any{"firstName": "A"})) }, none},
		"tenant disabled": {func(h *house) {
			h.tenants.set("acme", false, 0)
		}, access},
		"tenant disabled and enabled": {func(h *house) {
			h.tenants.set("acme", true, model.MicrosOf(h.clock.Now())+1000)
		}, access},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.ok(h.Roles.Create(ctx, operator, map[string]any{"scope": "tenant", "token": "mover", "authorities": []any{"location:read"}}))
			h.member(ada, "mover")
			h.person("bob@example.org")
			h.ok(h.SetSystemRoles(ctx, operator, ada, []string{RoleOperator}))
			tokens := map[Kind]string{KindIdentity: h.signIn(ada), KindAccess: h.enter(ada, "acme").Access}
			planes := map[Kind]Plane{KindIdentity: PlaneIdentity, KindAccess: PlaneTenant}
			held := map[Kind]*model.Principal{}
			for kind, token := range tokens {
				p, err := h.Authenticate(planes[kind], token, "")
				if err != nil {
					t.Fatal(err)
				}
				held[kind] = p
			}
			c.do(h)
			for _, when := range []string{"at once", "after a restart"} {
				for kind, token := range tokens {
					if got := h.accepts(planes[kind], token); got == c.ends[kind] {
						t.Errorf("%s token %s: accepted %v", kind, when, got)
					}
					if until, ok := h.Valid(held[kind]); ok == c.ends[kind] || until.IsZero() {
						t.Errorf("%s principal %s: valid %v until %v", kind, when, ok, until)
					}
				}
				h.reopen(Config{InstanceID: "test"})
			}
		})
	}
}

func TestATokenMintedAfterARevocationIsGoodEvenWhenTheClockWentBack(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org")
	h.ok(h.SetMembershipRoles(t.Context(), operator, "ada@example.org", "acme", []string{RoleTenantAdmin}))
	h.tenants.set("acme", true, model.MicrosOf(h.clock.Now()))
	h.clock.Step(-100 * time.Hour)
	h.reopen(Config{InstanceID: "test"})
	old := h.enter("ada@example.org", "acme")
	if !h.accepts(PlaneTenant, old.Access) {
		t.Error("a fresh token is refused")
	}
	h.ok(h.SetMembershipRoles(t.Context(), operator, "ada@example.org", "acme", nil))
	if h.accepts(PlaneTenant, old.Access) {
		t.Error("a revocation within the same instant does not count")
	}
	if !h.accepts(PlaneTenant, h.enter("ada@example.org", "acme").Access) {
		t.Error("a token after it is refused")
	}
}

func TestStampsGrowWhateverTheClockDoes(t *testing.T) {
	h := newHouse(t)
	last := h.stamp(0)
	for i := range 1000 {
		if i%10 == 0 {
			h.clock.Step(-time.Second)
		}
		next := h.stamp(0)
		if next <= last {
			t.Fatalf("%d after %d", next, last)
		}
		last = next
	}
}

func TestAServiceTokenTakesItsTenantFromTheHeader(t *testing.T) {
	h := newHouse(t)
	token, err := h.sign(serviceClaims(h, model.AIInfer, model.TenantRead), h.keys.active())
	if err != nil {
		t.Fatal(err)
	}
	h.tenants.set("globex", false, 0)
	for header, want := range map[string]string{"": "", "acme": "acme", "globex": "", "nowhere": "", "a.b": "", strings.Repeat("x", 9000): ""} {
		t.Run(header, func(t *testing.T) {
			p, err := h.Authenticate(PlaneTenant, token, header)
			if err != nil || p.Tenant != want || (p.TenantID != 0) != (want != "") || p.Kind != model.ServiceCaller {
				t.Errorf("header %.10q: %+v, %v", header, p, err)
			}
			if err == nil && (!p.Has(model.AIInfer) || !p.Has(model.TenantRead) || p.Has(model.DeviceRead)) {
				t.Errorf("authorities %+v", p)
			}
		})
	}
	p, err := h.Authenticate(PlaneTenant, token, "acme")
	if err != nil {
		t.Fatal(err)
	}
	h.clock.Step(serviceLife + clockLeeway + time.Second)
	if _, ok := h.Valid(p); ok {
		t.Error("valid beyond its life")
	}
	for _, p := range []*model.Principal{model.Service("inside", "acme", 1, model.AIInfer), operator} {
		if _, ok := h.Valid(p); !ok {
			t.Errorf("%+v came from no token and is not valid", p)
		}
	}
	access := h
	access.member("ada@example.org")
	q, err := h.Authenticate(PlaneTenant, h.enter("ada@example.org", "acme").Access, "globex")
	if err != nil || q.Tenant != "acme" {
		t.Errorf("the header moved an access token: %+v, %v", q, err)
	}
}

func TestKeysRotateAndRetiredOnesVerifyForEightDays(t *testing.T) {
	h := newHouse(t)
	made := 0
	h.deps.GenerateKey = func() (*rsa.PrivateKey, error) { made++; return rsa.GenerateKey(rand.Reader, 1024) }
	cfg := Config{InstanceID: "test", Settings: Settings{SigningKeyMaxAge: 24 * time.Hour, AccessTokenTTL: 60 * 24 * time.Hour, RefreshTokenTTL: 60 * 24 * time.Hour}}
	h.reopen(cfg)
	h.member("ada@example.org")
	before := h.enter("ada@example.org", "acme").Access
	first := h.keys.active().kid
	h.clock.Step(24*time.Hour + time.Minute)
	if err := h.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := h.keys.active().kid
	if second == first || made != 1 {
		t.Fatalf("%d keys were made", made)
	}
	if !h.accepts(PlaneTenant, before) || !h.accepts(PlaneTenant, h.enter("ada@example.org", "acme").Access) {
		t.Error("a token of the old key or of the new one is refused")
	}
	h.reopen(cfg)
	if h.keys.active().kid != second || h.keys.byID(first) == nil || made != 1 {
		t.Error("a restart changed the keys")
	}
	if got := h.jwks(); !maps.Equal(got, map[string]bool{first: true, second: true}) {
		t.Errorf("key set %v", got)
	}
	if err := h.SetConfig(Config{InstanceID: "test", Settings: Settings{RefreshTokenTTL: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	h.clock.Step(8*24*time.Hour + time.Minute)
	if err := h.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.jwks(); !maps.Equal(got, map[string]bool{second: true}) {
		t.Errorf("key set after eight days %v", got)
	}
	if h.accepts(PlaneTenant, before) {
		t.Error("a token of the removed key is accepted")
	}
}

func (h *house) jwks() map[string]bool {
	h.t.Helper()
	w := httptest.NewRecorder()
	h.JWKS().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/auth/jwks", nil))
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(w.Body.Bytes(), &set); err != nil || w.Code != http.StatusOK {
		h.t.Fatalf("%d %s", w.Code, w.Body)
	}
	kids := map[string]bool{}
	for _, k := range set.Keys {
		if k["kty"] != "RSA" || k["alg"] != "RS256" || k["use"] != "sig" || k["e"] != "AQAB" || k["n"] == "" || len(k) != 6 {
			h.t.Errorf("key %v", k)
		}
		kids[k["kid"]] = true
	}
	w = httptest.NewRecorder()
	h.JWKS().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/auth/jwks", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
		h.t.Errorf("POST: %d", w.Code)
	}
	return kids
}

// TestThumbprintOfTheStandard checks the key id against the example of RFC 7638, section 3.1.
func TestThumbprintOfTheStandard(t *testing.T) {
	n, err := base64.RawURLEncoding.DecodeString("0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMs" +
		"tn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbIS" +
		"D08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw")
	if err != nil {
		t.Fatal(err)
	}
	k := &rsa.PublicKey{E: 65537, N: new(big.Int).SetBytes(n)}
	if got := thumbprint(k); got != "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs" {
		t.Errorf("thumbprint %s", got)
	}
}

func TestSigningKeysAreSealed(t *testing.T) {
	h := newHouse(t)
	h.deps.Vault = otherVault{}
	if _, err := New(t.Context(), Config{InstanceID: "test"}, h.deps); err == nil {
		t.Error("a start under another root key succeeds")
	}
}

func TestASigningKeyInAnothersPlaceIsDamage(t *testing.T) {
	h := newHouse(t)
	err := h.db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		var sealed string
		if err := tx.QueryRow(`SELECT private_key FROM signing_keys`).Scan(&sealed); err != nil {
			return err
		}
		kid := h.keys.active().kid
		sealed = strings.Replace(sealed, kid, "other", 1)
		_, err := tx.Exec(`UPDATE signing_keys SET kid = 'other', private_key = ?`, []byte(sealed))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), Config{InstanceID: "test"}, h.deps); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("%v", err)
	}
}

type otherVault struct{ plainVault }

func (otherVault) Open(string, []byte) ([]byte, error) { return nil, errors.New("does not open") }

var numericDates = map[string]numericDate{"0": 0, "1": 1e6, "1.5": 1500000, "1.123456": 1123456, "1.1234567": 1123456,
	"1.000001": 1000001, "253402300799": 253402300799e6}

func TestNumericDatesKeepMicroseconds(t *testing.T) {
	for text, want := range numericDates {
		var d numericDate
		if err := d.UnmarshalJSON([]byte(text)); err != nil || d != want {
			t.Errorf("%s: %d, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "null", "-1", "1e3", "1.e", "1.-5", "253402300800", "99999999999999999999", `"1"`, "1.5e3"} {
		var d numericDate
		if err := d.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%q is read as %d", text, d)
		}
	}
}

func FuzzNumericDate(f *testing.F) {
	for text := range numericDates {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d, again numericDate
		if d.UnmarshalJSON([]byte(text)) != nil {
			return
		}
		b, err := d.MarshalJSON()
		if err != nil || again.UnmarshalJSON(b) != nil || again != d {
			t.Errorf("%q: %d, %s, %d", text, d, b, again)
		}
	})
}

// FuzzAuthenticate feeds strangers' bytes to the verification: nothing but what we signed may pass.
func FuzzAuthenticate(f *testing.F) {
	key, err := commonKey()
	if err != nil {
		f.Fatal(err)
	}
	a := &Auth{cfg: Config{InstanceID: "test"}.withDefaults(), now: newClock().Now, tenants: &tenantsFake{}, attempts: &attempts{bySource: &backoff{}, byName: &backoff{}},
		dir: &directory{}}
	a.m = newAuthMetrics(nil, a)
	a.ended = newEndedSessions(a.m.endedForgotten.Inc)
	a.parser = a.newParser()
	signing := &signingKey{kid: thumbprint(&key.PublicKey), private: key}
	a.keys.set([]*signingKey{signing})
	good, err := a.sign(a.base(KindService, "tester", serviceLife, 0), signing)
	if err != nil {
		f.Fatal(err)
	}
	header, rest, _ := strings.Cut(good, ".")
	for _, seed := range []string{good, "", ".", "..", "a.b.c", header, header + "." + rest[:20], "Bearer " + good,
		header + ".e30.", "eyJhbGciOiJub25lIn0.e30.", "eyJhbGciOiJSUzI1NiIsImtpZCI6MX0.e30.AA"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		p, err := a.Authenticate(PlaneTenant, token, "")
		if (p == nil) == (err == nil) {
			t.Fatalf("%+v, %v", p, err)
		}
		if err == nil && token != good {
			t.Errorf("%q passes", token)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	key, err := commonKey()
	if err != nil {
		b.Fatal(err)
	}
	a := &Auth{cfg: Config{InstanceID: "test"}.withDefaults(), now: time.Now, tenants: &tenantsFake{}, attempts: &attempts{bySource: &backoff{}, byName: &backoff{}},
		dir: &directory{}}
	a.m = newAuthMetrics(nil, a)
	a.ended = newEndedSessions(a.m.endedForgotten.Inc)
	a.parser = a.newParser()
	signing := &signingKey{kid: thumbprint(&key.PublicKey), private: key}
	a.keys.set([]*signingKey{signing})
	token, err := a.sign(a.base(KindService, "tester", serviceLife, 0), signing)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(PlaneTenant, token, "acme"); err != nil {
			b.Fatal(err)
		}
	}
}
