package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"weir/internal/test/poll"
	"weir/internal/test/relay"
	"weir/internal/test/testcerts"
	"weir/internal/test/testweir"
)

// importLine is what weir edge import shows.
type importLine struct {
	Messages, Known int64
	Sealed, Taken   bool
}

// verifiedEdges is what weir ledger verify --edge shows.
type verifiedEdges struct {
	Agree, Complete bool
	Edges           []struct{ HandedOver, Above, Carried, Ahead int64 }
}

// TestMessagesAreCarriedByHand: what the link does not take is above after it was carried in a file, once, whatever is killed and repeated meanwhile; a file that was
// altered is refused whole; and the edge sends only the rest.
func TestMessagesAreCarriedByHand(t *testing.T) {
	t.Parallel()
	certs, aboveDir, edgeDir := t.TempDir(), t.TempDir(), t.TempDir()
	if err := testcerts.WriteSet(certs); err != nil {
		t.Fatal(err)
	}
	above := testweir.Options{Dir: aboveDir, Config: generous + fmt.Sprintf("tls: {cert_file: %q, key_file: %q}\n", filepath.Join(certs, "gw.pem"), filepath.Join(certs, "gw.key")), Env: []string{"WEIR_LISTENERS_MQTTS=127.0.0.1:0"}}
	secure := func(w *world) string {
		for line := range strings.Lines(w.Stdout()) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "mqtts" {
				return f[1]
			}
		}
		t.Fatal("there is no listener for MQTT over TLS")
		return ""
	}
	w := start(t, above)
	tn := w.tenant(t, "site")
	tn.plain("gw", "a")
	tn.devices(`mutation{createEdge(request:{token:"north",deviceToken:"gw",enabled:true}){token}}`, nil)
	link := relay.Start(t, secure(w))
	p := testweir.Start(t, testweir.Options{Dir: edgeDir, Config: fmt.Sprintf("role: edge\nedge: {agent_id: gw, listen: \"127.0.0.1:0\", uplink: {broker_url: \"tls://%s\", username: \"site:%s\", password: \"\", backoff_min: 20ms, backoff_max: 200ms, keep_alive: 1s, tls: {ca_file: %q}}}\n",
		link.Address(), tn.secret("gw"), filepath.Join(certs, "ca.pem"))})
	d := &edgeDevice{name: "a"}
	sends := func(n int64) {
		t.Helper()
		want := d.acked.Load() + n
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			d.run(p.MQTT, tn.name, stop)
		}()
		poll.True(t, "messages are acknowledged", func() bool { return d.acked.Load() >= want })
		close(stop)
		<-ended
	}
	sends(3)
	drained(t, p)
	link.Down(true)
	link.Cut()
	sends(400)
	waiting := d.acked.Load()

	folder := t.TempDir()
	file, altered, cut := filepath.Join(folder, "north"), filepath.Join(folder, "altered"), filepath.Join(folder, "cut")
	var made struct {
		Messages int64
		Key      string
	}
	p.RunJSON(&made, "edge", "export", file)
	if made.Messages == 0 || made.Messages > waiting || made.Key == "" {
		t.Fatalf("%+v, %d were acknowledged", made, waiting)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(whole, []byte("devices/a/events")) {
		t.Error("the export can be read by anybody")
	}
	if out, err := p.TryRun("", "edge", "export", file); err == nil || !strings.Contains(out, "is there already") {
		t.Errorf("an export over a file: %v\n%s", err, out)
	}
	bad := bytes.Clone(whole)
	bad[len(bad)-40] ^= 1
	for path, b := range map[string][]byte{altered: bad, cut: whole[:len(whole)-1]} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := tn.ledger("uplink")
	for _, path := range []string{altered, cut, filepath.Join(certs, "ca.pem")} {
		if out, err := w.TryRun("", "edge", "import", path); err == nil || !strings.Contains(out, "the file is refused") {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
	if after := tn.ledger("uplink"); !reflect.DeepEqual(after, before) {
		t.Errorf("a file that was refused changed the ledger from %+v to %+v", before, after)
	}
	var checked importLine
	w.RunJSON(&checked, "edge", "import", "--check", file)
	if checked != (importLine{Messages: made.Messages, Sealed: true}) || !reflect.DeepEqual(tn.ledger("uplink"), before) {
		t.Errorf("%+v", checked)
	}

	broken := make(chan struct{})
	go func() {
		defer close(broken)
		_, _ = w.TryRun("", "edge", "import", file) // the kill ends it, or comes too late
	}()
	poll.True(t, "some messages are taken in", func() bool { return tn.ledger("uplink").Received > before.Received })
	w.Kill()
	<-broken
	w = &world{Proc: testweir.Start(t, above)}
	w.login()
	tn = w.enter(t, "site")
	var taken, again importLine
	w.RunJSON(&taken, "edge", "import", file)
	w.RunJSON(&again, "edge", "import", file)
	if !taken.Taken || taken.Messages != made.Messages || again != (importLine{Messages: made.Messages, Known: made.Messages, Sealed: true, Taken: true}) {
		t.Errorf("%+v, then %+v", taken, again)
	}
	stored := int(waiting)
	tn.arrived(stored)
	carried := tn.ledger("uplink")

	sends(2)
	link.To(secure(w))
	link.Down(false)
	drained(t, p)
	total := int(d.acked.Load())
	tn.arrived(total)
	l := tn.ledger("uplink")
	if l.Stored != total || l.Received != l.Stored+l.Duplicate {
		t.Errorf("the ledger says %+v, %d were acknowledged", l, total)
	}
	if sent := l.Received - carried.Received; sent != total-stored {
		t.Errorf("the edge sent %d messages after the import, %d were not carried", sent, total-stored)
	}
	if s := edgeLedger(t, p); s.Missing != 0 || s.Outcomes["stored"] != int64(total) {
		t.Errorf("the edge says %+v", s)
	}
	p.Run("", "edge", "resync")
	for _, side := range []*testweir.Proc{w.Proc, p} {
		poll.Until(t, "both sides agree", func() error {
			out, err := side.TryRun("", "ledger", "verify", "--edge")
			if err != nil || !strings.Contains(out, fmt.Sprintf("%d messages handed over", total)) {
				return fmt.Errorf("%v: %s", err, out)
			}
			return nil
		})
	}
	var v verifiedEdges
	w.RunJSON(&v, "ledger", "verify", "--edge")
	if !v.Agree || !v.Complete || len(v.Edges) != 1 || v.Edges[0].Carried != made.Messages {
		t.Errorf("%+v", v)
	}

	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if out := p.Run("", "edge", "export", "--plain", "--since", "2020-01-01T00:00:00Z", filepath.Join(folder, "plain")); !strings.Contains(out, "not sealed") {
		t.Errorf("an edge that does not run: %s", out)
	}
	var plain importLine
	w.RunJSON(&plain, "edge", "import", filepath.Join(folder, "plain"))
	if plain.Known != plain.Messages || plain.Sealed {
		t.Errorf("%+v", plain)
	}
}
