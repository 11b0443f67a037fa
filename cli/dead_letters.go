package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newDeadLetters(c *command) *cobra.Command {
	q := operate.DeadLetterQuery{}
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List what could not be stored or performed, newest first",
		Long: "List accepted messages that could not be stored, newest first, each with the\n" +
			"reason: an unknown device or tenant, a wrong credential, an impossible time.\n" +
			"The list includes unreadable bodies that were refused; their senders received\n" +
			"an error.\n\n" +
			"It also lists orders of rules that could not be performed (detection-action,\n" +
			"or connector-dispatch for other systems) and messages to people (notification):\n" +
			"tried too often, expired, or over the bound of the outbox.",
		Example: "  weir ledger dead-letters\n  weir ledger dead-letters --tenant acme --reason unknown-device --limit 10\n  weir ledger dead-letters --kind detection-action",
		Args:    subcommandOrNone,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Limit < 1 || q.Limit > operate.MaxDeadLetters {
				return usageError{fmt.Errorf("--limit must lie in 1..%d", operate.MaxDeadLetters)}
			}
			client, err := c.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			ds, err := operate.ListDeadLetters.Ask(cmd.Context(), client, q)
			if err != nil {
				return err
			}
			c.show(map[string]any{"deadLetters": ds}, func(w io.Writer) { printDeadLetters(w, ds) })
			return nil
		},
	}
	deadLetterFlags(cmd, &q)
	cmd.Flags().IntVar(&q.Limit, "limit", 50, fmt.Sprintf("maximum number, up to %d", operate.MaxDeadLetters))
	cmd.Flags().Int64Var(&q.Before, "before", 0, "only dead letters older than the one with this id")
	cmd.AddCommand(newResend(c), newDiscard(c))
	return cmd
}

// deadLetterFlags are those that narrow which dead letters are meant.
func deadLetterFlags(cmd *cobra.Command, q *operate.DeadLetterQuery) {
	cmd.Flags().Func("tenant", "only this `tenant`; \"\" stands for unauthenticated senders and unknown tenants", func(s string) error {
		q.Tenant = &s
		return nil
	})
	cmd.Flags().StringVar(&q.Kind, "kind", "", "only this kind: ingest, readings, command-response, detection-action, connector-dispatch or notification")
	cmd.Flags().StringVar(&q.Reason, "reason", "", "only this reason, such as unknown-device")
}

func newResend(c *command) *cobra.Command {
	return newSettle(c, settling{use: "resend", mutation: "resendDeadLetters", done: "sent again",
		short: "Send dead letters again, each to where it came from",
		long: "Send dead letters again: a message is taken in as a new one, an order of a rule\n" +
			"is put back into the outbox under its own idempotency key, with all attempts.\n" +
			"Those that cannot be sent, such as orders that have expired, stay."})
}

func newDiscard(c *command) *cobra.Command {
	return newSettle(c, settling{use: "discard", mutation: "discardDeadLetters", done: "discarded",
		short: "Discard dead letters on purpose",
		long:  "Close dead letters: they are no longer listed, and cannot be sent again."})
}

// settling is what is done with dead letters.
type settling struct{ use, mutation, done, short, long string }

func newSettle(c *command, s settling) *cobra.Command {
	var q operate.DeadLetterQuery
	var all, yes bool
	cmd := &cobra.Command{
		Use:   s.use + " [ID...]",
		Short: s.short,
		Long: s.long + "\n\nGive the ids, as weir ledger dead-letters shows them, or --all for those that\n" +
			"--tenant, --kind and --reason select.",
		Example: "  weir ledger dead-letters " + s.use + " 17 18\n  weir ledger dead-letters " + s.use + " --all --tenant acme --reason exhausted --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) > 0) == all {
				return usageError{errors.New("give ids, or --all")}
			}
			for _, id := range args {
				if _, err := strconv.ParseInt(id, 10, 64); err != nil {
					return usageError{fmt.Errorf("%q is no id of a dead letter", id)}
				}
			}
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			if all {
				if args, err = idsOf(cmd.Context(), op, q); err != nil {
					return err
				}
				if len(args) > 0 {
					if err := c.confirm(cmd.Context(), yes, fmt.Sprintf("%s %s?", s.use, count(len(args), "dead letter"))); err != nil {
						return err
					}
				}
			}
			n, err := settleLetters(cmd.Context(), op, s.mutation, args)
			if err != nil {
				return err
			}
			c.show(map[string]any{"done": n, "left": len(args) - n}, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s", count(n, "dead letter"), s.done)
				if left := len(args) - n; left > 0 {
					fmt.Fprintf(w, ", %d left as they were", left)
				}
				fmt.Fprintln(w)
			})
			return nil
		},
	}
	deadLetterFlags(cmd, &q)
	cmd.Flags().BoolVar(&all, "all", false, "all that the other flags select")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for a confirmation")
	return cmd
}

// idsOf are the ids of all dead letters that a query selects, oldest first.
func idsOf(ctx context.Context, op operate.Target, q operate.DeadLetterQuery) (ids []string, err error) {
	for q.Limit = operate.MaxDeadLetters; ; {
		found, err := operate.ListDeadLetters.Ask(ctx, op, q)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			ids, q.Before = append(ids, strconv.FormatInt(d.ID, 10)), d.ID
		}
		if len(found) < q.Limit {
			slices.Reverse(ids)
			return ids, nil
		}
	}
}

// settledAtOnce is how many dead letters one request names.
const settledAtOnce = 100

// settleLetters names dead letters to a mutation and returns the number done.
func settleLetters(ctx context.Context, op operate.Target, mutation string, ids []string) (done int, err error) {
	for part := range slices.Chunk(ids, settledAtOnce) {
		r, err := operate.RunGraphQL.Ask(ctx, op, operate.GraphQLRequest{Area: "user-management-admin", Query: "mutation ($ids: [ID!]!) { n: " + mutation + "(ids: $ids) }",
			Variables: map[string]any{"ids": part}})
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			return done, err
		}
		var answer struct{ N int }
		if err := json.Unmarshal(r.Data, &answer); err != nil {
			return done, err
		}
		done += answer.N
	}
	return done, nil
}

func printDeadLetters(w io.Writer, ds []operate.DeadLetter) {
	if len(ds) == 0 {
		fmt.Fprintln(w, "no dead letters")
		return
	}
	for _, d := range ds {
		notified := ""
		if d.Refused {
			notified = " (the sender was notified)"
		}
		from := cmp.Or(d.Tenant, unauthenticated)
		if d.Device != "" {
			from += "/" + d.Device
		}
		fmt.Fprintf(w, "%d  %s  %s  %s  %s: %s%s\n", d.ID, d.Occurred.Format(time.RFC3339Nano), d.Source, printable(from), d.Reason, printable(d.Summary), notified)
		if d.Detail != "" {
			fmt.Fprintf(w, "    %s\n", printable(d.Detail))
		}
	}
}
