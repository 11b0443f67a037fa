package cli

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/config"
	"weir/internal/setting"
	"weir/model"
	"weir/operate"
)

func newBackup(c *command) *cobra.Command {
	return group("backup", "Copy an instance while it runs, verify a copy, restore one", newBackupCreate(c), newBackupVerify(c), newBackupRestore(c))
}

// copying is one backup create.
type copying struct {
	c    *command
	file string
	gzip bool
	q    operate.BackupQuery
	// written is how many bytes have been kept.
	written int64
	began   time.Time
}

func newBackupCreate(c *command) *cobra.Command {
	k := &copying{c: c}
	var rate string
	cmd := &cobra.Command{
		Use:   "create FILE",
		Short: "Copy the instance into one file, without stopping it",
		Long: "Write a consistent copy of the database and the log into one file that only you can read: everything that was\n" +
			"acknowledged before the command began is in it. A running instance goes on meanwhile; where none runs, the directory\n" +
			"is copied as it lies. The file is there when it is whole and not before; an existing one is not overwritten. - writes\n" +
			"to stdout, so that a copy need not lie on this machine at all.\n\n" +
			"The root key stays out unless --with-root-key asks for it: without the key the secrets of a copy cannot be read. Keep\n" +
			"the key in another place. The configuration is no part of the copy.",
		Example: "  weir backup create /mnt/usb/weir-monday.backup\n  weir backup create --gzip --rate 2MiB weir.backup.gz\n" +
			"  ssh gateway weir backup create - > gateway.backup",
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k.file = args[0]
			if rate != "" {
				var size setting.Size
				if err := size.UnmarshalText([]byte(rate)); err != nil || size == 0 {
					return usageError{fmt.Errorf("--rate %s: must be a size such as 512KiB or 2MiB", rate)}
				}
				k.q.Rate = int64(size)
			}
			return k.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&k.q.WithRootKey, "with-root-key", false, "put the root key into the copy: every holder of the file can read every secret")
	cmd.Flags().BoolVar(&k.gzip, "gzip", false, "compress the copy")
	cmd.Flags().StringVar(&rate, "rate", "", "maximum `SIZE` to read a second, such as 2MiB, for slow disks")
	return cmd
}

func (k *copying) run(ctx context.Context) error {
	k.began, k.q.Version = time.Now(), Version
	if k.q.WithRootKey {
		k.c.note("The root key goes into the copy: every holder of the file can read every secret in it. Keep it as you would keep the key.")
	}
	if k.file == "-" {
		_, err := k.fill(ctx, k.c.io.Stdout, func() error { return nil })
		return err
	}
	d, err := operate.NewBackupDraft(k.file)
	if err != nil {
		return existing(k.file, err)
	}
	kept := false
	made, err := k.fill(ctx, d, func() error {
		kept = true
		return existing(k.file, d.Keep())
	})
	if err != nil {
		if !kept {
			err = errors.Join(err, d.Drop())
		}
		return err
	}
	k.show(made)
	return nil
}

func existing(file string, err error) error {
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return &model.Error{Code: model.CodeConflict, Message: file + " is there already and is not overwritten", Hint: "name another file", Err: err}
}

// fill copies into w, lets keep make it last, and notes that there is a copy.
func (k *copying) fill(ctx context.Context, w io.Writer, keep func() error) (*operate.BackupMade, error) {
	cfg, err := k.c.load()
	if err != nil {
		return nil, err
	}
	to, err := k.c.reach(ctx, *cfg)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	made, err := k.compressed(w, func(w io.Writer) (*operate.BackupMade, error) {
		p := k.c.passing(w)
		defer p.done()
		return operate.MakeBackup.Ask(ctx, to, k.q, p, p.expect)
	})
	if err != nil {
		return nil, err
	}
	if err := keep(); err != nil {
		return nil, err
	}
	last := operate.LastBackup{At: made.Created, Bytes: k.written, Seconds: time.Since(k.began).Seconds()}
	_, err = operate.NoteBackup.Ask(ctx, to, last)
	if err != nil { // the copy is whole and in its place all the same
		k.c.note("weir doctor will not know of this copy: %v", err)
	}
	return made, nil
}

// compressed puts gzip between the copy and w, if that was asked for, and counts what reaches w.
func (k *copying) compressed(w io.Writer, copy func(io.Writer) (*operate.BackupMade, error)) (*operate.BackupMade, error) {
	w = counting{w, &k.written}
	if !k.gzip {
		return copy(w)
	}
	z := gzip.NewWriter(w)
	made, err := copy(z)
	if err == nil {
		err = z.Close()
	}
	return made, err
}

// counting is a writer that counts.
type counting struct {
	w io.Writer
	n *int64
}

func (c counting) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	*c.n += int64(n)
	return n, err
}

func (k *copying) show(made *operate.BackupMade) {
	file := k.file
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	answer := struct {
		File    string  `json:"file"`
		Size    int64   `json:"size"`
		Seconds float64 `json:"seconds"`
		*operate.BackupMade
	}{file, k.written, time.Since(k.began).Seconds(), made}
	k.c.show(answer, func(w io.Writer) {
		fmt.Fprintf(w, "%s  %s, log up to record %d\n", file, bytesText(k.written), made.Log.Last)
	})
	if made.RootKey.ID != "" && !made.RootKey.Included && !k.c.json {
		k.c.note("The root key %s is not in it: keep a copy of it in another place, nothing sealed can be read without it.", made.RootKey.ID)
	}
}

func newBackupVerify(c *command) *cobra.Command {
	var scratch string
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Verify that a copy can be restored",
		Long: "Read a copy to its end, hold every file against its sum, unpack database and log into a temporary directory, open them,\n" +
			"read all of both, and see that they belong together. - reads from stdin. It needs as much free space as the copy has\n" +
			"when it is not compressed, in the directory for temporary files or in --scratch.\n\n" +
			"Ends with 0 when the copy can be restored and with 5 when it cannot.",
		Example: "  weir backup verify /mnt/usb/weir-monday.backup\n  weir backup verify --scratch /mnt/usb weir.backup.gz",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := c.openBackup(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			r, err := app.AtRest(config.Config{}, c.getenv, nil).VerifyBackup(cmd.Context(), in, scratch)
			if err != nil {
				return backupError(args[0], err)
			}
			c.show(r, func(w io.Writer) { printBackup(w, args[0], r) })
			if n := len(r.Findings); n > 0 {
				return checkError{fmt.Errorf("%s cannot be restored: %s", args[0], count(n, "finding")), "take an older copy, and make a new one: weir backup create FILE"}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&scratch, "scratch", "", "the `directory` to unpack into for the while (default: that for temporary files)")
	return cmd
}

func (c *command) openBackup(file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(c.io.Stdin), nil
	}
	return os.Open(file)
}

// backupError names the file and adds what to do.
func backupError(file string, err error) error {
	switch operate.FaultOf(err) {
	case operate.ForeignBackup:
		return fmt.Errorf("%s: %w", file, err)
	case operate.DamagedBackup:
		return &model.Error{Message: fmt.Sprintf("%s: %v", file, err), Err: err, Hint: "take another copy; nothing was restored"}
	}
	return err
}

func printBackup(w io.Writer, file string, r *operate.BackupReport) {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "fail  %s\n", printable(f))
	}
	if r.Manifest == nil {
		return
	}
	key := "root key " + printable(r.RootKey.ID) + " not included"
	switch {
	case r.RootKey.ID == "":
		key = "nothing is sealed"
	case r.RootKey.Included:
		key = "root key " + printable(r.RootKey.ID) + " INCLUDED"
	}
	fmt.Fprintf(w, "%s: instance %s, made %s by version %s, %s\n", file, printable(r.Instance), r.Created.Format(time.RFC3339), printable(r.Version), key)
	if n := r.Counts; n != nil {
		fmt.Fprintf(w, "  %s, %s, %s stored; log of %s, %s for the start to apply\n", count(int(n.Tenants), "tenant"), count(int(n.Devices), "device"),
			count(int(n.Messages), "message"), strings.Replace(count(n.Batches, "batch"), "batchs", "batches", 1), count(int(n.Records), "record"))
	}
}

func newBackupRestore(c *command) *cobra.Command {
	var q operate.RestoreQuery
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a copy into an empty data directory",
		Long: "Unpack a copy into the data directory, which must be empty or not be there. Everything is read, held against its sums,\n" +
			"opened and compared before any of it is put in place; a directory in which a restore was cut short starts no instance\n" +
			"and is restored into again. - reads from stdin.\n\n" +
			"Where the copy does not hold the root key, the key is taken from --root-key-file, from WEIR_ROOT_KEY, or from\n" +
			"secrets.root_key_file, and must be the one that the copy is sealed under.\n\n" +
			"The next start applies what the log of the copy holds and goes on in a new epoch; the time from the copy until then is\n" +
			"marked as a gap of the ledger.",
		Example: "  weir backup restore weir-monday.backup --data /var/lib/weir --root-key-file root.key",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			in, err := c.openBackup(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			r, err := app.AtRest(*cfg, c.getenv, c.logger(cfg.Logging)).Restore(cmd.Context(), q, in)
			if err != nil {
				return backupError(args[0], err)
			}
			c.show(map[string]any{"dataDir": cfg.DataDir, "backup": r}, func(w io.Writer) { printBackup(w, args[0], r) })
			c.note("Restored into %s. What was acknowledged after %s is not in it.", cfg.DataDir, r.Created.Format(time.RFC3339))
			return nil
		},
	}
	cmd.Flags().StringVar(&q.RootKeyFile, "root-key-file", "", "the `file` that holds the root key, which is put into the data directory")
	return cmd
}
