package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// valves are simulated devices that answer each command, with a failure while they are broken.
type valves struct {
	*tenant
	t       *testing.T
	devices []string
	broken  atomic.Bool

	mu   sync.Mutex
	came []string // tokens of commands
	stop []func()
}

// open connects all of them.
func (v *valves) open() {
	v.t.Helper()
	for _, d := range v.devices {
		c, came, stop := v.listening(d)
		done := make(chan struct{})
		v.stop = append(v.stop, func() { close(done); stop() })
		go func() {
			for {
				select {
				case <-done:
					return
				case got := <-came:
					v.mu.Lock()
					v.came = append(v.came, got.Token)
					v.mu.Unlock()
					answer := fmt.Sprintf(`{"commandToken":%q,"dispatchNonce":%q,"success":%t,"error":"jammed"}`, got.Token, got.DispatchNonce, !v.broken.Load())
					_, _ = c.Publish(v.t.Context(), &paho.Publish{Topic: "weir/" + v.name + "/command-responses/" + d, QoS: 1, Payload: []byte(answer)}) // the instance may stop
				}
			}
		}()
	}
}

func (v *valves) close() {
	for _, stop := range v.stop {
		stop()
	}
	v.stop = nil
}

func (v *valves) got() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.came)
}

func (v *valves) batch(token string) (b struct {
	Status, StopReason          string
	Accepted, Succeeded, Failed int
}) {
	v.t.Helper()
	var out struct{ CommandBatchesByToken []json.RawMessage }
	v.must(v.t, "command-delivery", v.token, `query($t:[String!]!){commandBatchesByToken(tokens:$t){status stopReason accepted succeeded failed}}`, map[string]any{"t": []string{token}}).into(v.t, &out)
	if len(out.CommandBatchesByToken) != 1 || json.Unmarshal(out.CommandBatchesByToken[0], &b) != nil {
		v.t.Fatalf("%s: %s", token, out)
	}
	return b
}

// sentTimes are when the commands of a batch were sent, in order.
func (v *valves) sentTimes(token string) (all []time.Time) {
	v.t.Helper()
	var out struct {
		Commands struct {
			Results []struct{ SentTime *time.Time }
		}
	}
	v.must(v.t, "command-delivery", v.token, `query($b:String!){commands(criteria:{pageNumber:1,pageSize:1000,batchToken:$b}){results{sentTime}}}`, map[string]any{"b": token}).into(v.t, &out)
	for _, r := range out.Commands.Results {
		if r.SentTime != nil {
			all = append(all, *r.SentTime)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// TestABatchStopsAndKeepsItsPaceOverARestart: valves that a command breaks are spared the rest of its batch, also by the next run of Weir, until
// somebody goes on with it; and a pace makes up for nothing that was missed.
func TestABatchStopsAndKeepsItsPaceOverARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := start(t, testweir.Options{Dir: dir, Config: generous})
	v := &valves{tenant: w.tenant(t, "valves"), t: t}
	for i := range 60 {
		v.devices = append(v.devices, fmt.Sprintf("v%02d", i))
	}
	v.plain(v.devices...)
	v.open()
	v.broken.Store(true)
	order := func(token, more string) {
		t.Helper()
		list, _ := json.Marshal(v.devices)
		if a := v.must(t, "command-delivery", v.token, fmt.Sprintf(`mutation{createCommandBatch(request:{token:%q,name:"open",allowPartial:false,deviceTokens:%s,%s}){batch{accepted} rejection{code}}}`, token, list, more), nil); string(a.Data) != `{"createCommandBatch":{"batch":{"accepted":60},"rejection":null}}` {
			t.Fatal(a.raw)
		}
	}
	const pause = 15 * time.Second
	restart := func() (lag time.Duration) {
		t.Helper()
		v.close()
		if err := w.Stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
		began := time.Now()
		w.Proc = testweir.Start(t, testweir.Options{Dir: dir, Config: generous})
		w.login()
		v.tenant = w.enter(t, "valves")
		v.open()
		return time.Since(began)
	}

	// The stop.
	order("bad", "maxPerMinute:300,stopAtFailedPercent:50.0")
	poll.True(t, "the batch stops", func() bool { return v.batch("bad").Status == "STOPPED" })
	b := v.batch("bad")
	if b.Failed < 10 || b.Failed > 20 || b.Succeeded > 0 || !strings.Contains(b.StopReason, "stopAtFailedPercent is 50") {
		t.Errorf("%+v", b)
	}
	reached := func(prefix string) map[string]bool {
		all := map[string]bool{}
		for _, token := range v.got() {
			if strings.HasPrefix(token, prefix) {
				all[token] = true
			}
		}
		return all
	}
	spared := func(when string) {
		t.Helper()
		if n := len(reached("bad-")); n > 20 {
			t.Errorf("%s %d of 60 valves were reached", when, n)
		}
	}
	spared("after the stop")
	restart()
	time.Sleep(5 * time.Second) // at the pace these would be 25 commands
	spared("after a restart")
	if b := v.batch("bad"); b.Status != "STOPPED" || b.StopReason == "" {
		t.Errorf("%+v", b)
	}
	v.broken.Store(false)
	if a := v.must(t, "command-delivery", v.token, `mutation{resumeCommandBatch(token:"bad"){status stopReason}}`, nil); string(a.Data) != `{"resumeCommandBatch":{"status":"RUNNING","stopReason":null}}` {
		t.Error(a.raw)
	}
	poll.True(t, "all valves are reached", func() bool { b := v.batch("bad"); return b.Failed+b.Succeeded == 60 && len(reached("bad-")) == 60 })

	// The pace, of one command a second.
	order("slow", "maxPerMinute:60")
	poll.True(t, "it has begun", func() bool { return len(reached("slow-")) >= 4 })
	before := len(reached("slow-"))
	lag := restart()
	poll.True(t, "it goes on", func() bool { return len(reached("slow-")) >= before+8 })
	times := v.sentTimes("slow")
	step := 61 * time.Second / 60
	for i := range times {
		for j := i + 1; j < len(times); j++ {
			if most := int((times[j].Sub(times[i])+lag)/step) + 2; j-i > most {
				t.Fatalf("%d commands were sent within %s (the restart took %s), at most %d may be: %s", j-i+1, times[j].Sub(times[i]), lag, most+1, times)
			}
		}
	}
	v.close()
}
