package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newLedgerVerify(c *command) *cobra.Command {
	edges := false
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Recount the stored messages, and show every difference",
		Long: "Recount from the disk: every reading in every packed row, locations and alerts,\n" +
			"dead letters, and the part of the log that the store does not contain yet.\n" +
			"Compare the result, per tenant, transport and hour, with the messages that the\n" +
			"transports counted as received and with those counted as stored. Show every\n" +
			"difference. Rows that cannot be read, or contain a reading twice, are named.\n\n" +
			"A running instance recounts from one snapshot while it continues to work.\n" +
			"Without one, the command reads the directory and changes nothing in it. The\n" +
			"command reads the whole store, a few rows per transaction. Dead letters that\n" +
			"were removed because of their age, or from the rejected-payload buffer, are\n" +
			"counted separately, because they cannot be recounted.\n\n" +
			"With --edge the messages of edges are compared instead: what each installation of\n" +
			"an edge says that it has handed over, by its numbers, with what is here. On an\n" +
			"edge it is compared with what the Weir above said last.\n\n" +
			"The exit code is 0 if everything balances, otherwise 5.",
		Example: "  weir ledger verify\n  weir ledger verify --edge\n  weir ledger verify --json --data /var/lib/weir",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if edges {
				return c.verifyEdges(cmd.Context())
			}
			v, err := c.recount(cmd.Context())
			if err != nil {
				return err
			}
			c.show(v, func(w io.Writer) { printVerification(w, v) })
			if v.Balanced {
				return nil
			}
			return checkError{fmt.Errorf("the ledger does not balance: %s", count(len(v.Wrongs)+v.Unlisted, "finding")),
				"keep the data directory as it is, and report this with weir bundle"}
		},
	}
	cmd.Flags().BoolVar(&edges, "edge", false, "compare what edges have handed over with what is here")
	return cmd
}

// verifyEdges compares both sides of edges.
func (c *command) verifyEdges(ctx context.Context) error {
	v, err := ask(ctx, c.client, &operate.VerifyEdges, operate.None{})
	if err != nil {
		return err
	}
	c.show(v, func(w io.Writer) { printEdges(w, v) })
	if v.Agree {
		return nil
	}
	return checkError{errors.New("messages that edges have handed over are not here"),
		"weir edge resync at the edge has it send again what its log still has; a gap that both sides have named is gone"}
}

func printEdges(w io.Writer, v *operate.EdgesVerified) {
	if len(v.Edges) == 0 {
		fmt.Fprintln(w, "no edge has said anything yet")
	}
	for _, e := range v.Edges {
		if e.Edge != "" {
			fmt.Fprintf(w, "%s %s: ", printable(e.Tenant), printable(e.Edge))
		}
		fmt.Fprintf(w, "installation %s, epoch %d: %s handed over up to number %d, %s above", e.InstallID, e.Epoch, countText(int64(e.HandedOver), "message"), e.Through, grouped(int64(e.Above)))
		if e.Ahead > 0 {
			fmt.Fprintf(w, ", %s after it", grouped(int64(e.Ahead)))
		}
		if e.Carried > 0 {
			fmt.Fprintf(w, "; %s carried by hand", grouped(int64(e.Carried)))
		}
		if e.AsOf != nil {
			fmt.Fprintf(w, "; as of %s", e.AsOf.Format(time.RFC3339))
		}
		fmt.Fprintln(w)
		if len(e.Missing) > 0 {
			fmt.Fprintf(w, "  MISSING: %s\n", strings.Join(e.Missing, ", "))
		}
		if len(e.Named) > 0 {
			fmt.Fprintf(w, "  of these named as a gap on both sides: %s\n", strings.Join(e.Named, ", "))
		}
	}
	if !v.Complete {
		fmt.Fprintln(w, "the instance is behind with its log: what it has acknowledged in the last seconds is not looked at")
	}
}

// recount lets the running instance recount itself, or recounts a directory where none runs.
func (c *command) recount(ctx context.Context) (*operate.Verification, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	p := &progressLine{w: c.io.Stderr, on: isTerminal(c.io.Stderr)}
	defer p.end()
	to, err := c.reach(ctx, *cfg)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	return operate.VerifyLedger.Ask(ctx, to, p.show)
}

// progressLine shows on a terminal how far a recount is, a few times a second.
type progressLine struct {
	w    io.Writer
	on   bool
	last time.Time
}

func (p *progressLine) show(done, all int64) {
	if !p.on || all == 0 || time.Since(p.last) < 200*time.Millisecond {
		return
	}
	p.last = time.Now()
	fmt.Fprintf(p.w, "\rrecounting: %s of %s rows ", grouped(done), grouped(all))
}

func (p *progressLine) end() {
	if !p.last.IsZero() {
		fmt.Fprint(p.w, "\r\033[K")
	}
}

func printVerification(w io.Writer, v *operate.Verification) {
	if v.Balanced {
		fmt.Fprintf(w, "balanced: %s stored with %s, in %s of tenants and transports", countText(v.Messages, "message"), countText(v.Readings, "reading"),
			countText(int64(v.Hours), "hour"))
	} else {
		fmt.Fprintf(w, "recounted: %s stored with %s", countText(v.Messages, "message"), countText(v.Readings, "reading"))
	}
	fmt.Fprintf(w, "; the store contains the log up to record %d", v.Head)
	if v.Waiting > 0 {
		fmt.Fprintf(w, ", %s after it\n", countText(v.Waiting, "message"))
		fmt.Fprint(w, "messages after it are safe in the log; weir ledger counts them where they end, this recount once the store contains them")
	}
	fmt.Fprintln(w)
	for _, i := range v.Wrongs {
		fmt.Fprintln(w, printable(imbalanceText(&i)))
	}
	if v.Unlisted > 0 {
		fmt.Fprintf(w, "and %s more\n", grouped(int64(v.Unlisted)))
	}
	if v.Untold > 0 {
		fmt.Fprintf(w, "%s have left with their time or out of the rejected-payload buffer: they are counted and cannot be recounted\n", countText(v.Untold, "dead letter"))
	}
	if v.Expired > 0 {
		fmt.Fprintf(w, "%s went because their time was over: retention accounts for as many\n", countText(v.Expired, "reading"))
	}
	printGaps(w, v.Gaps, false)
}

func imbalanceText(i *operate.Imbalance) string {
	place := ""
	if i.Hour != nil {
		place = fmt.Sprintf("%s %s %s: ", i.Hour.Format("2006-01-02 15:04"), cmp.Or(i.Tenant, unauthenticated), i.Transport)
	} else if i.Tenant != "" {
		place = i.Tenant + ": "
	}
	if i.Row != "" && i.Messages == 0 && i.Readings == 0 {
		return place + i.Row + " " + i.Text
	}
	return place + amount(i) + i.Text
}

// amount is by how much something does not balance.
func amount(i *operate.Imbalance) string {
	text := ""
	for _, n := range []struct {
		n    int64
		what string
	}{{i.Messages, "message"}, {i.Readings, "reading"}} {
		switch {
		case n.n == 0 || i.Row != "":
		case n.n > 0:
			text += countText(n.n, n.what) + " missing, "
		default:
			text += countText(-n.n, n.what) + " too many, "
		}
	}
	if text != "" {
		text = text[:len(text)-len(", ")] + ": "
	}
	return text
}

func countText(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}
