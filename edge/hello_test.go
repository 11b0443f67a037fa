package edge

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/auth"
	"weir/ingest"
	"weir/internal/edgewire"
	"weir/internal/ranges"
	"weir/internal/setting"
	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
)

// weirAbove is what a Weir above says to an edge.
type weirAbove struct {
	*mqttpeer.Broker
	mu     sync.Mutex
	hellos []*edgewire.Hello
	have   map[string]ranges.Set // by INSTALL:EPOCH
	renew  string                // of the next hello
	plain  bool                  // it refuses to speak of edges
	frames bool                  // it says that it takes them

	carried ranges.Set // by hand

	devices []edgewire.Device
}

func startWeirAbove(t *testing.T) *weirAbove {
	w := &weirAbove{Broker: &mqttpeer.Broker{Time: time.Now().UTC().Format(time.RFC3339Nano)}, have: map[string]ranges.Set{}}
	w.OnSubscribe = func(filter string, qos byte) byte {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.plain || filter != "weir/acme/edges/gw/down" {
			return 0x87
		}
		return qos
	}
	w.OnPublish = func(m mqttpeer.Message) (byte, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if m.Topic != "weir/acme/edges/gw/up" {
			link, number, _ := cutLast(m.Number)
			n, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				t.Errorf("%+v: %v", m, err)
			}
			s := w.have[link]
			s.Add(n, 64)
			w.have[link] = s
			return 0, true
		}
		document, err := edgewire.ParseUp([]byte(m.Payload))
		if err != nil {
			t.Error(err)
			return 0x99, true
		}
		if asked, ok := document.(*edgewire.Sync); ok {
			page := edgewire.Devices{Kind: edgewire.KindDevices, Nonce: asked.Nonce, Devices: w.devices}
			if asked.After == "" && len(w.devices) > 1 { // in two pages
				page.Devices, page.Next = w.devices[:1], w.devices[0].Token
			} else if asked.After != "" {
				page.Devices = w.devices[1:]
			}
			w.say(page)
			return 0, true
		}
		h, ok := document.(*edgewire.Hello)
		if !ok {
			return 0, true
		}
		w.hellos = append(w.hellos, h)
		answer := edgewire.Welcome{Kind: edgewire.KindWelcome, Nonce: h.Nonce, Time: time.Now(), Partitions: 1, Complete: true, Frames: w.frames, Ranges: w.have[h.Link()[len("edge:"):]], Carried: w.carried, Renew: w.renew}
		w.renew = ""
		w.say(answer)
		return 0, true
	}
	mqttpeer.Start(t, w.Broker, nil, false)
	return w
}

// say sends a document to the edge.
func (w *weirAbove) say(document any) {
	body, _ := json.Marshal(document)
	w.Deliver(mqttpeer.Delivery{Topic: "weir/acme/edges/gw/down", Payload: string(body), QoS: 1, PacketID: 1})
}

func cutLast(number string) (link, n string, ok bool) {
	i := strings.LastIndexByte(number, ':')
	if i < 0 {
		return "", "", false
	}
	return number[:i], number[i+1:], true
}

func (w *weirAbove) with(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// relayed are the messages of devices, by number.
func (w *weirAbove) relayed() (all []mqttpeer.Message) {
	for _, m := range w.Messages() {
		if m.Number != "" {
			all = append(all, m)
		}
	}
	return all
}

// below opens an edge below it.
func (w *weirAbove) below(t *testing.T, dir string) *site {
	t.Helper()
	return openSite(t, dir, "127.0.0.1:"+w.Port(), nil, func(s *Settings) {
		s.WhenFull, s.AgentID, s.Uplink.Username, s.Uplink.Password = neverTrims, "gw", "acme:user", setting.NewSecret("x")
	})
}

func (s *site) sends(t *testing.T, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if a := s.take(t, event(n)); a.Outcome != ingest.Stored {
			t.Fatal(a)
		}
	}
}

// TestAWeirAboveThatWasRestored: what it has acknowledged and lacks is sent again under the same numbers; what the log has no more is a gap with a name. The
// ledger counts each message once.
func TestAWeirAboveThatWasRestored(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	dir := t.TempDir()
	s := w.below(t, dir)
	s.sends(t, 1, 6)
	poll.True(t, "all are above", func() bool { return s.Status().Waiting == 0 })
	before := w.relayed()
	link, _, _ := cutLast(before[0].Number)
	if st := s.Status(); st.Uplink.Peer != "weir" || link != st.InstallID+":1" {
		t.Fatalf("%+v, %s", st, link)
	}
	w.with(func() { w.have[link] = ranges.Set{{1, 2}, {4, 4}} })
	w.Cut()
	poll.True(t, "what lacks is above", func() bool {
		var have ranges.Set
		w.with(func() { have = w.have[link] })
		return len(have) == 1 && have.Count() == 6 && s.Status().Waiting == 0
	})
	for _, m := range w.relayed()[len(before):] { // from the first one that lacks on: the others are repeats
		if again := find(before, m.Number); again.Payload != m.Payload || again.Topic != m.Topic {
			t.Errorf("%+v was %+v", m, again)
		}
	}
	if o := s.outcomes(t); o["stored"] != 6 || o["waiting"] != 0 {
		t.Errorf("%v", o)
	}
	if err := s.keep(); err != nil { // which trims the log
		t.Fatal(err)
	}
	w.with(func() { w.have[link] = ranges.Set{{1, 2}, {5, 6}} })
	w.Cut()
	poll.True(t, "the gap has a name", func() bool { return fmt.Sprint(s.Status().Uplink.Gaps) == "[3-4]" })
	s.sends(t, 7, 7)
	poll.True(t, "it goes on", func() bool { return s.Status().Waiting == 0 })
}

func find(all []mqttpeer.Message, number string) mqttpeer.Message {
	for _, m := range all {
		if m.Number == number {
			return m
		}
	}
	return mqttpeer.Message{}
}

// TestACopyBeginsAsAnotherInstallation before it sends anything: its numbers may be those of other messages. The new id stays, and numbers of before
// are not asked for.
func TestACopyBeginsAsAnotherInstallation(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	w.renew = "a copy"
	dir := t.TempDir()
	s := w.below(t, dir)
	s.sends(t, 1, 3)
	poll.True(t, "all are above", func() bool { return s.Status().Waiting == 0 })
	install := s.InstallID()
	var hellos []*edgewire.Hello
	w.with(func() { hellos = w.hellos })
	if len(hellos) != 2 || hellos[0].Install == install || hellos[1].Install != install {
		t.Fatalf("%d hellos, the installation is %s", len(hellos), install)
	}
	for _, m := range w.relayed() {
		if !strings.HasPrefix(m.Number, install+":1:") {
			t.Errorf("%+v, the installation is %s", m, install)
		}
	}
	s.stop()
	s = w.below(t, dir)
	s.sends(t, 4, 4)
	poll.True(t, "the next is above", func() bool { return len(w.relayed()) == 4 })
	if s.InstallID() != install || len(s.Status().Uplink.Gaps) != 0 {
		t.Errorf("%+v, it was %s", s.Status(), install)
	}
	if h := s.hello(edgewire.KindHello); h.First != 1 || h.Newest != 4 || h.Epoch != 1 {
		t.Errorf("%+v", h)
	}
}

// TestNumbersThatNeverGoUp are not asked for: dead letters.
func TestNumbersThatNeverGoUp(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	refuses := w.OnPublish
	w.OnPublish = func(m mqttpeer.Message) (byte, bool) {
		if strings.Contains(m.Payload, `"n":2}`) {
			return 0x99, true
		}
		return refuses(m)
	}
	dir := t.TempDir()
	s := w.below(t, dir)
	s.sends(t, 1, 3)
	poll.True(t, "all have ended", func() bool { return s.Status().Waiting == 0 })
	s.stop()
	s = w.below(t, dir)
	s.sends(t, 4, 4)
	poll.True(t, "the next is above", func() bool { return s.Status().Waiting == 0 })
	if h := s.hello(edgewire.KindHello); len(h.Absent) != 1 || h.Absent[0] != [2]uint64{2, 2} || len(s.Status().Uplink.Gaps) != 0 {
		t.Errorf("%+v, %+v", h, s.Status())
	}
	w.with(func() { w.plain = true })
	w.Cut()
	s.sends(t, 5, 5)
	poll.True(t, "it is above", func() bool { return s.Status().Waiting == 0 })
	if p := s.Status().Uplink.Peer; p != "broker" {
		t.Errorf("the peer is a %s", p)
	}
}

// TestDevicesOfTheWeirAbove sign in at the edge with credentials that it keeps as hashes: after a restart without the Weir above, too, and no more once it says
// that one has gone.
func TestDevicesOfTheWeirAbove(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	credential := func(id int64, secret string) edgewire.Credential {
		return edgewire.Credential{ID: id, Type: auth.AccessToken, IDHash: fmt.Sprintf("%x", sha256.Sum256([]byte(secret)))}
	}
	w.devices = []edgewire.Device{{ID: 1, Token: "a", Credentials: []edgewire.Credential{credential(11, "secret-a")}}, {ID: 2, Token: "b", Credentials: []edgewire.Credential{credential(12, "secret-b")}}}
	dir := t.TempDir()
	open := func(port string) *site {
		return openSite(t, dir, "127.0.0.1:"+port, nil, func(s *Settings) {
			s.AgentID, s.Uplink.Username, s.Uplink.Password, s.Auth = "gw", "acme:user", setting.NewSecret("x"), AuthSynced
		})
	}
	may := func(s *site, tenant, secret, device string) bool {
		p, err := s.Verifier().Verify(t.Context(), auth.Claim{Tenant: tenant, Type: auth.AccessToken, ID: secret})
		return err == nil && p.Device == device
	}
	s := open(w.Port())
	poll.True(t, "both sign in", func() bool { return may(s, "acme", "secret-a", "a") && may(s, "acme", "secret-b", "b") })
	if may(s, "other", "secret-a", "a") || may(s, "acme", "wrong", "a") {
		t.Error("a credential of another tenant, or a wrong one, lets in")
	}
	if st := s.Status(); st.Devices == nil || st.Devices.Devices != 2 || !st.LocalAuth || len(s.Problems()) != 0 {
		t.Errorf("%+v, %v", st, s.Problems())
	}
	send := func(device, secret string) ingest.Answer {
		a := event(1)
		a.Transport, a.Topic, a.Body = ingest.TransportHTTP, "", []byte(`{"device":"`+device+`","eventType":"Measurement","payload":{"entries":[{"measurements":{"n":"1"}}]}}`)
		a.Credential = ingest.Credential{Type: auth.AccessToken, ID: secret}
		return s.take(t, a)
	}
	if send("a", "secret-a").Outcome != ingest.Stored || send("a", "secret-b").Outcome != ingest.Refused || send("a", "").Outcome != ingest.Refused {
		t.Error("over HTTP")
	}
	s.stop()
	s = open("1") // no broker is there
	if !may(s, "acme", "secret-a", "a") {
		t.Error("a device does not sign in while the Weir above is away")
	}
	s.stop()
	s = open(w.Port())
	poll.True(t, "it is asked again", func() bool { return s.Status().Uplink.Peer == "weir" })
	ended := make(chan auth.Invalidation, 10)
	s.Verifier().OnInvalidate(func(f auth.Invalidation) { ended <- f })
	w.with(func() {
		w.devices = w.devices[:1]
		w.say(edgewire.Changed{Kind: edgewire.KindChanged})
	})
	if f := <-ended; f.CredentialID != 12 {
		t.Errorf("%+v", f)
	}
	if may(s, "acme", "secret-b", "b") || !may(s, "acme", "secret-a", "a") {
		t.Error("the credential that has gone lets in, or the other does not")
	}
}

func TestAnEdgeWithoutCredentialsLetsNothingIn(t *testing.T) {
	t.Parallel()
	s := openSite(t, t.TempDir(), "127.0.0.1:1", nil, func(s *Settings) {
		s.AgentID, s.Uplink.Username, s.Uplink.Password, s.Auth = "gw", "acme:user", setting.NewSecret("x"), AuthSynced
	})
	if _, err := s.Verifier().Verify(t.Context(), auth.Claim{Tenant: "acme", Type: auth.AccessToken, ID: "x"}); err == nil {
		t.Error("a device signs in")
	}
	if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0], "acme") {
		t.Error(p)
	}
}
