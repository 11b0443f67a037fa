package main

import (
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var selfPID = os.Getpid()

func TestTheTableReplacesTheOneBefore(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "performance.md")
	b := &bench{say: log.New(io.Discard, "", 0), report: &report{command: "go run ./bench", machine: "a machine", when: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
	b.row("things", "3/s", "%d of them", 7)
	text := "# Title\n" + begins + "\nold\n" + ends + "\nafter\n"
	for range 2 {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.report.into(file); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = string(got)
		want := "# Title\n" + begins + "\n`go run ./bench`, 2026-01-02, on a machine; generator and server on the same machine.\n\n" +
			"| what | measured | beside it |\n|---|---|---|\n| things | 3/s | 7 of them |\n" + ends + "\nafter\n"
		if text != want {
			t.Fatalf("got\n%s\nwant\n%s", text, want)
		}
	}
	for _, bad := range []string{"", begins + "\n", ends + "\n" + begins + "\n"} {
		if _, err := between(bad, "x"); err == nil {
			t.Errorf("%q has a place for the table", bad)
		}
	}
}

func TestTheDocumentHasAPlaceForTheTable(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := between(string(doc), "x"); err != nil {
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
	if got := withoutWrite([]string{"-quick", "-write", "--keep", "-only", "disk"}); strings.Join(got, " ") != "-quick -only disk" {
		t.Errorf("got %v", got)
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
