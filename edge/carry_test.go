package edge

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"weir/internal/carry"
	"weir/internal/ranges"
	"weir/internal/test/poll"
	"weir/model"
)

// carriedBy reads an export.
func carriedBy(t *testing.T, b []byte, key *carry.PrivateKey) (carry.Header, []carry.Message) {
	t.Helper()
	r, err := carry.NewReader(bytes.NewReader(b), func(string) (*carry.PrivateKey, error) { return key, nil })
	if err != nil {
		t.Fatal(err)
	}
	var all []carry.Message
	for {
		messages, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Header(), all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, messages...)
	}
}

// TestWhatWasCarriedByHandIsNotSent: an export holds what waits, as it would be sent, and changes nothing; what a Weir above says was carried leaves the log, and
// only the rest is sent.
func TestWhatWasCarriedByHandIsNotSent(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	dir := t.TempDir()
	s := openSite(t, dir, "127.0.0.1:"+refusing(t), nil, func(o *Settings) { o.WhenFull = neverTrims })
	s.sends(t, 1, 6)
	if _, err := s.Export(t.Context(), io.Discard, ExportOptions{}); model.CodeOf(err) != model.CodeConflict {
		t.Errorf("without a key: %v", err)
	}
	var b bytes.Buffer
	made, err := s.Export(t.Context(), &b, ExportOptions{Plain: true})
	if err != nil || made.Messages != 6 || made.First != 1 || made.Last != 6 || made.Lost != 0 {
		t.Fatalf("%+v, %v", made, err)
	}
	if st := s.Status(); st.Waiting != 6 || st.Position != 0 {
		t.Errorf("an export changed what waits: %+v", st)
	}
	s.stop()
	h, all := carriedBy(t, b.Bytes(), nil)
	if len(all) != 6 || h.Install != made.InstallID || h.Key != "" {
		t.Fatalf("%+v, %v", h, all)
	}
	link := h.Install + ":1"
	w.with(func() {
		w.have[link], w.carried = ranges.Set{{1, 3}, {5, 5}}, ranges.Set{{1, 3}, {5, 6}} // 6 is not known above, whatever was carried
	})
	s = w.below(t, dir)
	s.drained(t)
	var sent []string
	for _, m := range w.relayed() {
		sent = append(sent, m.Number)
	}
	if want := []string{link + ":4", link + ":5", link + ":6"}; !slices.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	if out := s.outcomes(t); out["stored"] != 6 {
		t.Errorf("%v", out)
	}
	for i, m := range w.relayed() {
		at := []int{3, 4, 5}[i]
		if m.Payload != string(all[at].Payload) || m.Topic != all[at].Topic {
			t.Errorf("%s was exported as %s", m.Payload, all[at].Payload)
		}
	}
	if n := s.HandedOver(); n.Position != 0 || n.Carried.Count() != 5 || n.Above.Count() != 4 || n.At.IsZero() {
		t.Errorf("%+v", n)
	}
	b.Reset()
	if made, err := s.Export(t.Context(), &b, ExportOptions{Plain: true}); err != nil || made.Messages != 0 {
		t.Errorf("%+v, %v", made, err)
	}
	b.Reset()
	if made, err := s.Export(t.Context(), &b, ExportOptions{Plain: true, Since: received.Time().AddDate(-10, 0, 0)}); err != nil || made.Messages != 6 {
		t.Errorf("what the log still has: %+v, %v", made, err)
	}
}

// TestAnExportIsSealed: to the key that a Weir above told over TLS, which a restart does not lose. One over a link that anybody can listen on is not believed.
func TestAnExportIsSealed(t *testing.T) {
	t.Parallel()
	key, err := carry.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	dir, refusing := t.TempDir(), refusing(t)
	s := openSite(t, dir, "127.0.0.1:"+refusing, nil, nil)
	s.keepCarryKey(key.Public())
	if s.carry.Load() != nil {
		t.Error("a key that came without TLS is believed")
	}
	s.sends(t, 1, 2)
	s.stop() // nothing reads the configuration any more
	s.cfg.Uplink.BrokerURL = "tls" + strings.TrimPrefix(s.cfg.Uplink.BrokerURL, "tcp")
	s.keepCarryKey("none")
	s.keepCarryKey(key.Public())
	s = openSite(t, dir, "127.0.0.1:"+refusing, nil, nil)
	var b bytes.Buffer
	made, err := s.Export(t.Context(), &b, ExportOptions{})
	if err != nil || made.Key != key.Public().ID() {
		t.Fatalf("%+v, %v", made, err)
	}
	if h, all := carriedBy(t, b.Bytes(), key); len(all) != 2 || h.Key != made.Key {
		t.Errorf("%+v, %v", h, all)
	}
	if bytes.Contains(b.Bytes(), []byte("devices/pump")) {
		t.Error("a sealed file names a device")
	}
}

// TestAnExportOfAPlatform: what waits for its uplink, under the numbers under which it would be sent.
func TestAnExportOfAPlatform(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	dir := t.TempDir()
	p := openPlatform(t, dir, "127.0.0.1:"+refusing(t), nil)
	p.append(t, map[int]bool{2: true}, clockRecord(), measured(1), measured(1), clockRecord(), measured(2), measured(3))
	var b bytes.Buffer
	poll.True(t, "what was applied is exported", func() bool {
		b.Reset()
		made, err := p.Export(t.Context(), &b, ExportOptions{Plain: true})
		return err == nil && made.Messages == 3 && made.First == 1 && made.Last == 3
	})
	h, all := carriedBy(t, b.Bytes(), nil)
	if h.Tenant != "acme" || h.Edge != "gw" || h.Install != p.InstallID() {
		t.Errorf("%+v", h)
	}
	p.stop()
	link := h.Install + ":1"
	w.with(func() { w.have[link], w.carried = ranges.Set{{1, 2}}, ranges.Set{{1, 2}} })
	p = openPlatform(t, dir, "127.0.0.1:"+w.Port(), nil)
	p.handedOver(t, 3)
	sent := w.relayed()
	if len(sent) != 1 || sent[0].Number != link+":3" || sent[0].Payload != string(all[2].Payload) || sent[0].Topic != all[2].Topic {
		t.Errorf("%+v, want %s", sent, all[2].Payload)
	}
}
