package gql_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// A message that was refused by a metric is sent again after the metric was changed: it is stored at the time of its first
// receipt, once however often it is sent, and the ledger balances.
func TestADeadLetterIsSentAgain(t *testing.T) {
	t.Parallel()
	w := &walk{Proc: testweir.Start(t, testweir.Options{})}
	w.super = w.Identity()
	w.readSchemas(t)
	admin := func(document, want string) {
		t.Helper()
		if r := w.ask(t, "user-management-admin", caller{token: w.super}, document, nil); r.status != http.StatusOK || want != "" && !strings.Contains(r.raw, want) || len(r.Errors) > 0 {
			t.Fatalf("%s: %s, want %s", document, r.raw, want)
		}
	}
	admin(`mutation { createTenant(request: {token: "acme", tierToken: "gold"}) { id } }`, "")
	own := w.SignIn("acme")
	devices := func(mutations string) { w.Query("device-management", own, "mutation { "+mutations+" }", nil, nil) }
	devices(`a: createDeviceProfile(request: {token: "p"}) { id } b: createDeviceType(request: {token: "t", profileToken: "p"}) { id }
		c: createMetricDefinition(request: {token: "m", deviceProfileToken: "p", metricKey: "temp", dataType: "DOUBLE", maxValue: 10}) { id }
		d: createDevice(request: {token: "d", deviceTypeToken: "t"}) { id } e: publishDeviceProfile(token: "p") { version }`)
	devices(`a: createDeviceCredential(request: {token: "k", deviceToken: "d", credentialType: "ACCESS_TOKEN", credentialId: "a-secret-of-d", enabled: true}) { id }`)
	c, err := testweir.DialMQTT(w.MQTT, "weir", "acme", "d", "a-secret-of-d")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, value := range []string{"21.5", "22.5"} {
		if err := c.Publish("weir/acme/devices/d/events", 1, false, []byte(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"`+value+`"}}]}}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Puback(); err != nil {
			t.Fatal(err)
		}
	}
	poll.Until(t, "two dead letters", func() error {
		r := w.ask(t, "user-management-admin", caller{token: w.super}, `{ deadLetters(criteria: {pageNumber: 1, pageSize: 10, kind: "ingest", reason: "invalid-value", source: "mqtt1"}) { pagination { totalRecords } } }`, nil)
		if !strings.Contains(r.raw, `"totalRecords":2`) {
			return errors.New(r.raw)
		}
		return nil
	})
	second := w.deadLetter(t, "acme")
	if second.Subject != "d" || second.Sequence == "" || second.Tenant != "acme" {
		t.Errorf("%+v", second)
	}
	admin(fmt.Sprintf(`mutation { discardDeadLetters(ids: [%q, %q, "99999"]) }`, second.ID, second.ID), `"discardDeadLetters":1`)
	first := w.deadLetter(t, "acme")
	admin(fmt.Sprintf(`{ deadLetter(id: %q) { id } }`, second.ID), `"deadLetter":null`)
	admin(fmt.Sprintf(`mutation { resendDeadLetters(ids: [%q]) }`, second.ID), `"resendDeadLetters":0`)

	devices(`a: updateMetricDefinition(token: "m", request: {maxValue: null}) { id } b: publishDeviceProfile(token: "p") { version }`)
	admin(fmt.Sprintf(`mutation { resendDeadLetters(ids: [%q, "99999"]) }`, first.ID), `"resendDeadLetters":1`)
	admin(fmt.Sprintf(`mutation { resendDeadLetters(ids: [%q]) }`, first.ID), `"resendDeadLetters":0`)
	poll.Until(t, "the reading", func() error {
		r := w.ask(t, "event-management", caller{token: own}, `{ measurementEvents(criteria: {pageNumber: 1, pageSize: 10}) { results { value occurredTime } } }`, nil)
		if want := fmt.Sprintf(`[{"value":21.5,"occurredTime":%q}]`, first.OccurredTime); !strings.Contains(r.raw, want[:len(want)-6]) {
			return fmt.Errorf("%s, want %s", r.raw, want)
		}
		return nil
	})
	ledger := w.ask(t, "event-management", caller{token: own}, `{ ingestLedger(criteria: {}) { transport received stored deadLetter } }`, nil)
	for _, line := range []string{`{"transport":"mqtt","received":2,"stored":0,"deadLetter":2}`, `{"transport":"resend","received":1,"stored":1,"deadLetter":0}`} {
		if !strings.Contains(ledger.raw, line) {
			t.Errorf("the ledger has no %s: %s", line, ledger.raw)
		}
	}
	if out := w.Run("", "ledger", "verify"); !strings.Contains(out, "balanced: ") {
		t.Error(out)
	}
	admin(`{ auditEvents(criteria: {pageNumber: 1, pageSize: 10, tenant: "acme", actor: "ADMIN@example"}) { results { tableName operation entityPk } } }`, `"tableName":"dead_letters","operation":"update","entityPk":"`+first.ID+`"`)
}
