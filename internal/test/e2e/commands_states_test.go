package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// TestCommandsOverTheAPI goes through what the reference says of commands beyond their refusals: states, services, ceilings, groups, the stream, and
// what becomes of what rules ordered and could not be performed.
func TestCommandsOverTheAPI(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous + fmt.Sprintf("auth: {service_secret: %q}\n", serviceSecret)})
	for name, test := range map[string]func(*testing.T, *world){"states": commandStates, "ceiling": commandCeiling, "groups": commandGroups, "stream": commandStreams,
		"slow subscriber": slowCommandSubscriber, "dead letters": ordersSentAgain, "deleted device": commandsOfADeletedDevice} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

// commander asks the area command-delivery, as the tenant's administrator or as a service.
type commander struct {
	*tenant
	t       *testing.T
	service string
}

func (w *world) commander(t *testing.T, name string, devices ...string) *commander {
	t.Helper()
	c := &commander{tenant: w.tenant(t, name), t: t}
	c.plain(devices...)
	d := &drafts{t: t, world: w}
	c.service, _ = d.service(name, "command:claim", "command:wake", "command:park", "command:read", "command:write")
	return c
}

func (c *commander) ask(query string, vars map[string]any) *answer {
	c.t.Helper()
	return c.world.ask(c.t, "command-delivery", c.token, query, vars)
}

// must asks for something that succeeds and returns its data.
func (c *commander) must(query string) string {
	c.t.Helper()
	a := c.ask(query, nil)
	if len(a.Errors) > 0 {
		c.t.Fatalf("%s: %s", query, a.raw)
	}
	return string(a.Data)
}

// serve asks as a service.
func (c *commander) serve(query string, vars map[string]any) *answer {
	c.t.Helper()
	_, b, err := testweir.GraphQL{API: c.API, Area: "command-delivery", Token: c.service, Query: query, Variables: vars, Header: http.Header{"X-Weir-Tenant": {c.name}}}.Post(c.t.Context())
	a := &answer{raw: string(b)}
	if err == nil {
		err = json.Unmarshal(b, a)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

func (c *commander) expect(a *answer, want string) {
	c.t.Helper()
	if string(a.Data) != want || len(a.Errors) > 0 {
		c.t.Errorf("%s, want %s", a.raw, want)
	}
}

func (c *commander) order(token, device string) {
	c.t.Helper()
	if got := c.must(fmt.Sprintf(`mutation{createCommand(request:{token:%q,deviceToken:%q,name:"open"}){rejection{code}}}`, token, device)); got != `{"createCommand":{"rejection":null}}` {
		c.t.Fatal(got)
	}
}

type commandRow struct {
	Token, Status                                         string
	SentTime, DispatchNonce, Error, ExpiresAt, BatchToken *string
}

// commands are some commands as the administrator sees them, by token.
func (c *commander) rows(tokens ...string) map[string]commandRow {
	c.t.Helper()
	var out struct{ CommandsByToken []commandRow }
	c.ask(`query($t:[String!]!){commandsByToken(tokens:$t){token status sentTime dispatchNonce error expiresAt batchToken}}`, map[string]any{"t": tokens}).into(c.t, &out)
	all := map[string]commandRow{}
	for _, r := range out.CommandsByToken {
		all[r.Token] = r
	}
	return all
}

func (c *commander) becomes(token, status string) commandRow {
	c.t.Helper()
	var row commandRow
	for late := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if row = c.rows(token)[token]; row.Status == status {
			return row
		}
		if time.Now().After(late) {
			c.t.Fatalf("%s is %+v, want %s", token, row, status)
		}
	}
}

// commandStates leads commands through the states that no connection is needed for, and cancels in each.
func commandStates(t *testing.T, w *world) {
	c := w.commander(t, "command-states", "d", "e")
	soon := time.Now().Add(65 * time.Second).UTC().Format(time.RFC3339)
	for _, token := range []string{"expires", "times-out"} {
		c.must(fmt.Sprintf(`mutation{createCommand(request:{token:%q,deviceToken:"e",name:"open",expiresAt:%q}){command{token}}}`, token, soon))
	}
	c.expect(c.serve(`mutation{markCommandSent(token:"times-out")}`, nil), `{"markCommandSent":true}`)
	for _, token := range []string{"c1", "c2", "c3"} {
		c.order(token, "d")
		c.becomes(token, "HELD")
	}

	// A claim writes SENT and a nonce, which only who claims may read; another claim is lost.
	c.expect(c.serve(`mutation{a:markCommandSent(token:"c1") b:markCommandSent(token:"c1") c:markCommandSent(token:"none")}`, nil), `{"a":true,"b":false,"c":false}`)
	if row := c.rows("c1")["c1"]; row.Status != "SENT" || row.SentTime == nil || row.DispatchNonce != nil {
		t.Errorf("%+v", row)
	}
	var seen struct{ CommandsByToken []commandRow }
	c.serve(`{commandsByToken(tokens:["c1"]){token status dispatchNonce}}`, nil).into(t, &seen)
	if len(seen.CommandsByToken) != 1 || seen.CommandsByToken[0].DispatchNonce == nil {
		t.Fatalf("%+v", seen)
	}
	nonce := *seen.CommandsByToken[0].DispatchNonce

	// What is sent cannot be cancelled; it is parked with its own nonce only.
	if got := c.must(`mutation{cancelCommand(token:"c1"){status}}`); got != `{"cancelCommand":{"status":"SENT"}}` {
		t.Error(got)
	}
	c.expect(c.serve(fmt.Sprintf(`mutation{a:parkCommand(token:"c1",dispatchNonce:"") b:parkCommand(token:"c1",dispatchNonce:"x") c:parkCommand(token:"c2",dispatchNonce:%[1]q) d:parkCommand(token:"c1",dispatchNonce:%[1]q)
		e:parkCommand(token:"c1",dispatchNonce:%[1]q)}`, nonce), nil), `{"a":false,"b":false,"c":false,"d":true,"e":false}`)
	c.expect(c.serve(`{drainableCommands(deviceToken:"d"){token status}}`, nil),
		`{"drainableCommands":[{"token":"c1","status":"PARKED"},{"token":"c2","status":"HELD"},{"token":"c3","status":"HELD"}]}`)
	c.expect(c.serve(`{a:drainableCommands(deviceToken:"d",limit:1){token} b:drainableCommands(deviceToken:"d",limit:-1){token} c:drainableCommands(deviceToken:"d",limit:9999){token} d:drainableCommands(deviceToken:"none"){token}}`, nil),
		`{"a":[{"token":"c1"}],"b":[{"token":"c1"},{"token":"c2"},{"token":"c3"}],"c":[{"token":"c1"},{"token":"c2"},{"token":"c3"}],"d":[]}`)
	// The HELD ones are queued again, and held again since nobody listens; the PARKED one waits for a check-in.
	c.expect(c.serve(`mutation{a:releaseHeldCommands(deviceToken:"d") b:releaseHeldCommands(deviceToken:"none") c:cancelCommand(token:"c3"){status}}`, nil), `{"a":2,"b":0,"c":{"status":"CANCELLED"}}`)
	c.becomes("c2", "HELD")
	if got := c.must(`mutation{a:cancelCommand(token:"c1"){status} b:cancelCommand(token:"c2"){status} c:cancelCommand(token:"c3"){status}}`); got != `{"a":{"status":"CANCELLED"},"b":{"status":"CANCELLED"},"c":{"status":"CANCELLED"}}` {
		t.Error(got)
	}
	c.expect(c.serve(`mutation{markCommandSent(token:"c2")}`, nil), `{"markCommandSent":false}`)

	// A user holds none of a service's authorities.
	for _, q := range []string{`{drainableCommands(deviceToken:"d"){token}}`, `mutation{markCommandSent(token:"c1")}`, `mutation{parkCommand(token:"c1",dispatchNonce:"x")}`, `mutation{releaseHeldCommands(deviceToken:"d")}`} {
		member := c.ask(q, nil)
		if r := member.refusal(); !strings.HasPrefix(r, "FORBIDDEN ") {
			t.Errorf("%s: %s", q, member.raw)
		}
	}

	// Lives end.
	if row := c.becomes("expires", "EXPIRED"); row.SentTime != nil {
		t.Errorf("%+v", row)
	}
	if row := c.becomes("times-out", "TIMEOUT"); row.SentTime == nil || row.Error == nil {
		t.Errorf("%+v", row)
	}
	if got := c.must(`mutation{a:cancelCommand(token:"expires"){status} b:cancelCommand(token:"times-out"){status}}`); got != `{"a":{"status":"EXPIRED"},"b":{"status":"TIMEOUT"}}` {
		t.Error(got)
	}
	var page struct {
		Commands struct {
			Results    []commandRow
			Pagination struct{ PageStart, PageEnd, TotalRecords int }
		}
	}
	history := func(criteria string) []string {
		t.Helper()
		c.ask(`{commands(criteria:{pageNumber:1,pageSize:10`+criteria+`}){results{token status} pagination{totalRecords}}}`, nil).into(t, &page)
		var tokens []string
		for _, r := range page.Commands.Results {
			tokens = append(tokens, r.Token)
		}
		slices.Sort(tokens)
		return tokens
	}
	for criteria, want := range map[string][]string{
		``:                                {"c1", "c2", "c3", "expires", "times-out"},
		`,deviceToken:"d"`:                {"c1", "c2", "c3"},
		`,deviceToken:"none"`:             nil,
		`,batchToken:"none"`:              nil,
		`,status:"TIMEOUT"`:               {"times-out"},
		`,statuses:[]`:                    {"c1", "c2", "c3", "expires", "times-out"},
		`,statuses:["TIMEOUT","EXPIRED"]`: {"expires", "times-out"},
		`,status:"CANCELLED",statuses:["TIMEOUT"]`:     nil,
		`,status:"CANCELLED",statuses:["CANCELLED"]`:   {"c1", "c2", "c3"},
		`,deviceToken:"e",statuses:["TIMEOUT","HELD"]`: {"times-out"},
	} {
		if got := history(criteria); !slices.Equal(got, want) {
			t.Errorf("commands{%s}: %q, want %q", criteria, got, want)
		}
	}
}

// commandCeiling fills a tenant up to what its users may have waiting, and further with what is kept for services.
func commandCeiling(t *testing.T, w *world) {
	c := w.commander(t, "command-ceiling", "d")
	if a := w.ask(t, "user-management/admin", w.identity, `mutation{updateTenant(token:"command-ceiling",request:{heldCommandCeiling:100}){token}}`, nil); len(a.Errors) > 0 {
		t.Fatal(a.raw)
	}
	codes := func(a *answer) (made int, refused []string) {
		t.Helper()
		var out map[string]struct {
			Command   *struct{ Token string }
			Rejection *struct{ Code string }
		}
		a.into(t, &out)
		for _, r := range out {
			if r.Rejection != nil {
				refused = append(refused, r.Rejection.Code)
			} else {
				made++
			}
		}
		return made, refused
	}
	fill := func(ask func(string, map[string]any) *answer, prefix string) (made int, refused []string) {
		t.Helper()
		for i := 0; len(refused) == 0 && i < 200; i += 5 {
			var q strings.Builder
			for j := range 5 {
				fmt.Fprintf(&q, `m%[2]d:createCommand(request:{token:"%[1]s-%[2]d",deviceToken:"d",name:"open"}){command{token} rejection{code}} `, prefix, i+j)
			}
			n, codes := codes(ask("mutation{"+q.String()+"}", nil))
			made, refused = made+n, codes
		}
		return made, refused
	}
	for _, step := range []struct {
		who  string
		ask  func(string, map[string]any) *answer
		want int
	}{{"user", c.ask, 80}, {"service", c.serve, 20}} {
		made, refused := fill(step.ask, step.who)
		if made != step.want || slices.ContainsFunc(refused, func(code string) bool { return code != "HELD_CEILING_EXCEEDED" }) {
			t.Errorf("%s: %d made, want %d; %q", step.who, made, step.want, refused)
		}
	}
	batch := `mutation{createCommandBatch(request:{token:"b",name:"open",deviceTokens:["d"],allowPartial:true}){batch{token} rejection{code resolved}}}`
	if got := c.must(batch); got != `{"createCommandBatch":{"batch":null,"rejection":{"code":"HELD_CEILING_EXCEEDED","resolved":1}}}` {
		t.Error(got)
	}
	// A repeat is none more, and there is room once commands have ended: the ceiling counts what waits.
	if got := c.must(`mutation{createCommand(request:{token:"user-0",deviceToken:"d",name:"open"}){command{token}}}`); got != `{"createCommand":{"command":{"token":"user-0"}}}` {
		t.Error(got)
	}
	for i := range 21 {
		c.must(fmt.Sprintf(`mutation{cancelCommand(token:"user-%d"){status}}`, i))
	}
	if got := c.must(batch); got != `{"createCommandBatch":{"batch":{"token":"b"},"rejection":null}}` {
		t.Error(got)
	}
	if made, refused := fill(c.ask, "again"); made != 0 || len(refused) == 0 {
		t.Errorf("%d made above the ceiling", made)
	}
}

// commandGroups makes batches for groups.
func commandGroups(t *testing.T, w *world) {
	c := w.commander(t, "command-groups", "d", "e", "f")
	c.devices(`mutation{a:createEntityGroup(request:{token:"g",memberType:"device",membershipMode:"static"}){id}
		b:createEntityGroup(request:{token:"halls",memberType:"area",membershipMode:"static"}){id}
		c:createEntityGroup(request:{token:"line",memberType:"device",membershipMode:"dynamic",selector:"attr[\"line\"] == \"one\""}){id}
		d:createEntityGroup(request:{token:"empty",memberType:"device",membershipMode:"static"}){id}}`, nil)
	for _, d := range []string{"d", "f"} {
		c.devices(fmt.Sprintf(`mutation{createEntityRelationship(request:{token:"in-%[1]s",sourceType:"group",source:"g",targetType:"device",target:%[1]q,relationshipType:"member"}){id}
			setEntityAttribute(request:{entityType:"device",entity:%[1]q,scope:"SHARED",attrKey:"line",valueType:"STRING",value:"one"}){attrKey}}`, d), nil)
	}
	batch := func(token, target string) string {
		t.Helper()
		return c.must(fmt.Sprintf(`mutation{createCommandBatch(request:{token:%q,name:"open",allowPartial:false,%s}){batch{targetKind groupToken groupVersion resolved accepted} rejection{code reason}}}`, token, target))
	}
	for target, want := range map[string]string{
		`groupToken:"none"`:                               `BATCH_GROUP_UNUSABLE","reason":"GROUP_NOT_FOUND: `,
		`groupToken:"halls"`:                              `BATCH_GROUP_UNUSABLE","reason":"GROUP_NOT_A_DEVICE_GROUP: `,
		`groupToken:"line"`:                               `BATCH_GROUP_UNUSABLE","reason":"GROUP_NOT_PUBLISHED: `,
		`groupToken:"g",groupVersion:1`:                   `BATCH_GROUP_UNUSABLE","reason":"GROUP_NOT_VERSIONED: `,
		`deviceTokens:["d"],groupVersion:1`:               `BATCH_TARGET_AMBIGUOUS"`,
		`groupToken:"g",deviceTokens:[]`:                  `BATCH_TARGET_AMBIGUOUS"`,
		`groupToken:null,deviceTokens:null`:               `BATCH_TARGET_AMBIGUOUS"`,
		`groupToken:"g",payload:"[1]"`:                    `BATCH_PARTIAL_REFUSED"`,
		`groupToken:"g",expiresAt:"2020-01-01T00:00:00Z"`: `EXPIRES_AT_INVALID"`,
	} {
		if got := batch("b", target); !strings.Contains(got, `"batch":null`) || !strings.Contains(got, `"code":"`+want) {
			t.Errorf("%s: %s", target, got)
		}
	}
	c.devices(`mutation{publishEntityGroup(token:"line"){version}}`, nil)
	for target, want := range map[string]string{
		`groupToken:"g"`:                   `"targetKind":"GROUP","groupToken":"g","groupVersion":null,"resolved":2,"accepted":2`,
		`groupToken:"empty"`:               `"targetKind":"GROUP","groupToken":"empty","groupVersion":null,"resolved":0,"accepted":0`,
		`groupToken:"line"`:                `"targetKind":"GROUP","groupToken":"line","groupVersion":1,"resolved":2,"accepted":2`,
		`groupToken:"line",groupVersion:1`: `"groupVersion":1,"resolved":2,"accepted":2`,
		`deviceTokens:["d","d","e"]`:       `"targetKind":"DEVICE_LIST","groupToken":null,"groupVersion":null,"resolved":2,"accepted":2`,
		`groupToken:"line",groupVersion:2`: `"code":"BATCH_GROUP_UNUSABLE","reason":"GROUP_VERSION_NOT_FOUND: `,
	} {
		token := fmt.Sprintf("b-%x", target[len(target)-8:])
		if got := batch(token, target); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	// A batch of a group needs device:read, whoever made it, to make it, to see it and to call it off.
	batch("of-group", `groupToken:"g"`)
	for _, q := range []string{`mutation{createCommandBatch(request:{token:"s",name:"open",allowPartial:false,groupToken:"g"}){batch{token}}}`,
		`mutation{createCommandBatch(request:{token:"of-group",name:"open",allowPartial:false,deviceTokens:["d"]}){batch{token}}}`,
		`{commandBatchesByToken(tokens:["of-group"]){token}}`, `{commandBatches(criteria:{pageNumber:1,pageSize:10,targetKind:"GROUP"}){results{token}}}`,
		`mutation{cancelCommandBatch(token:"of-group"){matched}}`, `mutation{resumeCommandBatch(token:"of-group"){token}}`} {
		if a := c.serve(q, nil); !strings.HasPrefix(a.refusal(), "FORBIDDEN ") || !strings.Contains(a.refusal(), "device:read") {
			t.Errorf("%s: %s", q, a.raw)
		}
	}
	c.expect(c.serve(`mutation{createCommandBatch(request:{token:"list",name:"open",allowPartial:false,deviceTokens:["d","e"]}){batch{token}}}`, nil), `{"createCommandBatch":{"batch":{"token":"list"}}}`)
	c.expect(c.serve(`{commandBatches(criteria:{pageNumber:1,pageSize:10,targetKind:"DEVICE_LIST",name:"open"}){pagination{totalRecords}}}`, nil), `{"commandBatches":{"pagination":{"totalRecords":2}}}`)
	if rows := c.rows("list-1", "list-2"); len(rows) != 2 || rows["list-1"].BatchToken == nil || *rows["list-1"].BatchToken != "list" {
		t.Errorf("%+v", rows)
	}
	// What is sent or ended stays; the first call's figures are kept.
	c.becomes("list-1", "HELD")
	c.expect(c.serve(`mutation{markCommandSent(token:"list-1") cancelCommand(token:"list-2"){status}}`, nil), `{"markCommandSent":true,"cancelCommand":{"status":"CANCELLED"}}`)
	for range 2 {
		if got := c.must(`mutation{cancelCommandBatch(token:"list"){cancelled alreadySent alreadyFinished matched}}`); got != `{"cancelCommandBatch":{"cancelled":0,"alreadySent":1,"alreadyFinished":1,"matched":2}}` {
			t.Error(got)
		}
	}
	called := c.must(`mutation{cancelCommandBatch(token:"of-group"){cancelled matched}}`)
	before := c.must(`{commandBatchesByToken(tokens:["of-group"]){status cancelledAt cancelledCount}}`)
	again := c.must(`mutation{cancelCommandBatch(token:"of-group"){cancelled matched}}`)
	if called != `{"cancelCommandBatch":{"cancelled":2,"matched":2}}` || again != `{"cancelCommandBatch":{"cancelled":0,"matched":2}}` || !strings.Contains(before, `"status":"CANCELLED"`) ||
		!strings.Contains(before, `"cancelledCount":2`) || c.must(`{commandBatchesByToken(tokens:["of-group"]){status cancelledAt cancelledCount}}`) != before {
		t.Errorf("%s, then %s: %s", called, again, before)
	}
	for q, want := range map[string]string{`mutation{cancelCommandBatch(token:"none"){matched}}`: "NOT_FOUND ", `mutation{resumeCommandBatch(token:"none"){token}}`: "NOT_FOUND ",
		`mutation{resumeCommandBatch(token:"of-group"){token}}`: "CONFLICT "} {
		if a := c.ask(q, nil); !strings.HasPrefix(a.refusal(), want) {
			t.Errorf("%s: %s", q, a.raw)
		}
	}
}

// follow subscribes to the moves of commands; next returns the token and state of the next one.
func (c *commander) follow(arguments, fields string) (s *testweir.Socket, next func(within time.Duration) (string, error)) {
	c.t.Helper()
	s, err := c.Dial("command-delivery", c.token)
	if err == nil {
		err = s.Subscribe("s", `subscription{commandStream`+arguments+`{token status`+fields+`}}`, nil)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(s.Close)
	return s, func(within time.Duration) (string, error) {
		m, err := s.Next(within)
		if err == nil && m.Type != "next" {
			err = fmt.Errorf("%w: %s %s", errEnded, m.Type, m.Payload)
		}
		if err != nil {
			return "", err
		}
		var out struct {
			Data struct{ CommandStream commandRow }
		}
		err = json.Unmarshal(m.Payload, &out)
		return out.Data.CommandStream.Token + " " + out.Data.CommandStream.Status, err
	}
}

var errEnded = errors.New("the subscription ended")

// commandStreams: a subscriber sees each move of the commands that it asked for, in order, and none of another tenant.
func commandStreams(t *testing.T, w *world) {
	mine, other := w.commander(t, "command-stream", "d", "e"), w.commander(t, "command-stream-2", "d")
	nexts := map[string]func(time.Duration) (string, error){}
	for _, arguments := range []string{``, `(deviceToken:"d")`, `(token:"c2")`, `(batchToken:"b")`, `(deviceToken:"e",batchToken:"b")`} {
		_, nexts[arguments] = mine.follow(arguments, "")
	}
	// A subscription is live once the first of a row of markers has come.
	for arguments, next := range nexts {
		if arguments != `` {
			continue
		}
		for i := 0; ; i++ {
			mine.order(fmt.Sprintf("mark-%d", i), "e")
			if _, err := next(100 * time.Millisecond); err == nil {
				break
			} else if !errors.Is(err, testweir.ErrQuiet) || i > 200 {
				t.Fatal(err)
			}
		}
	}
	other.order("c1", "d")
	mine.order("c1", "d")
	mine.becomes("c1", "HELD")
	mine.order("c2", "d")
	mine.becomes("c2", "HELD")
	mine.expect(mine.serve(`mutation{markCommandSent(token:"c1")}`, nil), `{"markCommandSent":true}`)
	mine.must(`mutation{cancelCommand(token:"c2"){status}}`)
	other.must(`mutation{cancelCommand(token:"c1"){status}}`)
	mine.must(`mutation{createCommandBatch(request:{token:"b",name:"open",allowPartial:false,deviceTokens:["d","e"]}){batch{token}}}`)
	mine.becomes("b-1", "HELD")
	mine.becomes("b-2", "HELD")
	mine.must(`mutation{cancelCommandBatch(token:"b"){matched}}`)
	for arguments, want := range map[string][]string{
		`(deviceToken:"d")`:                {"c1 QUEUED", "c1 HELD", "c2 QUEUED", "c2 HELD", "c1 SENT", "c2 CANCELLED", "b-1 QUEUED", "b-1 HELD", "b-1 CANCELLED"},
		`(token:"c2")`:                     {"c2 QUEUED", "c2 HELD", "c2 CANCELLED"},
		`(deviceToken:"e",batchToken:"b")`: {"b-2 QUEUED", "b-2 HELD", "b-2 CANCELLED"},
	} {
		var got []string
		for len(got) < len(want) {
			move, err := nexts[arguments](20 * time.Second)
			if err != nil {
				t.Errorf("%s: %v", arguments, err)
				break
			}
			if !strings.HasPrefix(move, "mark-") {
				got = append(got, move)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", arguments, got, want)
		}
		if move, err := nexts[arguments](50 * time.Millisecond); !errors.Is(err, testweir.ErrQuiet) {
			t.Errorf("%s: %q follows, %v", arguments, move, err)
		}
	}
}

// slowCommandSubscriber: who does not read gets an error that says so, and no gap before it.
func slowCommandSubscriber(t *testing.T, w *world) {
	c := w.commander(t, "command-slow", "d")
	var aliases strings.Builder
	for i := range 100 {
		fmt.Fprintf(&aliases, " n%d: metadata", i)
	}
	_, next := c.follow(`(deviceToken:"d")`, aliases.String())
	last := -1
	take := func(move string) {
		token, status, _ := strings.Cut(move, " ")
		var n int
		if _, err := fmt.Sscanf(token, "s-%d", &n); err == nil && status == "QUEUED" {
			if n != last+1 && last >= 0 {
				t.Fatalf("%d follows %d", n, last)
			}
			last = n
		}
	}
	n := 0
	order := func() {
		a := c.ask(`mutation($m:String){createCommand(request:{token:"s-`+fmt.Sprint(n)+`",deviceToken:"d",name:"open",metadata:$m}){command{token}}}`, map[string]any{"m": `"` + strings.Repeat("m", 1000) + `"`})
		if len(a.Errors) > 0 {
			t.Fatal(a.raw)
		}
		n++
	}
	for last < 0 {
		order()
		if move, err := next(100 * time.Millisecond); err == nil {
			take(move)
		} else if !errors.Is(err, testweir.ErrQuiet) || n > 200 {
			t.Fatal(err)
		}
	}
	for range 600 {
		order()
	}
	for {
		move, err := next(20 * time.Second)
		if errors.Is(err, errEnded) {
			if !strings.Contains(err.Error(), "error") || last >= n-1 {
				t.Errorf("%v after %d of %d", err, last+1, n)
			}
			return
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return // the machine is so busy that not even the last frame was written in time: the connection was cut
		}
		if err != nil {
			t.Fatal(err)
		}
		take(move)
	}
}

// ordersSentAgain: what a rule ordered and could not be performed is sent again, one by one and in bulk, once its profile has the command, or
// discarded; each is delivered once under its own key.
func ordersSentAgain(t *testing.T, w *world) {
	c := w.commander(t, "letters")
	const hot = `{"name":"hot","type":"aggregate","windowMode":"count","count":1,"agg":"sum","metric":"temp","op":"gt","threshold":30,"actions":[{"type":"sendCommand","sendCommand":{"command":"vent"}}]}`
	c.devices(`mutation{createDeviceProfile(request:{token:"oven"}){id} createCommandDefinition(request:{token:"stop",deviceProfileToken:"oven",commandKey:"stop"}){id}}`, nil)
	c.rule("oven", "hot", hot, true)
	c.devices(`mutation{createDeviceType(request:{token:"oven",profileToken:"oven"}){id}}`, nil)
	c.publish("oven")
	devices := []string{"o1", "o2", "o3", "o4"}
	for _, d := range devices {
		c.device(d, "oven")
	}
	for _, d := range devices {
		c.connect(d).send(measured("temp", "50"))
	}
	type letter struct{ ID, Subject, Correlation, Reason, Summary string }
	letters := func() map[string]letter {
		t.Helper()
		var out struct{ DeadLetters struct{ Results []letter } }
		w.must(t, "user-management/admin", w.identity, `{deadLetters(criteria:{pageNumber:1,pageSize:10,tenant:"letters",kind:"detection-action"}){results{id subject correlation reason summary}}}`, nil).into(t, &out)
		all := map[string]letter{}
		for _, l := range out.DeadLetters.Results {
			all[l.Subject] = l
		}
		return all
	}
	var dead map[string]letter
	poll.True(t, "all are dead letters", func() bool { dead = letters(); return len(dead) == len(devices) })
	for _, l := range dead {
		if l.Reason != "unprocessable" || !strings.HasPrefix(l.Summary, "COMMAND_NOT_IN_VOCABULARY: ") || len(l.Correlation) != 64 {
			t.Errorf("%+v", l)
		}
	}
	admin := func(operation, want string, ids ...string) {
		t.Helper()
		if a := w.must(t, "user-management/admin", w.identity, `mutation($i:[ID!]!){x:`+operation+`(ids:$i)}`, map[string]any{"i": ids}); string(a.Data) != `{"x":`+want+`}` {
			t.Errorf("%s: %s, want %s", operation, a.raw, want)
		}
	}
	// Sent again too early it is a dead letter once more, another one of the same key.
	admin("resendDeadLetters", "1", dead["o1"].ID)
	poll.True(t, "it is a dead letter again", func() bool {
		l, ok := letters()["o1"]
		return ok && l.ID != dead["o1"].ID && l.Correlation == dead["o1"].Correlation
	})
	dead = letters()
	c.devices(`mutation{createCommandDefinition(request:{token:"vent",deviceProfileToken:"oven",commandKey:"vent"}){id}}`, nil)
	c.publish("oven")
	came := map[string]chan downlink{}
	for _, d := range devices {
		var stop func()
		_, came[d], stop = c.listening(d)
		defer stop()
	}
	admin("resendDeadLetters", "1", dead["o1"].ID)
	admin("resendDeadLetters", "2", dead["o2"].ID, dead["o3"].ID, dead["o1"].ID, "999999")
	admin("discardDeadLetters", "1", dead["o4"].ID)
	admin("resendDeadLetters", "0", dead["o4"].ID)
	for _, d := range devices[:3] {
		select {
		case got := <-came[d]:
			if got.Token != dead[d].Correlation || got.Name != "vent" || got.DeviceToken != d {
				t.Errorf("%s: %+v, want the key %s", d, got, dead[d].Correlation)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nothing comes to %s", d)
		}
	}
	if left := letters(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if got := c.must(`{commands(criteria:{pageNumber:1,pageSize:10}){results{name} pagination{totalRecords}}}`); got != `{"commands":{"results":[{"name":"vent"},{"name":"vent"},{"name":"vent"}],"pagination":{"totalRecords":3}}}` {
		t.Error(got)
	}
	for d, c := range came {
		if len(c) > 0 {
			t.Errorf("more comes to %s", d)
		}
	}
}

// commandsOfADeletedDevice: what waits for a device ends with it.
func commandsOfADeletedDevice(t *testing.T, w *world) {
	c := w.commander(t, "command-deleted", "d", "e")
	for _, token := range []string{"held", "sent", "ended"} {
		c.order(token, "d")
		c.becomes(token, "HELD")
	}
	c.order("other", "e")
	c.expect(c.serve(`mutation{markCommandSent(token:"sent") cancelCommand(token:"ended"){status}}`, nil), `{"markCommandSent":true,"cancelCommand":{"status":"CANCELLED"}}`)
	c.devices(`mutation{deleteDevice(token:"d")}`, nil)
	for token, want := range map[string]string{"held": "CANCELLED", "sent": "CANCELLED", "ended": "CANCELLED"} {
		c.becomes(token, want)
	}
	c.becomes("other", "HELD")
	// A device that is made again has none of them.
	c.device("d", "plain")
	if got := c.must(`{commands(criteria:{pageNumber:1,pageSize:10,deviceToken:"d"}){pagination{totalRecords}}}`); got != `{"commands":{"pagination":{"totalRecords":0}}}` {
		t.Error(got)
	}
	_, came, stop := c.listening("d")
	defer stop()
	c.order("new", "d")
	select {
	case got := <-came:
		if got.Token != "new" {
			t.Errorf("%+v", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing comes")
	}
}
