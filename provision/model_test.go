package provision

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/auth"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// modelTenant is what a tenant has, by token.
type modelTenant struct {
	by        *model.Principal
	types     map[string]bool
	profiles  map[string]*modelProfile
	devices   map[string]*modelDevice
	customers map[string]bool
	owners    map[string]string // device → customer, of the relationships that claims have made
}

type modelProfile struct {
	key, secret, strategy, typ string
	enabled                    bool
	expires                    model.Micros // 0: never
}

type modelDevice struct {
	typ         string
	credentials map[string]*modelCredential // by token
	claim       *modelClaim
}

// modelCredential is a credential of a device. Its id is known for those that requests have made.
type modelCredential struct {
	id              string
	unused, enabled bool
}

type modelClaim struct {
	status, secret string
	failures       int
	expires        model.Micros // 0: never
}

// machine runs operations in the provisioning, and in a model of it.
type machine struct {
	*bench
	rt      *rapid.T
	tenants map[string]*modelTenant
}

const devicesCeiling = 2

// Provisioning profiles, requests of devices, claims and what operators do to devices beside them, in any order, are what a model
// of maps says: who gets which credential, which device belongs to whom, what is refused with which code; and nothing is left of what
// is gone.
func TestProvisioningIsWhatAModelSays(t *testing.T) {
	t.Parallel()
	b := newBench(t, registry.DeviceSettings{DevicesPerTenant: devicesCeiling})
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{bench: b, rt: rt, tenants: map[string]*modelTenant{}}
		m.clear()
		for _, by := range []*model.Principal{acme, other} {
			m.tenants[by.Tenant] = &modelTenant{by: by, types: map[string]bool{}, profiles: map[string]*modelProfile{}, devices: map[string]*modelDevice{},
				customers: map[string]bool{}, owners: map[string]string{}}
			m.furnish(m.tenants[by.Tenant])
		}
		steps := []func(*modelTenant){m.createProfile, m.createProfile, m.updateProfile, m.deleteProfile, m.ask, m.ask, m.ask, m.ask, m.use, m.use, m.makeDevice, m.changeDevice, m.deleteDevice,
			m.changeCredential, m.initiate, m.initiate, m.claimIt, m.claimIt, m.claimIt, m.cancel, m.disown, m.customer, m.typ, m.disable}
		for range rapid.IntRange(10, 60).Draw(rt, "steps") {
			b.clock.Step(time.Minute) // whatever is limited by time is full again
			rapid.SampledFrom(steps).Draw(rt, "step")(m.tenants[rapid.SampledFrom([]string{"acme", "acme", "other"}).Draw(rt, "tenant")])
		}
		for _, w := range m.tenants {
			m.compare(w)
		}
		m.consistent()
	})
}

// clear removes every row.
func (m *machine) clear() {
	m.bench.tenants.disabled = ""
	m.must(m.parts.Store.Write(m.Context(), store.Results, func(tx store.Tx) error {
		for _, table := range []string{"device_claims", "entity_relationships", "entity_relationship_types", "provisioning_profiles", "device_credentials", "devices", "device_counts",
			"device_types", "customers", "customer_types", "row_counts", "audit_events", "control"} {
			if _, err := tx.Exec("DELETE FROM " + table); err != nil {
				return err
			}
		}
		_, err := tx.Exec(`DELETE FROM meta WHERE key LIKE 'tenant_bytes/%'`)
		return err
	}))
}

// furnish makes the types, a customer and a profile, so that the first step has something to do.
func (m *machine) furnish(w *modelTenant) {
	for _, row := range []struct {
		table string
		p     store.Patch
	}{{"device_types", store.Patch{"token": "pump"}}, {"device_types", store.Patch{"token": "valve"}}, {"customer_types", store.Patch{"token": "ct"}},
		{"customers", store.Patch{"token": "c", "customerTypeToken": "ct"}}} {
		_, err := m.r.Kinds.Of(row.table).Create(m.Context(), w.by, row.p)
		m.must(err)
	}
	w.types["pump"], w.types["valve"], w.customers["c"] = true, true, true
	f := &modelProfile{key: "k1", secret: "s1", strategy: AllowNew, typ: "pump", enabled: true}
	if w.by == other {
		f.key = "k2"
	}
	_, err := m.Profiles.Create(m.Context(), w.by, store.Patch{"token": "f1", "provisionKey": f.key, "provisionSecret": f.secret, "strategy": f.strategy, "deviceTypeToken": f.typ, "enabled": true})
	m.must(err)
	w.profiles["f1"] = f
}

func (m *machine) must(err error) {
	m.Helper()
	if err != nil {
		m.rt.Fatal(err)
	}
}

// code wants the code of an error, "" for none, and reports whether there is none.
func (m *machine) code(what string, err error, want model.Code) bool {
	m.Helper()
	if got := model.CodeOf(err); got != want || err != nil && got == "" {
		m.rt.Fatalf("%s: %v (%s), the model says %q", what, err, got, want)
	}
	return err == nil
}

func (m *machine) one(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(m.rt, label)
}

func (m *machine) typeName() string { return m.one("type", "pump", "pump", "pump", "valve") }

func (m *machine) deviceName() string { return m.one("device", "d1", "d1", "d2", "d3") }

// until is a time of expiry: none, or soon.
func (m *machine) until() *model.Micros {
	if rapid.Bool().Draw(m.rt, "expires") {
		return new(model.MicrosOf(m.clock.Now().Add(time.Duration(rapid.IntRange(0, 4).Draw(m.rt, "minutes")) * time.Minute)))
	}
	return nil
}

func micros(at *model.Micros) model.Micros {
	if at == nil {
		return 0
	}
	return *at
}

func (m *machine) now() model.Micros { return model.MicrosOf(m.clock.Now()) }

// taken says how a key that a profile is to have is refused.
func (m *machine) taken(w *modelTenant, key string, self *modelProfile) model.Code {
	for _, t := range m.tenants {
		for _, f := range t.profiles {
			switch {
			case f == self || f.key != key:
			case t == w:
				return model.CodeConflict
			default:
				return model.CodeInvalidInput
			}
		}
	}
	return ""
}

func (m *machine) createProfile(w *modelTenant) {
	token := m.one("profile", "f1", "f2", "f3", "f4")
	f := &modelProfile{key: m.one("key", "k1", "k2", "k3"), secret: m.one("secret", "s1", "s2"), strategy: m.one("strategy", AllowNew, CheckPreProvisioned), typ: m.typeName(), enabled: true}
	until := m.until()
	f.expires = micros(until)
	want := m.taken(w, f.key, nil)
	switch {
	case len(w.profiles) >= 3:
		want = model.CodeLimitExceeded
	case !w.types[f.typ]:
		want = model.CodeInvalidInput
	case w.profiles[token] != nil && want != model.CodeInvalidInput:
		want = model.CodeConflict
	}
	_, err := m.Profiles.Create(m.Context(), w.by, store.Patch{"token": token, "provisionKey": f.key, "provisionSecret": f.secret, "strategy": f.strategy, "deviceTypeToken": f.typ, "enabled": true, "expiresAt": patched(until)})
	if m.code("create profile "+token, err, want) {
		w.profiles[token] = f
	}
}

// patched is a time in a patch.
func patched(at *model.Micros) any {
	if at == nil {
		return nil
	}
	return *at
}

func (m *machine) updateProfile(w *modelTenant) {
	token := m.one("profile", "f1", "f2", "f3")
	f, next, want := w.profiles[token], modelProfile{}, model.Code("")
	if f != nil {
		next = *f
	}
	p := store.Patch{}
	switch m.one("field", "key", "secret", "strategy", "type", "enabled", "expires") {
	case "key":
		next.key = m.one("key", "k1", "k2", "k3")
		p["provisionKey"] = next.key
		want = m.taken(w, next.key, f)
	case "secret":
		next.secret = m.one("secret", "s1", "s2")
		p["provisionSecret"] = next.secret
	case "strategy":
		next.strategy = m.one("strategy", AllowNew, CheckPreProvisioned)
		p["strategy"] = next.strategy
	case "type":
		next.typ = m.typeName()
		p["deviceTypeToken"] = next.typ
		if !w.types[next.typ] {
			want = model.CodeInvalidInput
		}
	case "enabled":
		next.enabled = rapid.Bool().Draw(m.rt, "enabled")
		p["enabled"] = next.enabled
	case "expires":
		until := m.until()
		next.expires = micros(until)
		p["expiresAt"] = patched(until)
	}
	if f == nil {
		want = model.CodeNotFound
	}
	_, err := m.Profiles.Update(m.Context(), w.by, token, p)
	if m.code("update profile "+token, err, want) {
		*f = next
	}
}

func (m *machine) deleteProfile(w *modelTenant) {
	token := m.one("profile", "f1", "f2", "f3")
	gone, err := m.Profiles.Delete(m.Context(), w.by, token)
	if m.code("delete profile "+token, err, "") && gone != (w.profiles[token] != nil) {
		m.rt.Fatalf("delete profile %s: %v", token, gone)
	}
	delete(w.profiles, token)
}

// expected is what a request is answered.
func (m *machine) expected(key, secret, device string) (w *modelTenant, outcome string) {
	var f *modelProfile
	for _, t := range m.tenants {
		for _, one := range t.profiles {
			if one.key == key {
				w, f = t, one
			}
		}
	}
	switch {
	case f == nil:
		return nil, outcomeKey
	case f.secret != secret:
		return nil, outcomeSecret
	case m.bench.tenants.disabled == w.by.Tenant:
		return nil, outcomeTenant
	case !f.enabled:
		return nil, outcomeDisabled
	case f.expires != 0 && f.expires <= m.now():
		return nil, outcomeExpired
	}
	d := w.devices[device]
	switch {
	case d == nil && f.strategy != AllowNew:
		return nil, outcomeStrategy
	case d == nil && len(w.devices) >= devicesCeiling:
		return nil, outcomeCeiling
	case d == nil:
		w.devices[device] = &modelDevice{typ: f.typ, credentials: map[string]*modelCredential{}}
		return w, outcomeCreated
	case d.typ != f.typ:
		return nil, outcomeType
	}
	for _, c := range d.credentials {
		if c.unused && c.enabled {
			return w, outcomeRepeated
		}
	}
	if len(d.credentials) > 0 {
		return nil, outcomeUsed
	}
	return w, outcomeMinted
}

// ask is a request of a device, over HTTP or over a connection that was admitted before.
func (m *machine) ask(*modelTenant) {
	key, secret, device := m.one("key", "k1", "k1", "k2", "k3", "none"), m.one("secret", "s1", "s1", "s1", "s2"), m.deviceName()
	w, want := m.expected(key, secret, device)
	before := m.count(want)
	var r *Reply
	if rapid.Bool().Draw(m.rt, "mqtt") {
		g, err := m.Admit(m.Context(), key, secret)
		if reply, refused := errors.AsType[*Reply](err); refused {
			r = reply
		} else {
			r = m.Enroll(m.Context(), g, fmt.Appendf(nil, `{"deviceToken":%q}`, device))
		}
	} else {
		r = m.Provision.Provision(m.Context(), asks(key, secret, device))
	}
	if m.count(want) != before+1 || (r.Status == 200) != (w != nil) {
		m.rt.Fatalf("request of %s with %s: %d %s, the model says %s", device, key, r.Status, r.Text, want)
	}
	if w == nil {
		return
	}
	a, d := r.Answer, w.devices[device]
	if a.Tenant != w.by.Tenant || a.Device != device || a.Created != (want == outcomeCreated) || a.CredentialType != registry.AccessToken {
		m.rt.Fatalf("%+v, the model says %s of %s", a, device, w.by.Tenant)
	}
	if want == outcomeRepeated {
		for _, c := range d.credentials {
			if c.unused && c.enabled && c.id != a.CredentialID {
				m.rt.Fatalf("%s gets %s, not %s again", device, a.CredentialID, c.id)
			}
		}
		return
	}
	d.credentials[m.credentialOf(w, a.CredentialID)] = &modelCredential{id: a.CredentialID, unused: true, enabled: true}
}

// credentialOf returns the token of the credential with an id.
func (m *machine) credentialOf(w *modelTenant, id string) string {
	rows, err := m.r.Credentials.Find(m.Context(), w.by.TenantID, registry.AccessToken, auth.HashSecret(id))
	if err != nil || len(rows) != 1 || !rows[0].Unused {
		m.rt.Fatalf("%+v %v", rows, err)
	}
	credentials, err := m.r.Credentials.ByID(m.Context(), w.by, []int64{rows[0].ID})
	if err != nil || len(credentials) != 1 {
		m.rt.Fatal(credentials, err)
	}
	return credentials[0].Token
}

// use is the first use of a credential.
func (m *machine) use(w *modelTenant) {
	d := w.devices[m.deviceName()]
	if d == nil {
		return
	}
	for _, token := range slices.Sorted(maps.Keys(d.credentials)) {
		if c := d.credentials[token]; c.unused && c.enabled {
			rows, err := m.r.Credentials.Find(m.Context(), w.by.TenantID, registry.AccessToken, auth.HashSecret(c.id))
			if err != nil || len(rows) != 1 || rows[0].Unused != c.unused {
				m.rt.Fatalf("%+v %v", rows, err)
			}
			m.must(m.Used(m.Context(), rows[0].ID))
			c.unused = false
		}
	}
}

// makeDevice is an operator who makes a device, with a credential or without one.
func (m *machine) makeDevice(w *modelTenant) {
	name, typ := m.deviceName(), m.typeName()
	want := model.Code("")
	switch {
	case len(w.devices) >= devicesCeiling:
		want = model.CodeLimitExceeded
	case !w.types[typ]:
		want = model.CodeInvalidInput
	case w.devices[name] != nil:
		want = model.CodeConflict
	}
	_, err := m.r.Devices.Create(m.Context(), w.by, store.Patch{"token": name, "deviceTypeToken": typ})
	if !m.code("create device "+name, err, want) {
		return
	}
	d := &modelDevice{typ: typ, credentials: map[string]*modelCredential{}}
	w.devices[name] = d
	if rapid.Bool().Draw(m.rt, "credential") {
		_, err := m.r.Credentials.Create(m.Context(), w.by, store.Patch{"token": "own-" + name, "deviceToken": name, "credentialType": registry.AccessToken, "credentialId": "operator's for " + name, "enabled": true})
		m.must(err)
		d.credentials["own-"+name] = &modelCredential{enabled: true}
	}
}

func (m *machine) changeDevice(w *modelTenant) {
	name, typ := m.deviceName(), m.typeName()
	d, want := w.devices[name], model.Code("")
	switch {
	case d == nil:
		want = model.CodeNotFound
	case !w.types[typ]:
		want = model.CodeInvalidInput
	}
	_, err := m.r.Devices.Update(m.Context(), w.by, name, store.Patch{"deviceTypeToken": typ})
	if m.code("update device "+name, err, want) {
		d.typ = typ
	}
}

func (m *machine) deleteDevice(w *modelTenant) {
	name := m.deviceName()
	gone, err := m.r.Devices.Delete(m.Context(), w.by, name)
	if m.code("delete device "+name, err, "") && gone != (w.devices[name] != nil) {
		m.rt.Fatalf("delete device %s: %v", name, gone)
	}
	delete(w.devices, name)
	delete(w.owners, name)
}

// changeCredential is an operator who disables, enables or deletes the credentials of a device.
func (m *machine) changeCredential(w *modelTenant) {
	d, verb := w.devices[m.deviceName()], m.one("verb", "delete", "disable", "enable")
	if d == nil {
		return
	}
	for token, c := range d.credentials {
		if verb == "delete" {
			gone, err := m.r.Credentials.Delete(m.Context(), w.by, token)
			if err != nil || !gone {
				m.rt.Fatal(gone, err)
			}
			delete(d.credentials, token)
			continue
		}
		c.enabled = verb == "enable"
		_, err := m.r.Credentials.Update(m.Context(), w.by, token, store.Patch{"enabled": c.enabled})
		m.must(err)
	}
}

func (m *machine) initiate(w *modelTenant) {
	name, secret, until := m.deviceName(), m.one("secret", "s1", "s1", "s2"), m.until()
	d, want := w.devices[name], model.Code("")
	if d == nil {
		want = model.CodeInvalidInput
	}
	_, err := m.InitiateClaim(m.Context(), w.by, ClaimInitiate{Device: name, Secret: secret, ExpiresAt: until})
	if m.code("initiate claim of "+name, err, want) {
		if d.claim != nil && d.claim.status == ClaimClaimed {
			delete(w.owners, name) // the ownership that it has made ends
		}
		d.claim = &modelClaim{status: ClaimOpen, secret: secret, expires: micros(until)}
	}
}

// claimIt is an attempt to claim, or ten of them.
func (m *machine) claimIt(w *modelTenant) {
	name, secret, customer := m.deviceName(), m.one("secret", "s1", "s1", "s2"), m.one("customer", "c", "c", "c", "e")
	for range rapid.SampledFrom([]int{1, 1, maxFailures}).Draw(m.rt, "times") {
		d, want := w.devices[name], model.CodeInvalidInput
		open := d != nil && d.claim != nil && d.claim.status == ClaimOpen && (d.claim.expires == 0 || d.claim.expires > m.now()) && w.customers[customer]
		if open && d.claim.secret == secret {
			want = ""
		}
		_, err := m.ClaimDevice(m.Context(), w.by, ClaimRequest{Device: name, Secret: secret, Customer: customer, RelationshipType: "assigned"})
		switch taken := m.code("claim "+name, err, want); {
		case taken:
			d.claim.status, w.owners[name] = ClaimClaimed, customer
		case open:
			if d.claim.failures++; d.claim.failures >= maxFailures {
				d.claim.status = ClaimCanceled
			}
		}
	}
}

func (m *machine) cancel(w *modelTenant) {
	name := m.deviceName()
	canceled, err := m.Provision.CancelClaim(m.Context(), w.by, name)
	m.must(err)
	d := w.devices[name]
	if open := d != nil && d.claim != nil && d.claim.status == ClaimOpen; canceled != open {
		m.rt.Fatalf("cancel claim of %s: %v", name, canceled)
	}
	if canceled {
		d.claim.status = ClaimCanceled
	}
}

// disown is an operator who removes the relationship that a claim has made.
func (m *machine) disown(w *modelTenant) {
	name := m.deviceName()
	for token, r := range m.relationships(w) {
		if r.Source == name {
			_, err := m.r.Relationships.RemoveAll(m.Context(), w.by, []string{token})
			m.must(err)
			delete(w.owners, name)
		}
	}
}

// customer makes a customer, or deletes one with its relationships.
func (m *machine) customer(w *modelTenant) {
	name := m.one("customer", "c", "e")
	kind := m.r.Kinds.Of("customers")
	if !w.customers[name] {
		_, err := kind.Create(m.Context(), w.by, store.Patch{"token": name, "customerTypeToken": "ct"})
		m.must(err)
		w.customers[name] = true
		return
	}
	gone, err := kind.Delete(m.Context(), w.by, name)
	if err != nil || !gone {
		m.rt.Fatal(gone, err)
	}
	delete(w.customers, name)
	maps.DeleteFunc(w.owners, func(_, customer string) bool { return customer == name })
}

// typ makes a device type, or deletes one that neither a device nor a profile has.
func (m *machine) typ(w *modelTenant) {
	name := m.typeName()
	if !w.types[name] {
		_, err := m.r.Types.Create(m.Context(), w.by, store.Patch{"token": name})
		m.must(err)
		w.types[name] = true
		return
	}
	want := model.Code("")
	for _, d := range w.devices {
		if d.typ == name {
			want = model.CodeInUse
		}
	}
	for _, f := range w.profiles {
		if f.typ == name {
			want = model.CodeInUse
		}
	}
	_, err := m.r.Types.Delete(m.Context(), w.by, name)
	if m.code("delete type "+name, err, want) {
		delete(w.types, name)
	}
}

// disable disables a tenant, or enables the one that is disabled.
func (m *machine) disable(w *modelTenant) {
	if m.bench.tenants.disabled != "" {
		m.bench.tenants.disabled = ""
		return
	}
	m.bench.tenants.disabled = w.by.Tenant
}

func (m *machine) relationships(w *modelTenant) map[string]*registry.Relationship {
	rows, _, err := m.r.Relationships.List(m.Context(), w.by, store.Page{})
	m.must(err)
	all := map[string]*registry.Relationship{}
	for _, row := range rows {
		all[row.Token] = row
	}
	return all
}

// compare holds what a tenant has against the model.
func (m *machine) compare(w *modelTenant) {
	ctx := m.Context()
	same := func(what string, got, want map[string]string) {
		m.Helper()
		if !maps.Equal(got, want) {
			m.rt.Errorf("%s of %s: %v, the model says %v", what, w.by.Tenant, got, want)
		}
	}
	got, want := map[string]string{}, map[string]string{}
	profiles, _, err := m.Profiles.List(ctx, w.by, store.Page{})
	m.must(err)
	for _, f := range profiles {
		got[f.Token] = fmt.Sprint(f.Key, f.Strategy, f.Enabled, micros(f.ExpiresAt))
	}
	for token, f := range w.profiles {
		want[token] = fmt.Sprint(f.key, f.strategy, f.enabled, f.expires)
	}
	same("profiles", got, want)

	devices, _, err := m.r.Devices.List(ctx, w.by, store.Page{})
	m.must(err)
	values, err := m.r.Kinds.Of("devices").Values(ctx, w.by, anys(devices)...)
	m.must(err)
	got, want = map[string]string{}, map[string]string{}
	for i, d := range devices {
		claim, err := m.ClaimOf(ctx, w.by, d.Token)
		m.must(err)
		got[d.Token] = fmt.Sprint(values[i]["deviceTypeToken"])
		if claim != nil {
			got[d.Token] += fmt.Sprint(claim.Status, claim.Failures, micros(claim.ExpiresAt), claim.ClaimedAt != nil)
		}
	}
	for token, d := range w.devices {
		want[token] = d.typ
		if c := d.claim; c != nil {
			want[token] += fmt.Sprint(c.status, c.failures, c.expires, c.status == ClaimClaimed)
		}
	}
	same("devices", got, want)

	credentials, _, err := m.r.Credentials.List(ctx, w.by, store.Page{})
	m.must(err)
	values, err = m.r.Kinds.Of("device_credentials").Values(ctx, w.by, anys(credentials)...)
	m.must(err)
	got, want = map[string]string{}, map[string]string{}
	for i, c := range credentials {
		got[c.Token] = fmt.Sprint(values[i]["deviceToken"], c.Enabled, c.Unused)
	}
	for device, d := range w.devices {
		for token, c := range d.credentials {
			want[token] = fmt.Sprint(device, c.enabled, c.unused)
		}
	}
	same("credentials", got, want)

	got = map[string]string{}
	for _, r := range m.relationships(w) {
		got[r.Source] = r.Target
	}
	same("owners", got, w.owners)
}

func anys[T any](rows []*T) (all []any) {
	for _, row := range rows {
		all = append(all, row)
	}
	return all
}

// consistent holds the store's own checks, that no claim outlives its device, and that what is counted is what there is.
func (m *machine) consistent() {
	for _, query := range []string{`PRAGMA foreign_key_check`, `SELECT id FROM device_claims WHERE device_id NOT IN (SELECT id FROM devices)`,
		`SELECT id FROM device_credentials WHERE device_id NOT IN (SELECT id FROM devices)`} {
		if left := fixture.Rows(m, m.parts.Store, query); len(left) != 0 {
			m.rt.Errorf("%s: %s", query, strings.Join(left, ", "))
		}
	}
	rows, sums := map[int64]int64{}, map[int64]int64{}
	m.must(m.parts.Store.Read(m.Context(), func(tx store.Tx) error {
		err := m.r.CountBytes(tx, rows)
		for _, w := range m.tenants {
			n, used := store.UsedBytes(tx, w.by.TenantID)
			if n != 0 {
				sums[w.by.TenantID] = n
			}
			err = errors.Join(err, used)
		}
		return err
	}))
	if !maps.Equal(rows, sums) {
		m.rt.Errorf("the sums are %v, the rows take %v", sums, rows)
	}
}
