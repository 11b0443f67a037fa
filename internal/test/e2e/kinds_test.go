package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// kinds: each of the eight kinds of rules is published, fires and resolves. What waits is fired by the time alone: nothing arrives
// between the last step before it and the edge. The stream says of which kind an edge is, what it belongs to, and its value.
func kinds(t *testing.T, w *world) {
	tn := w.tenant(t, "kinds")
	tn.devices(`mutation{a:createAreaType(request:{token:"floor"}){id} b:createArea(request:{token:"hall",areaTypeToken:"floor"}){id}}`, nil)
	begin := time.Now().Add(-time.Hour).Truncate(time.Minute)
	base := begin
	send := func(device string, seconds int, value int) {
		tn.kept(measured("x", fmt.Sprint(value), at(base.Add(time.Duration(seconds)*time.Second)), tn.as(device)))
	}
	relate := func(device string) {
		tn.devices(`mutation($r:EntityRelationshipCreateRequest!){createEntityRelationship(request:$r){id}}`, map[string]any{"r": map[string]any{"token": "in-" + device,
			"sourceType": "device", "source": device, "targetType": "area", "target": "hall", "relationshipType": "assigned"}})
	}
	related, shown := 0, map[string]bool{}
	const positive = `"when":{"metric":"x","op":"gt","threshold":0}`
	for _, k := range []struct {
		name, definition string
		raise, resolve   func(device string)
	}{
		{"threshold", `"type":"threshold",` + positive,
			func(d string) { send(d, 0, 1) },
			func(d string) { send(d, 1, 0) }},
		{"deltaRate", `"type":"deltaRate","metric":"x","op":"ge","threshold":5,"lateness":"50ms"`,
			func(d string) { send(d, 0, 0); send(d, 1, 10) },
			func(d string) { send(d, 2, 10) }},
		{"repeating", `"type":"repeating","count":2,"window":"1m","lateness":"50ms",` + positive,
			func(d string) { send(d, 0, 1); send(d, 1, 1) },
			func(d string) { send(d, 120, 0) }},
		{"duration", `"type":"duration","hold":"100ms","lateness":"50ms",` + positive,
			func(d string) { send(d, 0, 1) },
			func(d string) { send(d, 1, 0) }},
		{"absence", `"type":"absence","timeout":"100ms","lateness":"0s"`,
			func(string) {}, // it was never heard
			func(d string) { send(d, 0, 1) }},
		{"tumbling", `"type":"aggregate","windowMode":"tumbling","window":"10s","agg":"sum","metric":"x","op":"ge","threshold":5,"lateness":"50ms"`,
			func(d string) { send(d, 0, 3); send(d, 1, 3); send(d, 11, 0) },
			func(d string) { send(d, 25, 0) }},
		{"sliding", `"type":"aggregate","windowMode":"sliding","window":"10s","agg":"sum","metric":"x","op":"ge","threshold":5,"lateness":"50ms"`,
			func(d string) { send(d, 0, 3); send(d, 1, 3) },
			func(d string) { send(d, 20, 1) }},
		{"session", `"type":"aggregate","windowMode":"session","gap":"10s","agg":"count","op":"ge","threshold":2,"lateness":"50ms"`,
			func(d string) { send(d, 0, 1); send(d, 1, 1); send(d, 30, 1) },
			func(d string) { send(d, 60, 1) }},
		{"count", `"type":"aggregate","windowMode":"count","count":2,"agg":"sum","metric":"x","op":"ge","threshold":5`,
			func(d string) { send(d, 0, 3); send(d, 1, 3) },
			func(d string) { send(d, 2, 0); send(d, 3, 0) }},
		{"correlation", `"type":"correlation","anchorType":"area","count":2,"window":"1m","lateness":"50ms",` + positive,
			func(d string) {
				other := d + "-2"
				if related++; related == 1 {
					tn.device(other, "correlation")
					relate(other)
				}
				relate(d)
				send(d, 0, 1)
				send(other, 1, 1)
			},
			func(d string) { tn.devices(fmt.Sprintf(`mutation{removeEntityRelationship(token:"in-%s")}`, d), nil) }},
		{"connectivity", `"type":"connectivity"`,
			func(d string) { _ = tn.connect(d).Close() },
			func(d string) { tn.connect(d) }},
	} {
		device := "dev-" + k.name
		base = begin
		tn.profile(k.name, map[string]string{k.name + "-rule": `{"name":"r",` + k.definition + `}`})
		tn.device(device, k.name)
		fired := func(edge string, n int) {
			t.Helper()
			poll.Until(t, k.name+" "+edge, func() error {
				h := tn.health(k.name)
				if len(h) == 1 && h[0].Status == "ACTIVE" && h[0].FireCount == n && h[0].LastSignal != nil && *h[0].LastSignal == edge {
					return nil
				}
				return fmt.Errorf("%+v", h)
			})
		}
		k.raise(device)
		fired("raised", 1)
		k.resolve(device)
		if k.name == "absence" { // it is silent again
			fired("raised", 3)
		} else {
			fired("resolved", 2)
		}
		s, err := tn.Dial("event-processing", tn.token)
		if err == nil {
			err = s.Subscribe("1", detectionQuery, map[string]any{"p": k.name})
		}
		if err != nil {
			t.Fatal(err)
		}
		edge := heard(t, k.name, s, func() {
			base = base.Add(4 * time.Minute)
			k.raise(device)
			if k.name == "correlation" { // a device that has left counts no more, judged or not
				poll.True(t, "it is raised", func() bool { return *tn.health(k.name)[0].LastSignal == "raised" })
			}
			k.resolve(device)
		})
		s.Close()
		kind, series := k.name, device
		switch k.name {
		case "tumbling", "sliding", "session", "count":
			kind = "aggregate"
		case "correlation":
			series = "hall"
		}
		if k.name == "correlation" { // what was raised and has resolved is found again
			p := tn.preview(map[string]any{"profileToken": k.name, "ruleDefinition": `{"name":"r",` + k.definition + `}`,
				"start": base.Add(-time.Minute).Format(time.RFC3339), "end": time.Now().Add(time.Minute).Format(time.RFC3339)})
			if len(p.Firings) == 0 || p.Firings[0].Series != series || p.Firings[0].Signal != "raised" {
				t.Errorf("a preview of the correlation: %+v", p)
			}
			conformance.Shown(t, "S1-073")
		}
		valued := !slices.Contains([]string{"duration", "absence", "correlation", "connectivity"}, kind)
		if edge.Kind != kind || edge.Series != series || edge.RuleToken != k.name+"-rule" || (edge.Value != nil) != valued {
			t.Errorf("%s: %s", k.name, show(edge))
		}
		shown[edge.Kind] = true
	}
	if len(shown) != 8 {
		t.Errorf("edges of the kinds %v", shown)
	}
	conformance.Shown(t, "S1-101", "S1-103", "S1-104", "S1-107")
}

// heard lets something be raised and resolved until a subscription has heard a raised edge: nothing tells when it stands.
func heard(t *testing.T, what string, s *testweir.Socket, again func()) detection {
	t.Helper()
	for range 10 {
		again()
		for {
			m, err := s.Next(time.Second)
			if errors.Is(err, testweir.ErrQuiet) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := detectionOf(t, m); d.Edge == "raised" {
				return d
			}
		}
	}
	t.Fatalf("%s: no raised edge is heard", what)
	return detection{}
}
