package e2e_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// cramped is an instance with little memory and a small log.
const cramped = `
limits: {memory: 128MiB}
ingest: {spool_max_bytes: 16MiB}
spool: {replay_bytes: 256KiB}
governance: {ingest_messages_per_second: 10000000, ingest_burst: 10000000}
`

// anonymous is the memory of the process that is not pages of files.
func (w *world) anonymous(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "RssAnon:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("no RssAnon")
	return 0
}

// flood is what senders sent and were told.
type flood struct {
	acknowledged, refused atomic.Int64 // messages
	other                 atomic.Pointer[string]
	end                   chan struct{}
	wg                    sync.WaitGroup
}

func (f *flood) over() bool {
	select {
	case <-f.end:
		return true
	default:
		return false
	}
}

func (f *flood) odd(format string, args ...any) { f.other.Store(new(fmt.Sprintf(format, args...))) }

// overMQTT keeps window publishes in flight until the end, and then waits for the acknowledgements that are due.
func (f *flood) overMQTT(m *testweir.MQTT, topic string, body []byte, window int) {
	sent, acked := 0, 0
	_ = m.SetDeadline(time.Now().Add(2 * time.Minute))
	for {
		for !f.over() && sent-acked < window {
			sent++
			if err := m.Publish(topic, uint16(sent%60000+1), false, body); err != nil {
				f.odd("publish: %v", err)
				return
			}
		}
		if sent == acked {
			return
		}
		if _, err := m.Puback(); err != nil {
			f.odd("PUBACK: %v", err)
			return
		}
		acked++
		f.acknowledged.Add(1)
	}
}

func (f *flood) overHTTP(url, body string) {
	for !f.over() {
		resp, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			f.odd("%v", err)
			return
		}
		_ = resp.Body.Close()
		switch retry := resp.Header.Get("Retry-After"); {
		case resp.StatusCode == http.StatusAccepted:
			f.acknowledged.Add(1)
		case resp.StatusCode == http.StatusServiceUnavailable && retry == "10":
			f.refused.Add(1)
		default:
			f.odd("HTTP %s, Retry-After %q", resp.Status, retry)
			return
		}
	}
}

// TestSaturation floods an instance whose applier stands still, over MQTT and HTTP: the log fills, HTTP is refused, MQTT
// waits, and memory stays where it is, below its limit. When the applier goes on, everything that was acknowledged is
// stored, and the ledger balances. `bench -only saturation` does the same for ten minutes.
func TestSaturation(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: cramped})
	tn := w.tenant(t, "flood")
	const senders = 16
	devices := make([]string, senders)
	for i := range devices {
		devices[i] = fmt.Sprintf("d%d", i)
	}
	tn.plain(devices...)
	idle := w.anonymous(t)
	release := holdDatabase(t, w)
	f := &flood{end: make(chan struct{})}
	for i, d := range devices {
		if i%2 == 0 {
			c := tn.connect(d)
			f.wg.Go(func() { f.overMQTT(c.MQTT, c.topic(), []byte(many("temp", 0, 20)), 200) })
		} else {
			body := strings.TrimSuffix(many("temp", 0, 20), "}") + "," + tn.as(d) + "}"
			f.wg.Go(func() { f.overHTTP(tn.Ingest+"/weir/flood/events", body) })
		}
	}
	poll.Until(t, "the log is full", func() error {
		if tn.metric(t, "weir_spool_bytes") < 0.97*tn.metric(t, "weir_spool_max_bytes") {
			return errors.New("not yet")
		}
		return nil
	})
	// HTTP goes on being refused, MQTT goes on waiting. How long that takes does not matter: each third has as many refusals. A
	// peak in the last one is no growth, so its least counts, against the most of the first.
	const third = 1000
	before, after := int64(0), int64(math.MaxInt64)
	from := f.refused.Load()
	poll.True(t, "HTTP is refused again and again", func() bool {
		switch n, refused := w.anonymous(t), f.refused.Load()-from; {
		case refused < third:
			before = max(before, n)
		case refused >= 2*third:
			after = min(after, n)
		}
		return f.refused.Load()-from >= 3*third
	})
	const limit = 128 << 20
	t.Logf("memory: %d MiB idle, %d and %d MiB with a full log; %d acknowledged, %d refused", idle>>20, before>>20, after>>20, f.acknowledged.Load(), f.refused.Load())
	if after > limit || after > before+16<<20 {
		t.Errorf("memory grows, or passes its limit of %d MiB: %d MiB, then %d MiB", limit>>20, before>>20, after>>20)
	}
	if f.refused.Load() == 0 {
		t.Error("HTTP was not refused")
	}
	var status struct {
		Memory struct {
			LimitBytes int64
			Parts      []struct {
				Part                   string
				BudgetBytes, HeldBytes int64
			}
		}
	}
	w.RunJSON(&status, "status") // who asks how things stand does not wait for the disk
	if status.Memory.LimitBytes != limit {
		t.Errorf("status says %+v", status.Memory)
	}
	for _, p := range status.Memory.Parts {
		if p.HeldBytes > p.BudgetBytes+p.BudgetBytes/2 {
			t.Errorf("%s holds %d of %d", p.Part, p.HeldBytes, p.BudgetBytes)
		}
	}
	close(f.end)
	release()
	f.wg.Wait()
	if odd := f.other.Load(); odd != nil {
		t.Error(*odd)
	}
	poll.Until(t, "everything acknowledged is stored", func() error {
		if _, total := tn.measurements(map[string]any{"pageSize": 1}); int64(total) != f.acknowledged.Load()*20 {
			return fmt.Errorf("%d of %d readings", total, f.acknowledged.Load()*20)
		}
		return nil
	})
	w.Run("", "ledger", "verify")
}
