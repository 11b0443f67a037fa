// Bench measures the real program from outside: it builds it, runs it on loopback in a directory of its own, sends to it as
// devices do, and prints a table with what is asked of each figure. It has no gates, but for one: what was acknowledged and
// cannot be read back afterwards is a failure.
//
//	bench.go      what is measured, in which order
//	instance.go   building, starting, stopping, killing the program
//	provision.go  a tenant, its rules, its devices
//	peers.go      the programs that are measured for comparison
//	mqtt.go       the client's side of MQTT, as few bytes and calls as it takes
//	body.go       what a device sends
//	load.go       how a device sends: closed loop, paced
//	drive.go      many at once, and what is measured meanwhile
//	replay.go     a fleet in its own time, on a clock that the bench turns
//	verify.go     what was acknowledged is there
//	sinks.go      targets of what goes out
//	part_*.go     one subject each
//	goal.go       what a figure must reach and what it aims at
//	report.go     the table, and the blocks of docs/performance.md
//	lab.go        the program with that clock, or on a slow disk
//	board.go      what the bench and the lab have in common
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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

	seconds      time.Duration // of each load
	warmup       time.Duration
	readings     int // in the store that is queried
	disk         int // whose bytes are counted
	series       int // of the fleet with one reading each ten seconds
	all          bool
	quietTimeout time.Duration // for a quiet machine, before each load
}

// part is one subject of the table.
type part struct {
	name, title string
	run         func(*bench, context.Context) error
}

// parts in the order in which they are measured and shown.
func parts() []part {
	return []part{
		{"pubacks", "Durable PUBACKs", (*bench).pubacks},
		{"paced", "Paced loads", (*bench).pacedLoads},
		{"endtoend", "End to end", (*bench).endToEnd},
		{"storm", "A storm of edges", (*bench).storm},
		{"rules", "The detection engine", (*bench).rules},
		{"mixed", "Rules of all kinds in an instance", (*bench).mixedRules},
		{"windows", "A fleet with a window each", (*bench).windowedFleet},
		{"previews", "Previews", (*bench).previews},
		{"commands", "Commands", (*bench).commands},
		{"waiting", "Commands that wait", (*bench).waiting},
		{"deliveries", "Deliveries", (*bench).deliveries},
		{"neighbour", "A neighbour of a tenant at its ceilings", (*bench).neighbour},
		{"overload", "More than can be applied", (*bench).overload},
		{"slowdisk", "A slow disk", (*bench).slowDisk},
		{"http", "HTTP ingest", (*bench).http},
		{"sources", "Brokers that are read", (*bench).sources},
		{"lwm2m", "LwM2M", (*bench).lwm2m},
		{"edge", "An edge below a Weir", (*bench).edge},
		{"queries", "Queries", (*bench).queries},
		{"registry", "A large registry", (*bench).registry},
		{"scans", "Long queries at once", (*bench).scans},
		{"disk", "Disk per reading", (*bench).diskBytes},
		{"fleet", "A large fleet", (*bench).fleet},
		{"device", "What the device takes", (*bench).device},
		{"wear", "Commit interval and wear", (*bench).wear},
		{"memory", "Memory", (*bench).memory},
		{"stall", "A stalled applier", (*bench).stall},
		{"start", "Start to ready", (*bench).starts},
		{"size", "Size", (*bench).sizes},
		{"site", "Site files", (*bench).sites},
		{"console", "The console in a browser", (*bench).console},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // the reader of the output may exit; the servers must still be stopped
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if len(args) > 0 && args[0] == labCommand {
		return lab(ctx, args[1:])
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	quick := f.Bool("quick", false, "a few minutes: short loads, small stores, one platform")
	only := f.String("only", "", "these parts, with commas between: "+names())
	write := f.Bool("write", false, "put the figures into docs/performance.md, in place of those of the same parts")
	seconds := f.Duration("seconds", 0, "length of a load, from which that of each part follows (20s, quick 4s)")
	readings := f.Int("readings", 0, "readings in the store that is queried (10000000, quick 100000)")
	disk := f.Int("disk", 0, "readings whose bytes are counted (1000000, quick 100000)")
	series := f.Int("series", 0, "devices of the large fleet (100000, quick 10000)")
	profile := f.String("profile", "", "record the loads with perf into this directory")
	quietTimeout := f.Duration("quiet-timeout", 0, "before each load, wait at most this long until other programs are quiet")
	keep := f.Bool("keep", false, "leave the working directory")
	if err := f.Parse(args); err != nil {
		return err
	}
	b := &bench{say: log.New(stderr, "", log.Ltime), profile: *profile, seconds: *seconds, warmup: 2 * time.Second, readings: *readings,
		disk: *disk, series: *series, all: !*quick, quietTimeout: *quietTimeout, report: &report{args: shaping(f), when: time.Now()}}
	if *quick {
		b.warmup = 500 * time.Millisecond
	}
	b.seconds = orElse(b.seconds, *quick, 4*time.Second, 20*time.Second)
	b.readings = orElse(b.readings, *quick, 100_000, 10_000_000)
	b.disk = orElse(b.disk, *quick, 100_000, 1_000_000)
	b.series = orElse(b.series, *quick, 10_000, 100_000)
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
	b.report.machine, b.report.commit = machine(b.work), b.commit(ctx)
	into := ""
	if *write {
		into = filepath.Join(b.root, "docs", "performance.md")
	}
	err = b.measure(ctx, chosen, into)
	_, e := fmt.Fprint(stdout, b.report)
	return errors.Join(err, e)
}

// measure runs the parts one after the other. A part that fails has no block, and the others continue; what is measured is
// written at once.
func (b *bench) measure(ctx context.Context, chosen []part, into string) (failed error) {
	for _, p := range chosen {
		b.say.Printf("%s", p.name)
		began := time.Now()
		b.report.begin(p)
		err := p.run(b, ctx)
		b.say.Printf("  took %s", time.Since(began).Round(time.Second))
		switch {
		case err != nil:
			b.report.spoil()
			b.say.Printf("  FAILED: %v", err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", p.name, err))
		case into != "":
			if err := b.report.into(into); err != nil {
				return errors.Join(failed, err)
			}
		}
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
	}
	return failed
}

// commit returns the measured commit, "" if it is unknown.
func (b *bench) commit(ctx context.Context) string {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = b.root
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	name, err := git("rev-parse", "--short=9", "HEAD")
	if err != nil {
		return ""
	}
	if changed, err := git("status", "--porcelain", "--", ".", ":!docs"); err != nil || changed != "" {
		name += " with changes"
	}
	return name
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
	for _, p := range parts() {
		ns = append(ns, p.name)
	}
	return strings.Join(ns, " ")
}

func choose(only string) ([]part, error) {
	all := parts()
	if only == "" {
		return all, nil
	}
	var out []part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q; there are: %s", name, names())
		}
		out = append(out, all[i])
	}
	return out, nil
}

// shaping are the flags that were given and shape the figures; the parts are left out, since each block names its own.
func shaping(f *flag.FlagSet) (out []string) {
	f.Visit(func(g *flag.Flag) {
		switch g.Name {
		case "only", "write", "keep", "profile":
		case "quick":
			out = append(out, "-quick")
		default:
			out = append(out, "-"+g.Name, g.Value.String())
		}
	})
	return out
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
