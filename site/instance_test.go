package site

import (
	"path/filepath"
	"strings"
	"testing"

	"weir/auth"
)

const instanceFile = `
version: 1
settings:
  - {key: entity.token_masks, value: {default: "{slug}-{numeric-4}"}}
oauthClients:
  - token_
tenants:
  - token: acme
    branding: {title: Acme, primary: "#112233"}
    logo: https://acme.example.org/logo.png
    basemap: {zoom: 7, centerLat: 47.5, centerLon: 8.5}
    facetKeys:
      - {memberType: device, key: zone, valueType: STRING, values: [hot, cold], label: Zone}
      - {memberType: asset, key: zone, valueType: LONG}
`

func instanceDocument(clients string) string {
	return strings.Replace(instanceFile, "  - token_\n", clients, 1)
}

const twoClients = `  - {clientId: org.example.app, name: App, redirectUris: [https://app.example.org/cb], scopes: [read-only, location], secret_file: app-secret}
  - {clientId: spa, redirectUris: [http://localhost/cb], scopes: [read-only], enabled: false}
`

// Settings, OAuth clients, how a tenant is shown and its facet keys are declared, changed, exported and pruned like everything
// else; the secret of a client comes from a file, and is compared by its hash.
func TestSettingsClientsLooksAndFacetKeysAreDeclared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := strings.Repeat("s3cret-", 7)
	w.files(map[string]string{"app-secret": secret + "\n"})
	declared := w.read(instanceDocument(twoClients))
	want := "+ setting entity.token_masks\n+ OAuth client org.example.app\n+ OAuth client spa\n+ tenant acme\n+ facet key acme/device/zone\n+ facet key acme/asset/zone\n"
	w.wantPlan(declared, Options{}, want)
	w.apply(declared, Options{})
	w.wantPlan(w.read(instanceDocument(twoClients)), Options{Prune: true}, "")
	w.wantPlan(w.export(), Options{Prune: true}, "")
	client := w.client("org.example.app")
	if !client.HasSecretOf(secret) || !client.Enabled || w.client("spa").Enabled || w.client("spa").HasSecret() {
		t.Errorf("the clients are %+v and %+v", client, w.client("spa"))
	}
	d, err := w.Export(t.Context(), operator, "")
	if err != nil {
		t.Fatal(err)
	}
	if text := d.YAML(); strings.Contains(text, secret) || !strings.Contains(text, "  - clientId: org.example.app\n") || !strings.Contains(text, "      - memberType: device\n        key: zone\n        valueType: STRING\n        values: [hot, cold]\n") {
		t.Errorf("exported\n%s", text)
	}

	w.files(map[string]string{"app-secret": secret + "2"})
	changed := w.read(strings.NewReplacer("name: App,", "name: Application,", "label: Zone", "label: null", "zoom: 7", "zoom: 8", "numeric-4", "numeric-5", `title: Acme, primary: "#112233"`, "title: ACME",
		"    logo: https://acme.example.org/logo.png\n", "    logo: null\n", ", enabled: false", ", enabled: true").Replace(instanceDocument(twoClients)))
	w.wantPlan(changed, Options{}, `~ setting entity.token_masks: value.default "{slug}-{numeric-4}" → "{slug}-{numeric-5}"
~ OAuth client org.example.app: name "App" → "Application", secret (changed)
~ OAuth client spa: enabled false → true
~ tenant acme: branding.primary "#112233" → none, branding.title "Acme" → "ACME", logo "https://acme.example.org/logo.png" → none, basemap.zoom 7 → 8
~ facet key acme/device/zone: label "Zone" → none
`)
	w.apply(changed, Options{})
	w.wantPlan(w.export(), Options{Prune: true}, "")
	if !w.client("org.example.app").HasSecretOf(secret + "2") {
		t.Error("the secret is the old one")
	}

	none := w.read("version: 1\nsettings: []\noauthClients: [{clientId: org.example.app, secret: null}]\ntenants: [{token: acme, facetKeys: [], branding: {title: null}, basemap: {}}]")
	w.wantPlan(none, Options{Prune: true}, `~ OAuth client org.example.app: secret (changed)
~ tenant acme: branding.title "ACME" → none, basemap.centerLat 47.5 → none, basemap.centerLon 8.5 → none, basemap.zoom 8 → none
- facet key acme/asset/zone
- facet key acme/device/zone
- OAuth client spa
- setting entity.token_masks
`)
	w.apply(none, Options{Prune: true})
	w.wantPlan(none, Options{Prune: true}, "")
	w.wantPlan(w.export(), Options{Prune: true}, "")
	if w.client("org.example.app").HasSecret() {
		t.Error("the client keeps its secret")
	}
	if masks, err := w.govern.TokenMasks(t.Context()); err != nil || masks != `{"default":"{slug}"}` {
		t.Error(masks, err)
	}
}

func (w *world) client(id string) *auth.OAuthClient {
	w.Helper()
	rows, err := w.auth.Clients.ByToken(w.Context(), operator, []string{id})
	if err != nil || len(rows) != 1 {
		w.Fatal(rows, err)
	}
	return rows[0]
}

// What an instance would refuse is reported where it stands, without an instance.
func TestMistakesInSettingsClientsLooksAndFacetKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files(map[string]string{"app-secret": strings.Repeat("x", 40), "short": "tiny"})
	for _, c := range []struct{ from, to, want string }{
		{"key: entity.token_masks", "key: entity.masks", `settings[0].key: "entity.masks" is no setting`},
		{`"{slug}-{numeric-4}"`, "fixed", `wrong.yaml:4`},
		{"secret_file: app-secret", "secret_file: short", "at least 32 random characters"},
		{"secret_file: app-secret", "secret: " + strings.Repeat("x", 40), "a secret does not stand in a site file"},
		{"https://app.example.org/cb", "http://app.example.org/cb", "must be https, or http on a loopback host"},
		{"clientId: spa", "clientId: s/pa", "names no OAuth client"},
		{`primary: "#112233"`, "primary: red", "primary must be a color such as #1a2b3c"},
		{"title: Acme", "titel: Acme", "is not a key of branding"},
		{"https://acme.example.org/logo.png", "http://acme.example.org/logo.png", "must be an https URL"},
		{"zoom: 7", "zoom: 70", "zoom must lie in 0..24"},
		{"memberType: asset, key: zone", "memberType: gadget, key: zone", "tenants[0].facetKeys[1].memberType"},
		{"memberType: asset, key: zone", "memberType: device, key: zone", `the facet key "device/zone" is declared at`},
		{"memberType: asset, key: zone", "memberType: asset", "facetKeys[1].key: is missing: it names the facet key"},
	} {
		text := strings.Replace(instanceDocument(twoClients), c.from, c.to, 1)
		if text == instanceDocument(twoClients) {
			t.Fatalf("%s is not in the file", c.from)
		}
		w.files(map[string]string{"wrong.yaml": text})
		if _, _, err := Read(Source{Complete: true}, filepath.Join(w.dir, "wrong.yaml")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", c.to, err, c.want)
		}
	}
}
