package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var selfPID = os.Getpid()

// measuring is a bench that has measured rows of some parts.
func measuring(t *testing.T, command string, names ...string) *bench {
	t.Helper()
	b := &bench{say: log.New(io.Discard, "", 0), report: &report{args: strings.Fields(command), machine: "a machine", commit: "abc", when: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
	for _, n := range names {
		ps, err := choose(n)
		if err != nil {
			t.Fatal(err)
		}
		b.report.begin(ps[0])
		b.judged(atLeast(3, 5, times), n+" judged", 4, "%d of them", 7)
		b.judged(atMost(3, 1, millis), n+" slow", 4, "")
		b.row(n+" row", "3/s", "")
	}
	return b
}

func TestABlockReplacesTheOneOfItsPartAndNoOther(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "performance.md")
	if err := os.WriteFile(file, []byte("# Title\n"+begins+"\nold\n"+ends+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	put := func(command string, names ...string) string {
		if err := measuring(t, command, names...).report.into(file); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	first := put("-seconds 5s", "disk", "pubacks")
	if got := put("-seconds 5s", "disk", "pubacks"); got != first {
		t.Errorf("the same again is\n%s\nbefore it was\n%s", got, first)
	}
	block := func(name, title, command string) string {
		return "<!-- part " + name + " -->\n### " + title + "\n\n`go run ./bench -only " + name + command + "`, 2026-01-02, commit abc, on a machine.\n\n" +
			"| load | measured | must | aim | | remarks |\n|---|---|---|---|---|---|\n" +
			"| " + name + " judged | 4.00 × | ≥ 3.00 × | ≥ 5.00 × | must met | 7 of them |\n" +
			"| " + name + " slow | 4.0 ms | ≤ 3.0 ms | ≤ 1.0 ms | **missed** |  |\n" +
			"| " + name + " row | 3/s |  |  |  |  |\n\n"
	}
	want := "# Title\n" + begins + "Figures with a bound: 6. The aim is met by 0, the must by 3 more; missed: 3, pubacks slow (4.0 ms, must ≤ 3.0 ms); " +
		"http slow (4.0 ms, must ≤ 3.0 ms); disk slow (4.0 ms, must ≤ 3.0 ms).\n\n" +
		block("pubacks", "Durable PUBACKs", " -seconds 5s") + block("http", "HTTP ingest", " -quick") + block("disk", "Disk per reading", " -quick") + ends + "\nafter\n"
	if got := put("-quick", "http", "disk"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, bad := range []string{"", begins, ends + begins} {
		if _, err := new(report).merge(bad); err == nil {
			t.Errorf("%q has a place for the table", bad)
		}
	}
}

func TestAPartThatFailsLeavesItsBlockAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "performance.md")
	if err := os.WriteFile(file, []byte(begins+"<!-- part http -->\nas it was\n\n"+ends), 0o600); err != nil {
		t.Fatal(err)
	}
	b := measuring(t, "")
	ok := func(b *bench, _ context.Context) error { b.row("a", "1", ""); return nil }
	bad := func(b *bench, _ context.Context) error { b.row("half", "1", ""); return errors.New("no luck") }
	err := b.measure(t.Context(), []part{{"http", "HTTP", bad}, {"disk", "Disk", ok}}, file)
	if err == nil || err.Error() != "http: no luck" {
		t.Errorf("got %v", err)
	}
	got, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(got), "as it was") || strings.Contains(string(got), "half") || !strings.Contains(string(got), "| a | 1 |") {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestAFigureIsHeldAgainstItsBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		g    goal
		v    float64
		want string
	}{
		{atLeast(1.2, 3, times), 3, aimMet},
		{atLeast(1.2, 3, times), 2.99, mustMet},
		{atLeast(1.2, 3, times), 1.2, mustMet},
		{atLeast(1.2, 3, times), 1.19, missed},
		{atMost(25, 8, millis), 8, aimMet},
		{atMost(25, 8, millis), 25, mustMet},
		{atMost(25, 8, millis), 25.1, missed},
		{atMost(25, 8, millis), math.NaN(), missed},
		{atLeast(1, 2, times), math.NaN(), missed},
		{within(5, percent), -1, mustMet},
		{within(5, percent), 5.1, missed},
	} {
		if got := c.g.judge(c.v); got != c.want {
			t.Errorf("%v against %v and %v: %s, want %s", c.v, c.g.must, c.g.aim, got, c.want)
		}
	}
	if must, aim := within(5, percent).bounds(); must != "≤ 5.0 %" || aim != "" {
		t.Errorf("bounds %q and %q", must, aim)
	}
}

func TestTheLoadInTheMiddleCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rates []float64
		want  float64
	}{{[]float64{5}, 5}, {[]float64{9, 1}, 1}, {[]float64{9, 1, 4}, 4}, {[]float64{4, 3, 2, 1}, 2}} {
		var os []*outcome
		for _, r := range c.rates {
			os = append(os, &outcome{rate: r})
		}
		if got := middle(os).rate; got != c.want {
			t.Errorf("%v: %v, want %v", c.rates, got, c.want)
		}
	}
}

func TestOtherProgramsAreConfiguredAsTheMeasurementNeeds(t *testing.T) {
	t.Parallel()
	got := natsConf(address{"127.0.0.1", "1"}, address{"127.0.0.1", "2"}, "/d")
	want := "server_name: bench\nlisten: \"127.0.0.1:1\"\njetstream { store_dir: \"/d\", sync_interval: always }\nmqtt { listen: \"127.0.0.1:2\", js_api_timeout: \"60s\" }\n"
	if got != want {
		t.Errorf("NATS is told %s", got)
	}
	if got := mosquittoConf(address{"127.0.0.1", "3"}); got != "listener 3 127.0.0.1\nallow_anonymous true\npersistence false\n" {
		t.Errorf("mosquitto is told %s", got)
	}
}

func TestSectorsOfADeviceAreRead(t *testing.T) {
	t.Parallel()
	const stats = "   7       0 loop0 1 2 3 4 5 6 7 8 0 0 0\n 254       0 vda 11 12 13 14 15 16 1700 18 0 0 0\n 254      10 vdk 11 12 13 14 15 16 99 18 0 0 0\n"
	for _, c := range []struct {
		major, minor uint32
		n            int64
		ok           bool
	}{{254, 0, 1700, true}, {254, 10, 99, true}, {7, 0, 7, true}, {254, 1, 0, false}} {
		if n, ok, err := parseSectors(stats, c.major, c.minor); n != c.n || ok != c.ok || err != nil {
			t.Errorf("%d:%d: %d, %t, %v", c.major, c.minor, n, ok, err)
		}
	}
	if _, ok, err := parseSectors("254 0 vda 1 2 3 4 5 6 many 8\n", 254, 0); ok || err == nil {
		t.Error("that is no number of sectors")
	}
}

func TestTheDocumentHasAPlaceForTheTable(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := new(report).merge(string(doc)); err != nil {
		t.Error(err)
	}
}

func TestNumbersReadWell(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 7.4: "7", 999: "999", 1234: "1,230", 76_149: "76,100", 1_000_000: "1,000,000", 2_345_678: "2,350,000"} {
		if got := count(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
	for d, want := range map[time.Duration]string{840 * time.Microsecond: "840 µs", 1550 * time.Microsecond: "1.6 ms", 139 * time.Millisecond: "139 ms", 12 * time.Second: "12.0 s"} {
		if got := short(d); got != want && got != strings.Replace(want, "1.6", "1.5", 1) {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestFiguresOfTheKernelAreRead(t *testing.T) {
	t.Parallel()
	if d, err := parseCPU([]byte("12 (a ) b) S 1 12 12 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 5 1 1 1")); err != nil || d != 3*time.Second {
		t.Errorf("processor time: %v, %v", d, err)
	}
	if _, err := parseCPU([]byte("12 (a) S 1")); err == nil {
		t.Error("a short line is no processor time")
	}
	if d, err := parseBusy("cpu  100 20 30 9999 777 1 2 47 5 5\ncpu0 1\n"); err != nil || d != 2*time.Second {
		t.Errorf("busy: %v, %v", d, err)
	}
	if n, err := anonymous(selfPID); err != nil || n < 1<<20 {
		t.Errorf("memory of this process: %d, %v", n, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := onDisk(dir, func(p string) bool { return filepath.Base(p) == "y" }); err != nil || n != 0 {
		t.Errorf("other files: %d, %v", n, err)
	}
}

func TestPartsAreChosenByName(t *testing.T) {
	t.Parallel()
	ps, err := choose("disk,start")
	if err != nil || len(ps) != 2 || ps[0].name != "disk" || ps[1].name != "start" {
		t.Errorf("got %v, %v", ps, err)
	}
	if _, err := choose("disc"); err == nil || !strings.Contains(err.Error(), "pubacks") {
		t.Errorf("an unknown part: %v", err)
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	for _, name := range []string{"quick", "write", "keep"} {
		f.Bool(name, false, "")
	}
	f.String("only", "", "")
	f.Duration("seconds", 0, "")
	if err := f.Parse([]string{"-write", "--keep", "-only", "disk", "-seconds=5s", "-quick"}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(shaping(f), " "); got != "-quick -seconds 5s" {
		t.Errorf("got %s", got)
	}
}

func TestTheSameBatchOfCoresIsSharedOut(t *testing.T) {
	t.Parallel()
	var o outcome
	at := time.Unix(0, 0)
	o.between(meter{at: at}, meter{at: at.Add(10 * time.Second), acked: 1_000_000, server: 5 * time.Second, self: 4 * time.Second, all: 16 * time.Second})
	if o.rate != 100_000 || o.cpu != 0.5 || o.micro != 5 || o.other < 0.69 || o.other > 0.71 || !strings.Contains(o.others(), "0.7 cores") {
		t.Errorf("got %+v, %q", o, o.others())
	}
}

// TestTheBlockOfEachPartIsFound: one that is not found is written a second time.
func TestTheBlockOfEachPartIsFound(t *testing.T) {
	t.Parallel()
	for _, p := range parts() {
		if got := blocksOf("<!-- part " + p.name + " -->\ntext\n"); got[p.name] != "text\n" {
			t.Errorf("%s: %q", p.name, got)
		}
	}
}
