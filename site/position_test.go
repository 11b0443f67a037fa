package site

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"weir/model"
)

// reworded returns a refusal with a message that names nothing.
func reworded(e *model.Error) *model.Error {
	e.Message = "sorry: \"too-hot\" no: externalId"
	return e
}

// TestARewordedRefusalKeepsItsPosition: the line comes from what a refusal carries, not from what it says.
func TestARewordedRefusalKeepsItsPosition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.read(`version: 1
identities:
  - email: ada@example.org
    systemRoles: [superuser]
    memberships:
      - {tenant: acme, roles: [viewer]}
tenants:
  - token: acme
    deviceProfiles:
      - token: boiler
        detectionRules:
          - {token: calm, definition: {}}
          - token: too-hot
            name: Hot
            definition: {}
    devices:
      - token: d1
        name: One
        externalId: "77"
`)
	device := tenant.Lists["tenants"][0].Lists["devices"][0]
	profile := tenant.Lists["tenants"][0].Lists["deviceProfiles"][0]
	person := tenant.Lists["identities"][0]
	rule := func(token string) *model.Error {
		return &model.Error{Kind: "detection rule", Token: token, Field: "definition"}
	}
	profiles := w.format.of("device_profiles")
	for name, c := range map[string]struct {
		of   *Entity
		err  *model.Error
		want string
	}{
		"a field":                         {device, model.Invalid("name", "x"), "site.yaml:18:9: tenants[0].devices[0].name"},
		"a field that must be unique":     {device, model.NotUnique("device", "externalId", "77"), "site.yaml:19:9: tenants[0].devices[0].externalId"},
		"a field that is too large":       {device, model.OverLimit("name", "x"), "site.yaml:18:9: tenants[0].devices[0].name"},
		"a field that is not declared":    {device, model.Invalid("metadata", "x"), "site.yaml:17:9: tenants[0].devices[0]"},
		"no field":                        {device, model.Errorf(model.CodeConflict, "x"), "site.yaml:17:9: tenants[0].devices[0]"},
		"the system roles of a person":    {person, model.Invalid("roleTokens", "x"), "site.yaml:4:5: identities[0].systemRoles"},
		"the roles in a tenant":           {person.Lists["memberships"][0], model.Invalid("roleTokens", "x"), "site.yaml:6:24: identities[0].memberships[0].roles"},
		"the tenant of a membership":      {person.Lists["memberships"][0], model.NotFound("tenant", "acme"), "site.yaml:6:10: identities[0].memberships[0]"},
		"a rule":                          {refused(profiles, profile, &model.Error{All: []*model.Error{rule("too-hot"), rule("calm")}}), model.Invalid("detectionRules", "x"), "site.yaml:15:13: tenants[0].deviceProfiles[0].detectionRules[1].definition"},
		"a rule after an undeclared one":  {refused(profiles, profile, &model.Error{All: []*model.Error{rule("old"), rule("calm")}}), model.Invalid("detectionRules", "x"), "site.yaml:12:27: tenants[0].deviceProfiles[0].detectionRules[0].definition"},
		"rules of which none is declared": {refused(profiles, profile, &model.Error{All: []*model.Error{rule("old")}}), model.Invalid("detectionRules", "x"), "site.yaml:10:9: tenants[0].deviceProfiles[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, err := range []error{at(c.of, c.err), at(c.of, reworded(c.err))} {
				if got := strings.TrimPrefix(err.Error(), w.dir+"/"); !strings.HasPrefix(got, c.want+": ") {
					t.Errorf("got %q, want it to begin with %q", got, c.want)
				}
			}
		})
	}
}

// TestARefusedPublishNamesItsRules: the position above needs the rules of the refusal, which come from the registry.
func TestARefusedPublishNamesItsRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.Apply(t.Context(), operator, w.read(`version: 1
tenants:
  - token: acme
    deviceProfiles:
      - token: boiler
        detectionRules:
          - {token: calm, enabled: false, definition: {name: n, type: threshold, when: {metric: temp, op: much, threshold: 1}}}
          - {token: low, definition: {name: n, type: threshold, when: {metric: temp, op: much, threshold: 1}}}
          - {token: too-hot, definition: {name: n, type: threshold, when: {metric: temp, op: none, threshold: 1}}}
`), Options{})
	e, ok := errors.AsType[*model.Error](err)
	if !ok || len(e.All) != 2 {
		t.Fatalf("got %+v", err)
	}
	if got := fmt.Sprint(e.All[0].Kind, " ", e.All[0].Token, " ", e.All[1].Token); got != "detection rule low too-hot" {
		t.Errorf("got %s", got)
	}
}

// TestOnlyAMissingSecretIsAskedFor: the hint follows from what the file leaves out.
func TestOnlyAMissingSecretIsAskedFor(t *testing.T) {
	t.Parallel()
	given := &Entity{Secrets: map[string]string{"password": "x"}}
	for name, c := range map[string]struct {
		of   *Entity
		err  *model.Error
		want string
	}{
		"missing":      {&Entity{}, model.Invalid("password", "x"), "it is new: give its secret with password_file or password_env"},
		"given":        {given, model.Invalid("password", "is required"), "nothing was changed"},
		"another's":    {given, model.Invalid("name", "is required"), "nothing was changed"},
		"has its hint": {&Entity{}, &model.Error{Field: "password", Hint: "wait"}, "wait"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if e, ok := errors.AsType[*model.Error](at(c.of, c.err)); !ok || e.Hint != c.want {
				t.Errorf("got %+v", e)
			}
		})
	}
}
