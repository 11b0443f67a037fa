package site

import (
	"path/filepath"
	"strings"
	"testing"
)

const groupedSite = `version: 1
tenants:
  - token: acme
    entityGroups:
      - {token: hot, memberType: device, membershipMode: dynamic, selector: 'attr["zone"] == "hot"'}
      - {token: line, memberType: device, name: Line}
    deviceProfiles:
      - token: p
        detectionRules:
          - token: r
            enabled: false # such rules cannot run yet
            entityGroupToken: hot
            entityGroupVersion: 1
            definition: {name: n, type: threshold, when: {metric: t, op: gt, threshold: 80}}
    deviceTypes: [{token: t, profileToken: p}]
    devices: [{token: d, deviceTypeToken: t}]
    assetTypes: [{token: at}]
    assets: [{token: a, assetTypeToken: at}]
    entityRelationships:
      - {token: r1, sourceType: device, source: d, targetType: asset, target: a, relationshipType: assigned}
      - {token: r2, sourceType: group, source: line, targetType: device, target: d, relationshipType: member}
`

// A rule is scoped to a version of a group that the same file makes, and relationships come after what they are between.
func TestGroupsAndRelationshipsAreDeclared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := "+ tenant acme\n+ entity group acme/hot\n+ entity group acme/line\n^ publish acme/hot v1\n+ device profile acme/p\n+ detection rule acme/r\n+ device type acme/t\n+ device acme/d\n" +
		"+ asset type acme/at\n+ asset acme/a\n+ entity relationship acme/r1\n+ entity relationship acme/r2\n^ publish acme/p v1\n"
	w.wantPlan(w.read(groupedSite), Options{}, want)
	if got := lines(w.apply(w.read(groupedSite), Options{})); got != want {
		t.Errorf("applied %s", got)
	}
	w.wantPlan(w.read(groupedSite), Options{Prune: true}, "")
	w.wantPlan(w.export(), Options{Prune: true}, "")

	changed := strings.Replace(groupedSite, `"hot"'`, `"warm"'`, 1)
	w.wantPlan(w.read(changed), Options{}, `~ entity group acme/hot: selector "attr[\"zone\"] == \"hot\"" → "attr[\"zone\"] == \"warm\""`+"\n^ publish acme/hot v2\n")
	draft := strings.Replace(changed, "memberType: device, membershipMode", "publish: false, memberType: device, membershipMode", 1)
	w.wantPlan(w.read(draft), Options{}, `~ entity group acme/hot: selector "attr[\"zone\"] == \"hot\"" → "attr[\"zone\"] == \"warm\""`+"\n")

	// The built-in types, which no file declares, stay; a type that is declared may be used.
	types := strings.Replace(groupedSite, "    entityRelationships:", "    entityRelationshipTypes: [{token: near, tracked: false}]\n    entityRelationships:", 1)
	w.wantPlan(w.read(types), Options{Prune: true}, "+ entity relationship type acme/near\n")
	fewer := groupedSite[:strings.Index(groupedSite, "      - {token: r2")]
	w.wantPlan(w.read(fewer), Options{Prune: true}, "- entity relationship acme/r2\n")
	w.wantPlan(w.read(strings.Replace(fewer, "devices: [{token: d, deviceTypeToken: t}]", "devices: [{token: d, deviceTypeToken: t, name: D}]", 1)), Options{}, "~ device acme/d: name none → \"D\"\n")
}

func TestMistakesInGroupsAndRelationshipsAreFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for wrong, text := range map[string][2]string{
		`attr["zone"] == "hot"`:                         {`attr.zone == "hot"`, `wrong.yaml:5:67: tenants[0].entityGroups[0].selector: line 1, column 5: expected attr["key"] or memberType on the left`},
		`source: d, targetType: asset`:                  {`source: e, targetType: asset`, `tenants[0].entityRelationships[0].source: "e" is not declared under devices`},
		`target: a, relationshipType`:                   {`target: b, relationshipType`, `tenants[0].entityRelationships[0].target: "b" is not declared under assets`},
		`sourceType: device`:                            {`sourceType: devise`, `entityRelationships[0].sourceType: "devise" is none of`},
		`{token: line, memberType: device, name: Line}`: {`{token: line, memberType: device, selector: '"a" in attr'}`, "selector: a static group has none"},
		`    entityRelationships:`:                      {"    entityRelationshipTypes: []\n    entityRelationships:\n      - {token: r0, sourceType: device, source: d, targetType: asset, target: a, relationshipType: near}", `"near" is not declared under entityRelationshipTypes`},
	} {
		if strings.Count(groupedSite, wrong) != 1 {
			t.Fatalf("%s is not there once", wrong)
		}
		w.files(map[string]string{"wrong.yaml": strings.Replace(groupedSite, wrong, text[0], 1)})
		if _, _, err := Read(Source{Complete: true}, filepath.Join(w.dir, "wrong.yaml")); err == nil || !strings.Contains(err.Error(), text[1]) {
			t.Errorf("%s: %v, want %s", text[0], err, text[1])
		}
	}
}
