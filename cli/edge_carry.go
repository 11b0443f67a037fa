package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

func newEdgeExport(c *command) *cobra.Command {
	q := operate.EdgeExport{}
	var since string
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Write what waits for the Weir above into a file, to be carried there",
		Long: "Write the messages that wait for the Weir above into one file, under their numbers\n" +
			"and with a checksum, so that it can be carried there when the link does not\n" +
			"come back. weir edge import takes it in. The file is sealed to the carry key of\n" +
			"the Weir above, which the edge gets when it signs in over TLS; without the key,\n" +
			"--plain writes a file that is not sealed.\n\n" +
			"Nothing leaves the log: the messages wait until the Weir above says that it has\n" +
			"them. A running edge exports while it continues to work; without one, its data\n" +
			"directory is read. An existing file is not overwritten.",
		Example: "  weir edge export /mnt/usb/north.weir\n  weir edge export --since 2026-11-01T00:00:00Z north.weir\n  weir edge export --plain --json north.weir",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if since != "" {
				at, err := time.Parse(time.RFC3339, since)
				if err != nil {
					return usageError{fmt.Errorf("--since %s: must be a time such as 2026-11-27T08:00:00Z", since)}
				}
				q.Since = at
			}
			cfg, err := c.load()
			if err != nil {
				return err
			}
			to, err := c.reach(cmd.Context(), *cfg)
			if err != nil {
				return err
			}
			defer to.Close()
			d, err := operate.NewBackupDraft(args[0])
			if err != nil {
				return existing(args[0], err)
			}
			p := c.passing(d)
			made, err := operate.ExportEdge.Ask(cmd.Context(), to, q, p, p.expect)
			p.done()
			if err != nil {
				return errors.Join(err, d.Drop())
			}
			if err := d.Keep(); err != nil {
				return existing(args[0], err)
			}
			c.show(made, func(w io.Writer) { printExport(w, args[0], made) })
			return nil
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "from this receive `TIME` on, also what the broker above has acknowledged, as far as the log still has it")
	cmd.Flags().BoolVar(&q.Plain, "plain", false, "do not seal the file: it can be read without a key")
	return cmd
}

func printExport(w io.Writer, file string, made *operate.EdgeExported) {
	if made.Messages == 0 {
		fmt.Fprintf(w, "%s: no message waits\n", file)
	} else {
		fmt.Fprintf(w, "%s: %s, numbers %d to %d, received %s to %s\n", file, countText(int64(made.Messages), "message"), made.First, made.Last,
			made.Oldest.Format(time.RFC3339), made.Newest.Format(time.RFC3339))
	}
	if made.Lost > 0 {
		fmt.Fprintf(w, "%s could not be read after damage to the disk\n", countText(int64(made.Lost), "message"))
	}
	if made.Key == "" {
		fmt.Fprintln(w, "not sealed: the file can be read without a key")
	} else {
		fmt.Fprintf(w, "sealed to the carry key %s of the Weir above\n", made.Key)
	}
	fmt.Fprintf(w, "SHA-256 %s\n", made.Sum)
}

func newEdgeImport(c *command) *cobra.Command {
	check := false
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Take in a file that was carried from an edge",
		Long: "Take in a file that weir edge export has written, at the Weir above: its messages\n" +
			"go the way of those that the edge relays, under their numbers, so that what is\n" +
			"here already is a duplicate. The file is first read whole: one that is damaged,\n" +
			"or from an edge that is not known, is refused, and nothing of it is taken in.\n" +
			"After an interruption import it again. The edge learns of it when it signs in\n" +
			"the next time, and then sends only the rest.",
		Example: "  weir edge import /mnt/usb/north.weir\n  weir edge import --check /mnt/usb/north.weir\n  weir edge import --json north.weir",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return &model.Error{Message: err.Error(), Err: err}
			}
			defer f.Close()
			info, err := f.Stat()
			if err == nil && !info.Mode().IsRegular() {
				err = errors.New("it is read twice")
			}
			if err != nil {
				return &model.Error{Message: fmt.Sprintf("%s cannot be read as a file: %v", args[0], err), Err: err}
			}
			to, err := c.client(cmd.Context())
			if err != nil {
				return err
			}
			defer to.Close()
			p := c.passing(io.Discard)
			found, err := operate.ImportEdge.Ask(cmd.Context(), to, f, check, func(r io.Reader) io.Reader {
				p.n = 0
				p.expect(info.Size())
				return io.TeeReader(r, p)
			})
			p.done()
			if err != nil {
				return err
			}
			c.show(found, func(w io.Writer) { printImport(w, found) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "read the file and say what it holds, without taking it in")
	return cmd
}

func printImport(w io.Writer, found *operate.EdgeImport) {
	verb := "taken in"
	if !found.Taken {
		verb = "sound, not taken in"
	}
	fmt.Fprintf(w, "%s: %s of the edge %s of tenant %s", verb, countText(int64(found.Messages), "message"), printable(found.Edge), printable(found.Tenant))
	if found.Messages > 0 {
		fmt.Fprintf(w, ", numbers %d to %d", found.First, found.Last)
	}
	fmt.Fprintf(w, ", exported %s\n", found.Made.UTC().Format(time.RFC3339))
	if found.Known > 0 {
		fmt.Fprintf(w, "%s of them here before: duplicates\n", wereText(found.Known))
	}
}

func wereText(n uint64) string {
	if n == 1 {
		return "1 was"
	}
	return grouped(int64(n)) + " were"
}
