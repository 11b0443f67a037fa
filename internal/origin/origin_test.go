package origin

import (
	"maps"
	"net/http/httptest"
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
