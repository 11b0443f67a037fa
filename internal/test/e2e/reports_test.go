package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// report posts a device report with a token in the header.
func (tn *tenant) report(device, token, body string) (status int, text string) {
	tn.t.Helper()
	return tn.postAs("device-reports/"+device, token, body)
}

// deviceReports: what a device reports over either transport are its CLIENT attributes; the last arrival wins.
func deviceReports(t *testing.T, w *world) {
	tn := w.tenant(t, "reports")
	tn.plain("d", "e")
	becomes := func(device, want string) {
		t.Helper()
		poll.Until(t, "the attributes of "+device, func() error {
			got := string(tn.devices(fmt.Sprintf(`{entityAttributes(criteria:{pageNumber:1,pageSize:10,entityType:"device",entity:%q}){results{scope attrKey valueType value}}}`, device), nil).Data)
			for part := range strings.SplitSeq(want, "; ") {
				if !strings.Contains(got, part) || strings.Count(got, `"scope"`) != strings.Count(want, "; ")+1 {
					return fmt.Errorf("%s, want %s", got, part)
				}
			}
			return nil
		})
	}
	const attribute = `{"scope":"CLIENT","attrKey":%q,"valueType":%q,"value":%q}`
	if status, text := tn.report("d", tn.secret("d"), `{"attributes":{"fw":"1.2.0","slots":4,"load":0.5}}`); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, text)
	}
	becomes("d", fmt.Sprintf(attribute+"; "+attribute+"; "+attribute, "fw", "STRING", "1.2.0", "slots", "LONG", "4", "load", "DOUBLE", "0.5"))
	c := tn.connect("d")
	if err := c.Publish("weir/reports/device-reports/d", 9, false, []byte(`{"attributes":{"fw":"1.3.0","slots":null,"load":null}}`)); err != nil {
		t.Fatal(err)
	}
	if id, err := c.Puback(); err != nil || id != 9 {
		t.Fatalf("PUBACK %d, %v", id, err)
	}
	becomes("d", fmt.Sprintf(attribute, "fw", "STRING", "1.3.0"))
	for body, want := range map[string]string{`{"fw":"1"}`: "attributes is required", `{"attributes":{"a":1,"a":2}}`: "given twice"} {
		if status, text := tn.report("d", tn.secret("d"), body); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	tn.report("d", tn.secret("e"), `{"attributes":{"fw":"stolen"}}`) // taken, and a dead letter: the answer reveals no credential
	tn.applied("d")
	becomes("d", fmt.Sprintf(attribute, "fw", "STRING", "1.3.0"))
	if l := tn.ledger("http"); l.Received != 5 || l.Stored != 2 || l.DeadLetter != 1 || l.Refused != 2 {
		t.Errorf("the ledger has %+v", l)
	}
	five, err := testweir.ConnectMQTT5(tn.MQTT, "weir:reports:e", "reports:"+tn.secret("e"))
	if err != nil {
		t.Fatal(err)
	}
	defer five.Close()
	if err := five.Publish("weir/reports/device-reports/e", 3, false, []byte("\x00{}")); err != nil {
		t.Fatal(err)
	}
	if id, code, err := five.Puback5(); err != nil || id != 3 || code != 0x99 {
		t.Errorf("MQTT 5: PUBACK %d, %#x, %v", id, code, err)
	}
}

// newRelationships: an event relates its device, by the rules of any relationship, and is an event of the API.
func newRelationships(t *testing.T, w *world) {
	tn := w.tenant(t, "related")
	tn.plain("d", "e")
	tn.devices(`mutation{a:createAreaType(request:{token:"floor"}){id} b:createArea(request:{token:"hall",areaTypeToken:"floor"}){id}}`, nil)
	relate := func(typ, target string) {
		tn.kept(fmt.Sprintf(`{"eventType":"NewRelationship","payload":{"relationshipType":%q,"targetType":"area","target":%q},%s}`, typ, target, tn.as("d")))
	}
	tn.kept(measured("temp", "1", tn.as("d")))
	relate("assigned", "hall")
	tn.kept(measured("temp", "2", tn.as("d")))
	relate("assigned", "nowhere")
	relate("unheard-of", "hall")
	tn.applied("d")
	for query, want := range map[string]string{
		`{events(criteria:{pageNumber:1,pageSize:10,deviceToken:"d",eventTypes:[0]}){results{eventType deviceToken source anchors{type token}}}}`: `{"events":{"results":[{"eventType":0,"deviceToken":"d","source":"http1","anchors":[{"type":"area","token":"hall"}]}]}}`,
		`{measurementEvents(criteria:{pageNumber:1,pageSize:10,anchor:{type:"area",token:"hall"}}){pagination{totalRecords}}}`:                    `{"measurementEvents":{"pagination":{"totalRecords":2}}}`,
	} {
		if got := string(tn.events(query, nil).Data); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	got := string(tn.devices(`{entityRelationships(criteria:{pageNumber:1,pageSize:10,sourceType:"device",source:"d"}){results{sourceType source{token} targetType target{token} relationshipType{token tracked}}}}`, nil).Data)
	if want := `{"entityRelationships":{"results":[{"sourceType":"device","source":{"token":"d"},"targetType":"area","target":{"token":"hall"},"relationshipType":{"token":"assigned","tracked":true}}]}}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if l := tn.ledger("http"); l.Stored != 4 || l.DeadLetter != 2 {
		t.Errorf("the ledger has %+v", l)
	}
}

// demotions: a role that names the authority may return a source's devices to inferred presence; no other may.
func demotions(t *testing.T, w *world) {
	tn := w.tenant(t, "demoted")
	tn.plain("d", "e")
	const mutation = `mutation{demoteAssertedPresence(source:"mqtt1",limit:10,reason:"the gateway is scrapped"){scanned demoted skipped lastId}}`
	tn.connect("d")
	becomes := func(source string) (p presenceOf) {
		t.Helper()
		poll.Until(t, "the presence of d is "+source, func() error {
			var ok bool
			if p, ok = tn.presence("d"); !ok || p.PresenceSource != source {
				return fmt.Errorf("%+v", p)
			}
			return nil
		})
		return p
	}
	before := becomes("ASSERTED")
	if a := w.ask(t, "device-state", tn.token, mutation, nil); a.refusal() == "" || !strings.Contains(a.raw, "state:demote is required") {
		t.Errorf("the administrator of the tenant: %s", a.raw)
	}
	w.must(t, "user-management/admin", w.identity, `mutation{a:createRole(request:{scope:"tenant",token:"demoter",authorities:["state:demote","state:read"]}){id}
		b:createIdentity(request:{email:"ops@example.org",password:"correct horse",enabled:true,systemRoles:[]}){id}
		c:addMembership(email:"ops@example.org",tenant:"demoted",roleTokens:["demoter"]){id}}`, nil)
	var in struct {
		Login struct{ IdentityToken string }
	}
	w.must(t, "user-management", "", `mutation{login(email:"ops@example.org",password:"correct horse"){identityToken}}`, nil).into(t, &in)
	demoter := (&world{Proc: w.Proc, identity: in.Login.IdentityToken}).enter(t, "demoted")
	if got := string(demoter.states(mutation, nil).Data); !strings.HasPrefix(got, `{"demoteAssertedPresence":{"scanned":1,"demoted":1,"skipped":0,"lastId":"`) {
		t.Errorf("%s", got)
	}
	after := becomes("INFERRED")
	if after.SessionID != before.SessionID || after.LastConnectTime == nil || *after.LastConnectTime != *before.LastConnectTime || after.LastDisconnectTime != nil {
		t.Errorf("%+v, before %+v", after, before)
	}
	if got := string(tn.states(`{assertedDeviceStates(source:"mqtt1",activeOnly:false,pageSize:10){deviceToken}}`, nil).Data); got != `{"assertedDeviceStates":[]}` {
		t.Errorf("asserted still: %s", got)
	}
	if got := string(tn.events(`{events(criteria:{pageNumber:1,pageSize:10,eventTypes:[4]}){results{deviceToken eventType}}}`, nil).Data); strings.Count(got, `"eventType":4`) != 2 {
		t.Errorf("state changes: %s", got)
	}
	conformance.Shown(t, "S3-101")
}
