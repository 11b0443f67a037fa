package e2e_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
)

// commanding shows the life of commands over the API: every refusal of a command and of a batch, replays, cancelling, and what is
// judged before.
func commanding(t *testing.T, w *world) {
	tn := w.tenant(t, "commanding")
	tn.devices(`mutation{createDeviceProfile(request:{token:"valve"}){id}}`, nil)
	tn.devices(`mutation($r:CommandDefinitionCreateRequest!){createCommandDefinition(request:$r){id}}`, map[string]any{"r": map[string]any{"token": "open", "deviceProfileToken": "valve",
		"commandKey": "open", "parameterSchema": `[{"name":"percent","dataType":"INT","required":true,"minValue":0,"maxValue":100}]`}})
	tn.devices(`mutation{createDeviceType(request:{token:"valve",profileToken:"valve"}){id}}`, nil)
	tn.publish("valve")
	for _, d := range []string{"v1", "v2", "v3"} {
		tn.device(d, "valve")
	}
	ask := func(query string, vars map[string]any) *answer {
		t.Helper()
		return w.ask(t, "command-delivery", tn.token, query, vars)
	}
	type request = map[string]any
	const create = `mutation($r:CommandCreateRequest!){x:createCommand(request:$r){made:command{token status} rejection{code reason}}}`
	const createBatch = `mutation($r:CommandBatchCreateRequest!){x:createCommandBatch(request:$r){made:batch{token resolved accepted status} rejection{code reason}}}`
	outcome := func(document string, r request) string {
		t.Helper()
		var got struct {
			X struct {
				Made      *struct{ Token string }
				Rejection *struct{ Code, Reason string }
			}
		}
		a := ask(document, map[string]any{"r": r})
		a.into(t, &got)
		switch {
		case (got.X.Made == nil) == (got.X.Rejection == nil):
			t.Fatalf("%v: %s", r, a.raw)
		case got.X.Made != nil:
			return "made"
		case got.X.Rejection.Reason == "":
			t.Errorf("%v: no reason", r)
		}
		return got.X.Rejection.Code
	}
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }
	good := `{"percent":50}`
	for _, c := range []struct {
		r    request
		want string
	}{
		{request{"token": "c1", "deviceToken": "v1", "name": "open", "payload": good, "expiresAt": in(time.Hour), "metadata": `{"by":"test"}`}, "made"},
		{request{"token": "c1", "deviceToken": "v1", "name": "open", "payload": good, "metadata": "{"}, "made"},
		{request{"token": "c1", "deviceToken": "v2", "name": "open", "payload": good}, "TOKEN_IN_USE"},
		{request{"token": "c1", "deviceToken": "v1", "name": "shut", "payload": good}, "TOKEN_IN_USE"},
		{request{"token": "c1", "deviceToken": "v1", "name": "open", "payload": `{"percent":51}`}, "TOKEN_IN_USE"},
		{request{"token": "x", "deviceToken": "none", "name": "shut", "payload": "{", "metadata": "{", "expiresAt": "soon"}, "PAYLOAD_NOT_JSON"},
		{request{"token": "x", "deviceToken": "none", "name": "shut", "metadata": "{", "expiresAt": "soon"}, "METADATA_NOT_JSON"},
		{request{"token": "x", "deviceToken": "none", "name": "shut", "expiresAt": "soon"}, "EXPIRES_AT_INVALID"},
		{request{"token": "x", "deviceToken": "none", "name": "shut", "expiresAt": in(-time.Hour)}, "EXPIRES_AT_INVALID"},
		{request{"token": "x", "deviceToken": "none", "name": "shut", "expiresAt": in(30 * time.Second)}, "EXPIRES_AT_INVALID"},
		{request{"token": "x", "deviceToken": "none", "name": "shut"}, "DEVICE_NOT_FOUND"},
		{request{"token": "x", "deviceToken": "v1", "name": "shut"}, "COMMAND_NOT_IN_VOCABULARY"},
		{request{"token": "x", "deviceToken": "v1", "name": "Open", "payload": good}, "COMMAND_NOT_IN_VOCABULARY"},
		{request{"token": "x", "deviceToken": "v1", "name": "open"}, "PAYLOAD_SCHEMA_VIOLATION"},
		{request{"token": "x", "deviceToken": "v1", "name": "open", "payload": `{"percent":101}`}, "PAYLOAD_SCHEMA_VIOLATION"},
		{request{"token": "x", "deviceToken": "v1", "name": "open", "payload": `{"percent":1,"more":1}`}, "PAYLOAD_SCHEMA_VIOLATION"},
	} {
		if got := outcome(create, c.r); got != c.want {
			t.Errorf("createCommand %v: %s, want %s", c.r, got, c.want)
		}
	}
	many := make([]string, 10_001)
	for i := range many {
		many[i] = fmt.Sprint("x", i)
	}
	three := []string{"v1", "v2", "v3"}
	batch := func(more request) request {
		r := request{"token": "b", "name": "open", "payload": good, "allowPartial": false}
		maps.Copy(r, more)
		return r
	}
	for _, c := range []struct {
		r    request
		want string
	}{
		{batch(request{"payload": "{"}), "BATCH_TARGET_AMBIGUOUS"},
		{batch(request{"deviceTokens": three, "groupToken": "g"}), "BATCH_TARGET_AMBIGUOUS"},
		{batch(request{"deviceTokens": three, "payload": "{"}), "PAYLOAD_NOT_JSON"},
		{batch(request{"deviceTokens": three, "metadata": "{"}), "METADATA_NOT_JSON"},
		{batch(request{"deviceTokens": three, "expiresAt": "soon"}), "EXPIRES_AT_INVALID"},
		{batch(request{"groupToken": "none"}), "BATCH_GROUP_UNUSABLE"},
		{batch(request{"deviceTokens": []string{"v1", "none"}}), "BATCH_PARTIAL_REFUSED"},
		{batch(request{"deviceTokens": three, "name": "shut"}), "BATCH_PARTIAL_REFUSED"},
		{batch(request{"deviceTokens": []string{"v1", "none"}, "allowPartial": true}), "made"},
		{batch(request{"deviceTokens": three, "payload": "{"}), "made"}, // the stored batch, whatever it carries
	} {
		if got := outcome(createBatch, c.r); got != c.want {
			t.Errorf("createCommandBatch %v: %s, want %s", c.r, got, c.want)
		}
	}
	if a := ask(createBatch, map[string]any{"r": batch(request{"token": "large", "deviceTokens": many})}); !strings.Contains(a.raw, "BATCH_TOO_LARGE") {
		t.Errorf("a batch of %d: %.300s", len(many), a.raw)
	}
	for _, bad := range []request{{"maxPerMinute": 0}, {"stopAtFailedPercent": 0.0}, {"stopAtFailedPercent": 101.0}, {"token": "no token"}} {
		if a := ask(createBatch, map[string]any{"r": batch(bad)}); !strings.HasPrefix(a.refusal(), "INVALID_INPUT ") {
			t.Errorf("%v: %.300s", bad, a.raw)
		}
	}

	// The device is absent: its commands are held, and end with a cancel.
	status := func(token string) string {
		t.Helper()
		var got struct{ CommandsByToken []struct{ Status string } }
		ask(`query($t:[String!]!){commandsByToken(tokens:$t){status}}`, map[string]any{"t": []string{token}}).into(t, &got)
		if len(got.CommandsByToken) != 1 {
			t.Fatalf("%s: %v", token, got)
		}
		return got.CommandsByToken[0].Status
	}
	poll.True(t, "the command is held", func() bool { return status("c1") == "HELD" })
	if a := ask(`mutation{a:cancelCommand(token:"c1"){status} b:cancelCommand(token:"c1"){status}}`, nil); string(a.Data) != `{"a":{"status":"CANCELLED"},"b":{"status":"CANCELLED"}}` {
		t.Errorf("cancelled: %s", a.raw)
	}
	if a := ask(`mutation{cancelCommand(token:"none"){status}}`, nil); !strings.HasPrefix(a.refusal(), "NOT_FOUND ") {
		t.Errorf("an unknown command: %s", a.raw)
	}
	poll.True(t, "the batch is held", func() bool { return status("b-1") == "HELD" })
	if a := ask(`mutation{cancelCommandBatch(token:"b"){cancelled alreadySent alreadyFinished matched}}`, nil); string(a.Data) != `{"cancelCommandBatch":{"cancelled":1,"alreadySent":0,"alreadyFinished":0,"matched":1}}` {
		t.Errorf("the batch was cancelled: %s", a.raw)
	}
	var page struct {
		Commands struct {
			Results    []struct{ Token string }
			Pagination struct{ TotalRecords int }
		}
	}
	ask(`{commands(criteria:{pageNumber:1,pageSize:10,deviceToken:"v1",statuses:["CANCELLED","HELD"],status:"CANCELLED"}){results{token} pagination{totalRecords}}}`, nil).into(t, &page)
	if page.Commands.Pagination.TotalRecords != 2 {
		t.Errorf("history: %+v", page)
	}
	conformance.Shown(t, "S3-011")

	if a := ask(`{commands(criteria:{pageNumber:1,pageSize:10,status:"DELIVERED"}){results{token}}}`, nil); !strings.HasPrefix(a.refusal(), "INVALID_INPUT ") {
		t.Errorf("the state DELIVERED: %s", a.raw)
	}
	conformance.Shown(t, "S2-093")
}
