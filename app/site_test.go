package app_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/test/seed"
	"weir/internal/test/testweir"
)

// fleet writes a site of n devices, each with an access token, whose readings a rule looks at, and returns its path.
func fleet(t *testing.T, dir string, n int, name string) string {
	t.Helper()
	var list strings.Builder
	list.WriteString("token,externalId,name,accessToken\n")
	for i := range n {
		fmt.Fprintf(&list, "d%d,SN-%06d,%s,secret-of-%032d\n", i, i, name, i)
	}
	site := `version: 1
tenants:
  - token: acme
    deviceProfiles:
      - token: wave
        metricDefinitions: [{token: m, metricKey: wave, dataType: INT}]
        detectionRules:
          - {token: high, definition: {name: high, type: threshold, severity: major, when: {metric: wave, op: gt, threshold: 50}}}
          - {token: low, definition: {name: low, type: threshold, severity: major, when: {metric: wave, op: gt, threshold: 20}}}
    deviceTypes: [{token: t, profileToken: wave}]
    devicesFrom: [{file: fleet.csv, deviceTypeToken: t}]
`
	for file, text := range map[string]string{"fleet.csv": list.String(), "site.yaml": site} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "site.yaml")
}

func secretOf(i int) string { return fmt.Sprintf("secret-of-%032d", i) }

// applied is what site apply and site plan answer.
type applied struct {
	Changes []struct{ Op, Kind string }
	Applied bool
}

// reading posts one reading of a device and returns the status.
func reading(t *testing.T, p *testweir.Proc, device int) int {
	t.Helper()
	body := fmt.Sprintf(`{"credentialType":"ACCESS_TOKEN","credentialId":%q,"eventType":"Measurement","payload":{"entries":[{"measurements":{"wave":"60"}}]}}`, secretOf(device))
	resp, err := http.Post(p.Ingest+"/weir/acme/events", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// Ten thousand devices with their credentials are applied in seconds; the log of the test shows the times.
func TestTenThousandDevicesAreApplied(t *testing.T) {
	t.Parallel()
	p := testweir.Start(t, testweir.Options{})
	site := fleet(t, p.Dir, 10_000, "first")
	step := func(what string, want int, args ...string) {
		t.Helper()
		var got applied
		began := time.Now()
		p.RunJSON(&got, args...)
		t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
		if len(got.Changes) != want {
			t.Errorf("%s: %d changes, want %d", what, len(got.Changes), want)
		}
	}
	const made = 20_000 + 6 + 1
	step("the plan", made, "site", "plan", site)
	step("the apply", made-1+1, "site", "apply", site)
	if got := reading(t, p, 9_999); got != http.StatusAccepted {
		t.Errorf("the reading of a device that was made: %d", got)
	}
	step("the apply of what is there", 0, "site", "apply", site)
	fleet(t, p.Dir, 10_000, "second")
	step("ten thousand updates", 10_000, "site", "apply", site)
	began := time.Now()
	export := filepath.Join(p.Dir, "export.yaml")
	p.Run("", "site", "export", "-o", export)
	t.Logf("the export: %s", time.Since(began).Round(time.Millisecond))
	step("the plan of the export", 0, "site", "plan", "--prune", export)
}

// Readings that flow while sites are applied are all accepted, judged and kept.
func TestReadingsFlowWhileASiteIsApplied(t *testing.T) {
	t.Parallel()
	p := testweir.Start(t, testweir.Options{Config: "governance: {ingest_messages_per_second: 1000000, ingest_burst: 1000000}"})
	site := fleet(t, p.Dir, 3000, "first")
	p.Run("", "site", "apply", site)
	var senders []*sender
	for i := range 4 {
		senders = append(senders, &sender{device: fmt.Sprintf("d%d", i), token: secretOf(i), http: i >= 3, at: time.Now().UTC().Format(time.RFC3339)})
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var sending atomic.Int64
	for _, s := range senders {
		wg.Go(func() {
			sending.Add(1)
			s.run(p, stop)
		})
	}
	for i := range 6 {
		fleet(t, p.Dir, 3000, []string{"second", "first"}[i%2])
		var got applied
		p.RunJSON(&got, "site", "apply", site)
		if len(got.Changes) != 3000 {
			t.Errorf("%d changes", len(got.Changes))
		}
	}
	close(stop)
	wg.Wait()
	var status struct {
		Log struct{ Applied, Last uint64 }
	}
	for p.RunJSON(&status, "status"); status.Log.Applied < status.Log.Last; {
		p.RunJSON(&status, "status")
	}
	for _, s := range senders {
		if s.acked == 0 {
			t.Errorf("%s sent nothing", s.device)
		}
	}
	check(t, p, senders)
}

// A site that is applied where nothing runs is effective with the next start.
func TestASiteAppliedWhileNothingRunsIsInForceAfterTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := testweir.WriteConfig(t, dir, "")
	site := fleet(t, dir, 100, "first")
	for _, args := range [][]string{{"init", "--data", filepath.Join(dir, "data")}, {"site", "apply", site, "--config", config}} {
		cmd := exec.Command(testweir.Binary(t), args...)
		cmd.Env = testweir.Environ()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	p := testweir.Start(t, testweir.Options{Dir: dir})
	for i := range 100 {
		if got := reading(t, p, i); got != http.StatusAccepted {
			t.Errorf("device %d: %d", i, got)
		}
	}
	var ledger struct {
		Hours []struct{ Outcomes map[string]int }
	}
	for n := 0; n < 100; {
		n = 0
		p.RunJSON(&ledger, "ledger")
		for _, h := range ledger.Hours {
			n += h.Outcomes["stored"] + h.Outcomes["dead-letter"]
			if h.Outcomes["dead-letter"] > 0 {
				t.Fatalf("%+v", h)
			}
		}
	}
}

// Killed at any instant of an apply, the instance has all of it or nothing after the start.
func TestAKillInTheMiddleOfAnApplyLeavesAllOrNothing(t *testing.T) {
	t.Parallel()
	const devices = 2000
	dir := t.TempDir()
	seen := map[bool]int{}
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	name, r := "", seed.Rand(t)
	for round := range rounds {
		p := testweir.Start(t, testweir.Options{Dir: dir})
		name = fmt.Sprintf("round-%d", round)
		site := fleet(t, dir, devices, name)
		cmd := exec.Command(testweir.Binary(t), "site", "apply", site, "--config", p.Config)
		cmd.Env = testweir.Environ()
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		answered := false
		select {
		case err := <-ended:
			answered = err == nil
			ended <- err
		case <-time.After(time.Duration(r.IntN(1200)) * time.Millisecond):
		}
		p.Kill()
		if err := <-ended; err == nil {
			answered = true
		}

		p = testweir.Start(t, testweir.Options{Dir: dir})
		var left applied
		p.RunJSON(&left, "site", "plan", site)
		all, none := 2*devices+7, devices
		if round == 0 || seen[true] == 0 {
			none = all // nothing was there before
		}
		switch n := len(left.Changes); {
		case n == 0:
			seen[true]++
			if got := reading(t, p, devices-1); got != http.StatusAccepted {
				t.Errorf("round %d: the last device: %d", round, got)
			}
		case n == none && !answered:
			seen[false]++
		default:
			t.Fatalf("round %d: %d changes are left, answered: %v\n%s", round, n, answered, out.String())
		}
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d applies were there after the kill, %d were not", seen[true], seen[false])
}
