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
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/config"
	"weir/internal/setting"
	"weir/model"
	"weir/operate"
)

func newBackup(c *command) *cobra.Command {
	return group("backup", "Copy an instance while it runs, verify a copy, restore one", newBackupCreate(c), newBackupList(c), newBackupVerify(c), newBackupRestore(c))
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
		Long: "Write a consistent copy of the database and the log into one file that only you\n" +
			"can read. The copy contains everything that was acknowledged before the command\n" +
			"began. A running instance continues to work meanwhile; without one, the\n" +
			"directory is copied as it is. The file appears under its name when it is\n" +
			"complete; an existing file is not overwritten. - writes to stdout, so that the\n" +
			"copy can be stored on another machine.\n\n" +
			"The copy contains the root key only with --with-root-key. Without the key the\n" +
			"secrets in a copy cannot be read, so keep the key in another place. The copy\n" +
			"does not contain the configuration.",
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
	cmd.Flags().BoolVar(&k.q.WithRootKey, "with-root-key", false, "include the root key: every holder of the file can then read every secret")
	cmd.Flags().BoolVar(&k.gzip, "gzip", false, "compress the copy")
	cmd.Flags().StringVar(&rate, "rate", "", "maximum `SIZE` read per second, such as 2MiB, for slow disks")
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
	if err != nil { // the copy is complete and in place nevertheless
		k.c.note("the time of this copy was not recorded, so weir doctor does not show it: %v", err)
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

func newBackupList(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show the backups that the instance has made in backup.directory",
		Long: "Show the files of backup.directory, the newest first: those that the instance makes\n" +
			"by itself when backup.every says so, and those that the API was asked for. Copies that\n" +
			"weir backup create has written elsewhere are not among them.",
		Example: "  weir backup list\n  weir backup list --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			to, err := c.reach(cmd.Context(), *cfg)
			if err != nil {
				return err
			}
			defer to.Close()
			b, err := operate.ListBackups.Ask(cmd.Context(), to, operate.None{})
			if err != nil {
				return err
			}
			c.show(b, func(w io.Writer) { printBackups(w, b) })
			return nil
		},
	}
}

func printBackups(w io.Writer, b *operate.Backups) {
	if r := b.Running; r != nil {
		fmt.Fprintf(w, "being %s: %s, %s of about %s\n", map[string]string{"make": "made", "verify": "verified"}[r.What], printable(r.Name), bytesText(r.Done), bytesText(r.Bytes))
	}
	if f := b.Failure; f != nil {
		fmt.Fprintf(w, "the last attempt to %s one failed at %s: %s\n", f.What, f.At.Format(time.RFC3339), printable(f.Text))
	}
	if len(b.Files) == 0 {
		fmt.Fprintf(w, "no backup in %s\n", printable(b.Directory))
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MADE\tSIZE\tVERIFIED\tFILE")
	for _, f := range b.Files {
		verified := "no"
		if v := f.Verified; v != nil {
			verified = map[bool]string{true: "can be restored", false: "CANNOT be restored"}[v.Restorable]
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Modified.Format(time.RFC3339), bytesText(f.Bytes), verified, printable(filepath.Join(b.Directory, f.Name)))
	}
	_ = t.Flush() // c.out keeps what failed
	if b.Unlisted > 0 {
		fmt.Fprintf(w, "and %d more\n", b.Unlisted)
	}
}

func newBackupVerify(c *command) *cobra.Command {
	var scratch string
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Verify that a copy can be restored",
		Long: "Read a whole copy, compare every file with its checksum, unpack database and\n" +
			"log into a temporary directory, open and read both, and check that they belong\n" +
			"together. - reads from stdin. The command needs as much free space as the\n" +
			"uncompressed copy, in the directory for temporary files or in --scratch.\n\n" +
			"The exit code is 0 if the copy can be restored, otherwise 5.",
		Example: "  weir backup verify /mnt/usb/weir-monday.backup\n  weir backup verify --scratch /mnt/usb weir.backup.gz",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := c.openBackup(cmd.Context(), args[0])
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
	cmd.Flags().StringVar(&scratch, "scratch", "", "temporary `directory` to unpack into (default: the system's)")
	return cmd
}

// openBackup opens a copy. A read of stdin ends with ctx, although nothing comes.
func (c *command) openBackup(ctx context.Context, file string) (io.ReadCloser, error) {
	if file != "-" {
		return os.Open(file)
	}
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, c.io.Stdin)
		w.CloseWithError(err) // nil: the end
	}()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	return r, nil
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
		fmt.Fprintf(w, "  %s, %s, %s in the database; log of %s, with %s more that the start applies\n", count(int(n.Tenants), "tenant"), count(int(n.Devices), "device"),
			count(int(n.Messages), "message"), strings.Replace(count(n.Batches, "batch"), "batchs", "batches", 1), count(int(n.Records), "record"))
	}
}

func newBackupRestore(c *command) *cobra.Command {
	var q operate.RestoreQuery
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a copy into an empty data directory",
		Long: "Unpack a copy into the data directory, which must be empty or absent. The\n" +
			"command reads everything, compares it with its checksums and opens it before it\n" +
			"puts anything in place. An instance does not start on a directory whose restore\n" +
			"was interrupted; run the command again. - reads from stdin.\n\n" +
			"If the copy does not contain the root key, the command reads the key from\n" +
			"--root-key-file, from WEIR_ROOT_KEY, or from secrets.root_key_file. The key\n" +
			"must be the one that sealed the copy.\n\n" +
			"The next start applies the records in the copy's log and continues in a new\n" +
			"epoch. The time between the copy and that start is marked as a gap in the\n" +
			"ledger.",
		Example: "  weir backup restore weir-monday.backup --data /var/lib/weir --root-key-file root.key",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			in, err := c.openBackup(cmd.Context(), args[0])
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
	cmd.Flags().StringVar(&q.RootKeyFile, "root-key-file", "", "`file` with the root key, which the command copies into the data directory")
	return cmd
}
