package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/relay"
	"weir/internal/test/seed"
	"weir/internal/test/testweir"
)

// beside is the configuration of a platform that hands its messages to a Weir above, as a device of a tenant there, and has devices of its own.
func (tn *tenant) beside(device, address string) string {
	return generous + fmt.Sprintf("edge: {agent_id: %s, uplink: {broker_url: \"tcp://%s\", username: \"%s:%s\", sync: false, backoff_min: 20ms, backoff_max: 200ms, keep_alive: 1s}}\n",
		device, address, tn.name, tn.secret(device))
}

// once compares the readings of a device with the numbers that it has sent.
func (tn *tenant) once(where string, d *edgeDevice) {
	tn.t.Helper()
	got := map[float64]int{}
	for page := 1; ; page++ {
		ms, n := tn.measurements(map[string]any{"deviceToken": d.name, "pageNumber": page, "pageSize": 1000})
		for _, m := range ms {
			got[m.Value]++
		}
		if page*1000 >= n {
			break
		}
	}
	acked := int(d.acked.Load())
	if len(got) != acked || acked == 0 {
		tn.t.Errorf("%s, device %s: %d readings, %d messages were acknowledged", where, d.name, len(got), acked)
	}
	for v, n := range got {
		if n != 1 {
			tn.t.Errorf("%s, device %s: reading %v is there %d times", where, d.name, v, n)
		}
	}
}

// TestAPlatformBelowAWeir: a platform stores what its devices send and hands it on. Whatever is killed and cut, both have each message once, and
// their ledgers agree.
func TestAPlatformBelowAWeir(t *testing.T) {
	t.Parallel()
	rng := seed.Rand(t)
	aboveDir, belowDir := t.TempDir(), t.TempDir()
	above := start(t, testweir.Options{Dir: aboveDir, Config: generous})
	up := above.tenant(t, "site")
	up.plain("gw", "a", "b", "c")
	up.devices(`mutation{createEdge(request:{token:"north",deviceToken:"gw",enabled:true}){token}}`, nil)
	link := relay.Start(t, above.MQTT)
	options := testweir.Options{Dir: belowDir, Config: up.beside("gw", link.Address())}
	below := start(t, options)
	local := below.tenant(t, "site")
	local.plain("a", "b", "c")
	devices := []*edgeDevice{{name: "a"}, {name: "b"}, {name: "c"}}
	for _, d := range devices {
		d.secret = local.secret(d.name)
	}
	again := func(w *world, o testweir.Options) (*world, *tenant) {
		w.Kill()
		w = &world{Proc: testweir.Start(t, o)}
		w.login()
		return w, w.enter(t, "site")
	}
	const rounds = 6
	for round := range rounds {
		stop := make(chan struct{})
		var sending sync.WaitGroup
		before := devices[0].acked.Load() + devices[1].acked.Load() + devices[2].acked.Load()
		for _, d := range devices {
			sending.Go(func() { d.run(below.MQTT, "site", stop) })
		}
		poll.True(t, "messages are acknowledged", func() bool {
			return devices[0].acked.Load()+devices[1].acked.Load()+devices[2].acked.Load() > before
		})
		for range 1 + rng.IntN(3) {
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
			if link.Down(rng.IntN(2) == 0); rng.IntN(2) == 0 {
				link.Cut()
			}
		}
		link.Down(false)
		if round%2 == 1 {
			above, up = again(above, testweir.Options{Dir: aboveDir, Config: generous})
			link.To(above.MQTT)
		}
		below.Kill()
		close(stop)
		sending.Wait()
		below = &world{Proc: testweir.Start(t, options)}
		below.login()
		local = below.enter(t, "site")
	}
	for _, d := range devices { // what is unacknowledged is sent to the end
		if want := int64(d.next); want > d.acked.Load() {
			stop, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				d.run(below.MQTT, "site", stop)
			}()
			poll.True(t, "the last message is acknowledged", func() bool { return d.acked.Load() >= want })
			close(stop)
			<-ended
		}
	}
	drained(t, below.Proc)
	total := 0
	for _, d := range devices {
		total += int(d.acked.Load())
	}
	local.arrived(total)
	up.arrived(total)
	for _, d := range devices {
		local.once("below", d)
		up.once("above", d)
	}
	if l := local.ledger("mqtt"); l.Stored != total {
		t.Errorf("the ledger below says %+v, %d were acknowledged", l, total)
	}
	if l := up.ledger("uplink"); l.Stored != total || l.Received != l.Stored+l.Duplicate+l.Refused {
		t.Errorf("the ledger above says %+v, %d were acknowledged", l, total)
	}
	var forwarded struct {
		Hours []struct {
			Missing  int64
			Outcomes map[string]int
		}
	}
	below.RunJSON(&forwarded, "ledger", "--uplink")
	sum := map[string]int{}
	for _, h := range forwarded.Hours {
		if h.Missing != 0 {
			t.Errorf("the ledger of the uplink does not balance: %+v", h)
		}
		for outcome, n := range h.Outcomes {
			sum[outcome] += n
		}
	}
	if taken := local.ledger("mqtt"); sum["stored"] != taken.Stored || len(sum) != 1 { // a repeat of a device stays here
		t.Errorf("the ledger of the uplink says %v, that of the platform %+v", sum, taken)
	}
	if s := below.Run("", "status"); !strings.Contains(s, "connected to tcp://") {
		t.Error(s)
	}
	t.Logf("%d messages, %v, above %+v", total, sum, up.ledger("uplink"))
}
