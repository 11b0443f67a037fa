package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"weir/internal/test/testweir"
)

// siteDevices is how many devices the site file declares, each with an access token of its own.
const siteDevices = 10_000

// sites measures the declared state on a running instance, through the command line as people use it.
func (b *bench) sites(ctx context.Context) error {
	in, err := b.fresh(ctx, setup{})
	if err != nil {
		return err
	}
	defer in.drop()
	devices := siteDevices
	if !b.all {
		devices /= 10
	}
	file, err := declare(in.dir, devices)
	if err != nil {
		return err
	}
	what := count(float64(devices)) + " devices with a credential each"
	for _, step := range []struct {
		row, beside string
		args        []string
	}{
		{"site plan, " + what + ", empty instance", "run in the transaction and taken back", []string{"plan", file}},
		{"site apply of the same", "one transaction, one record of the log", []string{"apply", file}},
		{"site apply again, nothing to change", "each credential compared by its hash", []string{"apply", file}},
		{"site export", "", []string{"export", "-o", filepath.Join(in.dir, "export.yaml")}},
	} {
		took, err := in.command(ctx, append([]string{"site"}, step.args...)...)
		if err != nil {
			return err
		}
		b.row(step.row, short(took), "%s", step.beside)
	}
	return nil
}

// declare writes a site file and the list of its devices.
func declare(dir string, devices int) (file string, err error) {
	var csv strings.Builder
	csv.WriteString("token,name,accessToken\n")
	for i := range devices {
		fmt.Fprintf(&csv, "d%05d,Device %d,token-of-the-benchmark-%05d\n", i, i, i)
	}
	file = filepath.Join(dir, "site.yaml")
	site := "version: 1\ntenants:\n  - token: fleet\n    deviceTypes: [{token: meter}]\n    devicesFrom: [{file: fleet.csv, deviceTypeToken: meter}]\n"
	if err := os.WriteFile(filepath.Join(dir, "fleet.csv"), []byte(csv.String()), 0o600); err != nil {
		return "", err
	}
	return file, os.WriteFile(file, []byte(site), 0o600)
}

// command runs the program while the instance runs and returns how long it took.
func (in *instance) command(ctx context.Context, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, in.b.binary, append(args, "--config", in.configFile())...)
	cmd.Env = testweir.Environ()
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("weir %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return time.Since(began), nil
}
