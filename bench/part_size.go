package main

import (
	"context"
	"os"
	"path/filepath"
)

// sizes builds the stripped binary for each platform.
func (b *bench) sizes(ctx context.Context) error {
	platforms := []struct {
		name string
		env  []string
	}{
		{"amd64", []string{"GOOS=linux", "GOARCH=amd64"}},
		{"arm64", []string{"GOOS=linux", "GOARCH=arm64"}},
		{"armv7", []string{"GOOS=linux", "GOARCH=arm", "GOARM=7"}},
	}
	if !b.all {
		platforms = platforms[:1]
	}
	for _, p := range platforms {
		out := filepath.Join(b.work, "weir-"+p.name)
		if err := b.goBuild(ctx, out, "-s -w", p.env...); err != nil {
			return err
		}
		fi, err := os.Stat(out)
		if err != nil {
			return err
		}
		b.judged(atMost(40, 28, megabytes), "stripped binary, "+p.name, float64(fi.Size())/1e6, "static, no C")
	}
	return nil
}
