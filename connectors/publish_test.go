package connectors

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/conformance"
	"weir/internal/test/fixture"
	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
	"weir/model"
	"weir/rules/strict"
	"weir/store"
)

// broker is one that the tenants may reach.
func (w *world) broker(b *mqttpeer.Broker) *mqttpeer.Broker {
	w.Helper()
	mqttpeer.Start(w, b, nil, false)
	w.allow(b.Port())
	return b
}

func at(b *mqttpeer.Broker, qos int) map[string]any {
	return map[string]any{"urls": []string{"mqtt://127.0.0.1:" + b.Port()}, "topic": "plant/alerts", "qos": qos, "username": "weir"}
}

func (w *world) publish(connector, payload string) (Outcome, *Failure) {
	w.Helper()
	return outcome(w, w.c.Publish(w.Context(), w.id(acme), publish(connector, payload)))
}

// TestAMessageToAConnector: topic, QoS, key, user name and secret, over one connection.
func TestAMessageToAConnector(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	var signed []string
	b := w.broker(&mqttpeer.Broker{OnConnect: func(c *packets.Connect) byte {
		signed = append(signed, c.Username+":"+string(c.Password))
		return 0
	}})
	for qos := range 3 {
		w.connector(acme, fmt.Sprint("q", qos), at(b, qos), "pw")
		for i := range 2 {
			if o, f := w.publish(fmt.Sprint("q", qos), fmt.Sprint("m", i)); o != Sent {
				t.Fatal(f)
			}
		}
	}
	poll.Until(t, "six messages", func() error { // those at QoS 0 are under way
		if n := len(b.Messages()); n != 6 {
			return fmt.Errorf("%d messages", n)
		}
		return nil
	})
	for _, m := range b.Messages() {
		if m.Topic != "plant/alerts" || m.Key != "key-1" {
			t.Errorf("%+v", m)
		}
	}
	if b.Connects() != 3 || !slices.Equal(signed, []string{"weir:pw", "weir:pw", "weir:pw"}) {
		t.Errorf("%d connections, %v", b.Connects(), signed)
	}
	conformance.Shown(t, "S2-106")
	conformance.Shown(t, "S2-108")
}

// TestANewSecretAndVersionAreUsedByTheNextDelivery: and the connection of the old ones is closed.
func TestANewSecretAndVersionAreUsedByTheNextDelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	var mu sync.Mutex
	want := "one"
	b := w.broker(&mqttpeer.Broker{OnConnect: func(c *packets.Connect) byte {
		mu.Lock()
		defer mu.Unlock()
		if string(c.Password) != want {
			return 0x86
		}
		return 0
	}})
	w.connector(acme, "c", at(b, 1), "one")
	send := func(wanted Outcome) *Failure {
		t.Helper()
		o, f := w.publish("c", "m")
		if o != wanted {
			t.Fatalf("%s %v, want %s", o, f, wanted)
		}
		return f
	}
	update := func(p store.Patch) {
		t.Helper()
		_, err := w.c.Connectors.Update(t.Context(), w.by(acme), "c", p)
		w.must(err)
	}
	send(Sent)
	mu.Lock()
	want = "two"
	mu.Unlock()
	send(Sent) // over the connection that is there
	update(store.Patch{"secret": "two"})
	send(Sent)
	if b.Connects() != 2 {
		t.Errorf("%d connections", b.Connects())
	}
	config := at(b, 1)
	config["topic"] = "other"
	update(store.Patch{"config": object(config)})
	send(Sent)
	_, err := w.c.Connectors.Publish(t.Context(), w.by(acme), "c", nil, nil)
	w.must(err)
	send(Sent)
	if got := b.Messages(); got[3].Topic != "plant/alerts" || got[4].Topic != "other" {
		t.Errorf("%+v", got)
	}
	_, err = w.c.Connectors.Rename(t.Context(), w.by(acme), "c", "d")
	w.must(err)
	if o, f := w.publish("d", "m"); o != Sent || b.Connects() != 3 {
		t.Errorf("%s %v, %d connections: a rename keeps secret and connection", o, f, b.Connects())
	}
	if o, f := w.publish("c", "m"); o != Invalid || f.Text != `there is no connector "c"` {
		t.Errorf("%s %v", o, f)
	}
	conformance.Shown(t, "S3-089")
	_, err = w.c.Connectors.Rename(t.Context(), w.by(acme), "d", "c")
	w.must(err)
	update(store.Patch{"secret": nil})
	if f := send(Retry); f.Text != "the broker answered CONNACK 0x86 (bad user name or password)" || f.Tries != fewTries {
		t.Errorf("%+v", f)
	}
	conformance.Shown(t, "S3-082")
	update(store.Patch{"secret": "two"})
	send(Sent)
	if _, err := w.c.Connectors.Delete(t.Context(), w.by(acme), "c"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "all connections closed", func() error {
		if n := b.Open(); n > 0 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
	if n := testutil.ToFloat64(w.c.m.kept); n != 0 {
		t.Errorf("%v are kept", n)
	}
}

// TestWhatAPublishCannotDeliver: each cause, and who reads what.
func TestWhatAPublishCannotDeliver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	b := w.broker(&mqttpeer.Broker{MaximumQoS: new(byte(1)), OnPublish: func(m mqttpeer.Message) (byte, bool) {
		if m.Payload == "poison" {
			return 0x99, true
		}
		return 0x97, true
	}})
	w.connector(acme, "quota", at(b, 1), "")
	w.connector(acme, "two", at(b, 2), "")
	w.connector(acme, "refusing", map[string]any{"urls": []string{"mqtt://127.0.0.1:1"}, "topic": "t"}, "")
	w.connector(acme, "metadata", map[string]any{"urls": []string{"mqtt://169.254.169.254:1883", "mqtts://10.0.0.1:8883"}, "topic": "t"}, "")
	w.connector(globex, "theirs", at(b, 1), "")
	_, err := w.c.Connectors.Create(t.Context(), w.by(acme), store.Patch{"token": "draft", "type": "mqtt", "config": object(at(b, 1))})
	w.must(err)
	w.allow(b.Port(), "1")
	for _, c := range []struct {
		connector, payload string
		outcome            Outcome
		text               string
		tries              int
	}{
		{"quota", "m", Retry, "the broker answered PUBACK 0x97", 0},
		{"quota", "poison", Retry, "the broker answered PUBACK 0x99 (payload format invalid)", 2},
		{"two", "m", Invalid, "the broker does not support the QoS of the connector", 0},
		{"refusing", "m", Unreachable, "the connection was refused", 0},
		{"metadata", "m", Blocked, "Weir may not connect to the destination", 0},
		{"theirs", "m", Invalid, `there is no connector "theirs"`, 0},
		{"draft", "m", Invalid, `the connector "draft" was never published`, 0},
		{"none", "m", Invalid, `there is no connector "none"`, 0},
	} {
		o, f := w.publish(c.connector, c.payload)
		if o != c.outcome || f.Text != c.text || f.Tries != c.tries {
			t.Errorf("%s: %s %+v", c.connector, o, f)
		}
	}
	w.must(w.db.Write(t.Context(), store.Durable, func(tx store.Tx) error { // as an earlier release could have stored it
		_, err := tx.Exec(`UPDATE connector_versions SET snapshot = '{"v":1,"type":"cloud_pubsub","config":"{}"}'`)
		return err
	}))
	if o, f := w.publish("quota", "m"); o != Unsupported || !strings.Contains(f.Text, "cloud_pubsub") {
		t.Errorf("%s %v", o, f)
	}
	conformance.Shown(t, "S2-116")
}

// TestConnectorsAsTheyAreWritten: what is refused, and where.
func TestConnectorsAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{ConnectorsPerTenant: 1})
	create := func(typ, config string) error {
		_, err := w.c.Connectors.Create(t.Context(), w.by(acme), store.Patch{"token": "c", "type": typ, "config": config})
		return err
	}
	const url = `"urls":["mqtt://b.example.com:1883"]`
	for config, part := range map[string]string{
		`[]`:                                                       "config",
		`{`:                                                        "config",
		`{` + url + `}`:                                            "config.topic: is required",
		`{"topic":"t"}`:                                            "config.urls: is required",
		`{"urls":[],"topic":"t"}`:                                  "config.urls: must not be empty",
		`{"urls":"mqtt://a:1","topic":"t"}`:                        "config.urls: must be an array",
		`{` + url + `,"topic":"a/+"}`:                              "config.topic",
		`{` + url + `,"topic":"t","qos":3}`:                        "config.qos",
		`{` + url + `,"topic":"t","qos":"1"}`:                      "config.qos",
		`{` + url + `,"topic":"t","tls":true}`:                     "config.tls",
		`{` + url + `,"topic":"t","Topic":"t"}`:                    "config.Topic",
		`{` + url + `,"topic":"t","topic":"u"}`:                    "config.topic: given twice",
		`{` + url + `,"topic":null}`:                               "config.topic",
		`{"urls":["mqtt://b.example.com"],"topic":"t"}`:            "must name the port",
		`{"urls":["http://b.example.com:80"],"topic":"t"}`:         "must be an absolute URL that begins with mqtt://",
		`{"urls":["mqtt://u:secret@b.example.com:1"],"topic":"t"}`: "must not hold a user name",
		`{"urls":["mqtt://b.example.com:1883/path"],"topic":"t"}`:  "a path has a meaning for ws and wss only",
		`{"urls":["mqtt://b.example.com:1883#f"],"topic":"t"}`:     "must not have a fragment",
		`{"urls":["mqtt://b.example.com:1883"],"topic":"t","clientId":"a b"}`: "config.clientId",
	} {
		err := create("mqtt", config)
		w.refused(err, model.CodeInvalidInput, part)
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("%v shows the password", err)
		}
	}
	w.refused(create("amqp", "{}"), model.CodeInvalidInput, "is none of ")
	for _, typ := range []string{"cloud_pubsub", "gcp_pubsub"} {
		w.refused(create(typ, "{}"), model.CodeUnsupported, "")
	}
	for _, scheme := range []string{"tcp", "mqtt", "ssl", "tls", "mqtts", "ws", "wss"} {
		if _, err := checkConfig("mqtt", `{"urls":["`+scheme+`://b.example.com:1883"],"topic":"t"}`); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	conformance.Shown(t, "S2-107")
	conformance.Shown(t, "S2-109")
	w.must(create("mqtt", `{`+url+`,"topic":"t"}`))
	_, err := w.c.Connectors.Create(t.Context(), w.by(acme), store.Patch{"token": "d", "type": "mqtt", "config": `{` + url + `,"topic":"t"}`})
	w.refused(err, model.CodeLimitExceeded, "connectors_per_tenant")
	for _, p := range []store.Patch{{"type": "cloud_pubsub"}, {"type": "gcp_pubsub", "config": "{}"}} {
		_, err := w.c.Connectors.Update(t.Context(), w.by(acme), "c", p)
		w.refused(err, model.CodeUnsupported, "")
	}
	_, err = w.c.Connectors.Update(t.Context(), w.by(acme), "c", store.Patch{"config": `{"topic":"t"}`})
	w.refused(err, model.CodeInvalidInput, "urls")
	w.must(w.db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		_, err := tx.Exec(`UPDATE connectors SET type = 'cloud_pubsub', config = '{}'`)
		return err
	}))
	_, err = w.c.Connectors.Publish(t.Context(), w.by(acme), "c", nil, nil)
	w.refused(err, model.CodeUnsupported, "")
	conformance.Shown(t, "S2-115")
}

// TestUpdatesOfAConnector: a secret is kept, replaced and deleted, and a stale write is refused.
func TestUpdatesOfAConnector(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	row := w.connector(acme, "c", map[string]any{"urls": []string{"mqtt://b.example.com:1883"}, "topic": "t"}, "first")
	stored := func() string {
		t.Helper()
		var secret string
		w.must(w.db.Read(t.Context(), func(tx store.Tx) (err error) {
			secret, _, err = w.c.Connectors.Reveal(tx, row)
			return err
		}))
		return secret
	}
	for _, c := range []struct {
		patch store.Patch
		want  string
	}{{store.Patch{"name": "n"}, "first"}, {store.Patch{"secret": "second"}, "second"}, {store.Patch{"secret": ""}, ""}, {store.Patch{"secret": "third"}, "third"}, {store.Patch{"secret": nil}, ""}} {
		now, err := w.c.Connectors.Update(t.Context(), w.by(acme), "c", c.patch)
		w.must(err)
		if got := stored(); got != c.want || now.HasSecret != (c.want != "") {
			t.Errorf("%v: %q, hasSecret %v", c.patch, got, now.HasSecret)
		}
	}
	conformance.Shown(t, "S3-058")
	if tokens, err := w.c.Tokens(t.Context(), w.id(acme)); err != nil || !slices.Equal(tokens, []string{"c"}) {
		t.Error(tokens, err)
	}
	_, err := w.c.Connectors.Update(t.Context(), w.by(acme), "c", store.Patch{"name": "m"}, 1)
	w.refused(err, model.CodeConflict, "conflict:")
	_, err = w.c.Connectors.Update(t.Context(), w.by(globex), "c", store.Patch{"name": "m"})
	w.refused(err, model.CodeNotFound, "")
}

// TestAMessageOnDemand: the draft, not the version; and what bounds it.
func TestAMessageOnDemand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	b := w.broker(&mqttpeer.Broker{})
	w.connector(acme, "c", map[string]any{"urls": []string{"mqtt://127.0.0.1:1"}, "topic": "t"}, "")
	_, err := w.c.Connectors.Update(t.Context(), w.by(acme), "c", store.Patch{"config": object(at(b, 1))})
	w.must(err)
	r, err := w.c.Test(t.Context(), w.by(acme), "c")
	if err != nil || !r.OK || r.Outcome != "sent" || r.Detail != nil {
		t.Fatalf("%+v %v", r, err)
	}
	if got := b.Messages(); len(got) != 1 || !strings.HasPrefix(got[0].Payload, `{"test":true,"tenant":"acme","connector":"c",`) {
		t.Errorf("%+v", got)
	}
	_, err = w.c.Test(t.Context(), w.by(globex), "c")
	w.refused(err, model.CodeNotFound, "")
	w.allow()
	for range 5 {
		if r, err = w.c.Test(t.Context(), w.by(acme), "c"); err != nil || r.OK || r.Outcome != "blocked" || *r.Detail != "Weir may not connect to the destination" {
			t.Fatalf("%+v %v", r, err)
		}
	}
	_, err = w.c.Test(t.Context(), w.by(acme), "c")
	w.refused(err, model.CodeThrottled, "6 times a minute")
	if n := len(b.Messages()); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// kept is a connection of the tests of the pool.
type fake struct {
	done   chan struct{}
	closed sync.Once
}

func (f *fake) Done() <-chan struct{} { return f.done }
func (f *fake) Close() error {
	f.closed.Do(func() { close(f.done) })
	return nil
}

// TestThePoolIsBounded: the one that is idle for the longest time makes room, one in use never; and idle ones are closed.
func TestThePoolIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(time.Now, newMetrics(nil))
		all := map[int64]*fake{}
		get := func(id int64) func() {
			v, release, err := p.get(t.Context(), poolKey{kind: publishPool, id: id}, id, "s", func(context.Context) (closer, error) { return &fake{done: make(chan struct{})}, nil })
			if err != nil {
				t.Fatal(err)
			}
			all[id] = v.(*fake)
			return release
		}
		busy := get(0)
		for id := int64(1); id <= maxKept; id++ {
			time.Sleep(time.Millisecond)
			get(id)()
			synctest.Wait()
		}
		ended := func(id int64) bool {
			select {
			case <-all[id].done:
				return true
			default:
				return false
			}
		}
		if len(p.all) != maxKept || ended(0) || !ended(1) || ended(2) {
			t.Errorf("%d are kept; in use ended: %v, the oldest idle one: %v", len(p.all), ended(0), ended(1))
		}
		gone := func(tenant int64) bool { return tenant == 5 }
		p.sweep(gone)
		synctest.Wait()
		if !ended(5) || ended(6) {
			t.Error("a tenant that is gone keeps its connection, or another one does not")
		}
		time.Sleep(idleTime)
		p.sweep(gone)
		synctest.Wait()
		if len(p.all) != 1 || ended(0) || !ended(6) {
			t.Errorf("%d are kept after %s", len(p.all), idleTime)
		}
		p.retireAll()
		synctest.Wait()
		if ended(0) {
			t.Error("one in use is closed")
		}
		busy()
		synctest.Wait()
		if !ended(0) {
			t.Error("the last use does not close it")
		}
		p.closeAll()
	})
}

func FuzzConfig(f *testing.F) {
	for i, ty := range Types() {
		f.Add(uint8(i), ty.Example)
	}
	for i := range Types() {
		for _, text := range []string{`{"urls":["mqtt://u:p@h:1"],"topic":"+","qos":9}`, `{"addresses":["h:1"],"topic":"..","sasl":{"mechanism":"PLAIN","mechanism":"PLAIN"}}`,
			`{"region":"cn-","accessKeyId":"a","topicArn":"arn:aws:sns::::"}`, `{"region":"r","accessKeyId":"a","url":"https://h//","endpoint":"http://[::1%z]"}`} {
			f.Add(uint8(i), text)
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, text string) {
		ty := Types()[int(i)%len(Types())]
		c, err := ty.parse(text)
		if err != nil {
			return
		}
		for _, fields := range []struct {
			object string
			list   []Field
		}{{"", ty.Fields}, {"sasl", objectFields(ty, "sasl")}} {
			for _, field := range fields.list {
				name := strings.TrimPrefix(fields.object+"."+field.Name, ".")
				if field.Required && (fields.object == "" || c.Given[fields.object]) && !c.Given[name] {
					t.Errorf("%s: %q is taken without %s", ty.Name, text, name)
				}
				if v := c.Texts[name]; v != "" && (len(v) > field.Max || field.Check != nil && field.Check(v) != nil) {
					t.Errorf("%s: %q is taken with %s %q", ty.Name, text, name, v)
				}
				for _, v := range c.Lists[name] {
					if field.Check(v) != nil {
						t.Errorf("%s: %q is taken with %s %q", ty.Name, text, name, v)
					}
				}
				if v := int(c.Numbers[name]); v < field.Min || v > field.Max && field.Kind == strict.NumberField {
					t.Errorf("%s: %q is taken with %s %d", ty.Name, text, name, v)
				}
			}
		}
	})
}

// objectFields are the fields of an object of a config, none where the type has no such object.
func objectFields(t *Type, name string) []Field {
	i := slices.IndexFunc(t.Fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return t.Fields[i].Fields
}

// TestAVersionIsStoredAs holds the format that docs/formats.md freezes: type and config of the draft as they were, and nothing of the secret.
func TestAVersionIsStoredAs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	w.connector(acme, "c", map[string]any{"urls": []string{"mqtt://b.example.com:1883"}, "topic": "t", "username": "weir"}, "s3cret")
	const want = `{"v":1,"type":"mqtt","config":"{\"topic\":\"t\",\"urls\":[\"mqtt://b.example.com:1883\"],\"username\":\"weir\"}"}`
	if got := fixture.Rows(t, w.db, `SELECT snapshot FROM connector_versions`); len(got) != 1 || got[0] != want {
		t.Errorf("%s", got)
	}
}
