package crash_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"weir/internal/test/testweir"
)

// every is a tenant with rules of every kind, which raise alarms where their kind may. They wait for some hundredths of a second, so
// that their timers run out under load and between the ends. Its devices send values at random, some late, come and go, and enter
// and leave groups and a geofence; the profile is published with other rules. What must come of it the twin knows.
type every struct {
	tenant, token string
	r             *rand.Rand
	devices       int
	steps         int
}

// everyRules are the rules by their tokens. Those that begin with silent- raise no alarm; commanding are those that send a command.
var everyRules = map[string]string{
	"over":      `"type":"threshold","when":{"metric":"x","op":"gt","threshold":50}`,
	"limited":   `"type":"threshold","when":{"metric":"x","op":"gt","thresholdAttr":"limit"}`,
	"fenced":    `"type":"threshold","when":{"cel":"geo.inFence('yard')"}`,
	"in-group":  `"type":"threshold","when":{"metric":"x","op":"lt","threshold":50}`,
	"jump":      `"type":"deltaRate","metric":"x","op":"ge","threshold":30,"lateness":"10ms"`,
	"repeats":   `"type":"repeating","count":2,"window":"200ms","lateness":"10ms","when":{"metric":"x","op":"gt","threshold":40}`,
	"holds":     `"type":"duration","hold":"30ms","lateness":"5ms","when":{"metric":"x","op":"gt","threshold":30}`,
	"absent":    `"type":"absence","timeout":"60ms","lateness":"0s"`,
	"tumbling":  `"type":"aggregate","windowMode":"tumbling","window":"50ms","agg":"max","metric":"x","op":"gt","threshold":60,"lateness":"5ms"`,
	"sliding":   `"type":"aggregate","windowMode":"sliding","window":"100ms","agg":"avg","metric":"x","op":"gt","threshold":50,"lateness":"5ms"`,
	"session":   `"type":"aggregate","windowMode":"session","gap":"30ms","agg":"count","op":"ge","threshold":2,"lateness":"5ms"`,
	"counted":   `"type":"aggregate","windowMode":"count","count":3,"agg":"avg","metric":"x","op":"gt","threshold":50`,
	"gone":      `"type":"connectivity"`,
	"silent-at": `"type":"correlation","anchorType":"area","count":2,"window":"300ms","lateness":"5ms","when":{"metric":"x","op":"gt","threshold":50}`,
	"silent-in": `"type":"correlation","anchorType":"group","count":2,"window":"300ms","lateness":"5ms","when":{"metric":"x","op":"gt","threshold":50}`,
}

// commanding are the actions with which some rules send a command. None of the devices listens: the commands wait and expire, those
// without a name that the profile has become dead letters, and so do those that come too late.
var commanding = map[string]string{
	"over":    `{"type":"sendCommand","sendCommand":{"command":"stop","payload":"{\"why\":\"over\"}"},"maxAge":"2s"}`,
	"holds":   `{"type":"sendCommand","sendCommand":{"command":"stop"},"maxAge":"20ms"}`,
	"counted": `{"type":"sendCommand","sendCommand":{"command":"unknown"}}`,
	"absent":  `{"type":"sendCommand","sendCommand":{"command":"stop"},"maxAge":"0s"}`,
	"session": `{"type":"sendCommand","sendCommand":{"command":"stop"}}`,
}

// definition of a rule; three of them share an alarm, two name theirs by a template, and some send a command.
func definition(token, severity string) string {
	action := `{}`
	switch {
	case strings.HasPrefix(token, "silent-"):
		return fmt.Sprintf(`{"name":"n","severity":%q,%s}`, severity, everyRules[token])
	case token == "over" || token == "repeats" || token == "holds":
		action = `{"alarmKey":"shared"}`
	case token == "jump" || token == "sliding":
		action = `{"alarmKeyTemplate":"'of-' + series"}`
	}
	if more := commanding[token]; more != "" {
		action += "}," + strings.TrimSuffix(more, "}")
	}
	return fmt.Sprintf(`{"name":"n","severity":%q,%s,"actions":[{"type":"raiseAlarm","raiseAlarm":%s}]}`, severity, everyRules[token], action)
}

var severities = []string{"critical", "major", "minor", "warning"}

// newEvery makes the tenant.
func newEvery(w *world) *every {
	w.t.Helper()
	c := &every{tenant: "every", devices: 4, r: rand.New(rand.NewPCG(w.r.Uint64(), 1))}
	w.tenant(c.tenant)
	c.token = w.tokens[c.tenant]
	q := func(query string, vars map[string]any) { w.p.Query("device-management", c.token, query, vars, nil) }
	q(`mutation{a:createDeviceProfile(request:{token:"every"}){id} b:createDeviceType(request:{token:"every",profileToken:"every"}){id}
		c:createMetricDefinition(request:{token:"x",deviceProfileToken:"every",metricKey:"x",dataType:"INT"}){id}
		d:createAreaType(request:{token:"floor"}){id} e:createArea(request:{token:"hall",areaTypeToken:"floor"}){id}}`, nil)
	q(`mutation($g:String!){f:createEntityGroup(request:{token:"some",memberType:"device",membershipMode:"dynamic",selector:"attr[\"limit\"] > 20"}){id} g:publishEntityGroup(token:"some"){version}
		h:createGeoFence(request:{token:"yard",geometry:$g}){id} i:createCommandDefinition(request:{token:"stop",deviceProfileToken:"every",commandKey:"stop"}){id}}`, map[string]any{"g": yard(0)})
	for token := range everyRules {
		r := map[string]any{"token": token, "deviceProfileToken": "every", "definition": definition(token, "major"), "enabled": true}
		if token == "in-group" {
			r["entityGroupToken"], r["entityGroupVersion"] = "some", 1
		}
		q(`mutation($r:DetectionRuleCreateRequest!){createDetectionRule(request:$r){id}}`, map[string]any{"r": r})
	}
	for i := range c.devices {
		q(fmt.Sprintf(`mutation{a:createDevice(request:{token:"e%[1]d",deviceTypeToken:"every"}){id}
			b:createDeviceCredential(request:{token:"e%[1]d",deviceToken:"e%[1]d",credentialType:"ACCESS_TOKEN",credentialId:"every-e%[1]d",enabled:true}){id}
			c:createEntityRelationship(request:{token:"in-e%[1]d",sourceType:"device",source:"e%[1]d",targetType:"area",target:"hall",relationshipType:"assigned"}){id}}`, i), nil)
	}
	q(`mutation{publishDeviceProfile(token:"every"){version}}`, nil)
	return c
}

// step lets something happen. What is not answered may hold or not: the log says which.
func (c *every) step(p *testweir.Proc, client *http.Client) bool {
	c.steps++
	device := fmt.Sprintf("e%d", c.r.IntN(c.devices))
	change := func(query string, vars map[string]any) bool {
		return p.TryQuery("device-management", c.token, query, vars, nil) == nil
	}
	event := func(kind, payload string) bool {
		at := time.Now().Add(-time.Duration(c.r.IntN(4)) * 10 * time.Millisecond)
		return post(client, p, c.tenant, fmt.Appendf(nil, `{"eventType":%q,"payload":{"entries":[%s]},"occurredTime":%q,"credentialType":"ACCESS_TOKEN","credentialId":"every-%s"}`,
			kind, payload, at.UTC().Format(time.RFC3339Nano), device))
	}
	switch what := c.r.IntN(40); what {
	case 0, 1, 2:
		m, err := testweir.DialMQTT(p.MQTT, "weir", c.tenant, device, "every-"+device)
		return err == nil && m.Close() == nil
	case 3, 4, 5, 6:
		return event("Location", fmt.Sprintf(`{"latitude":"%v","longitude":"0.9"}`, []float64{0.5, -0.5}[c.r.IntN(2)]))
	case 7, 8, 9:
		return change(fmt.Sprintf(`mutation{setEntityAttribute(request:{entityType:"device",entity:%q,scope:"SHARED",attrKey:"limit",valueType:"LONG",value:"%d"}){id}}`, device, c.r.IntN(60)), nil)
	case 10:
		return change(fmt.Sprintf(`mutation{a:updateEntityGroup(token:"some",request:{selector:"attr[\"limit\"] > %d"}){id} b:publishEntityGroup(token:"some"){version}}`, 10+c.r.IntN(30)), nil)
	case 11, 12: // the same body with another severity, or another body
		token := []string{"over", "repeats", "holds", "jump", "counted", "gone"}[c.r.IntN(6)]
		d := definition(token, severities[c.r.IntN(len(severities))])
		if what == 12 {
			d = strings.Replace(d, `"threshold":50`, fmt.Sprintf(`"threshold":%d`, 45+c.r.IntN(10)), 1)
		}
		return change(`mutation($t:String!,$d:String!){a:updateDetectionRule(token:$t,request:{definition:$d}){id} b:publishDeviceProfile(token:"every"){version}}`, map[string]any{"t": token, "d": d})
	case 13, 14, 15, 16: // a silence
		time.Sleep(time.Duration(20+c.r.IntN(80)) * time.Millisecond)
		return true
	}
	return event("Measurement", fmt.Sprintf(`{"measurements":{"x":"%d"}}`, c.r.IntN(100)))
}
