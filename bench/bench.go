// Bench measures the real program from outside: it builds it, runs it on loopback in a directory of its own, sends to it as
// devices do, and prints a table. It says nothing about good or bad and has no gates, but for one: what was acknowledged
// and cannot be read back afterwards is a failure.
//
//	bench.go      what is measured, in which order
//	instance.go   building, starting, stopping, killing the program
//	provision.go  a tenant, its rules, its devices, over the API
//	mqtt.go       the client's side of MQTT, as few bytes and calls as it takes
//	body.go       what a device sends
//	load.go       closed loop and paced, over many connections
//	verify.go     what was acknowledged is there
//	part_*.go     one subject each
//	report.go     the table
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// bench is one run.
type bench struct {
	root    string // of the module
	work    string // directory of this run
	binary  string
	report  *report
	say     *log.Logger
	profile string // directory for profiles of the loads; "": none

	seconds  time.Duration // of each load
	warmup   time.Duration
	readings int // in the store that is queried
	disk     int // whose bytes are counted
	paced    int // readings per second
	all      bool
	patience time.Duration // for a quiet machine, before each load
}

// part is one subject of the table.
type part struct {
	name string
	run  func(*bench, context.Context) error
}

var parts = []part{
	{"pubacks", (*bench).pubacks},
	{"endtoend", (*bench).endToEnd},
	{"http", (*bench).http},
	{"queries", (*bench).queries},
	{"disk", (*bench).diskBytes},
	{"wear", (*bench).wear},
	{"memory", (*bench).memory},
	{"start", (*bench).starts},
	{"size", (*bench).sizes},
	{"site", (*bench).sites},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	quick := f.Bool("quick", false, "about a minute: short loads, small stores, one platform")
	only := f.String("only", "", "of "+names()+": these, with commas between")
	write := f.Bool("write", false, "put the table into docs/performance.md")
	seconds := f.Duration("seconds", 0, "length of each load (20s, quick 4s)")
	readings := f.Int("readings", 0, "readings in the store that is queried (1000000, quick 100000)")
	disk := f.Int("disk", 0, "readings whose bytes are counted (1000000, quick 100000)")
	paced := f.Int("paced", 30_000, "readings per second of the paced end to end load")
	profile := f.String("profile", "", "record the loads with perf into this directory")
	patience := f.Duration("patience", 0, "before each load, wait so long at most until other programs are quiet")
	keep := f.Bool("keep", false, "leave the working directory")
	if err := f.Parse(args); err != nil {
		return err
	}
	b := &bench{say: log.New(stderr, "", log.Ltime), profile: *profile, seconds: *seconds, warmup: 2 * time.Second, readings: *readings,
		disk: *disk, paced: *paced, all: !*quick, patience: *patience,
		report: &report{command: strings.TrimSpace("go run ./bench " + strings.Join(withoutWrite(args), " ")), when: time.Now()}}
	if *quick {
		b.warmup = 500 * time.Millisecond
	}
	b.seconds = orElse(b.seconds, *quick, 4*time.Second, 20*time.Second)
	b.readings = orElse(b.readings, *quick, 100_000, 1_000_000)
	b.disk = orElse(b.disk, *quick, 100_000, 1_000_000)
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if b.root, err = moduleRoot(); err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return err
	}
	if !*keep {
		defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	}
	if err := b.build(ctx); err != nil {
		return err
	}
	b.report.machine = machine(b.work)
	for _, p := range chosen {
		b.say.Printf("%s", p.name)
		if err := p.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	fmt.Fprint(stdout, b.report.markdown())
	if *write {
		return b.report.into(filepath.Join(b.root, "docs", "performance.md"))
	}
	return nil
}

// orElse is v unless it is zero.
func orElse[T int | time.Duration](v T, quick bool, small, large T) T {
	switch {
	case v != 0:
		return v
	case quick:
		return small
	}
	return large
}

func names() string {
	var ns []string
	for _, p := range parts {
		ns = append(ns, p.name)
	}
	return strings.Join(ns, " ")
}

func choose(only string) ([]part, error) {
	if only == "" {
		return parts, nil
	}
	var out []part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q; there are: %s", name, names())
		}
		out = append(out, parts[i])
	}
	return out, nil
}

// withoutWrite are the arguments that shape the figures.
func withoutWrite(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.TrimLeft(a, "-") == "write" || strings.TrimLeft(a, "-") == "keep" })
}

// moduleRoot is where go.mod is, here or above.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("bench is run inside the repository")
		}
	}
	return "", err
}
