package site

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// sections writes files with every list and every field of a format, so that seeds grow with it.
type sections struct {
	strings.Builder
	lists []string
}

// everySection is a file with every section there is.
func everySection() *sections {
	s := &sections{}
	s.WriteString("version: 1\n")
	s.inside(DefaultFormat().root, "")
	return s
}

// inside writes the lists that a kind has.
func (s *sections) inside(k *kind, indent string) {
	for _, list := range k.lists {
		s.lists = append(s.lists, list.list)
		fmt.Fprintf(s, "%s%s:\n%s  -", indent, list.list, indent)
		for _, id := range list.ids {
			s.value(id, "a", indent)
		}
		for _, f := range list.fields {
			switch {
			case slices.Contains(list.ids, f.name):
			case f.secret:
				s.value(f.name+"_env", "KEY", indent)
			default:
				s.value(f.name, sample(&f), indent)
			}
		}
		s.inside(list, indent+"    ")
	}
}

// value writes a key with its value, behind the dash of an entity or below it.
func (s *sections) value(key, value, indent string) {
	if strings.HasSuffix(s.String(), "-") {
		fmt.Fprintf(s, " %s: %s\n", key, value)
		return
	}
	fmt.Fprintf(s, "%s    %s: %s\n", indent, key, value)
}

// sample is a value of a field.
func sample(f *field) string {
	switch {
	case f.name == "geometry":
		return `{kind: POLYGON_2D, geometry: {type: Polygon, coordinates: [[[0, 0], [1, 0], [1, 1], [0, 0]]]}}`
	case f.name == "selector":
		return `attr["zone"] == "hot"`
	case f.name == "definition":
		return `{name: Hot, type: threshold, when: {metric: temp, op: gt, threshold: 30}}`
	case f.name == keyRules:
		return `[{severity: MAJOR, channelToken: a, recipients: [a@example.com]}]`
	case len(f.oneOf) > 0:
		return f.oneOf[0]
	case f.ref != "" && f.typ != setField:
		return "a"
	}
	switch f.typ {
	case boolField:
		return "true"
	case integerField, numberField:
		return "60"
	case instantField:
		return `"2031-05-06T07:08:09Z"`
	case listField, setField:
		return "[a]"
	case documentField:
		return "{}"
	}
	return "a"
}

// The seeds of FuzzRead have every section of a site file, and every key in them is known.
func TestTheSeedsHaveEverySection(t *testing.T) {
	t.Parallel()
	s := everySection()
	for _, want := range []string{"tiers", "roles", "settings", "oauthClients", "identities", "tenants", "deviceProfiles", "assets", "customers", "areas", "entityGroups", "entityRelationships",
		"geoFences", "provisioningProfiles", "facetKeys", "dashboards", "devices", "connectors", "httpSecrets", "notificationChannels", "notificationPolicies"} {
		if !slices.Contains(s.lists, want) {
			t.Errorf("there is no section %s among %v", want, s.lists)
		}
	}
	src := gallerySource(s.String())
	src.WithoutSecrets = true
	if _, _, err := Read(src, "site.yaml"); err != nil && (strings.Contains(err.Error(), "is not a") || strings.Contains(err.Error(), "must be a ")) {
		t.Errorf("%v\nof\n%s", err, s)
	}
}
