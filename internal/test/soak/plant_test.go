package soak_test

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/test/seed"
	"weir/internal/test/testcerts"
	"weir/internal/test/testweir"
)

const (
	tenant = "acme"
	// most is what the instance may take of memory; small, so that what grows is seen early.
	most = 256 << 20
)

// plant is the instance under load and what is known to be kept of each device.
type plant struct {
	*testweir.Proc
	mqtts, mqttWS string
	trust         *tls.Config
	ledgers       map[string]*ledger
	reader        string // token of an account that reads measurements

	drawing sync.Mutex
	r       *rand.Rand
}

// chance returns random numbers for one goroutine.
func (p *plant) chance() *rand.Rand {
	p.drawing.Lock()
	defer p.drawing.Unlock()
	return seed.Fork(p.r)
}

// ledger is what a device has sent. A reading is certain when it was acknowledged, and possible from the moment at which it was
// written to a connection that may have ended before the answer.
type ledger struct {
	next              atomic.Int64 // value of the next reading: no two are alike
	certain, possible atomic.Int64
}

func secret(device string) string { return tenant + "-" + device }

func topic(device string) string { return "weir/" + tenant + "/devices/" + device + "/events" }

// reading is the next message of a device, with so many readings in it.
func (l *ledger) reading(n int, more string) []byte {
	b := []byte(`{"eventType":"Measurement",` + more + `"payload":{"entries":[`)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		v := l.next.Add(1)
		if v%100 == 0 {
			v = -v
		}
		b = fmt.Appendf(b, `{"measurements":{"temp":"%d"}}`, v)
	}
	l.possible.Add(int64(n))
	return append(b, `]}}`...)
}

// start brings an instance up with every listener and so many devices of each role.
func start(t *testing.T, roles map[string]int) *plant {
	t.Helper()
	dir := t.TempDir()
	ca, err := testcerts.NewCA("soak")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(time.Now().Add(24 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := pair.Write(dir, "server")
	if err != nil {
		t.Fatal(err)
	}
	p := &plant{r: seed.Rand(t), trust: &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}, ledgers: map[string]*ledger{}}
	p.Proc = testweir.Start(t, testweir.Options{Dir: dir, Config: fmt.Sprintf(`
governance: {ingest_messages_per_second: 1000000, ingest_burst: 1000000}
limits: {memory: %d}
ingest: {http_request_timeout: 5s}
auth: {access_token_ttl: 12h}
tls: {cert_file: %q, key_file: %q}
spool: {replay_bytes: 8MiB}
`, most, cert, key), Env: []string{"WEIR_LISTENERS_MQTTS=127.0.0.1:0", "WEIR_LISTENERS_MQTT_WS=127.0.0.1:0"}})
	var status struct {
		Listeners struct{ Mqtts, MqttWs string }
	}
	p.RunJSON(&status, "status")
	p.mqtts, p.mqttWS = status.Listeners.Mqtts, status.Listeners.MqttWs
	p.Run("", "tenant", "create", tenant)
	p.furnish(roles)
	return p
}

// furnish makes the devices, and a rule that every hundredth reading meets.
func (p *plant) furnish(roles map[string]int) {
	token := p.SignIn(tenant)
	do := func(doc string, vars map[string]any) { p.Query("device-management", token, doc, vars, nil) }
	do(`mutation{createDeviceProfile(request:{token:"p"}){id}}`, nil)
	do(`mutation($d:String!){createDetectionRule(request:{token:"r",deviceProfileToken:"p",definition:$d,enabled:true}){id}}`,
		map[string]any{"d": `{"name":"every hundredth","type":"threshold","severity":"minor","when":{"metric":"temp","op":"lt","threshold":0}}`})
	do(`mutation{createDeviceType(request:{token:"t",profileToken:"p"}){id}}`, nil)
	do(`mutation{publishDeviceProfile(token:"p"){version}}`, nil)
	for role, n := range roles {
		for i := range n {
			d := device(role, i)
			p.ledgers[d] = &ledger{}
			do(fmt.Sprintf(`mutation{a:createDevice(request:{token:%[1]q,deviceTypeToken:"t"}){id}
				b:createDeviceCredential(request:{token:%[1]q,deviceToken:%[1]q,credentialType:"ACCESS_TOKEN",credentialId:%[2]q,enabled:true}){id}}`, d, secret(d)), nil)
		}
	}
}

func device(role string, i int) string { return fmt.Sprintf("%s-%d", role, i) }

// count compares what is stored of a device with its ledger: everything that was acknowledged, and nothing that was never sent or
// is there twice.
func (p *plant) count(token, device string) error {
	var page struct {
		MeasurementEvents struct{ Pagination struct{ TotalRecords int64 } }
	}
	if err := p.TryQuery("event-management", token, `query($d:String!){measurementEvents(criteria:{deviceToken:$d,pageNumber:1,pageSize:1}){pagination{totalRecords}}}`,
		map[string]any{"d": device}, &page); err != nil {
		return err
	}
	l, got := p.ledgers[device], page.MeasurementEvents.Pagination.TotalRecords
	if got < l.certain.Load() || got > l.possible.Load() {
		return fmt.Errorf("%s: %d readings are stored, %d were acknowledged, %d sent", device, got, l.certain.Load(), l.possible.Load())
	}
	return nil
}
