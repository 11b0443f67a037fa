package site

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/auth"
	"weir/connectors"
	"weir/govern"
	"weir/model"
	"weir/notify"
	"weir/registry"
	"weir/store"
	"weir/store/entity"
)

// Whatever an instance holds, the plan of its export is empty, with and without deleting; an empty instance becomes the
// same by the export and the secrets; and what was applied there has an empty plan, too.
func TestPlanAfterExportIsEmptyWhateverIsThere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		defer w.db.Close()
		g := &gardener{T: rt, w: w, secrets: map[string]string{}}
		g.fill()
		x, err := w.Export(t.Context(), operator, "")
		if err != nil {
			rt.Fatal(err)
		}
		text := x.YAML()
		for _, secret := range g.secrets {
			if strings.Contains(text, secret) {
				rt.Fatalf("the export shows the secret %s", secret)
			}
		}
		for _, o := range []Options{{}, {Prune: true}} {
			if p := w.plan(w.read(text), o); len(p.Changes) > 0 {
				rt.Fatalf("%+v: the plan of the export is\n%s\nof\n%s", o, lines(p), text)
			}
		}
		other := newWorld(t)
		defer other.db.Close()
		d := other.read(text)
		g.supply(d)
		if p := other.apply(d, Options{}); len(p.Changes) == 0 {
			rt.Fatal("nothing was made")
		}
		if p := other.plan(d, Options{Prune: true}); len(p.Changes) > 0 {
			rt.Fatalf("the plan after the apply is\n%s", lines(p))
		}
		again, err := other.Export(t.Context(), operator, "")
		if err != nil {
			rt.Fatal(err)
		}
		if got := again.YAML(); got != text {
			rt.Fatalf("the copy exports\n%s\nthe original\n%s", got, text)
		}
	})
}

// gardener fills an instance through the verbs of the API.
type gardener struct {
	*rapid.T
	w       *world
	n       int
	secrets map[string]string // by what holds them
}

func (g *gardener) token(what string) string { g.n++; return fmt.Sprintf("%s-%d", what, g.n) }

func (g *gardener) few() int { return rapid.IntRange(0, 3).Draw(g.T, "how many") }

func (g *gardener) yes() bool { return rapid.Bool().Draw(g.T, "yes") }

func (g *gardener) seldom() bool { return rapid.IntRange(0, 3).Draw(g.T, "seldom") == 3 }

func (g *gardener) text() string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"null", "true", "no", "~", "012", "1e3", "0x1F", ".5", "- a", "a: b", "# c", " lead", "trail ", "a\nb", "tab\there", "'q'", `"q"`, `\`, "é ü", "日本", "😀", "{x}", "[y]",
			"*a", "&a", "!t", "%d", "@", "`", "a #b", "a:b", "2031-01-01", "…", "\u2028", "\u0085", "\u00a0", "\ufeff", "a\r\nb", "=", "<<", "---", "...", "?", "|", ">", "a  b", "x:", ",", "\x01\x1b\x7f"}),
		rapid.StringN(1, 20, -1)).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) && s != "" }).Draw(g.T, "text")
}

func (g *gardener) document(depth int) any {
	switch kind := rapid.IntRange(0, 7).Draw(g.T, "json"); {
	case kind == 0 && depth > 0:
		m := map[string]any{}
		for range g.few() {
			m[g.text()] = g.document(depth - 1)
		}
		return m
	case kind == 1 && depth > 0:
		l := []any{}
		for range g.few() {
			l = append(l, g.document(depth-1))
		}
		return l
	case kind == 2:
		return rapid.SampledFrom([]json.Number{"0", "-0", "1.0", "1e3", "1E-7", "12345678901234567890", "0.1", "-5", "1e300"}).Draw(g.T, "number")
	case kind == 3:
		return g.yes()
	case kind == 4:
		return nil
	}
	return g.text()
}

// metadata is a JSON document as a text, often an object, sometimes one that no YAML mapping can say.
func (g *gardener) metadata() string {
	if g.seldom() {
		return rapid.SampledFrom([]string{`{"a":1,"a":2}`, ` [ ] `, `{ "b" : { } }`, `"text"`, `5`, `{"\u0000":"\ud83d\ude00"}`, `{"":""}`, strings.Repeat("[", 40) + strings.Repeat("]", 40), `{"<<":{"a":1}}`, `[{"a":[1,[2]]},[]]`}).Draw(g.T, "raw")
	}
	b, err := json.MarshalIndent(map[string]any{"x": g.document(3), g.text(): g.document(2)}, "", rapid.SampledFrom([]string{"", " "}).Draw(g.T, "indent"))
	if err != nil {
		g.Fatal(err)
	}
	return string(b)
}

// maybe sets some of the fields that may be left out, by their description.
func (g *gardener) maybe(p store.Patch, fields []field, without ...string) store.Patch {
	skip := func(name string) bool {
		return p[name] != nil || slices.ContainsFunc(without, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	for _, f := range fields {
		if f.secret || f.own || f.normal != nil || f.ref != "" || skip(f.name) || !g.yes() {
			continue
		}
		if f.oneOf != nil {
			p[f.name] = rapid.SampledFrom(f.oneOf).Draw(g.T, f.name)
			continue
		}
		switch f.typ {
		case textField:
			p[f.name] = g.text()
		case documentField:
			p[f.name] = g.metadata()
		case integerField:
			p[f.name] = int64(rapid.IntRange(256, 4000).Draw(g.T, f.name))
		case numberField:
			p[f.name] = rapid.SampledFrom([]float64{0.1, 1e21, 2.5e-9, 3, 1234567}).Draw(g.T, f.name)
		case boolField:
			p[f.name] = g.yes()
		}
	}
	return p
}

func must[T any](g *gardener) func(T, error) T {
	return func(v T, err error) T {
		g.Helper()
		if err != nil {
			g.Fatal(err)
		}
		return v
	}
}

func (g *gardener) fill() {
	w, ctx, k := g.w, g.w.Context(), g.w.format
	tiers := []string{"gold", "silver"}
	for range g.few() {
		token := g.token("tier")
		p := g.maybe(store.Patch{"token": token}, k.of("tenant_tiers").fields, "config", "color", "displayOrder")
		if g.yes() {
			p["config"], p["color"] = `{"shedPriority": 20, "ingestBurst":300}`, "teal"
		}
		if _, err := w.govern.Tiers.Create(ctx, operator, p); err != nil {
			g.Fatal(err)
		}
		tiers = append(tiers, token)
	}
	systemRoles, tenantRoles := []string{"operator"}, []string{"tenant-admin"}
	for i := range g.few() {
		p := g.maybe(store.Patch{"token": g.token("role"), "scope": "system", "authorities": []any{"user:read"}}, k.of("roles").fields, "scope", "authorities")
		if i%2 == 0 {
			p["scope"], p["authorities"] = "tenant", []any{"event:read", "device:read"}
			tenantRoles = append(tenantRoles, p["token"].(string))
		} else {
			systemRoles = append(systemRoles, p["token"].(string))
		}
		if _, err := w.auth.Roles.Create(ctx, operator, p); err != nil {
			g.Fatal(err)
		}
	}
	g.clients()
	if g.yes() {
		must[*govern.Setting](g)(w.govern.SetSetting(ctx, operator, "entity.token_masks", rapid.SampledFrom([]string{`{"default":"{uuid}"}`, ` {"device": "d-{numeric-4}" , "default":"{slug}"}`}).Draw(g.T, "masks")))
	}
	var tenants []string
	for range rapid.IntRange(1, 2).Draw(g.T, "tenants") {
		token := g.token("tenant")
		p := g.maybe(store.Patch{"token": token, "tierToken": rapid.SampledFrom(tiers).Draw(g.T, "tier")}, k.tenant.fields, "enabled", "shedPriority", "geoFence", "branding", "logo", "basemap")
		if _, err := w.govern.Tenants.Create(ctx, operator, p); err != nil {
			g.Fatal(err)
		}
		tenants = append(tenants, token)
		g.look(token)
		g.facetKeys(token)
		g.inside(token)
		if g.seldom() {
			if _, err := w.govern.SetTenantEnabled(ctx, operator, token, false); err != nil {
				g.Fatal(err)
			}
		}
	}
	for range g.few() {
		email := g.token("person") + "@example.org"
		n := auth.NewIdentity{Email: email, Password: "a long password " + email, Enabled: g.yes(), SystemRoles: systemRoles[:rapid.IntRange(0, len(systemRoles)).Draw(g.T, "roles")]}
		if g.yes() {
			n.FirstName = new(g.text())
		}
		g.secrets["identity/"+email] = n.Password
		must[*auth.Identity](g)(w.auth.CreateIdentity(ctx, operator, n))
		if g.yes() {
			must[*auth.Identity](g)(w.auth.AddMembership(ctx, operator, email, tenants[0], tenantRoles))
			if g.yes() {
				must[*auth.Identity](g)(w.auth.SetMembershipEnabled(ctx, operator, email, tenants[0], false))
			}
		}
	}
}

func (g *gardener) clients() {
	for range g.few() {
		id := "org.example." + g.token("client")
		p := store.Patch{"clientId": id, "redirectUris": []any{"https://example.org/b", "https://example.org/a"}, "scopes": rapid.SampledFrom([][]any{{"read-only"}, {"read-only", "location"}}).Draw(g.T, "scopes")}
		if g.yes() {
			p["name"] = g.text()
		}
		made := must[*auth.ClientSecret](g)(g.w.auth.Clients.CreateWithSecret(g.w.Context(), operator, p, g.yes()))
		if made.Secret != nil {
			g.secrets["client/"+id] = *made.Secret
		}
		if g.yes() {
			must[*auth.OAuthClient](g)(g.w.auth.Clients.SetEnabled(g.w.Context(), operator, id, false))
		}
	}
}

func (g *gardener) look(tenant string) {
	for name, texts := range map[string][]string{"branding": {`{}`, `{"accent":"#a0B1c2"}`, ` {"logoMaxHeight": 16, "title":"é: #"}`}, "logo": {"", "https://example.org/l.png"},
		"basemap": {`{}`, `{"zoom":1.50}`, `{"tileUrl":"https://t.example.org/{z}/{x}/{y}","attribution":"a","centerLat":-1e1,"centerLon":0}`}} {
		if err := g.w.govern.SetLookText(g.w.Context(), g.w.by(tenant), name, rapid.SampledFrom(texts).Draw(g.T, name)); err != nil {
			g.Fatal(err)
		}
	}
}

func (g *gardener) facetKeys(tenant string) {
	for range g.few() {
		p := store.Patch{"memberType": rapid.SampledFrom([]string{"device", "asset"}).Draw(g.T, "member type"), "key": rapid.SampledFrom([]string{"a", "a/b", "é ", "1"}).Draw(g.T, "key"), "valueType": "STRING"}
		if g.yes() {
			p["values"], p["label"] = []any{"b", "a", g.text()}, g.text()
		}
		must[*registry.FacetKey](g)(g.w.registry.FacetKeys.Set(g.w.Context(), g.w.by(tenant), p))
	}
}

func (g *gardener) inside(tenant string) {
	r, ctx, by, k := g.w.registry, g.w.Context(), g.w.by(tenant), g.w.format
	groups := g.groups(by)
	g.notifications(by)
	var profiles []string
	for range g.few() {
		profile := g.token("profile")
		p := g.maybe(store.Patch{"token": profile}, k.of("device_profiles").fields, "location", "lwm2m")
		if g.yes() {
			p["lwm2m"] = rapid.SampledFrom([]string{`{}`, `{"observe":[{"path":"/3303/0/5700","pmin":10,"st":0.5}],"attributes":["/3/0/2"],"location":true}`}).Draw(g.T, "lwm2m")
		}
		if g.yes() {
			p["location"] = rapid.SampledFrom([]string{`{}`, `{"expectedAccuracyMeters":1.5}`, `{"expectedUpdateIntervalSeconds":60}`}).Draw(g.T, "location")
		}
		must[*registry.DeviceProfile](g)(r.Profiles.Create(ctx, by, p))
		profiles = append(profiles, profile)
		g.parts(by, profile)
		if g.yes() {
			must[*entity.Version](g)(r.Profiles.Publish(ctx, by, profile, nil, nil))
		}
		if g.seldom() {
			g.parts(by, profile) // the draft goes on
		}
	}
	for range g.few() {
		shape := rapid.SampledFrom([]string{`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}}`,
			` {"geometry": {"coordinates": [[[1e1, -0.0], [20.50, 0], [20, 5], [10, 0]]], "type": "Polygon"}, "kind": "POLYGON_2D"}`}).Draw(g.T, "geometry")
		if _, err := k.of("geofences").live.Create(ctx, by, g.maybe(store.Patch{"token": g.token("fence"), "geometry": shape}, k.of("geofences").fields)); err != nil {
			g.Fatal(err)
		}
	}
	types := []string{}
	for range g.few() {
		p := g.maybe(store.Patch{"token": g.token("type")}, k.of("device_types").fields)
		if len(profiles) > 0 && g.yes() {
			p["profileToken"] = profiles[0]
		}
		types = append(types, must[*registry.DeviceType](g)(r.Types.Create(ctx, by, p)).Token)
	}
	if len(types) == 0 {
		return
	}
	for range g.few() {
		p := g.maybe(store.Patch{"token": g.token("device"), "deviceTypeToken": rapid.SampledFrom(types).Draw(g.T, "type")}, k.of("devices").fields, "externalId")
		if g.yes() {
			p["externalId"] = fmt.Sprintf("%04d", g.n)
		}
		device := must[*registry.Device](g)(r.Devices.Create(ctx, by, p)).Token
		for range g.few() {
			g.credential(by, device)
		}
		g.relationships(by, device, groups)
		for range g.few() {
			g.attribute(by, device)
		}
	}
}

// notifications makes connectors, channels and policies; a channel may be deleted since.
func (g *gardener) notifications(by *model.Principal) {
	w, ctx, k := g.w, g.w.Context(), g.w.format
	for range g.few() {
		p := g.maybe(store.Patch{"token": g.token("connector"), "type": "mqtt", "config": ` {"topic": "t", "urls": ["mqtts://b.example.com:8883"]}`}, k.of(tableConnectors).fields)
		token := must[*connectors.Connector](g)(w.connectors.Connectors.Create(ctx, by, p)).Token
		if g.yes() {
			must[*entity.Version](g)(w.connectors.Connectors.Publish(ctx, by, token, nil, nil))
		}
	}
	var channels []string
	for range g.few() {
		p := g.maybe(store.Patch{"token": g.token("channel"), "channelType": "webhook", "enabled": g.yes(), "config": `{"url":"https://h.example.com"}`}, k.of(tableChannels).fields)
		if g.seldom() {
			p["secret"] = "secret-of-" + p["token"].(string)
			g.secrets["channel/"+p["token"].(string)] = p["secret"].(string)
		}
		channels = append(channels, must[*notify.Channel](g)(w.notify.Channels.Create(ctx, by, p)).Token)
	}
	for range g.few() {
		rules := []map[string]any{}
		for range g.few() {
			if len(channels) == 0 {
				break
			}
			rule := map[string]any{"severity": rapid.SampledFrom([]string{"CRITICAL", "*"}).Draw(g.T, "severity"), "channelToken": rapid.SampledFrom(channels).Draw(g.T, "channel")}
			if g.yes() {
				rule["recipients"] = rapid.SampledFrom([]string{`[]`, ` [ "a" , "12" ] `, `["true","<é> # \"b\""]`}).Draw(g.T, "recipients")
			}
			rules = append(rules, rule)
		}
		text, err := json.Marshal(rules)
		if err != nil {
			g.Fatal(err)
		}
		p := g.maybe(store.Patch{"token": g.token("policy"), "enabled": g.yes(), "rules": string(text)}, k.of(tablePolicies).fields, "deviceTypeToken", "maxEscalations")
		must[*notify.Policy](g)(w.notify.Policies.Create(ctx, by, p))
	}
	if len(channels) > 0 && g.seldom() {
		must[bool](g)(w.notify.Channels.Delete(ctx, by, channels[0]))
	}
}

// groups makes groups, dynamic ones published once, or not, or changed since. It returns the static groups of devices.
func (g *gardener) groups(by *model.Principal) (static []string) {
	r, ctx, k := g.w.registry, g.w.Context(), g.w.format
	for range g.few() {
		p := g.maybe(store.Patch{"token": g.token("group"), "memberType": "device"}, k.of("entity_groups").fields, "membershipMode", "selector")
		if g.yes() {
			static = append(static, must[*registry.EntityGroup](g)(r.Groups.Create(ctx, by, p)).Token)
			continue
		}
		p["membershipMode"], p["selector"] = "dynamic", rapid.SampledFrom([]string{`attr["a"] == 1`, "\"k\" in attr\n  && !(attr['b'] != \"é\")"}).Draw(g.T, "selector")
		token := must[*registry.EntityGroup](g)(r.Groups.Create(ctx, by, p)).Token
		if g.yes() {
			must[*entity.Version](g)(r.Groups.Publish(ctx, by, token, nil, nil))
		}
		if g.seldom() {
			must[*registry.EntityGroup](g)(r.Groups.Update(ctx, by, token, store.Patch{"selector": `attr["n"] < 5`}))
		}
	}
	return static
}

// relationships relates a device to itself and to groups.
func (g *gardener) relationships(by *model.Principal, device string, groups []string) {
	r, ctx := g.w.registry, g.w.Context()
	for range g.few() {
		p := store.Patch{"token": g.token("relationship"), "sourceType": "device", "source": device, "targetType": "device", "target": device, "relationshipType": "assigned"}
		if len(groups) > 0 && g.yes() {
			p["sourceType"], p["source"], p["relationshipType"] = "group", groups[0], "member"
		}
		if g.yes() {
			p["metadata"] = g.metadata()
		}
		must[*registry.Relationship](g)(r.Relationships.Create(ctx, by, p))
	}
}

func (g *gardener) parts(by *model.Principal, profile string) {
	r, ctx, k := g.w.registry, g.w.Context(), g.w.format
	for range g.few() {
		token := g.token("metric")
		p := g.maybe(store.Patch{"token": token, "deviceProfileToken": profile, "metricKey": "key of " + token, "dataType": "STRING"}, k.of("metric_definitions").fields, "minValue", "maxValue", "enum")
		if g.yes() {
			p["minValue"], p["maxValue"], p["enum"] = -0.5, 1e9, `[ "a" , "true" ]`
		}
		must[*registry.MetricDefinition](g)(r.Metrics.Create(ctx, by, p))
	}
	for range g.few() {
		p := g.maybe(store.Patch{"token": g.token("rule"), "deviceProfileToken": profile, "enabled": g.yes(),
			"definition": rapid.SampledFrom([]string{`{"name":"n","type":"threshold","when":{"metric":"t","op":"gt","threshold":80.0}}`,
				`{ "type":"threshold", "name":"n", "when":{"cel":"\"a\" in m && m[\"a\"] > 5.0"} }`}).Draw(g.T, "definition")}, k.of("detection_rules").fields, "entityGroup", "authoringGraph", "placement")
		if g.yes() {
			p["authoringGraph"] = `{"nodes":[],"x":{"y":[1,2,{}]}}`
		}
		must[*registry.DetectionRule](g)(r.Rules.Create(ctx, by, p))
	}
}

func (g *gardener) attribute(by *model.Principal, device string) {
	q := registry.AttributeSet{AttributeRef: registry.AttributeRef{EntityType: "device", Entity: device, Key: rapid.OneOf(rapid.SampledFrom([]string{"type", "value", "null"}), rapid.Just(g.text())).Draw(g.T, "key"),
		Scope: rapid.SampledFrom([]string{registry.ScopeClient, registry.ScopeServer, registry.ScopeShared}).Draw(g.T, "scope")}}
	if strings.TrimSpace(q.Key) == "" {
		q.Key = "key"
	}
	q.Type = rapid.SampledFrom([]string{registry.ValueString, registry.ValueLong, registry.ValueDouble, registry.ValueBoolean, registry.ValueJSON}).Draw(g.T, "type")
	values := map[string][]string{registry.ValueLong: {"0", "-7", "+7", "007", "9223372036854775807"}, registry.ValueDouble: {"5", "5.0", "1e300", "-0.25", "1e-9", "1234567.125", "0", "-0"},
		registry.ValueBoolean: {"true", "false"}, registry.ValueJSON: {`{"type":"LONG","value":"1"}`, `[1, 2.0, null]`, `"text"`, `5`, ` { } `}, registry.ValueString: {"5", "true", "", "null", g.text()}}
	if !g.seldom() {
		q.Value = new(rapid.SampledFrom(values[q.Type]).Draw(g.T, "value"))
	}
	must[*registry.Attribute](g)(g.w.registry.Attributes.Set(g.w.Context(), by, q))
}

func (g *gardener) credential(by *model.Principal, device string) {
	token := g.token("credential")
	secret := "secret of " + token
	p := g.maybe(store.Patch{"token": token, "deviceToken": device, "enabled": g.yes(), "credentialType": rapid.SampledFrom([]string{"ACCESS_TOKEN", "MQTT_BASIC", "X509_CERTIFICATE"}).Draw(g.T, "type")},
		g.w.format.of("device_credentials").fields, "expiresAt")
	switch p["credentialType"] {
	case "ACCESS_TOKEN":
		p["credentialId"], g.secrets["id/"+token] = secret, secret
	case "MQTT_BASIC":
		p["credentialId"], p["credentialValue"], g.secrets["value/"+token] = "user "+token, secret, secret
	default:
		p["credentialId"] = fmt.Sprintf("%064x", g.n)
	}
	if g.yes() {
		p["expiresAt"] = rapid.SampledFrom([]string{"2031-01-01T00:00:00Z", "2040-06-05T04:03:02.123456+02:00"}).Draw(g.T, "expires")
	}
	must[*registry.DeviceCredential](g)(g.w.registry.Credentials.Create(g.w.Context(), by, p))
}

// supply gives a document the secrets that its export left out.
func (g *gardener) supply(d *Document) {
	give := func(e *Entity, field, from string) {
		if s, ok := g.secrets[from]; ok {
			e.keep(field, s)
		}
	}
	for _, p := range d.Lists["identities"] {
		give(p, "password", "identity/"+p.Name)
	}
	for _, c := range d.Lists["oauthClients"] {
		give(c, "secret", "client/"+c.Name)
	}
	for _, t := range d.Lists["tenants"] {
		for _, c := range t.Lists[listChannels] {
			give(c, keySecret, "channel/"+c.Name)
		}
		for _, device := range t.Lists["devices"] {
			for _, c := range device.Lists["credentials"] {
				give(c, "credentialId", "id/"+c.Name)
				give(c, "credentialValue", "value/"+c.Name)
			}
		}
	}
}
