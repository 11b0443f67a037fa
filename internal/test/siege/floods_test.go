//go:build linux

package siege_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"weir/internal/test/testweir"
)

// flood is one way to attack: n attackers repeat it, each after a pause.
type flood struct {
	kind  string
	n     int
	pause time.Duration
	act   func(ctx context.Context, a *attacker, i int) error
}

// floods repeat the findings of an attack on an earlier version, each of which kept devices or users out, or filled memory, disk
// or log.
func floods() []flood {
	const eager, patient = time.Millisecond, 100 * time.Millisecond
	return []flood{
		{"undecodable body of 1 MB", 6, eager, undecodable(1_048_000)},
		{"undecodable body of one byte", 6, eager, undecodable(1)},
		{"body of 4 MiB announced to the API", 32, patient, announce(4 << 20)},
		{"body of 60 kB announced to the API", 32, patient, announce(60_000)},
		{"idle connection to ingest", 1000, patient, idle(ingest, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"idle connection to the API", 500, patient, idle(api, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"WebSocket without connection_init", 200, patient, idle(api, "GET /api/event-management/graphql HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n")},
		{"row of another tenant: devices", 1, eager, growing()},
		{"row of another tenant: a type and a profile", 1, patient, growTypes},
		{"array of 1,000 unknown user names", 4, eager, hashes},
		{"stalled body", 64, patient, idle(ingest, "POST /weir/acme/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 124000\r\n\r\n"+strings.Repeat("x", 70<<10))},
		{"stalled packet of another tenant's device", 32, patient, stalledPacket},
		{"unknown user name over HTTP", 50, eager, unknownOverHTTP},
		{"unknown user name over MQTT", 50, eager, unknownOverMQTT},
	}
}

func ingest(a *attacker) string { return a.Ingest }
func api(a *attacker) string    { return a.API }

// idle keeps a connection on which something was sent.
func idle(to func(*attacker) string, sent string) func(context.Context, *attacker, int) error {
	return func(ctx context.Context, a *attacker, _ int) error { return a.hold(ctx, to(a), sent) }
}

// announce announces a body to the API and sends its first byte.
func announce(size int) func(context.Context, *attacker, int) error {
	return idle(api, fmt.Sprintf("POST /api/user-management/graphql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", size))
}

// many posts one body after the other on a connection, until it is closed, and at most for some seconds: the next one comes
// from another address.
func (a *attacker) many(ctx context.Context, body func() []byte) error {
	c, end, err := a.dial(ctx, a.Ingest)
	if err != nil {
		return err
	}
	defer end()
	r := bufio.NewReader(c)
	for over := time.Now().Add(5 * time.Second); ctx.Err() == nil && time.Now().Before(over); {
		b := body()
		if _, err := fmt.Fprintf(c, "POST /weir/acme/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(b), b); err != nil {
			return nil
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return nil
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return nil
}

func undecodable(size int) func(context.Context, *attacker, int) error {
	text := []byte(strings.Repeat("x", size))
	return func(ctx context.Context, a *attacker, _ int) error { return a.many(ctx, func() []byte { return text }) }
}

// unknown is a reading with the user name and the password of nobody.
func unknown() string {
	return fmt.Sprintf(`{"credentialType":"MQTT_BASIC","credentialId":"b%d","credentialSecret":"wrong","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"1"}}]}}`, rand.Uint64())
}

func unknownOverHTTP(ctx context.Context, a *attacker, _ int) error {
	return a.many(ctx, func() []byte { return []byte(unknown()) })
}

func hashes(ctx context.Context, a *attacker, _ int) error {
	return a.many(ctx, func() []byte {
		b := []byte("[")
		for i := range 1000 {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, unknown()...)
		}
		return append(b, ']')
	})
}

func unknownOverMQTT(ctx context.Context, a *attacker, _ int) error {
	c, end, err := a.dial(ctx, a.MQTT)
	if err != nil {
		return err
	}
	defer end()
	_, _, _ = testweir.ConnectMQTTOver(c, fmt.Sprintf("client-%d", rand.Uint64()), fmt.Sprintf("acme:b%d", rand.Uint64()), "wrong", 60)
	return nil
}

// stalledPacket announces a publish of almost 1 MiB and stops after 70 KiB.
func stalledPacket(ctx context.Context, a *attacker, i int) error {
	c, end, err := a.dial(ctx, a.MQTT)
	if err != nil {
		return err
	}
	defer end()
	m, code, err := testweir.ConnectMQTTOver(c, fmt.Sprintf("weir:evil:d:%d", i), "evil:"+secret("d"), "", 60)
	if err != nil || code != 0 {
		return fmt.Errorf("CONNACK %d: %w", code, err)
	}
	if err := m.SetDeadline(time.Time{}); err != nil {
		return err
	}
	const topic = "weir/evil/devices/d/events"
	if _, err := m.Write(append([]byte{0x32, 0xFF, 0xFF, 0x3F, 0, byte(len(topic))}, topic+"\x00\x01"+strings.Repeat("x", 70<<10)...)); err != nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, m.Conn)
	return nil
}

// ask runs a document with the evil user's token and returns the code of its refusal, "" for none.
func (a *attacker) ask(ctx context.Context, doc string, vars map[string]any) (string, error) {
	_, text, err := testweir.GraphQL{API: "http://" + a.API, Area: "device-management", Token: a.Token, Query: doc, Variables: vars}.Post(ctx)
	if err != nil {
		return "", err
	}
	var got struct {
		Errors []struct{ Extensions struct{ Code string } }
	}
	if err := json.Unmarshal(text, &got); err != nil || len(got.Errors) == 0 {
		return "", err
	}
	return got.Errors[0].Extensions.Code, nil
}

// growing makes devices with 64 kB of metadata each, as many at a time as one change may write. What a closed connection has kept
// from being answered is asked for again.
func growing() func(context.Context, *attacker, int) error {
	count := 100
	return func(ctx context.Context, a *attacker, _ int) error {
		code, err := a.ask(ctx, `mutation($m:String,$x:String!,$n:Int!){createDevices(request:{deviceTypeToken:"t-d",count:$n,tokenTemplate:$x,metadata:$m}){id}}`,
			map[string]any{"m": fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 64_900)), "x": fmt.Sprintf("x%d-{n}", rand.Uint64()), "n": count})
		switch {
		case err != nil || code == "":
			return err
		case count > 1:
			count /= 2
		case code == "LIMIT_EXCEEDED" || code == "UNAVAILABLE":
			a.full()
		}
		return nil
	}
}

// growTypes makes types, profiles and versions until the budget of the tenant is met, by these or by the devices.
func growTypes(ctx context.Context, a *attacker, _ int) error {
	name := fmt.Sprintf("x%d", rand.Uint64())
	_, err := a.ask(ctx, `mutation($n:String!,$m:String){a:createDeviceType(request:{token:$n,metadata:$m}){id} b:createDeviceProfile(request:{token:$n,metadata:$m}){id} c:publishDeviceProfile(token:$n){version}}`,
		map[string]any{"n": name, "m": fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 60_000))})
	return err
}
