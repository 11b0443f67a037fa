package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// features are what README.md names as working, by the page that it links to, each with the test that works with it through the program.
var features = map[string]string{
	"docs/transports/mqtt.md":          "main.TestDocumentsTransports",
	"docs/transports/http.md":          "main.TestDocumentsTransports",
	"docs/transports/lwm2m.md":         "internal/test/e2e.TestLwM2M",
	"docs/transports/sparkplug.md":     "internal/test/e2e.TestAHostApplicationOfSparkplug",
	"docs/transports/external-mqtt.md": "main.TestDocumentsExternalMQTT",
	"docs/transports/provisioning.md":  "internal/test/e2e.TestADeviceGetsItsCredentialOverMQTT",
	"docs/devices/README.md":           "main.TestDocumentsProgramsRead",
	"docs/api.md":                      "main.TestDocumentsAPI",
	"docs/site-files.md":               "main.TestDocumentsSiteFiles",
	"docs/rules.md":                    "main.TestDocumentsRules",
	"docs/commands.md":                 "internal/test/e2e.TestCommandsOverTheAPI",
	"docs/connectors.md":               "internal/test/e2e.TestARuleReachesOtherSystems",
	"docs/notifications.md":            "internal/test/e2e.TestAnAlarmReachesPeople",
	"docs/edge.md":                     "internal/test/e2e.TestAnEdgeBelowAWeir",
	"docs/console.md":                  "app.TestTheRunningProgramServesTheConsole",
	"docs/console.md#dashboards":       "internal/test/e2e.TestTheRunningProgram",
}

// TestTheFeaturesOfTheFirstPageAreTested: README.md names no feature without a test, and none that is gone.
func TestTheFeaturesOfTheFirstPageAreTested(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, stands, ok := strings.Cut(string(b), "\n## Where it stands\n")
	stands, _, ends := strings.Cut(stands, "\nIt does not have yet")
	if !ok || !ends {
		t.Fatal("README.md does not say where it stands, and what it does not have yet")
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(stands, -1) {
		named[m[1]] = true
		if features[m[1]] == "" {
			t.Errorf("README.md names %s as working, and no test here works with it", m[1])
		}
	}
	for page, test := range features {
		if !named[page] {
			t.Errorf("README.md does not name %s any more", page)
		}
		if !isTest(t, test) {
			t.Errorf("%s: there is no %s", page, test)
		}
	}
}

// isTest reports whether a package has a test of this name.
func isTest(t *testing.T, name string) bool {
	t.Helper()
	dir, test, _ := strings.Cut(strings.Replace(name, ".Test", " Test", 1), " ")
	if dir == "main" {
		dir = "."
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}
