package connectors

import (
	"fmt"
	"maps"
	"net"
	"sync/atomic"
	"testing"

	"weir/internal/guard"
	"weir/internal/ondemand"
	"weir/internal/test/conformance"
	"weir/internal/test/nameserver"
	"weir/internal/test/poll"
)

// clients are the configs of every way out, for a host and a port.
func clients(hostPort string) map[string]map[string]any {
	all := map[string]map[string]any{
		"mqtt":    {"urls": []string{"mqtt://" + hostPort}, "topic": "t"},
		"kafka":   {"addresses": []string{hostPort}, "topic": "t"},
		"aws_sns": {"region": "eu-central-1", "accessKeyId": "A", "topicArn": "arn:aws:sns:eu-central-1:123456789012:t", "endpoint": "http://" + hostPort},
		"aws_sqs": {"region": "eu-central-1", "accessKeyId": "A", "url": "https://sqs.eu-central-1.amazonaws.com/123456789012/q", "endpoint": "http://" + hostPort},
	}
	for _, t := range types {
		if t.Refused != "" {
			delete(all, t.Name)
		}
	}
	return all
}

// everyType demands that each type that there is has a row in clients.
func everyType(t *testing.T) {
	t.Helper()
	for _, name := range TypeNames() {
		if clients("h:1")[name] == nil {
			t.Errorf("%s is not tried", name)
		}
	}
}

// TestTheGalleryThroughEveryClient: an address of each kind that is refused, through every type, and over TLS and WebSocket where a type has them; as
// a delivery and as a test.
func TestTheGalleryThroughEveryClient(t *testing.T) {
	t.Parallel()
	everyType(t)
	w := newWorld(t, ConnectorSettings{})
	n := 0
	try := func(typ string, config map[string]any) {
		t.Helper()
		n++
		token := fmt.Sprint("c", n)
		w.connectorOf(typ, acme, token, config, theSecret)
		if o, f := w.publish(token, "m"); o != Blocked || f.Text != "Weir may not connect to the destination" {
			t.Errorf("%s %v: %s %v", typ, config, o, f)
		}
		w.c.tests = ondemand.Tests{}
		if r, err := w.c.Test(t.Context(), w.by(acme), token); err != nil || r.Outcome != "blocked" {
			t.Errorf("%s %v: %+v %v", typ, config, r, err)
		}
		_, err := w.c.Connectors.Delete(t.Context(), w.by(acme), token)
		w.must(err)
	}
	for _, host := range []string{"10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "127.0.0.1", "0.0.0.0", "169.254.169.254", "169.254.1.1", "100.100.100.200", "192.0.2.1", "198.18.0.1", "240.0.0.1",
		"255.255.255.255", "239.1.1.1", "::1", "::", "fd00::1", "fe80::1", "ff02::1", "2001:db8::1", "::ffff:10.1.2.3", "::ffff:169.254.169.254", "::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1",
		"2002:a00:1::1", "2001:0:808:808:0:ffff:f5ff:fffe", "localhost"} {
		to := net.JoinHostPort(host, "9")
		for typ, config := range clients(to) {
			try(typ, config)
		}
		if o, f := outcome(t, w.c.Call(t.Context(), w.id(acme), call("http://"+to, ""))); o != Blocked {
			t.Errorf("a call of %s: %s %v", to, o, f)
		}
	}
	for _, scheme := range []string{"mqtts", "ws", "wss"} {
		try("mqtt", map[string]any{"urls": []string{scheme + "://10.0.0.1:9"}, "topic": "t"})
	}
	for typ, more := range map[string]map[string]any{"kafka": {"tls": true}, "aws_sns": {"endpoint": "https://10.0.0.1"}, "aws_sqs": {"endpoint": "https://10.0.0.1"}} {
		if config := clients("10.0.0.1:9")[typ]; config != nil {
			maps.Copy(config, more)
			try(typ, config)
		}
	}
}

// TestANameThatLeadsElsewhereLater: through every client. It resolves to an address that is allowed when the connector is saved, and to another one
// when it is dialled: nothing arrives there.
func TestANameThatLeadsElsewhereLater(t *testing.T) {
	t.Parallel()
	everyType(t)
	w := newWorld(t, ConnectorSettings{})
	victim, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	t.Cleanup(func() { _ = victim.Close() })
	var reached atomic.Int64
	go func() {
		for {
			conn, err := victim.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = conn.Close()
		}
	}()
	port := portOf(victim.Addr().String())
	names := nameserver.New(t)
	g, err := guard.New(guard.Config{Resolver: names.Resolver(), Settings: guard.Settings{Allowed: []string{"127.0.0.2/32:" + port}}})
	w.must(err)
	w.guard, w.c.deps.Guard = g, g
	to := "rebind.example:" + port
	names.Answer("rebind.example", "127.0.0.2") // nobody listens there
	for typ, config := range clients(to) {
		w.connectorOf(typ, acme, typ, config, theSecret)
		if o, f := w.publish(typ, "m"); o != Unreachable {
			t.Errorf("%s while it is allowed: %s %v", typ, o, f)
		}
	}
	names.Answer("rebind.example", "127.0.0.1", "127.0.0.1 127.0.0.1")
	for typ := range clients(to) {
		if o, f := w.publish(typ, "m"); o != Blocked {
			t.Errorf("%s: %s %v", typ, o, f)
		}
		if r, err := w.c.Test(t.Context(), w.by(acme), typ); err != nil || r.Outcome != "blocked" {
			t.Errorf("%s on demand: %+v %v", typ, r, err)
		}
	}
	if o, f := outcome(t, w.c.Call(t.Context(), w.id(acme), call("http://"+to, ""))); o != Blocked {
		t.Errorf("a call: %s %v", o, f)
	}
	conn, err := net.Dial("tcp", victim.Addr().String()) // whoever had connected was accepted before this
	w.must(err)
	t.Cleanup(func() { _ = conn.Close() })
	poll.Until(t, "the last connection accepted", func() error {
		if reached.Load() == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
	if n := reached.Load(); n != 1 {
		t.Errorf("%d connections were made", n-1)
	}
	conformance.Shown(t, "S2-118")
}
