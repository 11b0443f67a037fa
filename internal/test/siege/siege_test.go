//go:build linux

// Package siege_test attacks the real program with every flood that once closed a listener, filled the disk or the memory of
// all, at once and from many addresses, on a disk of 5 MB a second and with 192 MiB of memory, while known devices and a
// signed-in user are served and measured. "make siege" is the long form, whose figures are judged; without SIEGE a few seconds
// show that the siege itself works.
//
//	siege_test.go    the order of a siege, and its verdict
//	target_test.go   the instance, its tenants, its disk
//	known_test.go    devices and users that must be served
//	floods_test.go   the attackers, one flood each, named as the finding that it repeats
//	attack_test.go   the process in which the attackers run
//	figures_test.go  what is measured, and its bounds
package siege_test

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/test/poll"
)

// Without a duration the siege is short: it shows that everything works, and its rates say nothing.
const short = 4 * time.Second

// TestMain runs the attackers in place of the tests where the environment says so: they are a process of their own, which has
// only the processor time that nothing else wants.
func TestMain(m *testing.M) {
	if os.Getenv(attackerVariable) != "" {
		os.Exit(attack(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

func TestSiege(t *testing.T) {
	length, err := short, error(nil)
	long := os.Getenv("SIEGE")
	if long != "" {
		if length, err = time.ParseDuration(long); err != nil {
			t.Fatal(err)
		}
	}
	// How many times its bound a delay may take: 1 where the machine has nothing else to do. 0, as without a duration, shows the
	// delays and judges none.
	slack := 0.0
	if s := os.Getenv("SIEGE_SLACK"); s != "" && long != "" {
		if slack, err = strconv.ParseFloat(s, 64); err != nil {
			t.Fatal(err)
		}
	}
	x := begin(t, long != "")
	f := &figures{lengthOfSiege: length}

	known := x.known(t, f)
	calm := x.span(t)
	f.wait(t, x, max(length/10, time.Second))
	f.calm = calm.end(t)

	f.again.Store(0)
	f.resident, f.anonymous = 0, 0
	attackers := x.besiege(t)
	whole := x.span(t)
	attackers.waitForBudget(t, f, x, length, long != "")
	rest := x.span(t) // in which the tenant that fills the disk meets its budget only
	f.wait(t, x, max(length-whole.age(), length/2))
	f.rest, f.whole = rest.end(t), whole.end(t)
	attackers.stop(t)
	known.stop()

	x.balance(t, f)
	if err := x.Stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	x.noComplaint(t)
	f.judge(t, x, slack, long != "")
	for kind, n := range attackers.rounds {
		t.Logf("%8d × %s", n, kind)
		if n == 0 && long != "" {
			t.Errorf("%s: nothing was sent", kind)
		}
	}
}

// balance looks for every reading that was acknowledged, and lets the instance examine itself.
func (x *target) balance(t *testing.T, f *figures) {
	t.Helper()
	poll.Until(t, "all is applied", func() error {
		done, err := x.Applied()
		if err == nil && !done {
			err = errNotApplied
		}
		return err
	})
	token := x.SignIn(known)
	for _, d := range f.devices {
		if err := x.count(token, d); err != nil {
			t.Error(err)
		}
	}
	if out, err := x.TryRun("", "ledger", "verify"); err != nil {
		t.Errorf("weir ledger verify: %v\n%s", err, out)
	}
	var doctor struct {
		Findings []struct{ ID, Result, Finding string }
	}
	out, _ := x.TryRun("", "doctor", "--json") // its exit code is that of its findings
	if err := json.Unmarshal([]byte(out), &doctor); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seen := 0
	for _, g := range doctor.Findings {
		switch g.ID {
		case "ledger", "backlog", "applier", "log", "store", "memory":
			seen++
			if g.Result != "ok" {
				t.Errorf("doctor: %s %s: %s", g.ID, g.Result, g.Finding)
			}
		}
	}
	if seen < 6 {
		t.Errorf("the doctor has examined %d of 6 subjects: %s", seen, out)
	}
}

// noComplaint looks through the log for errors: no flood is one of the server.
func (x *target) noComplaint(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(x.Stderr()) {
		var entry struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level == "ERROR" {
			t.Errorf("logged: %s", line)
		}
	}
}
