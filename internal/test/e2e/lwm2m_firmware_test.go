package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// artifact does something with an artifact of the tenant over HTTP.
func (tn *tenant) artifact(method, token, query string, body []byte) (status int, answer []byte) {
	tn.t.Helper()
	req, err := http.NewRequestWithContext(tn.t.Context(), method, tn.API+"/api/device-management/artifacts/"+token+query, bytes.NewReader(body))
	if err != nil {
		tn.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tn.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tn.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		tn.t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// progress is the state of a command with its progress.
func (th *things) progress(token string) string {
	th.t.Helper()
	var got struct {
		CommandsByToken []struct {
			Status   string
			Progress *string
		}
	}
	th.must(th.t, "command-delivery", th.token, `query($t:String!){commandsByToken(tokens:[$t]){status progress}}`, map[string]any{"t": token}).into(th.t, &got)
	if c := got.CommandsByToken[0]; c.Progress != nil {
		return c.Status + " " + *c.Progress
	}
	return got.CommandsByToken[0].Status
}

// TestAnArtifactOverHTTP is kept as it was sent, and is no one else's.
func TestAnArtifactOverHTTP(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous + "lwm2m: {enabled: true, max_artifact: 200KiB}\n"})
	tn, other := w.tenant(t, "keeper"), w.tenant(t, "stranger")
	file := bytes.Repeat([]byte("firmware "), 20_000)
	sum := sha256.Sum256(file)
	query := "?version=2.0&name=meter&sha256=" + hex.EncodeToString(sum[:])
	for _, c := range []struct {
		by            *tenant
		method, query string
		body          []byte
		status        int
		holds         string
	}{
		{tn, "PUT", query, file, 201, `"version":"2.0"`},
		{tn, "PUT", query, file, 200, hex.EncodeToString(sum[:])},
		{tn, "PUT", "", file[1:], 409, "CONFLICT"},
		{tn, "PUT", query, file[1:], 400, "other bytes"},
		{tn, "PUT", "", bytes.Repeat([]byte{1}, 201<<10), 413, "lwm2m.max_artifact"},
		{tn, "GET", "", nil, 200, string(file)},
		{other, "GET", "", nil, 404, "NOT_FOUND"},
		{other, "DELETE", "", nil, 404, "NOT_FOUND"},
		{tn, "POST", "", nil, 405, "PUT"},
		{tn, "DELETE", "", nil, 204, ""},
		{tn, "GET", "", nil, 404, "NOT_FOUND"},
	} {
		if status, answer := c.by.artifact(c.method, "fw", c.query, c.body); status != c.status || !strings.Contains(string(answer), c.holds) {
			t.Errorf("%s of %s: %d %.200s, want %d %.40s", c.method, c.by.name, status, answer, c.status, c.holds)
		}
	}
}

// TestFirmwareOverAKill: an update whose transfer is cut by a kill of the program goes on, ends when the device is back, and is one command all along. One
// that is cancelled is over for the device.
func TestFirmwareOverAKill(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: lwm2mConfig})
	th := w.tenant(t, "updated").thing("meter")
	file := bytes.Repeat([]byte("firmware of version 2 "), 4000)
	if status, answer := th.artifact("PUT", "fw", "?version=2.0", file); status != 201 {
		t.Fatalf("%d %s", status, answer)
	}
	relay, err := lwm2mpeer.NewRelay(w.LwM2M)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	d := &lwm2mpeer.Machine{Version: "1.0", Next: "2.0", Becomes: 1, Delivery: 1, Hold: 20}
	if th.client, err = lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: relay.Address(), Identity: th.identity(), Key: th.key, Timeout: time.Minute, Handle: d.Handle}); err != nil {
		t.Fatal(err)
	}
	defer th.client.Close()
	const links = "</3/0>,</5/0>"
	th.register([]string{"lt=3600", "lwm2m=1.1"}, links)
	d.Lock()
	d.Restart = func() {
		d.Lock()
		d.State, d.Result, d.Version = 0, 1, d.Next
		d.Unlock()
		_, _ = th.client.Register(t.Context(), []string{"ep=meter", "lt=3600", "lwm2m=1.1"}, links)
	}
	d.Unlock()
	if code := th.create("update", "lwm2m.firmwareUpdate", `{"artifact":"fw"}`); code != "" {
		t.Fatal(code)
	}
	poll.True(t, "the transfer is on its way", func() bool { d.Lock(); defer d.Unlock(); return len(d.Got) == 20<<10 })
	if got := th.progress("update"); got != "SENT transferring" {
		t.Errorf("it is %s", got)
	}
	if status, answer := th.artifact("DELETE", "fw", "", nil); status != 409 {
		t.Errorf("an artifact that a device is being given is removed: %d %s", status, answer)
	}
	th.Kill()
	d.Lock()
	d.Hold = 0
	d.Unlock()
	th.again(lwm2mConfig)
	if err := relay.Target(th.LwM2M); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the update ends", func() error {
		if got := th.progress("update"); got != "SUCCESSFUL updating" {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
	if _, result, _ := th.command("update"); !strings.Contains(result, `"firmwareVersion":"2.0"`) || !strings.Contains(result, `"before":"1.0"`) {
		t.Errorf("the result is %s", result)
	}
	if d.Lock(); !bytes.Equal(d.Got, file) || d.Applied != 1 {
		t.Errorf("the device has %d bytes, and was told %d times", len(d.Got), d.Applied)
	}
	d.Hold = 10
	d.Unlock()
	if relay.Hellos() != 1 || len(relay.Twice()) != 0 {
		t.Errorf("%d handshakes; used twice: %q", relay.Hellos(), relay.Twice())
	}
	th.create("second", "lwm2m.firmwareUpdate", `{"artifact":"fw"}`)
	poll.True(t, "the second transfer is on its way", func() bool { d.Lock(); defer d.Unlock(); return len(d.Got) == 10<<10 })
	th.must(t, "command-delivery", th.token, `mutation{cancelCommand(token:"second"){status}}`, nil)
	if got := th.progress("second"); got != "CANCELLED transferring" {
		t.Errorf("it is %s", got)
	}
	poll.True(t, "the device is told", func() bool { d.Lock(); defer d.Unlock(); return d.Resets == 1 && d.State == 0 })
	poll.Until(t, "the artifact can be removed", func() error {
		if status, answer := th.artifact("DELETE", "fw", "", nil); status != 204 {
			return fmt.Errorf("%d %s", status, answer)
		}
		return nil
	})
}

// TestFirmwareOfAFleet: one batch updates several devices, as many at once as lwm2m.firmware_concurrency allows; each is a command of its own, and one that does
// not apply the package ends as failed without stopping the others.
func TestFirmwareOfAFleet(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: strings.Replace(lwm2mConfig, "{enabled: true", "{enabled: true, firmware_concurrency: 2", 1)})
	tn := w.tenant(t, "fleet")
	file := bytes.Repeat([]byte("firmware of version 2 "), 500)
	if status, answer := tn.artifact("PUT", "fw", "?version=2.0", file); status != 201 {
		t.Fatalf("%d %s", status, answer)
	}
	var devices []string
	for i := range 4 {
		th := tn.thing(fmt.Sprintf("meter-%d", i))
		devices = append(devices, th.device)
		d := &lwm2mpeer.Machine{Version: "1.0", Next: "2.0", Becomes: 1, Delivery: 1}
		becomes := 1
		if i == 2 {
			becomes = 8
		}
		c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: w.LwM2M, Identity: th.identity(), Key: th.key, Timeout: time.Minute, Handle: d.Handle})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		register := func() error {
			_, err := c.Register(t.Context(), []string{"ep=" + th.device, "lt=3600", "lwm2m=1.1"}, "</3/0>,</5/0>")
			return err
		}
		if err := register(); err != nil {
			t.Fatal(err)
		}
		d.Lock()
		d.Restart = func() {
			d.Lock()
			d.State, d.Result = 0, becomes
			if becomes == 1 {
				d.Version = d.Next
			}
			d.Unlock()
			_ = register()
		}
		d.Unlock()
	}
	list, err := json.Marshal(devices)
	if err != nil {
		t.Fatal(err)
	}
	tn.must(t, "command-delivery", tn.token, fmt.Sprintf(`mutation{createCommandBatch(request:{token:"all",name:"lwm2m.firmwareUpdate",payload:%q,allowPartial:false,deviceTokens:%s}){batch{accepted} rejection{code}}}`,
		`{"artifact":"fw"}`, list), nil)
	v := &valves{tenant: tn, t: t}
	poll.Until(t, "the batch ends", func() error {
		if b := v.batch("all"); b.Accepted != 4 || b.Succeeded != 3 || b.Failed != 1 {
			return fmt.Errorf("it is %+v", b)
		}
		return nil
	})
	if n := w.metric(t, `weir_lwm2m_firmware_ended_total{outcome="updated"}`); n != 3 {
		t.Errorf("%v updates are counted", n)
	}
}

// TestBootstrap: a device that proves itself with a bootstrap key is given a key of its own, which opens a session; that of before is good until the new
// one is used.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous + "lwm2m: {enabled: true, command_timeout: 3s, public_uri: \"coaps://weir.example:5684\"}\n", Env: []string{"WEIR_LISTENERS_LWM2M_BOOTSTRAP=127.0.0.1:0"}})
	tn := w.tenant(t, "booted")
	th := tn.thing("blank")
	tn.devices(`mutation($r:DeviceCredentialCreateRequest!){createDeviceCredential(request:$r){token}}`, map[string]any{"r": map[string]any{
		"token": "blank-boot", "deviceToken": "blank", "credentialType": "BOOTSTRAP_PSK", "credentialId": "booted:blank:boot", "credentialValue": base64.StdEncoding.EncodeToString(th.key), "enabled": true}})
	register := func(identity string, key []byte) error {
		c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: w.LwM2M, Identity: identity, Key: key, Timeout: 20 * time.Second, Handle: th.answer})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Register(t.Context(), []string{"ep=blank", "lt=300", "lwm2m=1.1"}, "</1/0>,</3/0>")
		return err
	}
	boot := func() (identity string, key []byte) {
		t.Helper()
		finished := make(chan struct{})
		values := map[string][]byte{}
		c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: w.Boot, Identity: "booted:blank:boot", Key: th.key, Timeout: 30 * time.Second, Handle: func(m *lwm2mpeer.Message) *lwm2mpeer.Message {
			switch {
			case m.Code == 1:
				return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 5)}
			case m.Code == 3:
				values[m.Path(11)] = m.Payload
			case m.Code == 2 && m.Path(11) == "/bs":
				close(finished)
			}
			return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 4)}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if answer, err := c.Request(t.Context(), 2, "/bs", []string{"ep=blank"}, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 4) {
			t.Fatalf("%+v %v", answer, err)
		}
		<-finished
		if _, err := c.Request(t.Context(), 1, "/x", nil, -1, nil); err != nil { // the answer to the last request is sent before it
			t.Fatal(err)
		}
		b := values["/0/1"] // TLV
		at := bytes.Index(b, []byte("booted:blank:"))
		secret := bytes.LastIndex(b, []byte{0xc8, 5, 16}) // resource 5, 16 bytes
		if at < 0 || secret < 0 || len(b) < secret+19 || !bytes.Contains(b, []byte("coaps://weir.example:5684")) {
			t.Fatalf("%x", b)
		}
		return string(b[at : at+len("booted:blank:")+8]), b[secret+3 : secret+19]
	}
	first, firstKey := boot()
	if err := register(first, firstKey); err != nil {
		t.Fatal(err)
	}
	second, secondKey := boot()
	if second == first {
		t.Fatalf("the identity is %s again", first)
	}
	if err := register(first, firstKey); err != nil {
		t.Errorf("the key of before is not good any more: %v", err)
	}
	if err := register(second, secondKey); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "the key of before is removed", func() bool {
		var got struct {
			DeviceCredentials struct {
				Results []struct{ CredentialType, CredentialID string }
			}
		}
		tn.devices(`{deviceCredentials(criteria:{pageNumber:1,pageSize:100}){results{credentialType credentialId}}}`, nil).into(t, &got)
		n := 0
		for _, c := range got.DeviceCredentials.Results {
			if c.CredentialID == first {
				return false
			}
			if c.CredentialID == second || c.CredentialID == th.identity() {
				n++
			}
		}
		return n == 2
	})
	if err := register("booted:blank:boot", th.key); err == nil {
		t.Error("a bootstrap key opens a session")
	}
	poll.True(t, "both are counted", func() bool { return w.metric(t, `weir_lwm2m_bootstrap_total{outcome="finished"}`) == 2 })
}
