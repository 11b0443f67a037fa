package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// A client of MQTT 3.1.1 that is held at its tenant's ceiling: its message is waiting, and nothing that is asked calls that a
// defect.
func TestAMessageHeldAtTheCeilingIsWaiting(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: "governance: {ingest_messages_per_second: 0.001, ingest_burst: 256}\n"})
	tn := w.tenant(t, "held")
	tn.plain("d")
	c, code, err := testweir.ConnectMQTTAlive(w.MQTT, "weir:held:d", "held:"+tn.secret("d"), "", 240)
	if err != nil || c == nil {
		t.Fatalf("code %d, %v", code, err)
	}
	defer c.Close()
	for id := range uint16(2) { // the ceiling has 256 readings, so that the second is held for half of the keep-alive
		if err := c.Publish("weir/held/devices/d/events", id+1, false, []byte(many("temp", 0, 200))); err != nil {
			t.Fatal(err)
		}
	}
	type counts struct {
		Hours []struct {
			Tenant   string
			Received int64
			Outcomes map[string]int64
			Missing  int64
		}
	}
	poll.Until(t, "one message is stored, one waits", func() error {
		var r counts
		w.RunJSON(&r, "ledger", "--tenant", "held")
		if len(r.Hours) != 1 || r.Hours[0].Received != 2 || r.Hours[0].Outcomes["stored"] != 1 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	var r counts
	w.RunJSON(&r, "ledger", "--tenant", "held")
	if h := r.Hours[0]; h.Missing != 0 || h.Outcomes["waiting"] != 1 {
		t.Errorf("weir ledger: %+v", h)
	}
	var s struct{ UnbalancedHours int }
	if w.RunJSON(&s, "status"); s.UnbalancedHours != 0 {
		t.Errorf("weir status: %+v", s)
	}
	if out, _ := w.TryRun("", "doctor"); strings.Contains(out, "out of balance") || !strings.Contains(out, "balanced, ") {
		t.Errorf("weir doctor: %s", out)
	}
	if out, err := w.TryRun("", "ledger", "verify"); err != nil {
		t.Errorf("weir ledger verify: %v: %s", err, out)
	}
	var entries struct {
		IngestLedger []struct{ Received, Stored, Waiting int }
	}
	tn.events(`{ingestLedger(criteria:{}){received stored waiting}}`, nil).into(t, &entries)
	if got := fmt.Sprint(entries.IngestLedger); got != "[{2 1 1}]" {
		t.Errorf("ingestLedger: %s", got)
	}
}
