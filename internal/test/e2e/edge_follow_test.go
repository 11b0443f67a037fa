package e2e_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/poll"
	"weir/internal/test/relay"
	"weir/internal/test/testcerts"
	"weir/internal/test/testweir"
)

// detectionsOf are the edges of a rule for a device, oldest first, as signal=value.
func (tn *tenant) detectionsOf(rule string) (out []string) {
	tn.t.Helper()
	var got struct {
		Detections struct {
			Results []struct {
				Edge, DeviceToken string
				Value             *float64
			}
		}
	}
	tn.rules(`query($r:String!){detections(criteria:{pageNumber:1,pageSize:1000,ruleToken:$r}){results{edge deviceToken value}}}`, map[string]any{"r": rule}).into(tn.t, &got)
	for _, d := range got.Detections.Results {
		value := 0.0
		if d.Value != nil {
			value = *d.Value
		}
		out = append([]string{fmt.Sprintf("%s %s=%g", d.DeviceToken, d.Edge, value)}, out...)
	}
	return out
}

// ofDevice are those of some edges that are a device's.
func ofDevice(edges []string, device string) []string {
	return slices.DeleteFunc(slices.Clone(edges), func(e string) bool { return !strings.HasPrefix(e, device+" ") })
}

// TestASiteFollowsAWeirAbove: a platform at a site has the devices, types, profiles and fences that the Weir above says, read-only, and the devices sign in
// with their credentials of there. Rules with placement EDGE are judged at the site alone, while the uplink is cut and over a kill of either side; each edge
// is above once, with its alarm.
func TestASiteFollowsAWeirAbove(t *testing.T) {
	t.Parallel()
	certs := t.TempDir()
	if err := testcerts.WriteSet(certs); err != nil {
		t.Fatal(err)
	}
	aboveDir, belowDir := t.TempDir(), t.TempDir()
	aboveOptions := testweir.Options{Dir: aboveDir, Config: generous + fmt.Sprintf("tls: {cert_file: %q, key_file: %q}\n", filepath.Join(certs, "gw.pem"), filepath.Join(certs, "gw.key")),
		Env: []string{"WEIR_LISTENERS_MQTTS=127.0.0.1:0"}}
	top := start(t, aboveOptions)
	secure := func() (address string) {
		for line := range strings.Lines(top.Stdout()) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "mqtts" {
				address = f[1]
			}
		}
		return address
	}
	up := top.tenant(t, "site")
	up.plain("gw")
	up.devices(`mutation{createEdge(request:{token:"north",deviceToken:"gw",enabled:true}){token}}`, nil)
	up.devices(`mutation{createDeviceProfile(request:{token:"p"}){id} a:createMetricDefinition(request:{token:"m",deviceProfileToken:"p",metricKey:"temp",dataType:"DOUBLE",minValue:-50.0,maxValue:500.0,outOfRange:"FLAG"}){id}
		createDeviceType(request:{token:"p",profileToken:"p"}){id}
		createGeoFence(request:{token:"yard",geometry:"{\"kind\":\"POLYGON_2D\",\"geometry\":{\"type\":\"Polygon\",\"coordinates\":[[[0,0],[1,1],[0,1],[0,0]]]}}"}){id}}`, nil)
	placed := func(token, definition, placement string) {
		up.devices(`mutation($r:DetectionRuleCreateRequest!){createDetectionRule(request:$r){id}}`, map[string]any{"r": map[string]any{
			"token": token, "deviceProfileToken": "p", "definition": definition, "enabled": true, "placement": placement}})
	}
	alarm := `,"severity":"critical","actions":[{"type":"raiseAlarm","raiseAlarm":{}}]`
	placed("hot", above("Too hot", "temp", 30, alarm), "EDGE")
	placed("warm", above("Warm", "temp", 20, ""), "CLOUD")
	up.publish("p")
	up.device("pump", "p")
	up.device("far", "p")

	link := relay.Start(t, secure())
	belowOptions := testweir.Options{Dir: belowDir, Config: generous + fmt.Sprintf("edge: {agent_id: gw, uplink: {broker_url: \"tls://%s\", username: \"site:%s\", backoff_min: 20ms, backoff_max: 200ms, keep_alive: 1s, tls: {ca_file: %q}}}\n",
		link.Address(), up.secret("gw"), filepath.Join(certs, "ca.pem"))}
	below := start(t, belowOptions)
	poll.Until(t, "the site follows", func() error {
		if s := below.Run("", "edge", "status"); !strings.Contains(s, "judges") {
			return fmt.Errorf("%s", s)
		}
		return nil
	})
	local := below.enter(t, "site")
	if a := local.devices(`{devicesByToken(tokens:["pump"]){managedBy deviceType{managedBy profile{managedBy activeVersion metricDefinitions{token maxValue} detectionRules{token placement}}}}
		geoFencesByToken(tokens:["yard"]){token managedBy}}`, nil); !strings.Contains(a.raw, `"devicesByToken":[{"managedBy":"gw","deviceType":{"managedBy":"gw","profile":{"managedBy":"gw","activeVersion":1,"metricDefinitions":[{"token":"m","maxValue":500}],"detectionRules":[{"token":"hot","placement":"EDGE"}]}}}]`) ||
		!strings.Contains(a.raw, `"geoFencesByToken":[{"token":"yard","managedBy":"gw"}]`) {
		t.Errorf("the site has %s", a.raw)
	}
	for _, change := range []string{`updateDevice(token:"pump",request:{name:"x"}){id}`, `deleteDevice(token:"pump")`, `updateDetectionRule(token:"hot",request:{enabled:false}){id}`,
		`publishDeviceProfile(token:"p"){version}`, `createMetricDefinition(request:{token:"more",deviceProfileToken:"p",metricKey:"n",dataType:"DOUBLE"}){id}`, `deleteGeoFence(token:"yard")`} {
		local.refused(`mutation{`+change+`}`, nil, "CONFLICT", "managed by the Weir above")
	}
	// The device signs in at the site with the credential that it has above.
	var c *client
	poll.Until(t, "the device signs in at the site", func() error {
		m, err := testweir.DialMQTT(below.MQTT, "weir", "site", "pump", up.secret("pump"))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = m.Close() })
		c = &client{MQTT: m, tn: local, device: "pump"}
		return nil
	})
	c.send(measured("temp", "35"))
	up.becomes("pump", "p/hot", "ACTIVE", "CRITICAL")
	// The edges of two devices have no order that the test could know: they are compared device by device.
	both := func(where string, tn *tenant, rule string, want ...string) {
		t.Helper()
		poll.Until(t, where+" has the edges of "+rule, func() error {
			got := tn.detectionsOf(rule)
			if len(got) == len(want) && slices.Equal(ofDevice(got, "pump"), ofDevice(want, "pump")) && slices.Equal(ofDevice(got, "far"), ofDevice(want, "far")) {
				return nil
			}
			return fmt.Errorf("%q", got)
		})
	}
	both("above", up, "hot", "pump raised=35")
	both("below", local, "hot", "pump raised=35")
	both("above", up, "warm", "pump raised=35") // of the cloud alone
	// One that is behind no edge is judged above.
	far := up.connect("far")
	far.send(measured("temp", "40"))
	both("above", up, "hot", "pump raised=35", "far raised=40")

	// The uplink is cut, and either side is killed: what fires meanwhile is above once.
	link.Down(true)
	link.Cut()
	c.send(measured("temp", "10"))
	c.send(measured("temp", "50"))
	both("below", local, "hot", "pump raised=35", "pump resolved=0", "pump raised=50")
	below.Kill()
	top.Kill()
	below = &world{Proc: testweir.Start(t, belowOptions)}
	below.login()
	local = below.enter(t, "site")
	top = &world{Proc: testweir.Start(t, aboveOptions)}
	top.login()
	up = top.enter(t, "site")
	link.To(secure())
	link.Down(false)
	both("above", up, "hot", "pump raised=35", "far raised=40", "pump resolved=0", "pump raised=50")
	both("above", up, "warm", "pump raised=35", "far raised=40", "pump resolved=0", "pump raised=50")

	// What changes above changes here: a device that is deleted, a rule that is taken back. The rule is judged above from then on.
	up.devices(`mutation{updateDetectionRule(token:"hot",request:{placement:"CLOUD"}){id}}`, nil)
	up.publish("p")
	up.devices(`mutation{deleteDevice(token:"far")}`, nil)
	poll.Until(t, "the site follows the change", func() error {
		if a := local.devices(`{devicesByToken(tokens:["far"]){managedBy} detectionRulesByToken(tokens:["hot"]){token}}`, nil); !strings.Contains(a.raw, `"devicesByToken":[{"managedBy":null}],"detectionRulesByToken":[]`) {
			return fmt.Errorf("%s", a.raw)
		}
		return nil
	})
	both("below", local, "hot", "pump raised=35", "pump resolved=0", "pump raised=50", "pump resolved=0")
	m, err := testweir.DialMQTT(below.MQTT, "weir", "site", "pump", up.secret("pump"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c = &client{MQTT: m, tn: local, device: "pump"}
	c.send(measured("temp", "60"))
	both("above", up, "hot", "pump raised=35", "far raised=40", "far resolved=0", "pump resolved=0", "pump raised=50", "pump resolved=0", "pump raised=60")
}
