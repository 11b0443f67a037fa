package engine

import (
	"testing"
)

func FuzzParseRequest(f *testing.F) {
	for _, seed := range []string{`{"query":"{ ping }","variables":{"a":1e400},"operationName":"A"}`, `[]`, `{`, `null`, `{"query":{}}`, "\xff", `{"query":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := ParseRequest(body)
		if err != nil && (req.Query != "" || req.Variables != nil) {
			t.Errorf("%v and %+v", err, req)
		}
	})
}
