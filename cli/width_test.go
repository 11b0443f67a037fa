package cli

import (
	"io"
	"strings"
	"testing"
	"time"

	"weir/operate"
)

// TestTablesFitTheScreen prints each list with long values as plants have them. Lists of devices and firings have more
// columns than 80 characters hold for long tokens: they fit for those of the examples, and are bounded for long ones.
func TestTablesFitTheScreen(t *testing.T) {
	t.Parallel()
	const token, name = "pump-house-north", "Pump house, north"
	at := time.Date(2026, 3, 1, 8, 0, 0, 123e6, time.UTC)
	version, value := 12, 1234.5678
	for list, c := range map[string]struct {
		print func(w io.Writer)
		most  int
	}{
		"tenants": {func(w io.Writer) {
			printTenants(w, []operate.TenantLine{{Token: token, Name: name, Tier: "silver", Enabled: true, Devices: 100_000}})
		}, screen},
		"accounts": {func(w io.Writer) {
			printAdmins(w, []operate.AdminLine{{Email: "maintenance@example.org", Roles: []string{"superuser"}, Tenants: []string{token}}})
		}, screen},
		"device types": {func(w io.Writer) {
			printTypes(w, []typeRow{{Token: token, Name: new(name), Profile: new("centrifugal"), Manufacturer: new("Example AG"), Model: new("CR 32-4")}})
		}, screen},
		"profiles": {func(w io.Writer) {
			printProfiles(w, []profileRow{{Token: token, Name: new(name), ActiveVersion: &version, TypeCount: 120}})
		}, screen},
		"rules": {func(w io.Writer) {
			printRules(w, []ruleRow{{Token: token, Profile: token, Kind: "correlation", Severity: "critical", Enabled: true, Published: true}})
		}, screen},
		"readings": {func(w io.Writer) {
			printReadings(w, []reading{{Occurred: at, Metric: "discharge-pressure", Value: &value, Unit: "m3/h"}})
		}, screen},
		"credentials": {func(w io.Writer) {
			printCredentials(w, []credential{{Token: "0198c2f4-7d6e-7c3a-9d0e-0123456789ab", Type: x509Certificate, ID: strings.Repeat("0f", 32), ExpiresAt: &at}})
		}, screen},
		"devices": {func(w io.Writer) {
			printDevices(w, &deviceList{Devices: []deviceSummary{{Token: "boiler-17", Type: "boiler", Name: new("Boiler 17"), ExternalID: new("SN 4711"),
				Presence: disconnected, LastSeen: &at}}})
		}, screen},
		"devices with long values": {func(w io.Writer) {
			printDevices(w, &deviceList{Devices: []deviceSummary{{Token: token, Type: token, Name: new(name), ExternalID: new("E3-20260001"),
				Presence: disconnected, LastSeen: &at}}})
		}, 105},
		"firings": {func(w io.Writer) {
			printFirings(w, &operate.Firings{Total: 1, Firings: []operate.Firing{{Occurred: at, Tenant: "acme", Device: "boiler-17", Rule: "too-hot", Severity: "critical",
				Edge: "resolved", Value: new(85.25)}}}, operate.FiringQuery{})
		}, screen},
		"firings with long values": {func(w io.Writer) {
			printFirings(w, &operate.Firings{Total: 1, Firings: []operate.Firing{{Occurred: at, Tenant: token, Device: token, Rule: "pressure-too-high", Severity: "critical",
				Edge: "resolved", Value: &value}}}, operate.FiringQuery{})
		}, 115},
	} {
		var b strings.Builder
		c.print(&b)
		if got := widthOf(b.String()); got > c.most || got < 30 {
			t.Errorf("%s: %d characters, at most %d\n%s", list, got, c.most, b.String())
		}
	}
}
