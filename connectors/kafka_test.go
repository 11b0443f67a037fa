//go:build !gateway

package connectors

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"weir/internal/delivery"
	"weir/internal/test/conformance"
	"weir/internal/test/testcerts"
	"weir/model"
)

const kafkaTopic = "plant.alerts"

// The keys of requests: the one that carries records, and the one that carries credentials.
const (
	kafkaProduce      = 0
	kafkaAuthenticate = 36
)

// cluster is one that a tenant may reach, with a topic of three partitions.
func (w *world) cluster(o ...kfake.Opt) *kfake.Cluster {
	w.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, kafkaTopic)}, o...)...)
	w.must(err)
	w.Cleanup(c.Close)
	var ports []string
	for _, a := range c.ListenAddrs() {
		ports = append(ports, portOf(a))
	}
	w.allow(ports...)
	return c
}

func atCluster(addresses []string, more map[string]any) map[string]any {
	config := map[string]any{"addresses": addresses, "topic": kafkaTopic}
	maps.Copy(config, more)
	return config
}

// records reads n records.
func (w *world) records(n int, addresses []string, o ...kgo.Opt) (got []*kgo.Record) {
	w.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addresses...), kgo.ConsumeTopics(kafkaTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, o...)...)
	w.must(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
	defer cancel()
	for len(got) < n {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			w.Fatalf("%d of %d records: %v", len(got), n, err)
		}
		got = append(got, fetches.Records()...)
	}
	return got
}

// publishWithin gives a delivery its time.
func (w *world) publishWithin(d time.Duration, connector, payload string) (Outcome, *Failure) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), d)
	defer cancel()
	return outcome(w, w.c.Publish(ctx, w.id(acme), publish(connector, payload)))
}

func publishOf(device, connector string, i int) *model.Dispatch {
	d := publish(connector, fmt.Sprint(device, "-", i))
	d.Device, d.Key = device, fmt.Sprint("key-", device, "-", i)
	return d
}

// TestRecordsOfACluster: the device is the key, so that its records keep their order in one partition; the idempotency key is a header.
func TestRecordsOfACluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	c := w.cluster()
	w.connectorOf("kafka", acme, "k", atCluster(c.ListenAddrs(), nil), "")
	const devices, each = 5, 8
	for i := range each {
		for d := range devices {
			if o, f := outcome(t, w.c.Publish(t.Context(), w.id(acme), publishOf(fmt.Sprint("d", d), "k", i))); o != Sent {
				t.Fatal(f)
			}
		}
	}
	partition, next := map[string]int32{}, map[string]int{}
	for _, r := range w.records(devices*each, c.ListenAddrs()) {
		device := string(r.Key)
		if n := next[device]; n > 0 && partition[device] != r.Partition || string(r.Value) != fmt.Sprint(device, "-", n) ||
			len(r.Headers) != 1 || r.Headers[0].Key != "idempotency_key" || string(r.Headers[0].Value) != fmt.Sprint("key-", device, "-", n) {
			t.Errorf("record %d of %s in partition %d: %q %v", n, device, r.Partition, r.Value, r.Headers)
		}
		partition[device] = r.Partition
		next[device]++
	}
	if r, err := w.c.Test(t.Context(), w.by(acme), "k"); err != nil || !r.OK {
		t.Errorf("%+v %v", r, err)
	}
}

// TestRecordsArePipelined: one that the cluster holds back stops none for another partition, and each is done at its own acknowledgement.
func TestRecordsArePipelined(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	c := w.cluster()
	w.connectorOf("kafka", acme, "k", atCluster(c.ListenAddrs(), nil), "")
	const n = 400
	var all sync.WaitGroup
	failed := make(chan *Failure, n)
	for i := range n {
		all.Go(func() {
			if _, f := outcome(t, w.c.Publish(t.Context(), w.id(acme), publishOf(fmt.Sprint("d", i), "k", 0))); f != nil {
				failed <- f
			}
		})
	}
	all.Wait()
	close(failed)
	for f := range failed {
		t.Error(f)
	}
	keys := map[string]int{}
	for _, r := range w.records(n, c.ListenAddrs()) {
		keys[string(r.Key)]++
	}
	if len(keys) != n {
		t.Errorf("%d devices, want %d", len(keys), n)
	}
}

// TestHowAClusterIsEntered: TLS or none, no SASL or each mechanism, and a password that is wrong.
func TestHowAClusterIsEntered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	s := w.receiver(func(http.ResponseWriter, *http.Request) {}) // the guard trusts its certificate
	secured := kfake.TLS(&tls.Config{Certificates: s.TLS.Certificates})
	n := 0
	// send delivers one message with a config, and reads it back when it was sent.
	send := func(c *kfake.Cluster, more map[string]any, secret string) (Outcome, *Failure) {
		t.Helper()
		n++
		token := fmt.Sprint("c", n)
		w.connectorOf("kafka", acme, token, atCluster(c.ListenAddrs(), more), secret)
		return w.publishWithin(time.Second, token, "m")
	}
	sasl := func(mechanism string) map[string]any {
		return map[string]any{"mechanism": mechanism, "username": "weir"}
	}
	over := w.cluster(secured)
	if o, f := send(over, map[string]any{"tls": true}, ""); o != Sent {
		t.Error(f)
	}
	if o, f := send(over, map[string]any{"tls": false}, ""); o != Unreachable {
		t.Errorf("no TLS to a broker that expects it: %s %v", o, f)
	}
	if o, f := send(w.cluster(), map[string]any{"tls": true}, ""); o != Unreachable {
		t.Errorf("TLS to a broker that has none: %s %v", o, f)
	}
	ca, err := testcerts.NewCA("other")
	w.must(err)
	untrusted, err := ca.Server(time.Now().Add(time.Hour))
	w.must(err)
	if o, f := send(w.cluster(kfake.TLS(&tls.Config{Certificates: []tls.Certificate{untrusted.TLS()}})), map[string]any{"tls": true}, ""); o != Unreachable || f.Text != delivery.Connection("tls", nil).Text {
		t.Errorf("an authority that is not trusted: %s %v", o, f)
	}
	conformance.Shown(t, "S2-111")
	for _, mechanism := range []string{saslPlain, scram256, scram512} {
		c := w.cluster(kfake.EnableSASL(), kfake.Superuser(mechanism, "weir", theSecret), secured)
		both := map[string]any{"tls": true, "sasl": sasl(mechanism)}
		if o, f := send(c, both, theSecret); o != Sent {
			t.Errorf("%s: %v", mechanism, f)
		}
		if o, f := send(c, both, "no-"+theSecret); o == Sent || f.Outcome == Blocked { // this cluster hangs up; Kafka answers
			t.Errorf("%s with a wrong password: %s %+v", mechanism, o, f)
		}
		c.ControlKey(kafkaAuthenticate, func(r kmsg.Request) (kmsg.Response, error, bool) {
			answer := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			answer.ErrorCode, answer.ErrorMessage = kerr.SaslAuthenticationFailed.Code, new("what the broker says of "+theSecret)
			return answer, nil, true
		})
		o, f := send(c, both, theSecret)
		if o != Retry || f.Text != "the cluster answered SASL_AUTHENTICATION_FAILED" || f.Tries != fewTries {
			t.Errorf("%s with a wrong password: %s %+v", mechanism, o, f)
		}
		if o, f := send(c, map[string]any{"tls": true}, ""); o != Unreachable {
			t.Errorf("no SASL where it is needed: %s %v", o, f)
		}
	}
	plain := w.cluster(kfake.EnableSASL(), kfake.Superuser(scram256, "weir", theSecret))
	if o, f := send(plain, map[string]any{"sasl": sasl(scram256)}, theSecret); o != Sent {
		t.Error(f)
	}
	if _, err := checkConfig("kafka", `{"addresses":["k:1"],"topic":"t","sasl":{"mechanism":"GSSAPI","username":"u"}}`); err == nil {
		t.Error("GSSAPI is taken")
	}
	if strings.Contains(w.log.String(), theSecret) {
		t.Error("the password is in the log")
	}
	conformance.Shown(t, "S2-112")
}

// TestBrokersThatAClusterNames: each is judged when it is dialled, and a partition whose leader may not be reached holds up none of the others.
func TestBrokersThatAClusterNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	c := w.cluster(kfake.NumBrokers(2), kfake.SeedTopics(2, kafkaTopic))
	for p := range int32(2) {
		w.must(c.MoveTopicPartition(kafkaTopic, p, p))
	}
	seed := c.ListenAddrs()[:1]
	w.allow(portOf(seed[0]))
	w.connectorOf("kafka", acme, "k", atCluster(seed, nil), "")
	var count = map[Outcome]int{}
	for i := range 12 {
		o, f := outcome(t, w.c.Publish(t.Context(), w.id(acme), publishOf(fmt.Sprint("d", i), "k", 0)))
		count[o]++
		if f != nil && f.Text != "Weir may not connect to the destination" {
			t.Errorf("%+v", f)
		}
	}
	if count[Sent] == 0 || count[Blocked] == 0 || count[Sent]+count[Blocked] != 12 {
		t.Errorf("%v", count)
	}
}

// TestWhatAClusterAnswers: and what becomes of a message meanwhile.
func TestWhatAClusterAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	c := w.cluster()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections are made, and nobody answers
	w.must(err)
	t.Cleanup(func() { _ = silent.Close() })
	hung := silent.Addr().String()
	ports := []string{portOf(c.ListenAddrs()[0]), portOf(hung), "1"}
	w.allow(ports...)
	more := func(topic string) map[string]any { return map[string]any{"topic": topic} }
	w.connectorOf("kafka", acme, "unknown", atCluster(c.ListenAddrs(), more("other")), "")
	w.connectorOf("kafka", acme, "refusing", atCluster([]string{"127.0.0.1:1"}, nil), "")
	w.connectorOf("kafka", acme, "hung", atCluster([]string{hung}, nil), "")
	w.connectorOf("kafka", acme, "second", atCluster([]string{"127.0.0.1:1", c.ListenAddrs()[0]}, nil), "")
	w.connectorOf("kafka", acme, "k", atCluster(c.ListenAddrs(), nil), "")
	for _, x := range []struct {
		connector, payload string
		outcome            Outcome
		text               string
		tries              int
	}{
		{"unknown", "m", Retry, "the cluster answered UNKNOWN_TOPIC_OR_PARTITION", 2},
		{"refusing", "m", Unreachable, "the connection was refused", 0},
		{"hung", "m", Unreachable, "the target did not answer in time", 0},
		{"second", "m", Sent, "", 0},
		{"k", strings.Repeat("x", 2<<20), Invalid, "the message is larger than the cluster takes", 0},
		{"k", "", Sent, "", 0},
	} {
		o, f := w.publishWithin(time.Second, x.connector, x.payload)
		if o != x.outcome || f != nil && (f.Text != x.text || f.Tries != x.tries) {
			t.Errorf("%s: %s %+v", x.connector, o, f)
		}
	}
	if err := fmt.Errorf("wrapped: %w", kerr.NotEnoughReplicas); failureOf(kafkaFailure(err)).Text != "the cluster answered NOT_ENOUGH_REPLICAS" || failureOf(kafkaFailure(err)).Tries != 0 {
		t.Error(failureOf(kafkaFailure(err)))
	}
}

// TestAClusterThatGoesAwayAndReturns: a delivery fails within its time. The topic is another one of that name after the return, which costs one
// attempt.
func TestAClusterThatGoesAwayAndReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	c := w.cluster()
	address := c.ListenAddrs()
	w.connectorOf("kafka", acme, "k", atCluster(address, nil), "")
	if o, f := w.publish("k", "m"); o != Sent {
		t.Fatal(f)
	}
	c.Close()
	if o, f := w.publishWithin(5*time.Second, "k", "m"); o != Unreachable {
		t.Errorf("%s %v", o, f)
	}
	port := 0
	_, err := fmt.Sscan(portOf(address[0]), &port)
	w.must(err)
	w.cluster(kfake.Ports(port))
	if o, f := w.publish("k", "m"); o != Retry || f.Text != "the cluster answered UNKNOWN_TOPIC_ID" {
		t.Errorf("%s %v", o, f)
	}
	if o, f := w.publish("k", "m"); o != Sent {
		t.Errorf("%s %v", o, f)
	}
}

// TestABrokerThatAsksForTooMuch: the iterations of SCRAM cost whoever connects.
func TestABrokerThatAsksForTooMuch(t *testing.T) {
	t.Parallel()
	s, _, err := saslOf(scram256, "u", "p").Authenticate(t.Context(), "h")
	if err != nil {
		t.Fatal(err)
	}
	for _, rounds := range []string{"100001", "2147483647", "99999999999999999999", "x"} {
		_, _, err := s.Challenge([]byte("r=nonce,s=c2FsdA==,i=" + rounds))
		if f, ok := errors.AsType[*Failure](err); !ok || f.Outcome != Retry {
			t.Errorf("%s: %v", rounds, err)
		}
	}
}

// TestNothingOfAClientIsLeft: neither goroutines nor connections, whatever was under way. It does not run beside others.
func TestNothingOfAClientIsLeft(t *testing.T) {
	w := newWorld(t, ConnectorSettings{})
	c := w.cluster()
	before := goleak.IgnoreCurrent()
	w.connectorOf("kafka", acme, "k", atCluster(c.ListenAddrs(), nil), "")
	if o, f := w.publish("k", "m"); o != Sent {
		t.Fatal(f)
	}
	seen, held := make(chan struct{}), make(chan struct{})
	c.ControlKey(kafkaProduce, func(kmsg.Request) (kmsg.Response, error, bool) {
		c.SleepControl(func() {
			close(seen)
			<-held
		})
		return nil, nil, false
	})
	var sending sync.WaitGroup
	sending.Go(func() {
		if o, f := w.publish("k", "held"); o != Unreachable || !slices.Contains([]string{delivery.Connection("reset", nil).Text, delivery.Connection("timeout", nil).Text}, f.Text) {
			t.Errorf("%s %v", o, f)
		}
	})
	<-seen
	w.c.pool.closeAll()
	sending.Wait()
	close(held)
	c.Close()
	goleak.VerifyNone(t, before)
}
