package channel

import (
	"encoding/json"
	"net/mail"
	"strings"
	"testing"

	"weir/internal/test/conformance"
)

// TestBothKindsDeliver is a message over each way to reach people.
func TestBothKindsDeliver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hook(t, true, nil)
	if err := w.send(t, Channel{"webhook", `{"url": "` + h.url + `/in?x=1", "headers": {"x-site": "north"}}`, "s3cret"}, single(nil)); err != nil {
		t.Fatal(err)
	}
	r := h.asked[0]
	if r.Method != "POST" || r.URL.String() != "/in?x=1" || r.Header.Get("X-Site") != "north" || r.Header.Get("X-Weir-Idempotency-Key") != "n-17" ||
		r.Header.Get("Authorization") != "Bearer s3cret" || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(h.bodies[0]), &got); err != nil || got["text"] != "[CRITICAL] raised: too-hot (Boiler 1)" || got["value"] != 95.5 {
		t.Errorf("%v %s", err, h.bodies[0])
	}
	for _, security := range []string{startTLS, overTLS, noTLS} {
		box := w.mailbox(t, security, func(m *mailbox) {
			if security != noTLS {
				m.user, m.password = "weir", "s3cret"
			}
		})
		if err := w.send(t, Channel{"smtp", box.config(""), box.password}, single(nil)); err != nil {
			t.Fatalf("%s: %v", security, err)
		}
		m, err := mail.ReadMessage(strings.NewReader(box.received()[0]))
		if err != nil || m.Header.Get("Subject") != "[CRITICAL] raised: too-hot (Boiler 1)" || m.Header.Get("To") != "<ops@example.com>" {
			t.Errorf("%s: %v %v", security, err, m)
		}
	}
	conformance.Shown(t, "S2-120")
}
