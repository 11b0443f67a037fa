package origin

import (
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAPageOfAnotherHostIsToldFromAllOtherSenders(t *testing.T) {
	for name, c := range map[string]struct {
		header  map[string][]string
		foreign bool
	}{
		"a program":                         {nil, false},
		"a page of its own":                 {map[string][]string{"Origin": {"http://gateway.lan:8080"}}, false},
		"a page behind the proxy":           {map[string][]string{"Origin": {"https://iot.example.org"}}, false},
		"its own page, as the browser says": {map[string][]string{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://gateway.lan:8080"}}, false},
		"another port of the host":          {map[string][]string{"Origin": {"http://gateway.lan:9000"}}, true},
		"a page of another host":            {map[string][]string{"Origin": {"http://evil.example"}}, true},
		"a page without an origin":          {map[string][]string{"Origin": {"null"}}, true},
		"two origins":                       {map[string][]string{"Origin": {"http://gateway.lan:8080", "http://evil.example"}}, true},
		"another site, as the browser says": {map[string][]string{"Sec-Fetch-Site": {"cross-site"}}, true},
	} {
		r := httptest.NewRequest("POST", "http://gateway.lan:8080/api/x/graphql", nil)
		maps.Copy(r.Header, c.header)
		if got := Foreign(r, "https://iot.example.org/weir"); got != c.foreign {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestANameThatAnybodyCanMakeOurs: a page under a name that a stranger may have pointed at this machine is a foreign one, whatever Host says.
func TestANameThatAnybodyCanMakeOurs(t *testing.T) {
	for at, foreign := range map[string]bool{
		"http://192.168.1.20:8080":      false,
		"http://[fe80::1]:8080":         false,
		"http://127.0.0.1:8080":         false,
		"http://localhost:8080":         false,
		"http://gateway:8080":           false,
		"http://gateway.local":          false,
		"http://gateway.home.arpa:8080": false,
		"http://GATEWAY.Lan:8080":       false,
		"http://gateway.lan.:8080":      false,
		"http://rebound.example.org":    true,
		"http://rebound.example.org.":   true,
		"http://192.168.1.20.nip.io":    true,
		"http://notlocal":               false,
		"http://evillocal.example":      true,
		"https://behind.example.org":    false, // a proxy that has a certificate for it
		"http://iot.example.org:8080":   false, // base_url
		"http://" + thisMachine():       false,
		"http://other.example.net:1":    true,
	} {
		r := httptest.NewRequest("POST", "/api/x/graphql", nil)
		r.Header.Set("Origin", at)
		_, r.Host, _ = strings.Cut(at, "://")
		if got := Foreign(r, "http://iot.example.org:8080/weir"); got != foreign {
			t.Errorf("%s: foreign is %v", at, got)
		}
	}
}
