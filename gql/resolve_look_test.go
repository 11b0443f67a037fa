package gql

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
)

// A tenant is shown as it says, and where it says nothing as the instance does; what pages could be harmed by is refused.
func TestATenantHasALookOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newUserWorld(t)
	ada, _ := w.enter("ada@example.org", "acme")
	view, _ := w.enter("view@example.org", "acme")
	bob, _ := w.enter("bob@example.org", "globex")
	shows := func(token, query, want string) {
		t.Helper()
		a := w.post(token, "", query)
		for _, root := range a.Data { // of the one root field
			b, err := json.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			if string(b) == want && a.code() == "" {
				return
			}
		}
		t.Errorf("%s gives %v %+v, want %s", query, a.Data, a.Errors, want)
	}
	const theme = `{ branding { title logo logoMaxHeight primary } brandingOverride { title logo logoMaxHeight primary } }`
	shows(ada, `{ tenant `+theme+` }`, `{"branding":{"logo":null,"logoMaxHeight":28,"primary":null,"title":"Weir"},"brandingOverride":{"logo":null,"logoMaxHeight":null,"primary":null,"title":null}}`)
	shows(ada, `mutation { setTenantLogo(logo: "https://example.org/logo.png") `+theme+` }`,
		`{"branding":{"logo":"https://example.org/logo.png","logoMaxHeight":28,"primary":null,"title":"Weir"},"brandingOverride":{"logo":"https://example.org/logo.png","logoMaxHeight":null,"primary":null,"title":null}}`)
	shows(ada, `mutation { setTenantBranding(input: {title: "Acme", primary: "#1a2B3c"}) `+theme+` }`,
		`{"branding":{"logo":"https://example.org/logo.png","logoMaxHeight":28,"primary":"#1a2B3c","title":"Acme"},"brandingOverride":{"logo":"https://example.org/logo.png","logoMaxHeight":null,"primary":"#1a2B3c","title":"Acme"}}`)
	shows(ada, `mutation { setTenantBranding(input: {logoMaxHeight: 64}) `+theme+` }`, // replaces all but the logo
		`{"branding":{"logo":"https://example.org/logo.png","logoMaxHeight":64,"primary":null,"title":"Weir"},"brandingOverride":{"logo":"https://example.org/logo.png","logoMaxHeight":64,"primary":null,"title":null}}`)
	tenant, _, _ := w.govern.Lookup("acme")
	by := fixture.Member("ada@example.org", "acme", tenant, model.BrandingWrite) // a request takes a large one in a variable
	sized := func(bytes int) string {
		return "data:image/png;base64," + base64.StdEncoding.EncodeToString(make([]byte, bytes))
	}
	if err := w.govern.SetLogo(t.Context(), by, new(sized(256<<10))); err != nil {
		t.Error(err)
	}
	if err := w.govern.SetLogo(t.Context(), by, new(sized(256<<10+1))); model.CodeOf(err) != model.CodeInvalidInput {
		t.Errorf("a logo of more than 256 KiB: %v", err)
	}
	shows(ada, `mutation { setTenantLogo(logo: null) { branding { logo } } }`, `{"branding":{"logo":null}}`)
	if _, err := w.govern.SetSetting(t.Context(), userOperator, "branding.default", `{"title":"House","accent":"#000000"}`); err != nil {
		t.Fatal(err)
	}
	shows(ada, `{ tenant { branding { title logoMaxHeight accent } } }`, `{"branding":{"accent":"#000000","logoMaxHeight":64,"title":"House"}}`)
	shows(bob, `{ tenant { branding { title logoMaxHeight } brandingOverride { title updatedAt } } }`, `{"branding":{"logoMaxHeight":null,"title":"House"},"brandingOverride":{"title":null,"updatedAt":null}}`)

	const where = `{ basemap { tileUrl attribution centerLat zoom } basemapOverride { tileUrl zoom } }`
	tiles := `tileUrl: "https://tiles.example.org/{z}/{x}/{y}.png?key=1", attribution: "by <a href=\"https://example.org/\">us</a>"`
	shows(ada, `mutation { setTenantBasemap(input: {`+tiles+`, centerLat: 47.5, centerLon: 8.25, zoom: 7}) `+where+` }`,
		`{"basemap":{"attribution":"by \u003ca href=\"https://example.org/\"\u003eus\u003c/a\u003e","centerLat":47.5,"tileUrl":"https://tiles.example.org/{z}/{x}/{y}.png?key=1","zoom":7},"basemapOverride":{"tileUrl":"https://tiles.example.org/{z}/{x}/{y}.png?key=1","zoom":7}}`)
	shows(ada, `mutation { setTenantBasemap(input: {zoom: 0}) { basemap { centerLat zoom } basemapOverride { tileUrl zoom } } }`,
		`{"basemap":{"centerLat":null,"zoom":0},"basemapOverride":{"tileUrl":null,"zoom":0}}`)

	for request, text := range map[string]string{
		`setTenantBranding(input: {title: "` + strings.Repeat("x", 65) + `"})`:                                                  "title",
		`setTenantBranding(input: {logoMaxHeight: 15})`:                                                                         "logoMaxHeight",
		`setTenantBranding(input: {accent: "red"})`:                                                                             "accent",
		`setTenantBranding(input: {primary: "#12345"})`:                                                                         "primary",
		`setTenantLogo(logo: "http://example.org/logo.png")`:                                                                    "https",
		`setTenantLogo(logo: "javascript:alert(1)")`:                                                                            "https",
		`setTenantLogo(logo: "data:image/svg+xml;base64,PHN2Zz4=")`:                                                             "image/png",
		`setTenantLogo(logo: "data:image/png;base64,IDxzdmc+")`:                                                                 "it is markup",
		`setTenantBasemap(input: {tileUrl: "https://a.example.org/{z}/{x}/{y}\"onload=x", attribution: "us"})`:                  "tileUrl",
		`setTenantLogo(logo: "data:image/png;base64,!")`:                                                                        "base64",
		`setTenantBasemap(input: {tileUrl: "https://a.example.org/{z}/{x}/{y}"})`:                                               "attribution",
		`setTenantBasemap(input: {tileUrl: "http://a.example.org/{z}/{x}/{y}", attribution: "us"})`:                             "https",
		`setTenantBasemap(input: {tileUrl: "https://a.example.org/{z}/{x}", attribution: "us"})`:                                "{z}",
		`setTenantBasemap(input: {tileUrl: "https://a.example.org/{z}/{x}/{y}/{w}", attribution: "us"})`:                        "tileUrl",
		`setTenantBasemap(input: {tileUrl: "https://a.example.org/{quadkey}", attribution: "<script>alert(1)</script>"})`:       "attribution",
		`setTenantBasemap(input: {tileUrl: "https://a.example.org/{quadkey}", attribution: "<a href=\"javascript:x\">us</a>"})`: "attribution",
		`setTenantBasemap(input: {centerLat: 1})`:                                                                               "centerLon",
		`setTenantBasemap(input: {centerLat: 91, centerLon: 0})`:                                                                "centerLat",
		`setTenantBasemap(input: {zoom: 25})`:                                                                                   "zoom",
	} {
		if a := w.post(ada, "", "mutation { "+request+" { token } }"); a.code() != string(model.CodeInvalidInput) || !strings.Contains(a.Errors[0].Message, text) {
			t.Errorf("%.80s: %+v, want %q", request, a.Errors, text)
		}
	}
	for _, key := range []string{"branding.default", "basemap.default"} {
		for _, value := range []string{`[]`, `{"tittle":"x"}`, `{"title":1}`, `{"accent":"red"}`, `{"zoom":99}`, `{"logo":"javascript:x"}`} {
			if _, err := w.govern.SetSetting(t.Context(), userOperator, key, value); model.CodeOf(err) != model.CodeInvalidInput {
				t.Errorf("%s %s: %v", key, value, err)
			}
		}
	}
	const locales = `{ tenant { locale localeOverride } }`
	shows(ada, locales, `{"locale":null,"localeOverride":null}`)
	for _, value := range []string{`"d"`, `"de_CH"`, `{}`, `1`, `""`, `"de-"`} {
		if _, err := w.govern.SetSetting(t.Context(), userOperator, "locale.default", value); model.CodeOf(err) != model.CodeInvalidInput {
			t.Errorf("locale.default %s: %v", value, err)
		}
	}
	if _, err := w.govern.SetSetting(t.Context(), userOperator, "locale.default", `"de-CH-1996"`); err != nil {
		t.Fatal(err)
	}
	shows(ada, locales, `{"locale":"de-CH-1996","localeOverride":null}`)
	for _, request := range []string{`setTenantBranding(input: {})`, `setTenantLogo(logo: null)`} {
		if a := w.post(view, "", "mutation { "+request+" { token } }"); a.code() != string(model.CodeForbidden) || !strings.Contains(a.Errors[0].Message, "branding:write") {
			t.Errorf("%s: %+v", request, a.Errors)
		}
	}
}
