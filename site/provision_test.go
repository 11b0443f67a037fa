package site

import (
	"strings"
	"testing"

	"weir/auth"
	"weir/provision"
)

// A provisioning profile is declared with its secret in a file or a variable, which is compared by its hash.
func TestProvisioningProfilesAreDeclared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const file = `
version: 1
tenants:
  - token: acme
    deviceTypes: [{token: pump}]
    provisioningProfiles:
      - {token: line, provisionKey: line-7, provisionSecret_env: SECRET, strategy: ALLOW_NEW, deviceTypeToken: pump, expiresAt: "2031-01-01T00:00:00Z"}
      - {token: stock, provisionSecret_env: SECRET, strategy: CHECK_PRE_PROVISIONED, deviceTypeToken: pump, enabled: false}
`
	declared := w.read(file, "SECRET=first")
	got := lines(w.apply(declared, Options{}))
	for _, line := range []string{"+ device type acme/pump", "+ provisioning profile acme/line", "+ provisioning profile acme/stock"} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("%s is not in\n%s", line, got)
		}
	}
	holds := func(secret string) {
		t.Helper()
		rows, err := w.registry.Kinds.Of("provisioning_profiles").ByToken(t.Context(), w.by("acme"), []string{"line"})
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		f := rows[0].(*provision.Profile)
		if ok, _, err := w.hasher.Verify(t.Context(), auth.LaneAPI, f.SecretHash, secret); !ok || err != nil || !f.Enabled || f.Key != "line-7" || f.CredentialType != "ACCESS_TOKEN" {
			t.Errorf("%+v: %v %v", f, ok, err)
		}
	}
	holds("first")
	w.wantPlan(w.read(file, "SECRET=first"), Options{Prune: true}, "")
	w.hasher.taken()
	w.wantPlan(w.read(file, "SECRET=first"), Options{}, "")
	if n := w.hasher.taken(); n != 0 {
		t.Errorf("%d hashes for a secret that has not changed", n)
	}
	w.wantPlan(w.read(file, "SECRET=second"), Options{}, "~ provisioning profile acme/line: provisionSecret (changed)\n~ provisioning profile acme/stock: provisionSecret (changed)\n")
	w.apply(w.read(file, "SECRET=second"), Options{})
	holds("second")
	w.wantPlan(w.export(), Options{Prune: true}, "")
	if yaml := w.export().YAML(); strings.Contains(yaml, "second") || strings.Contains(yaml, "argon2") || !strings.Contains(yaml, "provisionKey: line-7") {
		t.Errorf("an export:\n%s", yaml)
	}
	for from, text := range map[string]string{
		`provisionSecret_env: SECRET, strategy: ALLOW_NEW`: "provisionSecret", `strategy: ALLOW_NEW`: "is none of ALLOW_NEW", `deviceTypeToken: pump, expires`: "nowhere",
	} {
		to := map[string]string{"provisionSecret": "provisionSecret: open, strategy: ALLOW_NEW", "is none of ALLOW_NEW": "strategy: ANY", "nowhere": "deviceTypeToken: nowhere, expires"}[text]
		w.files(map[string]string{"bad.yaml": strings.Replace(file, from, to, 1)})
		if _, _, err := Read(Source{LookupEnv: lookup([]string{"SECRET=first"}), Complete: true, Checked: true}, w.dir+"/bad.yaml"); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", to, err)
		}
	}
	const pruned = "- provisioning profile acme/stock\n"
	if got := lines(w.apply(w.read(strings.Replace(file, "      - {token: stock", "      # {token: stock", 1), "SECRET=second"), Options{Prune: true})); got != pruned {
		t.Errorf("pruned:\n%s", got)
	}
}
