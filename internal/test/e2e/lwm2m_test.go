package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// lwm2mConfig opens the socket at once, with short times.
const lwm2mConfig = generous + "lwm2m: {enabled: true, command_timeout: 3s}\n"

// Content formats.
const (
	asText      = 0
	asLinks     = 40
	asSenMLJSON = 110
	asSenMLCBOR = 112
	asTLV       = 11542
)

// things is a device with the LwM2M client on it.
type things struct {
	*tenant
	device string
	key    []byte
	client *lwm2mpeer.Client

	mu    sync.Mutex
	value map[string]string // resources as text, by path
	told  []string          // what the server has asked
	mute  bool
	lacks []int // content formats that it cannot write

	through string // address of a relay, "" for none
	without bool   // a connection id
}

// thing makes a device with a pre-shared key; its identity is tenant:device.
func (tn *tenant) thing(device string) *things {
	tn.t.Helper()
	tn.devices(`mutation($t:String!){createDeviceType(request:{token:$t}){id}}`, map[string]any{"t": "of-" + device})
	tn.device(device, "of-"+device)
	th := &things{tenant: tn, device: device, key: []byte("0123456789abcdef"), value: map[string]string{
		"/3/0/0": "Weir", "/3/0/1": "Model 1", "/3/0/2": "SN-1", "/3/0/9": "80", "/3303/0/5700": "21.5"}}
	tn.devices(`mutation($r:DeviceCredentialCreateRequest!){createDeviceCredential(request:$r){token credentialValue}}`, map[string]any{"r": map[string]any{
		"token": device + "-psk", "deviceToken": device, "credentialType": "PSK", "credentialId": th.identity(), "credentialValue": base64.StdEncoding.EncodeToString(th.key), "enabled": true}})
	return th
}

func (th *things) identity() string { return th.name + ":" + th.device }

// dial shakes hands.
func (th *things) dial() {
	th.t.Helper()
	o := lwm2mpeer.Options{Server: th.LwM2M, Identity: th.identity(), Key: th.key, Timeout: 30 * time.Second, Handle: th.answer, NoConnectionID: th.without}
	if th.through != "" {
		o.Server = th.through
	}
	c, err := lwm2mpeer.Dial(th.t.Context(), o)
	if err != nil {
		th.t.Fatal(err)
	}
	th.client = c
	th.t.Cleanup(func() { _ = c.Close() })
}

// answer is the device's answer to a request.
func (th *things) answer(m *lwm2mpeer.Message) *lwm2mpeer.Message {
	th.mu.Lock()
	defer th.mu.Unlock()
	path, accept := m.Path(11), m.Uint(17)
	th.told = append(th.told, fmt.Sprintf("%d %s %s%s", m.Code, path, m.Payload, strings.Join(m.Queries(), "&")))
	switch {
	case th.mute:
		return nil
	case slices.Contains(th.lacks, accept):
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 6)}
	}
	content := func(format int, body []byte) *lwm2mpeer.Message {
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 5), Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{byte(format >> 8), byte(format)}}}, Payload: body}
	}
	switch m.Code {
	case 1: // GET
		if accept == asLinks {
			return content(asLinks, []byte(`<`+path+`>;pmin=10,<`+path+`/5700>`))
		}
		found := map[string]string{}
		for p, v := range th.value {
			if p == path || strings.HasPrefix(p, path+"/") {
				found[p] = v
			}
		}
		if len(found) == 0 {
			return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 4)}
		}
		if len(found) == 1 && found[path] != "" && accept != asSenMLJSON {
			return content(asText, []byte(found[path]))
		}
		return content(asSenMLJSON, senml(found))
	case 2, 3: // POST, PUT
		if m.Code == 3 && len(m.Queries()) == 0 {
			th.value[path] = string(m.Payload)
		}
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 4)}
	case 4:
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 2)}
	}
	return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 5)}
}

// senml is a pack of texts: numbers where they are some.
func senml(all map[string]string) []byte {
	var b bytes.Buffer
	for i, p := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b.WriteByte(',')
		}
		value := `"vs":` + fmt.Sprintf("%q", all[p])
		if json.Valid([]byte(all[p])) {
			value = `"v":` + all[p]
		}
		if all[p] == "true" || all[p] == "false" {
			value = `"vb":` + all[p]
		}
		fmt.Fprintf(&b, `{"n":%q,%s}`, p, value)
	}
	return []byte("[" + b.String() + "]")
}

// asked returns what the server has asked since the last call, the harvest left out.
func (th *things) asked() (all []string) {
	th.mu.Lock()
	defer th.mu.Unlock()
	for _, s := range th.told {
		if !strings.HasPrefix(s, "1 /3/0/") {
			all = append(all, s)
		}
	}
	th.told = nil
	return all
}

func (th *things) register(queries []string, links string) string {
	th.t.Helper()
	at, err := th.client.Register(th.t.Context(), append([]string{"ep=" + th.device}, queries...), links)
	if err != nil {
		th.t.Fatal(err)
	}
	return at
}

// order makes a command and waits until it has ended; it returns its state, its result and its error.
func (th *things) order(token, name, payload string) (status, result, text string) {
	th.t.Helper()
	th.create(token, name, payload)
	poll.Until(th.t, token, func() error {
		if status, result, text = th.command(token); status != "SUCCESSFUL" && status != "FAILED" {
			return fmt.Errorf("it is %s", status)
		}
		return nil
	})
	return status, result, text
}

func (th *things) create(token, name, payload string) (code string) {
	th.t.Helper()
	var made struct {
		CreateCommand struct{ Rejection *struct{ Code string } }
	}
	th.must(th.t, "command-delivery", th.token, `mutation($r:CommandCreateRequest!){createCommand(request:$r){command{token} rejection{code}}}`,
		map[string]any{"r": map[string]any{"token": token, "deviceToken": th.device, "name": name, "payload": payload}}).into(th.t, &made)
	if made.CreateCommand.Rejection != nil {
		return made.CreateCommand.Rejection.Code
	}
	return ""
}

func (th *things) command(token string) (status, result, text string) {
	th.t.Helper()
	var got struct {
		CommandsByToken []struct {
			Status          string
			ResponsePayload *string
			Error           *string
		}
	}
	th.must(th.t, "command-delivery", th.token, `query($t:String!){commandsByToken(tokens:[$t]){status responsePayload error}}`, map[string]any{"t": token}).into(th.t, &got)
	c := got.CommandsByToken[0]
	if c.ResponsePayload != nil {
		result = *c.ResponsePayload
	}
	if c.Error != nil {
		text = *c.Error
	}
	return c.Status, result, text
}

// readings are those of the device, the names with their values.
func (th *things) readings(want ...string) {
	th.t.Helper()
	poll.Until(th.t, "the readings arrive", func() error {
		all, _ := th.measurements(map[string]any{"deviceToken": th.device, "pageNumber": 1, "pageSize": 100})
		var have []string
		for _, m := range all {
			have = append(have, fmt.Sprintf("%s=%g", m.Name, m.Value))
		}
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			return fmt.Errorf("%q, want %q", have, want)
		}
		return nil
	})
}

// attribute is the value of a CLIENT attribute of the device.
func (th *things) attribute(key, want string) {
	th.t.Helper()
	poll.Until(th.t, key, func() error {
		var got struct {
			EntityAttributes struct {
				Results []struct{ Scope, AttrKey, Value string }
			}
		}
		th.devices(`query($d:String!){entityAttributes(criteria:{pageNumber:1,pageSize:100,entityType:"device",entity:$d}){results{scope attrKey value}}}`, map[string]any{"d": th.device}).into(th.t, &got)
		for _, a := range got.EntityAttributes.Results {
			if a.Scope == "CLIENT" && a.AttrKey == key && a.Value == want {
				return nil
			}
		}
		return fmt.Errorf("%+v, want %s", got, want)
	})
}

func (th *things) present(active bool) {
	th.t.Helper()
	poll.Until(th.t, "presence", func() error {
		p, ok := th.presence(th.device)
		if !ok || p.Active != active || p.PresenceSource != "ASSERTED" || p.Source == nil || *p.Source != "lwm2m" {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

func TestLwM2M(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: lwm2mConfig})
	for name, test := range map[string]func(*testing.T, *world){"first reading": lwm2mFirst, "commands": lwm2mCommands, "TLV": lwm2mTLV} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

// lwm2mFirst: a device shakes hands with its key, registers, is observed, and what it notifies is stored before it is acknowledged.
func lwm2mFirst(t *testing.T, w *world) {
	th := w.tenant(t, "metered").thing("meter")
	for what, o := range map[string]lwm2mpeer.Options{
		"a wrong key": {Identity: th.identity(), Key: []byte("0123456789abcdeX")}, "an unknown identity": {Identity: "nobody", Key: th.key}} {
		o.Server, o.Timeout = w.LwM2M, 2*time.Second
		if c, err := lwm2mpeer.Dial(t.Context(), o); err == nil {
			_ = c.Close()
			t.Fatalf("%s is let in", what)
		}
	}
	th.dial()
	at := th.register([]string{"lt=300", "lwm2m=1.1", "b=U"}, `</>;rt="oma.lwm2m";ct="60 110 112 11542",</1/0>,</3/0>,</3303/0>`)
	conformance.Shown(t, "S2-074")
	th.present(true)
	th.readings("/3303/0/5700=21.5") // the answer to the observation
	poll.True(t, "it is observed", func() bool { return th.client.Observed("/3303/0") })
	ack, err := th.client.Notify(t.Context(), "/3303/0", asSenMLJSON, []byte(`[{"bn":"/3303/0/","n":"5700","v":22.5},{"n":"5850","vb":true},{"n":"5701","vs":"Cel"}]`))
	if err != nil || ack.Type != 2 || ack.Code != 0 {
		t.Fatalf("%+v %v", ack, err)
	}
	th.readings("/3303/0/5700=21.5", "/3303/0/5700=22.5", "/3303/0/5850=1")
	th.attribute("/3303/0/5701", "Cel")
	conformance.Shown(t, "S2-082")
	conformance.Shown(t, "S2-083") // beyond the floor: booleans are readings, texts attributes
	var seen struct {
		Lwm2mRegistrations []struct {
			DeviceToken, Endpoint, Version, Session, Security string
			Lifetime                                          int
			ConnectionID, Awake                               bool
			Objects                                           []struct{ Path string }
			Observations                                      []struct {
				Paths         []string
				Confirmed     bool
				LastValueTime *string
			}
		}
	}
	th.devices(`{lwm2mRegistrations(deviceTokens:["meter"]){deviceToken endpoint version session security lifetime connectionId awake objects{path} observations{paths confirmed lastValueTime}}}`, nil).into(t, &seen)
	if all := seen.Lwm2mRegistrations; len(all) != 1 || all[0].DeviceToken != "meter" || all[0].Endpoint != "meter" || all[0].Version != "1.1" || all[0].Session != "LIVE" || all[0].Security != "PSK" ||
		all[0].Lifetime != 300 || !all[0].ConnectionID || !all[0].Awake || len(all[0].Objects) != 3 || len(all[0].Observations) != 1 || !all[0].Observations[0].Confirmed || all[0].Observations[0].LastValueTime == nil {
		t.Errorf("%+v", all)
	}
	th.attribute("manufacturer", "Weir")
	th.attribute("batteryLevel", "80")
	conformance.Shown(t, "S2-091")
	if answer, err := th.client.Request(t.Context(), 2, at, []string{"lt=600"}, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 4) {
		t.Fatalf("%+v %v", answer, err)
	}
	for path, want := range map[string]byte{"/x": lwm2mpeer.Code2(4, 4), "/rd/unknown": lwm2mpeer.Code2(4, 4)} {
		if answer, err := th.client.Request(t.Context(), 2, path, nil, -1, nil); err != nil || answer.Code != want {
			t.Errorf("%s: %+v %v", path, answer, err)
		}
	}
	for what, q := range map[string][]string{"4.00": {"lt=x"}, "4.12": {"lwm2m=2.0"}} {
		answer, err := th.client.Request(t.Context(), 2, "/rd", q, 40, []byte("</1/0>"))
		if err != nil || fmt.Sprintf("%d.%02d", answer.Code>>5, answer.Code&31) != what {
			t.Errorf("%q: %+v %v", q, answer, err)
		}
	}
	if answer, err := th.client.Request(t.Context(), 4, at, nil, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 2) {
		t.Fatalf("%+v %v", answer, err)
	}
	th.present(false)
	conformance.Shown(t, "S2-090")
}

// lwm2mCommands: what is asked of a device, what it answers, and what is never sent to it.
func lwm2mCommands(t *testing.T, w *world) {
	th := w.tenant(t, "steered").thing("pump")
	th.dial()
	th.register([]string{"lt=300", "lwm2m=1.1"}, `</1/0>,</3/0>`)
	poll.True(t, "it is harvested", func() bool {
		th.mu.Lock()
		defer th.mu.Unlock()
		return slices.ContainsFunc(th.told, func(s string) bool { return strings.HasPrefix(s, "1 /3/0/9") })
	})
	th.asked()
	n := 0
	order := func(name, payload, want string) {
		t.Helper()
		n++
		status, result, text := th.order(fmt.Sprint("c", n), name, payload)
		if got := strings.TrimSpace(status + " " + result + text); got != want {
			t.Errorf("%s %s: %s, want %s", name, payload, got, want)
		}
	}
	order("lwm2m.read", `{"path":"/3303/0/5700"}`, `SUCCESSFUL {"path":"/3303/0/5700","value":21.5,"code":"2.05","format":"text"}`)
	conformance.Shown(t, "S2-075")
	order("lwm2m.write", `{"path":"/3303/0/5750","value":"boiler"}`, `SUCCESSFUL {"code":"2.04","format":"text","path":"/3303/0/5750"}`)
	conformance.Shown(t, "S2-076")
	order("lwm2m.write", `{"path":"/3303/0/5750","value":"`+strings.Repeat("x", 9000)+`"}`, `FAILED what is written has 9000 bytes, lwm2m.max_write is 8192`)
	conformance.Shown(t, "S2-077")
	order("lwm2m.execute", `{"path":"/3303/0/5605"}`, `SUCCESSFUL {"code":"2.04","path":"/3303/0/5605"}`)
	order("lwm2m.execute", `{"path":"/3303/0/5605","args":"0='x'"}`, `SUCCESSFUL {"code":"2.04","path":"/3303/0/5605"}`)
	conformance.Shown(t, "S2-078")
	order("lwm2m.reboot", `{}`, `SUCCESSFUL {"code":"2.04","path":"/3/0/4"}`)
	if got, want := th.asked(), []string{"1 /3303/0/5700 ", "3 /3303/0/5750 boiler", "2 /3303/0/5605 ", "2 /3303/0/5605 0='x'", "2 /3/0/4 "}; !slices.Equal(got, want) {
		t.Errorf("the device was asked %q, want %q", got, want)
	}
	conformance.Shown(t, "S2-080")
	for i, path := range []string{"/3/0/5", "3/0/5", "/3/0/5/", "//3/0/5", "/03/0/5", " /3/0/5 ", "/3/ 0/+5"} {
		if code := th.create(fmt.Sprint("reset-", i), "lwm2m.execute", fmt.Sprintf(`{"path":%q}`, path)); code != "COMMAND_DESTRUCTIVE_REFUSED" {
			t.Errorf("%q: %q", path, code)
		}
	}
	order("lwm2m.readDeviceInfo", `{}`, `SUCCESSFUL {"code":"2.05","missing":["/3/0/3"],"values":{"batteryLevel":80,"manufacturer":"Weir","modelNumber":"Model 1","serialNumber":"SN-1"}}`)
	conformance.Shown(t, "S2-081")
	if got := th.asked(); len(got) > 0 {
		t.Errorf("the device was asked %q", got)
	}
	conformance.Shown(t, "S2-079")
	order("lwm2m.factoryReset", `{"confirm":"other"}`, "FAILED confirm must be the token of the device, pump")
	order("lwm2m.factoryReset", `{"confirm":"pump"}`, `SUCCESSFUL {"code":"2.04","path":"/3/0/5"}`)
	order("lwm2m.read", `{"path":"/3303/0"}`, `SUCCESSFUL {"path":"/3303/0","values":{"/3303/0/5700":21.5,"/3303/0/5750":"boiler"},"code":"2.05","format":"senml-json"}`)
	order("lwm2m.read", `{"path":"/99/0"}`, "FAILED 4.04")
	order("lwm2m.discover", `{"path":"/3303/0"}`, `SUCCESSFUL {"code":"2.05","links":[{"path":"/3303/0","attributes":{"pmin":"10"}},{"path":"/3303/0/5700"}],"path":"/3303/0"}`)
	order("lwm2m.writeAttributes", `{"path":"/3303/0/5700","attributes":{"pmin":10,"gt":null}}`, `SUCCESSFUL {"code":"2.04","path":"/3303/0/5700"}`)
	order("lwm2m.create", `{"path":"/3303","values":{"5750":"x"}}`, `SUCCESSFUL {"code":"2.04","format":"tlv","path":"/3303"}`)
	order("lwm2m.delete", `{"path":"/3303/1"}`, `SUCCESSFUL {"code":"2.02","path":"/3303/1"}`)
	conformance.Shown(t, "S2-084")
	order("lwm2m.read", `{}`, "FAILED path is required")
	order("lwm2m.read", `{"path":"/03"}`, `FAILED path: "/03" must be /object or /object/instance or /object/instance/resource or /object/instance/resource/instance: numbers in 0..65535 without leading zeros`)
	order("lwm2m.read", `{"path":"/3","x":1}`, `FAILED lwm2m.read has no parameter "x"`)
	th.mu.Lock()
	th.mute = true
	th.mu.Unlock()
	order("lwm2m.read", `{"path":"/3/0/0"}`, "FAILED no answer")
}

// lwm2mTLV: a client of 1.0, which writes TLV only.
func lwm2mTLV(t *testing.T, w *world) {
	th := w.tenant(t, "older").thing("old")
	th.lacks = []int{asSenMLCBOR, asSenMLJSON}
	th.dial()
	th.register([]string{"lt=300"}, `</1/0>,</3/0>,</3303/0>`)
	th.present(true)
	poll.True(t, "it is observed", func() bool { return th.client.Observed("/3303/0") })
	for _, body := range [][]byte{{0xe4, 0x16, 0x44, 0x41, 0xc8, 0, 0}, {0xc1}} {
		if ack, err := th.client.Notify(t.Context(), "/3303/0", asTLV, body); err != nil || ack.Type != 2 {
			t.Fatalf("%+v %v", ack, err)
		}
	}
	th.readings("/3303/0/5700=21.5", "/3303/0/5700=25")
	if status, result, text := th.order("r", "lwm2m.read", `{"path":"/3303/0/5700"}`); status != "SUCCESSFUL" || !strings.Contains(result, "21.5") {
		t.Error(status, result, text)
	}
	conformance.Shown(t, "S2-085")
	m := th.client.Notification("/unknown", asTLV, []byte{1})
	m.Token = "unknown"
	if answer, err := th.client.Ask(context.WithoutCancel(t.Context()), m); err != nil || answer.Type != 3 {
		t.Errorf("an unknown token: %+v %v", answer, err)
	}
}
