package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// provisioned is the answer to a device.
type provisioned struct {
	Tenant, DeviceToken, CredentialType, CredentialID string
	Created                                           bool
	Status                                            int
}

// sender is a source address of its own: the whole of 127.0.0.0/8 is this machine. Requests are limited by address.
type sender struct {
	*world
	t      testing.TB
	dialer net.Dialer
	http   http.Client
}

func (w *world) sender(t testing.TB, ip string) *sender {
	s := &sender{world: w, t: t, dialer: net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}}
	s.http.Transport = &http.Transport{DialContext: s.dialer.DialContext}
	return s
}

// post sends a request, and returns status, Retry-After and body.
func (s *sender) post(body string) (status int, retryAfter, text string) {
	s.t.Helper()
	resp, err := s.http.Post(s.Ingest+"/weir/provision", "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Retry-After"), string(b)
}

// asks returns the body of a request.
func asks(key, secret, device, more string) string {
	return fmt.Sprintf(`{"provisionKey":%q,"provisionSecret":%q,"deviceToken":%q%s}`, key, secret, device, more)
}

// gets sends a request that must be answered with a credential.
func (s *sender) gets(body string) (p provisioned) {
	s.t.Helper()
	status, _, text := s.post(body)
	if err := json.Unmarshal([]byte(text), &p); err != nil || status != http.StatusOK || p.CredentialType != "ACCESS_TOKEN" || len(p.CredentialID) != 64 {
		s.t.Fatalf("%s: %d %s", body, status, text)
	}
	return p
}

// is sends a request that must be refused with a status.
func (s *sender) is(want int, body string) (text string) {
	s.t.Helper()
	status, _, text := s.post(body)
	if status != want {
		s.t.Errorf("%s: %d %s, want %d", body, status, text, want)
	}
	return text
}

func (tn *tenant) provisioning(token, secret, strategy string) (key string) {
	tn.t.Helper()
	var made struct {
		CreateProvisioningProfile struct{ ProvisionKey string }
	}
	tn.devices(`mutation($r:ProvisioningProfileCreateRequest){createProvisioningProfile(request:$r){provisionKey}}`, map[string]any{"r": map[string]any{
		"token": token, "provisionSecret": secret, "strategy": strategy, "deviceTypeToken": "plain", "enabled": true}}).into(tn.t, &made)
	return made.CreateProvisioningProfile.ProvisionKey
}

// sends sends readings over HTTP with a credential, right after it was got, and waits until they are stored.
func (tn *tenant) sends(p provisioned, value string) {
	tn.t.Helper()
	body := fmt.Sprintf(`{"device":%q,"credentialType":%q,"credentialId":%q,%s`, p.DeviceToken, p.CredentialType, p.CredentialID, measured("temp", value)[1:])
	resp, err := http.Post(tn.Ingest+"/weir/"+tn.name+"/events", "application/json", strings.NewReader(body))
	if err != nil {
		tn.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		tn.t.Fatal(resp.Status)
	}
	tn.measuredBy(p.DeviceToken, value)
}

func (tn *tenant) measuredBy(device, value string) {
	tn.t.Helper()
	poll.Until(tn.t, device+" has measured "+value, func() error {
		a := tn.events(fmt.Sprintf(`{measurementEvents(criteria:{pageNumber:1,pageSize:10,deviceToken:%q}){results{value}}}`, device), nil)
		if !strings.Contains(a.raw, `"value":`+value) {
			return errors.New(a.raw)
		}
		return nil
	})
}

func TestADeviceGetsItsCredentialOverHTTP(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous + "limits: {devices_per_tenant: 4}\n"})
	tn := w.tenant(t, "fleet")
	tn.plain()
	key := tn.provisioning("line", "a long secret", "ALLOW_NEW")
	checked := tn.provisioning("stock", "another secret", "CHECK_PRE_PROVISIONED")
	s := w.sender(t, "127.0.1.1")

	// The answer is lost, and the request repeated before the first use: the same credential.
	first := s.gets(asks(key, "a long secret", "d-1", `,"name":"Pump","metadata":{"line":3},"unknown":1`))
	again := s.gets(asks(key, "a long secret", "d-1", ""))
	if !first.Created || again.Created || first.CredentialID != again.CredentialID || first.Tenant != "fleet" || first.DeviceToken != "d-1" {
		t.Errorf("%+v, again %+v", first, again)
	}
	if a := tn.devices(`{devicesByToken(tokens:["d-1"]){name metadata deviceType{token}}}`, nil); !strings.Contains(a.raw, `"name":"Pump","metadata":"{\"line\":3}","deviceType":{"token":"plain"}`) {
		t.Error(a.raw)
	}
	// What it sends right after the answer is stored; from this first use on the credential is not returned again.
	tn.sends(first, "21")
	used := s.is(http.StatusForbidden, asks(key, "a long secret", "d-1", ""))
	wrong := s.is(http.StatusForbidden, asks(key, "a wrong secret", "d-2", ""))
	unknown := s.is(http.StatusForbidden, asks("nobody", "a long secret", "d-2", ""))
	absent := s.is(http.StatusForbidden, asks(checked, "another secret", "d-2", ""))
	if used != wrong || wrong != unknown || unknown != absent || used == "" {
		t.Errorf("the refusals differ: %q %q %q %q", used, wrong, unknown, absent)
	}

	// Twice at once: the device is made once and both get the same.
	s = w.sender(t, "127.0.1.2")
	var both [2]provisioned
	var asking sync.WaitGroup
	for i := range both {
		asking.Go(func() {
			_, _, text := s.post(asks(key, "a long secret", "d-2", ""))
			_ = json.Unmarshal([]byte(text), &both[i])
		})
	}
	asking.Wait()
	if both[0].CredentialID == "" || both[0].CredentialID != both[1].CredentialID || both[0].Created == both[1].Created {
		t.Errorf("twice at once: %+v", both)
	}
	// A device that is in stock gets its credential, one of another type does not.
	tn.devices(`mutation{a:createDevice(request:{token:"d-3",deviceTypeToken:"plain"}){id} b:createDeviceType(request:{token:"other"}){id} c:createDevice(request:{token:"d-4",deviceTypeToken:"other"}){id}}`, nil)
	stocked := s.gets(asks(checked, "another secret", "d-3", ""))
	if stocked.Created {
		t.Errorf("%+v", stocked)
	}
	tn.sends(stocked, "22")
	s.is(http.StatusConflict, asks(checked, "another secret", "d-4", ""))
	if full := s.is(http.StatusForbidden, asks(key, "a long secret", "d-5", "")); full != used {
		t.Errorf("over the ceiling of devices: %q, want %q", full, used)
	}
	// An operator deletes the credential: the device may ask again.
	tn.devices(`mutation($t:String!){deleteDeviceCredential(token:$t)}`, map[string]any{"t": tn.credentialOf("d-1")})
	if fresh := s.gets(asks(key, "a long secret", "d-1", "")); fresh.CredentialID == first.CredentialID || fresh.Created {
		t.Errorf("%+v", fresh)
	}

	// A body that nothing can be made of.
	s = w.sender(t, "127.0.1.3")
	for _, body := range []string{``, `[]`, `{`, asks(key, "a long secret", "no token", ""), asks("", "a long secret", "d", ""), asks(key, "", "d", ""),
		asks(key, "a long secret", "d", `,"metadata":"`+strings.Repeat("x", 4097)+`"`), asks(key, "a long secret", "d", `,"x":"`+strings.Repeat("x", 64<<10)+`"`)} {
		s.is(http.StatusBadRequest, body)
	}
	if resp, err := s.http.Get(s.Ingest + "/weir/provision"); err != nil || resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	s.is(http.StatusBadRequest, `{}`)
	s.is(http.StatusBadRequest, `{}`)
	if status, retry, _ := s.post(`{}`); status != http.StatusTooManyRequests || retry == "" || retry == "0" {
		t.Errorf("the eleventh request of an address: %d, Retry-After %q", status, retry)
	}

	// An update that omits the secret keeps it; null is refused.
	s = w.sender(t, "127.0.1.4")
	tn.devices(`mutation{updateProvisioningProfile(token:"stock",request:{name:"Stock"}){name}}`, nil)
	s.gets(asks(checked, "another secret", "d-2", ""))
	for _, field := range []string{"provisionKey", "provisionSecret", "strategy", "deviceTypeToken", "enabled"} {
		tn.refused(`mutation{updateProvisioningProfile(token:"stock",request:{`+field+`:null}){id}}`, nil, "INVALID_INPUT", field)
	}
	for i, change := range []string{`enabled:false`, `enabled:true,expiresAt:"2001-01-01T00:00:00Z"`, `expiresAt:null,provisionSecret:"a third secret"`} {
		tn.devices(`mutation{updateProvisioningProfile(token:"stock",request:{`+change+`}){id}}`, nil)
		if text := s.is(http.StatusForbidden, asks(checked, "another secret", "d-2", "")); text != used {
			t.Errorf("%d: %q", i, text)
		}
	}
	s.gets(asks(checked, "a third secret", "d-2", ""))
	conformance.Shown(t, "S3-077")
}

// credentialOf returns the token of the only credential of a device.
func (tn *tenant) credentialOf(device string) string {
	tn.t.Helper()
	var found struct {
		DeviceCredentials struct{ Results []struct{ Token string } }
	}
	tn.devices(`query($d:String){deviceCredentials(criteria:{pageNumber:1,pageSize:10,device:$d}){results{token}}}`, map[string]any{"d": device}).into(tn.t, &found)
	if len(found.DeviceCredentials.Results) != 1 {
		tn.t.Fatalf("%+v", found)
	}
	return found.DeviceCredentials.Results[0].Token
}

// A key that is guessed 10,000 times costs the address that guesses, and no other.
func TestAGuessedProvisionKeyCostsOneAddress(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous})
	tn := w.tenant(t, "guessed")
	tn.plain()
	key := tn.provisioning("line", "a long secret", "ALLOW_NEW")
	guesser := w.sender(t, "127.0.2.1")
	judged := 0
	for i := range 10_000 {
		status, _, text := guesser.post(asks(key, fmt.Sprint("guess ", i), "d", ""))
		switch status {
		case http.StatusForbidden:
			judged++
		case http.StatusTooManyRequests:
		default:
			t.Fatal(status, text)
		}
	}
	if judged < 10 || judged > 200 { // ten, and one in each further six seconds
		t.Errorf("%d guesses were judged", judged)
	}
	guesser.spent("the right secret", func() bool {
		status, _, _ := guesser.post(asks(key, "a long secret", "d", ""))
		return status == http.StatusTooManyRequests
	})
	p := w.sender(t, "127.0.2.2").gets(asks(key, "a long secret", "d-1", ""))
	tn.sends(p, "23")
	guesser.spent("the right secret over MQTT", func() bool {
		m, code, err := connectFrom(w, "127.0.2.1", "c", ":"+key, "a long secret")
		if err != nil {
			t.Fatal(err)
		}
		if m != nil {
			_ = m.Close()
		}
		return code == 3
	})
	m, code, err := connectFrom(w, "127.0.2.3", "c", ":"+key, "a long secret")
	if err != nil || code != 0 {
		t.Fatalf("MQTT from another: %d %v", code, err)
	}
	_ = m.Close()
}

// spent tries what an address without requests must be refused: it guesses until that is refused, and tries right then. An address
// gets one request back in six seconds, which may fall between the two steps, so they are repeated; on no machine it falls there
// each time, unless the bound is none.
func (s *sender) spent(what string, refused func() bool) {
	s.t.Helper()
	for range 10 {
		for n := 0; ; n++ {
			if status, _, _ := s.post(asks("nobody", "a guess", "d", "")); status == http.StatusTooManyRequests {
				break
			}
			if n > 100 {
				s.t.Fatal("no guess is refused")
			}
		}
		if refused() {
			return
		}
	}
	s.t.Errorf("%s is not refused where guesses are", what)
}

func connectFrom(w *world, ip, client, user, password string) (*testweir.MQTT, byte, error) {
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial("tcp", w.MQTT)
	if err != nil {
		return nil, 0, err
	}
	return testweir.ConnectMQTTOver(c, client, user, password, 60)
}

func TestADeviceGetsItsCredentialOverMQTT(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous})
	tn := w.tenant(t, "fleet")
	tn.plain()
	key := tn.provisioning("line", "a long secret", "ALLOW_NEW")
	open := func(ip, client string) *testweir.MQTT {
		t.Helper()
		m, code, err := connectFrom(w, ip, client, ":"+key, "a long secret")
		if err != nil || code != 0 {
			t.Fatalf("CONNACK %d: %v", code, err)
		}
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	// 3.1.1. The answer comes to the connection that asked, and to none that has subscribed to the same topic elsewhere.
	m := open("127.0.3.1", "board-1")
	if code, err := m.Subscribe("weir/provision/board-1", 1); err != nil || code != 1 {
		t.Fatal(code, err)
	}
	if err := m.Publish("weir/provision", 2, false, []byte(`{"deviceToken":"m-1"}`)); err != nil {
		t.Fatal(err)
	}
	topic, payload, err := m.Message()
	var p provisioned
	if err = errors.Join(err, json.Unmarshal(payload, &p)); err != nil || topic != "weir/provision/board-1" || !p.Created || p.Tenant != "fleet" || p.DeviceToken != "m-1" {
		t.Fatalf("%s %s: %v", topic, payload, err)
	}
	if err := m.Publish("weir/provision", 3, false, []byte(`{"deviceToken":"no token"}`)); err != nil {
		t.Fatal(err)
	}
	if _, payload, err = m.Message(); err != nil || string(payload) != `{"status":400}` {
		t.Errorf("%s %v", payload, err)
	}
	device, err := testweir.DialMQTT(w.MQTT, "weir", "fleet", "m-1", p.CredentialID)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if err := device.Publish("weir/fleet/devices/m-1/events", 1, false, []byte(measured("temp", "31"))); err != nil {
		t.Fatal(err)
	}
	tn.measuredBy("m-1", "31")
	if err := m.Publish("weir/provision", 4, false, []byte(`{"deviceToken":"m-1"}`)); err != nil {
		t.Fatal(err)
	}
	if _, payload, err = m.Message(); err != nil || string(payload) != `{"status":403}` {
		t.Errorf("after the first use: %s %v", payload, err)
	}

	// Whatever else a provisioning connection does ends it.
	for what, do := range map[string]func(m *testweir.MQTT) error{
		"a publish as a device": func(m *testweir.MQTT) error {
			return m.PublishQoS0("weir/fleet/devices/m-1/events", []byte(measured("temp", "66")))
		},
		"a publish to another's":      func(m *testweir.MQTT) error { return m.Publish("weir/provision/board-1", 7, false, []byte(`{}`)) },
		"a subscription to another's": func(m *testweir.MQTT) error { return subscribed(m, "weir/provision/board-1") },
		"a subscription to all":       func(m *testweir.MQTT) error { return subscribed(m, "weir/provision/+") },
	} {
		m := open("127.0.3.2", "board-2")
		if err := errors.Join(do(m), m.Closed()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, as := range [][3]string{{"b", ":" + key, "wrong"}, {"b", ":nobody", "a long secret"}, {"b", ":" + key, ""}, {"no token", ":" + key, "a long secret"}, {"b", ":", "x"}} {
		if _, code, err := connectFrom(w, "127.0.3.3", as[0], as[1], as[2]); err != nil || code != 5 {
			t.Errorf("%q: CONNACK %d %v", as, code, err)
		}
	}
	mqtt5Provisioning(t, w, tn, key)
}

func subscribed(m *testweir.MQTT, filter string) error {
	_, err := m.Subscribe(filter, 9)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// mqtt5Provisioning goes the whole way with a client library.
func mqtt5Provisioning(t *testing.T, w *world, tn *tenant, key string) {
	answers := make(chan []byte, 1)
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.3.4")}}).Dial("tcp", w.MQTT)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := paho.NewClient(paho.ClientConfig{Conn: conn, PacketTimeout: 20 * time.Second, OnPublishReceived: []func(paho.PublishReceived) (bool, error){
		func(r paho.PublishReceived) (bool, error) { answers <- r.Packet.Payload; return true, nil }}})
	if _, err := c.Connect(ctx, &paho.Connect{ClientID: "board-5", KeepAlive: 60, CleanStart: true, Username: ":" + key, UsernameFlag: true,
		Password: []byte("a long secret"), PasswordFlag: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "weir/provision/board-5", QoS: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(ctx, &paho.Publish{Topic: "weir/provision", QoS: 1, Payload: []byte(`{"deviceToken":"m-5","name":"Five"}`)}); err != nil {
		t.Fatal(err)
	}
	var p provisioned
	select {
	case payload := <-answers:
		if err := json.NewDecoder(bytes.NewReader(payload)).Decode(&p); err != nil || !p.Created {
			t.Fatalf("%s: %v", payload, err)
		}
	case <-ctx.Done():
		t.Fatal("no answer came")
	}
	_ = c.Disconnect(&paho.Disconnect{})
	conn, err = net.Dial("tcp", w.MQTT)
	if err != nil {
		t.Fatal(err)
	}
	device := paho.NewClient(paho.ClientConfig{Conn: conn, PacketTimeout: 20 * time.Second})
	if _, err := device.Connect(ctx, &paho.Connect{ClientID: "weir:fleet:m-5", KeepAlive: 60, CleanStart: true, Username: "fleet:" + p.CredentialID, UsernameFlag: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := device.Publish(ctx, &paho.Publish{Topic: "weir/fleet/devices/m-5/events", QoS: 1, Payload: []byte(measured("temp", "55"))}); err != nil {
		t.Fatal(err)
	}
	tn.measuredBy("m-5", "55")
	_ = device.Disconnect(&paho.Disconnect{})
}
