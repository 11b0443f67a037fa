package main

import (
	"context"
	"os"
	"path/filepath"
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
	return nil
}
