package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/model"
)

// acted gathers what edges come to.
type acted struct {
	contributions []model.Contribution
	orders        []model.Order
	stale         int
}

func (a *acted) Contribute(c model.Contribution) { a.contributions = append(a.contributions, c) }
func (a *acted) Order(o model.Order)             { a.orders = append(a.orders, o) }
func (a *acted) Stale(int64, model.EdgeID)       { a.stale++ }
func (a *acted) keys() (ks []string)             { return a.keysOf(len(a.contributions) - 1) }
func (a *acted) keysOf(i int) (ks []string) {
	if i < 0 {
		return nil
	}
	for _, k := range a.contributions[i].Keys {
		ks = append(ks, k.Key)
	}
	return ks
}

// actor is a storm of one tenant whose noisy rule has actions.
func actor(t testing.TB, actions string) (*storm, *acted) {
	t.Helper()
	s := &storm{e: NewEngine(newTestCompiler(t, Limits{Actions: actionTypes[:]}), nil), at: Position{Epoch: 1, Received: 1e18}}
	a := &acted{}
	s.e.Perform(a)
	ref := ProfileRef{ProfileKey: ProfileKey{1, 10}, TenantToken: "t1", Token: "pump", Version: 1}
	s.e.Install(s.at, ref, []model.RuleView{view("noisy", `{"name":"n","type":"threshold","severity":"major","when":{"metric":"temp","op":"gt","threshold":80},"actions":[`+actions+`]}`)}, s.emit)
	if h := s.e.Health(ref.ProfileKey); h[0].Status != Active {
		t.Fatal(h[0].Message)
	}
	return s, a
}

func TestGuardsAndTemplatesThatFailSkipTheirActionAlone(t *testing.T) {
	t.Parallel()
	s, a := actor(t, `{"type":"raiseAlarm","raiseAlarm":{}},{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"high"},"guard":"hasValue && value > 100.0"},
		{"type":"raiseAlarm","raiseAlarm":{"alarmKeyTemplate":"'of/' + series"}},
		{"type":"publish","publish":{"connectorRef":"bus","payloadTemplate":"series + ['x'][int(value) - 90]"}},
		{"type":"publish","publish":{"connectorRef":"b2"},"guard":"[true][int(value) - 90]"},{"type":"sendCommand","sendCommand":{"command":"stop","payload":"{\"a\": 1}"}}`)
	health := func() int64 { return s.e.Health(ProfileKey{1, 10})[0].EvalErrors }
	s.apply(0, 1, "temp", 90)
	if ks := a.keys(); !slices.Equal(ks, []string{"pump/noisy"}) || len(a.orders) != 3 || health() != 1 {
		t.Errorf("%q, %d orders, %d errors", ks, len(a.orders), health())
	}
	if d := dispatchOf(t, a.orders[0]); d.Payload != "dev-1x" || d.Publish.ConnectorRef != "bus" || d.Rule != "t1/pump@1/noisy" || d.Key != a.orders[0].Key {
		t.Errorf("%+v", d)
	}
	if d := dispatchOf(t, a.orders[1]); d.Publish.ConnectorRef != "b2" || !strings.Contains(d.Payload, `"severity":"major","value":90`) {
		t.Errorf("%+v", d)
	}
	if d := dispatchOf(t, a.orders[2]); d.Command.Command != "stop" || d.Payload != `{"a": 1}` || a.orders[2].Expires != s.edges[0].Occurred+600_000_000 {
		t.Errorf("%+v", d)
	}
	s.apply(1e9, 1, "temp", 70)
	if c := a.contributions[len(a.contributions)-1]; c.Kind != model.ContributeResolve || len(a.orders) != 3 {
		t.Errorf("%+v", c) // guards are not asked, and nothing else happens
	}
	s.apply(1e9, 1, "temp", 200)
	if ks := a.keys(); !slices.Equal(ks, []string{"pump/noisy", "high"}) || len(a.orders) != 4 || health() != 4 {
		t.Errorf("%q, %d orders, %d errors", ks, len(a.orders), health())
	}
}

func dispatchOf(t testing.TB, o model.Order) (d model.Dispatch) {
	t.Helper()
	if err := json.Unmarshal(o.Body, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestIdempotencyKeysAreFrozen: another form would repeat what is on its way while Weir is upgraded.
func TestIdempotencyKeysAreFrozen(t *testing.T) {
	t.Parallel()
	const actions = `{"type":"httpCall","httpCall":{"url":"http://h","headers":{"x-b":"2","x-a":"1"},"bodyTemplate":"series","secretRef":"http/k","timeoutMs":5},"guard":"hasValue"},
		{"type":"sendCommand","sendCommand":{"command":"stop"},"maxAge":"1h"},{"type":"publish","publish":{"connectorRef":"bus"}}`
	s, a := actor(t, actions)
	s.apply(0, 1, "temp", 90)
	want := map[string]string{
		"httpCall":    "1\x001\x000\x00pump/noisy\x001\x000\x00httpCall\x00http://h\x00POST\x002\x00X-A\x001\x00X-B\x002\x00series\x00http/k\x005\x00hasValue\x00",
		"sendCommand": "1\x001\x000\x00pump/noisy\x001\x000\x00sendCommand\x00stop\x00\x00",
		"publish":     "1\x001\x000\x00pump/noisy\x001\x000\x00publish\x00bus\x00\x000\x00",
	}
	keys := map[string]string{}
	for _, o := range a.orders {
		if sum := sha(want[o.Kind]); o.Key != sum {
			t.Errorf("%s has the key %s, want %s", o.Kind, o.Key, sum)
		}
		keys[o.Kind] = o.Key
	}
	// In another order, and with another maxAge, they are the same.
	again, b := actor(t, `{"type":"publish","publish":{"connectorRef":"bus"}},{"type":"sendCommand","sendCommand":{"command":"stop"},"maxAge":"2h"}`)
	again.apply(0, 1, "temp", 90)
	for _, o := range b.orders {
		if keys[o.Kind] != o.Key {
			t.Errorf("%s has another key in another place", o.Kind)
		}
	}
}

func TestAnAlarmNeedsAKeyForEachDevice(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{Actions: actionTypes[:]})
	for definition, want := range map[string]string{
		`{"name":"n","type":"threshold","severity":"major","when":{"metric":"t","op":"gt","threshold":1},"actions":[{"type":"raiseAlarm","raiseAlarm":{}}]}`: "",
		`{"name":"n","type":"correlation","severity":"major","anchorType":"area","count":2,"window":"1m","actions":[{"type":"raiseAlarm","raiseAlarm":{}}]}`: "actions",
	} {
		def, err := Decode([]byte(definition))
		if err == nil {
			_, _, err = c.Compile(def, Options{})
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", definition, err)
		}
	}
}

// FuzzTemplates: whatever an author writes, an edge comes to what its template says or to a counted failure, never to a key
// that no token may be, and twice the same.
func FuzzTemplates(f *testing.F) {
	for _, s := range []string{"series", "'a' + series", "series + '/'", "series.matches('d') ? 'x' : 'y'", "string(value)", "hasValue ? series : ''", "'é'", "'" + strings.Repeat("a", 129) + "'"} {
		f.Add(s, 91.5)
	}
	c := newTestCompiler(f, Limits{Actions: actionTypes[:]})
	f.Fuzz(func(t *testing.T, text string, value float64) {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err) // every text has a JSON form
		}
		for _, action := range []string{fmt.Sprintf(`{"type":"raiseAlarm","raiseAlarm":{"alarmKeyTemplate":%s}}`, quoted), fmt.Sprintf(`{"type":"publish","publish":{"connectorRef":"b","payloadTemplate":%s}}`, quoted),
			fmt.Sprintf(`{"type":"publish","publish":{"connectorRef":"b"},"guard":%s}`, quoted)} {
			def, err := Decode([]byte(`{"name":"n","type":"threshold","severity":"major","when":{"metric":"temp","op":"gt","threshold":80},"actions":[` + action + `]}`))
			if err != nil {
				continue
			}
			p, _, err := c.Compile(def, Options{})
			if err != nil {
				continue
			}
			a := &p.acting.actions[0]
			edge := &model.Edge{Series: "d-1", Value: value, HasValue: true, Signal: model.Raised}
			holds, ok := a.holds(firing(edge))
			again, okAgain := a.holds(firing(edge))
			if holds != again || ok != okAgain {
				t.Errorf("%q holds %v and %v", text, holds, again)
			}
			if a.Type == ActionRaiseAlarm {
				key, ok := a.alarmKey("p/r", firing(edge))
				if ok && key != "p/r" && !model.ValidToken(key) { // that is the rule's own, for an empty template
					t.Errorf("%q gives the key %q", text, key)
				}
				continue
			}
			if o, ok := a.order(edge, firing(edge)); ok && !json.Valid(o.Body) {
				t.Errorf("%q gives %s", text, o.Body)
			}
		}
	})
}

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
