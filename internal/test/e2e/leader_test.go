package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"weir/internal/test/conformance"
	"weir/internal/test/need"
)

// TestAnotherLogWhileMessagesArrive: the log of another instance lies in the directory. The metric of the log's epoch changes, and with what
// it was before and is now Prometheus raises CaptureLeaderChanged, and not without a change.
func TestAnotherLogWhileMessagesArrive(t *testing.T) {
	t.Parallel()
	promtool := need.Program(t, "promtool")
	tn, other := paired(t), paired(t)
	tn = tn.again()
	tn.worksOn(3) // each marker is a reading
	before := tn.metric(t, "weir_spool_epoch")
	if err := tn.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(tn.path("spool")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(tn.path("spool"), os.DirFS(other.path("spool"))); err != nil {
		t.Fatal(err)
	}
	tn = tn.again()
	tn.worksOn(5)
	after := tn.metric(t, "weir_spool_epoch")
	if before == 0 || after == before {
		t.Errorf("the epoch is %v, before %v", after, before)
	}

	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("weir.rules.yml", tn.Run("", "alerts"))
	const form = `rule_files: [weir.rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series: [{series: 'weir_spool_epoch{instance="site"}', values: '%vx10 %vx120'}]
    promql_expr_test:
      - {expr: &firing 'ALERTS{alertname="CaptureLeaderChanged",alertstate="firing"}', eval_time: 9m}
      - expr: *firing
        eval_time: 15m
        exp_samples: [{labels: 'ALERTS{alertname="CaptureLeaderChanged",alertstate="firing",severity="warning",instance="site"}', value: 1}]
      - {expr: *firing, eval_time: 90m}
`
	write("test.yml", fmt.Sprintf(form, before, after))
	out, err := exec.Command(promtool, "test", "rules", filepath.Join(dir, "test.yml")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conformance.Shown(t, "S2-035")
}
