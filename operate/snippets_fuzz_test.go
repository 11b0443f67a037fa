package operate

import (
	"strings"
	"testing"

	"weir/web"
)

// FuzzPlainHost: a Host header becomes part of commands that a user types, so nothing of it means anything to a shell or
// to the command.
func FuzzPlainHost(f *testing.F) {
	for _, s := range []string{"weir.lan:8080", "[fe80::1]:80", "$(reboot)", "-h", "a b", "a;b", "'", "a\x00b", "user@host", strings.Repeat("a", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host := web.PlainHost(s)
		if len(host) > 253 || strings.HasPrefix(host, "-") || strings.ContainsAny(host, " \t\r\n\x00'\"`$\\;&|<>()*?!#~=@/%[]{}") {
			t.Fatalf("%q gives %q", s, host)
		}
		for _, snippet := range FirstReading(&DeviceAdded{Tenant: "t", Token: "d", Secret: "s", Entrances: Entrances{MQTT: ":1883", Ingest: ":8081", Instance: "weir"}}, host) {
			if host != "" && !strings.Contains(snippet.Text, host) {
				t.Fatalf("%q is not in %q", host, snippet.Text)
			}
		}
	})
}
