package site

import (
	"path/filepath"
	"strings"
	"testing"
)

// Customers, areas and commands are declared, changed, exported and pruned like everything else.
func TestCustomersAreasAndCommandsAreDeclared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const file = `
version: 1
tenants:
  - token: acme
    deviceProfiles:
      - token: p
        commandDefinitions:
          - {token: c1, commandKey: reboot}
          - token: c2
            commandKey: valve
            name: Valve
            parameterSchema:
              - {name: level, dataType: INT, required: true, minValue: 0, maxValue: 100}
    customerTypes: [{token: tenantry, name: Tenantry, icon: key}]
    customers: [{token: smith, name: Smith & Sons, customerTypeToken: tenantry, metadata: {since: 2020}}]
    areaTypes: [{token: hall}]
    areas: [{token: hall-7, areaTypeToken: hall}]
`
	declared := w.read(file)
	got := lines(w.apply(declared, Options{}))
	for _, line := range []string{"+ command definition acme/c1", "+ command definition acme/c2", "+ customer type acme/tenantry", "+ customer acme/smith", "+ area type acme/hall",
		"+ area acme/hall-7", "^ publish acme/p v1"} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("%s is not in\n%s", line, got)
		}
	}
	w.wantPlan(w.read(file), Options{Prune: true}, "")
	w.wantPlan(w.export(), Options{Prune: true}, "")
	less := w.read(strings.NewReplacer("          - {token: c1, commandKey: reboot}\n", "", "maxValue: 100", "maxValue: 50", "areas: [{token: hall-7, areaTypeToken: hall}]", "areas: []").Replace(file))
	got = lines(w.plan(less, Options{Prune: true}))
	for _, line := range []string{"- command definition acme/c1", "~ command definition acme/c2: parameterSchema[0].maxValue 100 → 50", "- area acme/hall-7", "^ publish acme/p v2"} {
		if !strings.Contains(got, line) {
			t.Errorf("%s is not in\n%s", line, got)
		}
	}
	w.apply(less, Options{Prune: true})
	w.wantPlan(w.export(), Options{Prune: true}, "")
	w.files(map[string]string{"wrong.yaml": strings.NewReplacer("commandKey: valve", "commandKey: reboot").Replace(file)})
	if _, _, err := Read(Source{Checked: true}, filepath.Join(w.dir, "wrong.yaml")); err == nil || !strings.Contains(err.Error(), "reboot") {
		t.Errorf("a key twice: %v", err)
	}
	w.files(map[string]string{"wrong.yaml": strings.NewReplacer("dataType: INT", "dataType: WHOLE").Replace(file)})
	if _, _, err := Read(Source{Checked: true, Complete: true}, filepath.Join(w.dir, "wrong.yaml")); err == nil || !strings.Contains(err.Error(), `"level": dataType`) {
		t.Errorf("a wrong parameter: %v", err)
	}
}
