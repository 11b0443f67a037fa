package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/config"
	"weir/internal/test/testweir"
)

func TestEveryDemoFiresWithinTenSeconds(t *testing.T) {
	t.Parallel()
	for n := 1; n <= maxDemoDevices; n++ {
		first := time.Duration(-1)
		for i := range n {
			w := demoWave{lag: float64(i) / float64(n)}
			if w.at(0) > demoThreshold {
				t.Errorf("device %d of %d begins over the threshold", i, n)
			}
			for at := time.Duration(w.lag * float64(demoInterval)); at < 10*time.Second; at += demoInterval {
				if w.at(at) > demoThreshold && (first < 0 || at < first) {
					first = at
				}
			}
		}
		if first < 0 || first > 8*time.Second {
			t.Errorf("%d devices: the first reading over the threshold comes after %s", n, first)
		}
	}
}

func TestADemoDeviceGoesBackUnderTheThreshold(t *testing.T) {
	t.Parallel()
	over := 0
	for at := time.Duration(0); at < demoPeriod; at += demoInterval {
		if (demoWave{}).at(at) > demoThreshold {
			over++
		}
	}
	if over < 2 || over > 10 {
		t.Errorf("%d of 20 readings are over the threshold", over)
	}
}

func TestAFiringIsShownBehindItsReadingWhicheverComesFirst(t *testing.T) {
	t.Parallel()
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	read := func(device string, s int) demoMoment {
		return demoMoment{Occurred: t0.Add(time.Duration(s) * time.Second), Device: device}
	}
	fired := func(device string, s int) demoMoment {
		m := read(device, s)
		m.Edge = "raised"
		return m
	}
	want := []string{"a 1", "b 1", "b 1 raised", "a 2", "a 2 raised", "b 2"}
	for name, arrivals := range map[string][]demoMoment{
		"as they happened":   {read("a", 1), read("b", 1), fired("b", 1), read("a", 2), fired("a", 2), read("b", 2)},
		"firings first":      {fired("b", 1), fired("a", 2), read("a", 1), read("b", 1), read("a", 2), read("b", 2)},
		"firings last":       {read("a", 1), read("b", 1), read("a", 2), read("b", 2), fired("a", 2), fired("b", 1)},
		"everything reverse": {read("b", 2), fired("a", 2), read("a", 2), fired("b", 1), read("b", 1), read("a", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got []string
				r := newDemoReel(func(m demoMoment) {
					got = append(got, strings.TrimSpace(fmt.Sprintf("%s %d %s", m.Device, m.Occurred.Sub(t0)/time.Second, m.Edge)))
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); r.run(ctx) }()
				for _, m := range arrivals {
					r.add(m)
					time.Sleep(demoReelDelay / 10) // of the bubble's clock
				}
				time.Sleep(2 * demoReelDelay)
				synctest.Wait()
				if !slices.Equal(got, want) {
					t.Errorf("shown: %v", got)
				}
				r.add(read("c", 3))
				cancel()
				<-done
				if last := got[len(got)-1]; last != "c 3" {
					t.Errorf("what came just before the end is not shown: %v", got)
				}
			})
		})
	}
}

func TestDemoColorsOnlyOnRequest(t *testing.T) {
	t.Parallel()
	v := 81.25
	moments := []demoMoment{{Device: "boiler-1", Value: &v}, {Device: "boiler-1", Value: &v, Rule: "too-hot", Edge: "raised", Severity: "major"},
		{Device: "boiler-1", Rule: "too-hot", Edge: "resolved"}}
	show := func(color bool) string {
		var out bytes.Buffer
		p := &demoText{out: &out, color: color}
		for _, m := range moments {
			p.show(m)
		}
		p.summary(&demoSummary{Sent: 3, Balanced: true, Dir: "d"})
		if p.edges() != 2 {
			t.Errorf("%d edges shown", p.edges())
		}
		return out.String()
	}
	plain := show(false)
	for _, want := range []string{"boiler-1      81.2 °C\n", "FIRING  too-hot raised: 81.2 is over 80 (major)\n", "FIRING  too-hot resolved\n", ": balanced\n"} {
		if !strings.Contains(plain, want) {
			t.Errorf("%q is missing in\n%s", want, plain)
		}
	}
	if strings.Contains(plain, "\x1b") {
		t.Error("colors without a request")
	}
	if c := show(true); !strings.Contains(c, "\x1b["+inRed+"mFIRING") || strings.Count(c, "\x1b[")%2 != 0 {
		t.Errorf("colored: %q", c)
	}
	// A writer that is no terminal is never colored.
	if newDemoPrinter(&command{io: IO{Stdout: &bytes.Buffer{}}}, nil).(*demoText).color {
		t.Error("colors into a pipe")
	}
}

// As in weir demo | head -3: what the demo made is removed, too.
func TestTheDemoEndsCleanlyWhenItsReaderLeaves(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"--json=false", "--json"} {
		tmp := t.TempDir()
		cmd := exec.Command(testweir.Binary(t), "demo", "--devices", "1", "--for", "1m", format)
		cmd.Env = append(testweir.Environ(), "TMPDIR="+tmp)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // gone by then, unless the test failed
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || errs.Len() > 0 {
			t.Errorf("%s: ended with %v, stderr: %s", format, err, errs.String())
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", format, left, err)
		}
	}
}

// TestTheDemoExplainsItselfInFewLines: the first reading is on the same screen as the addresses.
func TestTheDemoExplainsItselfInFewLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	(&demoText{out: &out}).intro(&demo{cfg: &config.Config{DataDir: "d"}, api: &demoAPI{}, byHand: &demoDevice{}})
	if n := strings.Count(out.String(), "\n"); n > 24 {
		t.Errorf("%d lines before the first reading:\n%s", n, out.String())
	}
	if s := out.String(); strings.Contains(s, "grep") || !strings.Contains(s, " api event-management '") {
		t.Errorf("a query needs no token:\n%s", s)
	}
}

// Ctrl-C while the devices send: they say goodbye, the books are read, nothing is left.
func TestTheDemoEndsCleanlyAtCtrlC(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	cmd := exec.Command(testweir.Binary(t), "demo", "--devices", "2", "--for", "1m") // ends by itself when nothing fires
	cmd.Env = append(testweir.Environ(), "TMPDIR="+tmp)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // gone by then, unless the test failed
	var said strings.Builder
	asked := false
	for s := bufio.NewScanner(out); s.Scan(); {
		said.WriteString(s.Text() + "\n")
		if !asked && strings.Contains(s.Text(), "FIRING") {
			asked = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || errs.Len() > 0 {
		t.Errorf("ended with %v, stderr: %s", err, errs.String())
	}
	if s := said.String(); !asked || !strings.Contains(s, "The demo has ended.") || !strings.Contains(s, ": balanced") {
		t.Errorf("it said:\n%s", s)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
