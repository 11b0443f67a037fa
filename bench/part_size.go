package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// sizes builds the stripped binary for each platform.
func (b *bench) sizes(ctx context.Context) error {
	platforms := []struct {
		name string
		must float64 // in MB: with all transports and the console, and without Kafka and AWS
		env  []string
	}{
		{"amd64", 52, []string{"GOOS=linux", "GOARCH=amd64"}},
		{"arm64", 52, []string{"GOOS=linux", "GOARCH=arm64"}},
		{"armv7", 52, []string{"GOOS=linux", "GOARCH=arm", "GOARM=7"}},
		{"arm64, for gateways", 45, []string{"GOOS=linux", "GOARCH=arm64", "GOFLAGS=-tags=gateway"}},
	}
	if !b.all {
		platforms = platforms[:1]
	}
	for _, p := range platforms {
		out := filepath.Join(b.work, "weir-"+strings.ReplaceAll(p.name, ", ", "-"))
		if err := b.goBuild(ctx, out, "-s -w", p.env...); err != nil {
			return err
		}
		fi, err := os.Stat(out)
		if err != nil {
			return err
		}
		b.judged(atMost(p.must, 40, megabytes), "stripped binary, "+p.name, float64(fi.Size())/1e6, "static, no C")
	}
	return b.sizeOfLwM2M(ctx)
}

// sizeOfLwM2M adds up what the binary has of the LwM2M server and of DTLS, which nothing else uses: code and data that belong to a package by their symbols.
func (b *bench) sizeOfLwM2M(ctx context.Context) error {
	out := filepath.Join(b.work, "weir-symbols")
	if err := b.goBuild(ctx, out, "-w", "GOOS=linux", "GOARCH=amd64"); err != nil {
		return err
	}
	symbols, err := exec.CommandContext(ctx, "go", "tool", "nm", "-size", out).Output()
	if err != nil {
		return err
	}
	sum := 0
	for line := range strings.Lines(string(symbols)) {
		f := strings.Fields(line) // address, size, type, name
		if len(f) < 4 || !strings.Contains(f[3], "weir/lwm2m") && !strings.Contains(f[3], "github.com/pion/") {
			continue
		}
		n, err := strconv.Atoi(f[1])
		if err != nil {
			return err
		}
		sum += n
	}
	b.judged(atMost(2.5, 1.6, megabytes), "of it LwM2M and DTLS, amd64", float64(sum)/1e6, "the symbols of their packages; what they use of the standard library, and line tables, are not in it")
	return nil
}
