package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newBundle(c *command) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Gather diagnostics for support",
		Long: "Write one file for support that only you can read: version, configuration,\n" +
			"findings of weir doctor, status, ledger and dead letters of the last days by\n" +
			"reason, metrics, activity of the process, names and sizes of files, and facts\n" +
			"about the machine. The file contains no secrets and no data that devices sent.\n" +
			"It contains names: of tenants, rules, hosts, directories. Review it before you\n" +
			"send it.\n\n" +
			"The command works on a running instance and, with fewer contents, without one.\n" +
			"An existing file is not overwritten.",
		Example: "  weir bundle\n  weir bundle -o /tmp/weir-bundle.tar.gz",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now().UTC()
			name := "weir-bundle-" + now.Format("20060102T150405Z")
			files, err := c.gather(cmd.Context())
			if err != nil {
				return err
			}
			if file == "" {
				file, err = writeUnnamed(name, now, files)
			} else {
				err = writeBundle(file, name, now, files)
			}
			if err != nil {
				return bundleError(file, err)
			}
			c.showBundle(file, files)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "the `file` to write (default: weir-bundle-TIME.tar.gz in this directory)")
	return cmd
}

// gather asks the running instance, or looks at what lies there. A configuration that does not load is reported in its place.
func (c *command) gather(ctx context.Context) ([]operate.BundleFile, error) {
	version, err := json.MarshalIndent(versions(), "", "  ")
	if err != nil {
		return nil, err
	}
	files := []operate.BundleFile{{Name: "version.json", What: "version of this binary", Body: append(version, '\n')}}
	r, err := c.reading()
	if err != nil {
		return nil, err
	}
	if r.Config == nil {
		files = append(files, operate.BundleFile{Name: "config.txt", What: "why the configuration does not load", Body: []byte(withoutSource(r.Problems) + "\n")})
	}
	to, err := c.reachRead(ctx, r)
	if errors.Is(err, operate.ErrNotRunning) {
		return files, nil
	}
	if err != nil {
		return nil, err
	}
	defer to.Close()
	more, err := operate.MakeBundle.Ask(ctx, to, operate.None{})
	return append(files, more...), err
}

// sameSecond is how many bundles one second gives a name of their own.
const sameSecond = 9

// writeUnnamed writes the archive under its name, or with a number behind it where another bundle has that name.
func writeUnnamed(name string, now time.Time, files []operate.BundleFile) (file string, err error) {
	for n := 1; n <= sameSecond; n++ {
		dir := name
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", name, n)
		}
		file = dir + ".tar.gz"
		if err = writeBundle(file, dir, now, files); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return file, err
}

// writeBundle writes the archive; what is left of one that fails is removed.
func writeBundle(file, dir string, now time.Time, files []operate.BundleFile) (err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, ownFile)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(file))
		}
	}()
	return archive(f, dir, now, files)
}

func archive(w io.Writer, dir string, now time.Time, files []operate.BundleFile) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range append([]operate.BundleFile{{Name: "CONTENTS.txt", Body: contents(files)}}, files...) {
		if err := t.WriteHeader(&tar.Header{Name: dir + "/" + filepath.Base(f.Name), Mode: 0o600, Size: int64(len(f.Body)), ModTime: now, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := t.Write(f.Body); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func contents(files []operate.BundleFile) []byte {
	var out bytes.Buffer
	listBundle(&out, files)
	return out.Bytes()
}

func listBundle(w io.Writer, files []operate.BundleFile) {
	for _, f := range files {
		fmt.Fprintf(w, "  %-18s %8s  %s\n", f.Name, bytesText(int64(len(f.Body))), f.What)
	}
}

func bundleError(file string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return inTheWay(file, "name another file with --output")
	}
	return err
}

func (c *command) showBundle(file string, files []operate.BundleFile) {
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	c.show(map[string]any{"file": file, "contents": names}, func(w io.Writer) {
		fmt.Fprintln(w, file)
		listBundle(w, files)
	})
	if !c.json {
		fmt.Fprintln(c.io.Stderr, "Secrets and what devices have sent are left out; names of tenants, rules and hosts are not. Look into it before you send it.")
	}
}
