package model

import (
	"strings"
	"testing"
)

func TestLwM2MProfiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: "",
		`{"observe":[{"path":"/3303/0/5700","pmin":10,"pmax":60,"gt":30,"lt":10,"st":0.5,"format":"tlv"},{"path":"/3304","composite":true}],"attributes":["/3/0/2"],"location":true}`: "",
		`[]`:                                                                       "it is {",
		`{"observed":[]}`:                                                          `unknown field "observed"`,
		`{"observe":[{"path":"3303"}]}`:                                            `observe[0].path: "3303" must be`,
		`{"observe":[{"path":"/03"}]}`:                                             "observe[0].path",
		`{"observe":[{"path":"/1/2/3/4/5"}]}`:                                      "observe[0].path",
		`{"observe":[{"path":"/1"},{"path":"/1"}]}`:                                "observe[1].path: /1 is observed already",
		`{"observe":[{"path":"/1","pmin":10,"pmax":5}]}`:                           "pmax: 5 is below pmin",
		`{"observe":[{"path":"/1","pmin":-1}]}`:                                    "must not be below 0",
		`{"observe":[{"path":"/1/0/1","st":0}]}`:                                   "a step must be above 0",
		`{"observe":[{"path":"/1/0/1","gt":10,"lt":9,"st":1}]}`:                    "lt + 2 st must be below gt",
		`{"observe":[{"path":"/1/0","gt":10}]}`:                                    "/1/0 is none",
		`{"observe":[{"path":"/1","format":"xml"}]}`:                               `"xml" is none; there are cbor`,
		`{"attributes":["/3/0"]}`:                                                  "attributes[0]",
		`{"observe":[` + strings.Repeat(`{"path":"/1"},`, 256) + `{"path":"/2"}]}`: "at most 256",
	} {
		_, err := ParseLwM2MProfile([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
	p, _ := ParseLwM2MProfile([]byte(`{"observe":[{"path":"/3303/0/5700","pmin":10,"pmax":60,"gt":30,"lt":-10,"st":0.5}]}`))
	if got := strings.Join(p.Observe[0].Queries(), "&"); got != "pmin=10&pmax=60&gt=30&lt=-10&st=0.5" {
		t.Error(got)
	}
}

func FuzzLwM2MProfile(f *testing.F) {
	f.Add([]byte(`{"observe":[{"path":"/3303/0/5700","pmin":10}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := ParseLwM2MProfile(b); err == nil {
			for i := range p.Observe {
				p.Observe[i].Queries()
			}
		}
	})
}
