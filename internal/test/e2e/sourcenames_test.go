package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// sourceNames: a rule names any metric, whatever characters its name has. A reading under a source name is stored and judged under the key once
// that is published, and a preview over the stored readings agrees with what live detection came to.
func sourceNames(t *testing.T, w *world) {
	tn := w.tenant(t, "source-names")
	tn.profile("p", map[string]string{
		"path":   above("path", "/3303/0/5700", 80, ""),
		"spaces": above("spaces", `Node "A" Temperature °C`, 80, ""),
		"key":    above("key", "temp", 80, ""),
	})
	tn.device("d", "p")
	begin := time.Now().UTC().Add(-time.Minute).Format(time.RFC3339)
	send := func(metric, value string) { tn.kept(measured(metric, value, tn.as("d"))) }
	edges := func() (all []string) {
		var out struct {
			Detections struct {
				Results []struct {
					RuleToken, Edge string
					Value           *float64
				}
			}
		}
		tn.applied("d")
		tn.rules(`{detections(criteria:{pageNumber:1,pageSize:50}){results{ruleToken edge value}}}`, nil).into(t, &out)
		for _, e := range out.Detections.Results {
			if e.Value == nil {
				e.Value = new(float64)
			}
			all = append(all, fmt.Sprintf("%s %s %g", e.RuleToken, e.Edge, *e.Value))
		}
		slices.Sort(all)
		return all
	}
	for _, metric := range []string{"/3303/0/5700", `Node "A" Temperature °C`} {
		send(metric, "99")
		send(metric, "20")
	}
	if got, want := edges(), []string{"path raised 99", "path resolved 0", "spaces raised 99", "spaces resolved 0"}; !slices.Equal(got, want) {
		t.Errorf("rules on names of their own: %q, want %q", got, want)
	}

	a := tn.devices(`mutation{createMetricDefinition(request:{token:"temp",deviceProfileToken:"p",metricKey:"temp",dataType:"DOUBLE",unit:"Cel",sourceNames:["spelt otherwise","/3303/0/5700"]}){sourceNames}
		other:createMetricDefinition(request:{token:"other",deviceProfileToken:"p",metricKey:"other",dataType:"DOUBLE"}){sourceNames}}`, nil)
	if want := `{"createMetricDefinition":{"sourceNames":["/3303/0/5700","spelt otherwise"]},"other":{"sourceNames":null}}`; string(a.Data) != want {
		t.Errorf("%s, want %s", a.Data, want)
	}
	tn.refused(`mutation{updateMetricDefinition(token:"other",request:{sourceNames:["spelt otherwise"]}){token}}`, nil, "INVALID_INPUT", `belongs to the metric definition "temp" already`)
	tn.refused(`mutation{updateMetricDefinition(token:"other",request:{metricKey:"/3303/0/5700"}){token}}`, nil, "INVALID_INPUT", `is a source name of the metric definition "temp" already`)
	send("/3303/0/5700", "98")
	if got := edges(); !slices.Contains(got, "path raised 98") {
		t.Errorf("a draft changes nothing: %q", got)
	}
	published := tn.devices(`mutation{publishDeviceProfile(token:"p"){warnings{token code message}}}`, nil)
	if !strings.Contains(published.raw, `is a source name of the metric \"temp\"`) {
		t.Errorf("nothing warns of a rule that names a source name: %s", published.raw)
	}
	send("/3303/0/5700", "97")
	send("spelt otherwise", "21")
	send("temp", "96")
	got := slices.DeleteFunc(edges(), func(e string) bool { return !strings.HasPrefix(e, "key ") })
	if want := []string{"key raised 96", "key raised 97", "key resolved 0"}; !slices.Equal(got, want) {
		t.Errorf("judged under the key: %q, want %q", got, want)
	}
	var values []string
	stored, _ := tn.measurements(map[string]any{"deviceToken": "d"})
	for _, m := range stored {
		if m.Name != "mark" {
			values = append(values, fmt.Sprintf("%s=%g", m.Name, m.Value))
		}
	}
	slices.Sort(values)
	if want := []string{"/3303/0/5700=20", "/3303/0/5700=98", "/3303/0/5700=99", `Node "A" Temperature °C=20`, `Node "A" Temperature °C=99`, "temp=21", "temp=96", "temp=97"}; !slices.Equal(values, want) {
		t.Errorf("stored: %q, want %q", values, want)
	}
	firings := func(definition string) (all []string) {
		p := tn.preview(map[string]any{"ruleDefinition": definition, "profileToken": "p", "start": begin, "end": time.Now().UTC().Add(time.Minute).Format(time.RFC3339)})
		if !p.OK {
			t.Errorf("%+v", p)
		}
		for _, f := range p.Firings {
			all = append(all, f.Signal)
		}
		return all
	}
	if got, want := firings(above("key", "temp", 80, "")), []string{"raised", "resolved", "raised"}; !slices.Equal(got, want) {
		t.Errorf("a preview of the rule on the key: %q, want %q", got, want)
	}
	if got, want := firings(above("path", "/3303/0/5700", 80, "")), []string{"raised", "resolved", "raised"}; !slices.Equal(got, want) {
		t.Errorf("a preview of the rule on the path: %q, want %q: what was stored before keeps its name", got, want)
	}
	if out := w.Run("", "get", "metricDefinitions", "temp", "--tenant", "source-names", "-o", "yaml"); !strings.Contains(out, "sourceNames:") || !strings.Contains(out, "/3303/0/5700") {
		t.Errorf("weir get: %s", out)
	}
	if out := w.Run("", "profile", "show", "source-names", "p"); !strings.Contains(out, "temp  DOUBLE in Cel, sent as /3303/0/5700, spelt otherwise") {
		t.Errorf("weir profile show: %s", out)
	}
}
