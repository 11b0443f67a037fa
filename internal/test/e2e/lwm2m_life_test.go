package e2e_test

import (
	"fmt"
	"net"
	"os"
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

// again starts the program of a device anew, on the same directory.
func (th *things) again(config string) {
	th.t.Helper()
	p, err := testweir.TryStart(th.t, testweir.Options{Dir: th.Dir, Config: config})
	if err != nil {
		th.t.Fatal(err)
	}
	w := &world{Proc: p}
	w.login()
	th.tenant = w.enter(th.t, th.name)
}

// update updates a registration.
func (th *things) update(at string) {
	th.t.Helper()
	if answer, err := th.client.Request(th.t.Context(), 2, at, nil, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 4) {
		th.t.Fatalf("the update is answered %+v, %v", answer, err)
	}
}

// TestAnLwM2MDeviceThatSleeps: a command for a device in queue mode that does not answer is parked, stays so over a restart, and is
// performed when the device is back. Its registration outlives the restart, and so does its presence.
func TestAnLwM2MDeviceThatSleeps(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: lwm2mConfig})
	th := w.tenant(t, "sleepers").thing("meter")
	th.dial()
	at := th.register([]string{"lt=3600", "lwm2m=1.1", "Q"}, `</1/0>,</3/0>,</3303/0>`)
	th.present(true)
	th.readings("/3303/0/5700=21.5")
	th.attribute("manufacturer", "Weir")
	th.mu.Lock()
	th.mute = true
	th.mu.Unlock()
	parked := func(token string) {
		t.Helper()
		poll.Until(t, token+" is parked", func() error {
			if status, _, text := th.command(token); status != "PARKED" {
				return fmt.Errorf("it is %s %s", status, text)
			}
			return nil
		})
	}
	for _, token := range []string{"first", "second"} {
		th.create(token, "lwm2m.write", fmt.Sprintf(`{"path":"/3303/0/5750","value":%q}`, token))
		parked(token)
	}
	conformance.Shown(t, "S2-101")
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	th.again(lwm2mConfig)
	parked("first")
	parked("second")
	conformance.Shown(t, "S2-102")
	th.present(true) // nothing has said otherwise
	th.mu.Lock()
	th.mute, th.told = false, nil
	th.mu.Unlock()
	th.dial()
	th.update(at) // the registration of before
	for _, token := range []string{"first", "second"} {
		poll.Until(t, token, func() error {
			if status, _, text := th.command(token); status != "SUCCESSFUL" {
				return fmt.Errorf("it is %s %s", status, text)
			}
			return nil
		})
	}
	written := slices.DeleteFunc(th.asked(), func(s string) bool { return !strings.HasPrefix(s, "3 ") })
	if want := []string{"3 /3303/0/5750 first", "3 /3303/0/5750 second"}; !slices.Equal(written, want) {
		t.Errorf("written was %q, want %q", written, want)
	}
	conformance.Shown(t, "S2-103")
	poll.True(t, "it is observed again", func() bool { return th.client.Observed("/3303/0") })
	if _, err := th.client.Notify(t.Context(), "/3303/0", asSenMLJSON, []byte(`[{"n":"/3303/0/5700","v":30}]`)); err != nil {
		t.Fatal(err)
	}
	th.readings("/3303/0/5700=21.5", "/3303/0/5700=21.5", "/3303/0/5700=30")
	conformance.Shown(t, "S2-087")
}

// TestLwM2MBounds: what is bounded, and what nobody answers.
func TestLwM2MBounds(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: "governance: {ingest_messages_per_second: 1, ingest_burst: 256}\nlwm2m: {enabled: true}\n"})
	th := w.tenant(t, "bounds").thing("hub")
	plain, err := net.Dial("udp", w.LwM2M)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Write([]byte{0x40, 1, 0, 1, 0xb2, 'r', 'd'}); err != nil {
		t.Fatal(err)
	}
	th.dial()
	var links []string
	for i := range 40 {
		links = append(links, fmt.Sprintf("</3303/%d>", i))
		th.value[fmt.Sprintf("/3303/%d/5700", i)] = "1"
	}
	if answer, err := th.client.Request(t.Context(), 2, "/dp", nil, asSenMLJSON, []byte(`[{"n":"/3303/0/5700","v":1}]`)); err != nil || answer.Code != lwm2mpeer.Code2(4, 4) {
		t.Errorf("a Send before the registration: %+v %v", answer, err)
	}
	queries := []string{"lt=300", "lwm2m=1.1"}
	th.register(queries, "</3/0>,"+strings.Join(links, ","))
	th.attribute("manufacturer", "Weir") // it is asked about itself behind the observations
	observed := 0
	for i := range 40 {
		if th.client.Observed(fmt.Sprintf("/3303/%d", i)) {
			observed++
		}
	}
	if observed != 32 || w.metric(t, `weir_lwm2m_dropped_total{reason="observations"}`) != 1 {
		t.Errorf("%d are observed", observed)
	}
	conformance.Shown(t, "S2-086")
	if err := plain.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := plain.Read(make([]byte, 100)); err == nil {
		t.Errorf("CoAP without DTLS is answered with %d bytes", n)
	}
	conformance.Shown(t, "S2-003")

	// A second registration within the hour: observed again, not asked about itself again.
	th.asked()
	th.register(queries, "</3/0>,</3303/0>,</3303/1>")
	poll.True(t, "it is observed again", func() bool {
		return slices.ContainsFunc(th.asked(), func(s string) bool { return strings.HasPrefix(s, "1 /3303/1") })
	})
	if status, _, text := th.order("after", "lwm2m.reboot", `{}`); status != "SUCCESSFUL" {
		t.Fatal(status, text)
	}
	th.mu.Lock()
	if slices.ContainsFunc(th.told, func(s string) bool { return strings.HasPrefix(s, "1 /3/0/") }) {
		t.Errorf("it was asked about itself again: %q", th.told)
	}
	th.mu.Unlock()
	conformance.Shown(t, "S2-092")

	// The ceiling counts readings: a Send is refused, a notification is dropped, each as a whole.
	many := func(n int) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"n":"/3303/%d/5700","v":%d}`, i%40, i)
		}
		return []byte("[" + b.String()[1:] + "]")
	}
	code := byte(0)
	for range 3 { // registration, observations and answers have taken some
		answer, err := th.client.Request(t.Context(), 2, "/dp", nil, asSenMLJSON, many(200))
		if err != nil {
			t.Fatal(err)
		}
		if code = answer.Code; code != lwm2mpeer.Code2(2, 4) {
			if age := answer.Uint(14); age < 1 {
				t.Errorf("Max-Age %d", age)
			}
			break
		}
	}
	if code != lwm2mpeer.Code2(4, 29) {
		t.Errorf("a Send over the ceiling is answered %d.%02d", code>>5, code&31)
	}
	if ack, err := th.client.Notify(t.Context(), "/3303/0", asSenMLJSON, many(250)); err != nil || ack.Type != 2 {
		t.Fatalf("%+v %v", ack, err)
	}
	line := th.ledger("lwm2m")
	dropped := 0
	for _, r := range line.Reasons {
		if r.Outcome == "dropped" && r.Reason == "ceiling" {
			dropped += r.Count
		}
	}
	if dropped != 1 || line.Refused == 0 {
		t.Errorf("%+v", line)
	}
	conformance.Shown(t, "S2-122")
	conformance.Shown(t, "S2-002")
}

// TestLwM2MDevicesOfAKilledProgram kills the program under notifications, and stops it once. The devices notice nothing: they shake no hands and do
// not register again, whatever was acknowledged is stored, nothing twice, and no record of ours has a number that was used before.
func TestLwM2MDevicesOfAKilledProgram(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: lwm2mConfig})
	tn := w.tenant(t, "killed")
	relay, err := lwm2mpeer.NewRelay(w.LwM2M)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	var all []*things
	for i := range 4 {
		th := tn.thing(fmt.Sprint("m", i))
		th.without = i == 3
		th.through = relay.Address()
		th.dial()
		th.register([]string{"lt=3600", "lwm2m=1.1"}, `</3303/0>`)
		poll.True(t, "it is observed", func() bool { return th.client.Observed("/3303/0") })
		all = append(all, th)
	}
	const each = 200 // all fit on a page
	acknowledged := make(chan int, each*len(all))
	var sending sync.WaitGroup
	for _, th := range all {
		sending.Go(func() {
			for v := range each {
				ack, err := th.client.Notify(t.Context(), "/3303/0", asSenMLJSON, fmt.Appendf(nil, `[{"n":"/3303/0/5601","v":%d}]`, v))
				if err != nil || ack.Type != 2 {
					t.Errorf("%s: %d is answered %+v, %v", th.device, v, ack, err)
					return
				}
				acknowledged <- v
			}
		})
	}
	for round := range 4 {
		for range 30 + 40*round {
			<-acknowledged
		}
		if round == 2 {
			if err := tn.Stop(); err != nil {
				t.Fatal(err)
			}
		} else {
			tn.Kill()
		}
		all[0].again(lwm2mConfig)
		tn = all[0].tenant
		if err := relay.Target(tn.LwM2M); err != nil {
			t.Fatal(err)
		}
	}
	sending.Wait()
	for _, name := range []string{`weir_lwm2m_handshakes_total{outcome="ok"}`, `weir_lwm2m_registrations_total`} {
		if n := tn.metric(t, name); n != 0 {
			t.Errorf("%s is %v", name, n)
		}
	}
	if twice := relay.Twice(); len(twice) > 0 || relay.Hellos() != len(all) {
		t.Errorf("%d handshakes; used twice: %q", relay.Hellos(), twice)
	}
	for _, th := range all {
		th.tenant = tn
		th.present(true)
		poll.Until(t, "what was acknowledged is stored once", func() error {
			stored, _ := tn.measurements(map[string]any{"deviceToken": th.device, "pageNumber": 1, "pageSize": 1000})
			count := map[int]int{}
			for _, m := range stored {
				if m.Name == "/3303/0/5601" {
					count[int(m.Value)]++
				}
			}
			for v, n := range count {
				if n > 1 {
					t.Fatalf("%s: %d is stored %d times", th.device, v, n)
				}
			}
			if len(count) != each {
				var missing []int
				for v := range each {
					if count[v] == 0 {
						missing = append(missing, v)
					}
				}
				return fmt.Errorf("%s: %d of %d are stored, without %v; the ledger says %+v", th.device, len(count), each, missing, th.ledger("lwm2m"))
			}
			return nil
		})
		if status, _, text := th.order("after-"+th.device, "lwm2m.read", `{"path":"/3303/0/5700"}`); status != "SUCCESSFUL" {
			t.Errorf("%s: %s", status, text)
		}
	}
	checkCopy(t, tn, all[0], relay)
}

// checkCopy starts the program on a copy of its directory: sessions that go on elsewhere are not taken up.
func checkCopy(t *testing.T, tn *tenant, th *things, relay *lwm2mpeer.Relay) {
	t.Helper()
	if err := tn.Stop(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() + "/copy"
	if err := os.CopyFS(dir, os.DirFS(tn.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/data/root.key", 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := testweir.TryStart(t, testweir.Options{Dir: dir, Config: lwm2mConfig})
	if err != nil {
		t.Fatal(err)
	}
	if n := (&world{Proc: p}).metric(t, "weir_lwm2m_parked_sessions"); n != 0 {
		t.Errorf("%v sessions go on in a copy", n)
	}
	p.Kill()
	th.again(lwm2mConfig)
	poll.Until(t, "the sessions go on in the directory itself", func() error {
		if n := th.metric(t, "weir_lwm2m_parked_sessions"); n != 4 {
			return fmt.Errorf("%v do", n)
		}
		return nil
	})
	if err := relay.Target(th.LwM2M); err != nil {
		t.Fatal(err)
	}
	if _, err := th.client.Notify(t.Context(), "/3303/0", asSenMLJSON, []byte(`[{"n":"/3303/0/5601","v":1000}]`)); err != nil {
		t.Fatal(err)
	}
}
