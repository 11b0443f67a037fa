package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"weir/app"
	"weir/config"
)

// lab runs an instance as weir run does, on a disk that is slower than the machine's, or with a clock that the bench turns
// while it counts what the log writes. The bench runs itself for it.
func lab(ctx context.Context, args []string) error {
	f := flag.NewFlagSet(labCommand, flag.ContinueOnError)
	settings := f.String("config", "", "as of weir run")
	sync := f.Duration("sync", 0, "each flush of the log takes so long at least")
	shared := f.String("board", "", "file of the board that supplies the clock and counts the log's writes")
	if err := f.Parse(args); err != nil {
		return err
	}
	cfg, err := config.Load(config.Source{File: *settings})
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(app.MemoryLimit(*cfg))
	opt := app.Options{Logger: slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Out: os.Stdout}
	if *sync > 0 {
		opt.Sync = slow(flushes * *sync)
	}
	if *shared != "" {
		b, err := openBoard(*shared)
		if err != nil {
			return err
		}
		opt.Now, opt.Sync = b.now, counted(b)
	}
	return app.New(*cfg, opt).Run(ctx, nil, nil)
}

// labCommand is the first argument with which the bench runs itself as the lab.
const labCommand = "lab"

// flushes of the disk are in each durable step of the log: the pages, then the page that names them.
const flushes = 2

// slow makes each durable step take so long at least.
func slow(least time.Duration) func(func() error) error {
	return func(sync func() error) error {
		done := time.After(least)
		err := sync()
		<-done
		return err
	}
}

// counted adds the bytes of each durable step to the board: the kernel counts for each thread, and the step stays on one.
func counted(b *board) func(func() error) error {
	return func(sync func() error) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before, err := writtenHere()
		if err != nil {
			return err
		}
		failed := sync()
		after, err := writtenHere()
		b.log(after - before)
		return errors.Join(failed, err)
	}
}

// writtenHere is what this thread has had written to disks, in bytes.
func writtenHere() (int64, error) {
	text, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, errors.New("/proc/thread-self/io has no write_bytes")
}
