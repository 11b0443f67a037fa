package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/health"
	"weir/internal/yamldoc"
	"weir/operate"
)

func newStatus(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the state of the running instance",
		Long: "Show the state of the running instance: its listeners, the number of records\n" +
			"that wait in the log, the size of the store, and whether the ledger balances.\n" +
			"weir doctor checks more; weir health is for programs that need only one answer.",
		Example: "  weir status\n  weir status --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := ask(cmd.Context(), c.client, &operate.GetStatus, operate.None{})
			if err != nil {
				return err
			}
			c.show(s, func(w io.Writer) { printStatus(w, s) })
			return nil
		},
	}
}

func printStatus(w io.Writer, s *operate.Status) {
	state := "ready"
	if !s.Ready {
		state = "not ready"
	}
	if s.Replay != nil {
		state = "starting, devices are served and queries wait: " + s.Replay.String()
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("state", "%s, version %s, up %s", state, s.Version, time.Since(s.StartedAt).Round(time.Second))
	row("instance", "%s, data in %s", s.Instance, s.DataDir)
	row("listeners", "%s", listenersText(s.Listeners))
	if s.Edge != nil {
		row("connections", "%d over MQTT, at most %d", s.Connections, s.MaxConnections)
		printEdge(row, s.Edge)
		printBalance(row, s.Unbalanced)
		_ = t.Flush() // the reader has gone
		return
	}
	printCertificate(row, s.Certificate)
	row("connections", "%d over MQTT, at most %d", s.Connections, s.MaxConnections)
	row("memory", "%s of %s in use by the runtime; its parts: weir status --json", bytesText(s.Memory.Heap), bytesText(s.Memory.Limit))
	row("log", "%s of %s; %s", bytesText(s.Log.Bytes), bytesText(s.Log.MaxBytes), records(&s.Log))
	if s.Uplink != nil {
		printUplink(row, s.Uplink)
	}
	row("store", "%s on disk, head %s in memory", bytesText(s.StoreBytes), bytesText(s.HeadBytes))
	if s.Written != nil {
		row("written", "%s", s.Written.String())
	}
	if s.WriteBudget != nil {
		row("write budget", "%s", s.WriteBudget.String(health.Bytes))
	}
	row("rules", "%d running in %s", s.Rules.Rules, count(s.Rules.Profiles, "profile"))
	if len(s.Commands) > 0 {
		row("commands", "%s", commandsText(s.Commands))
	}
	if p := s.Previews; p.Snapshots > 0 {
		row("previews", "state of rules of %s, %s in all are kept for them", count(p.Days, "day"), health.Bytes(p.Bytes))
	}
	if s.Site != nil {
		row("site", "%s", printable(siteText(s.Site)))
	}
	if n := len(s.Standing); n > 0 {
		row("!", "%s standing still: weir outbox", count(n, "target"))
		for _, x := range s.Standing[:min(n, namedTargets)] {
			row("", "%s since %s, with %s waiting: %s", printable(x.Name()), x.Since.UTC().Format(time.RFC3339), health.Count(x.Rows, "order"), printable(x.Error))
		}
	}
	printBalance(row, s.Unbalanced)
	if s.LedgerGaps > 0 {
		row("", "%s after unclean stops", count(s.LedgerGaps, "gap"))
	}
	if len(s.Alerts) > 0 {
		row("!", "alerts: %s (weir alerts says what each means)", strings.Join(s.Alerts, ", "))
	}
	printRemoved(row, s.Removed)
	printLastReload(row, s.Reload)
	if at := s.Listeners.At(operate.OpenListener); at != "" {
		row("!", "open topics are served at %s (broker.open_topics): nothing published there is stored", at)
	}
	if s.DevTools {
		row("!", "developer tools are on (WEIR_GRAPHQL_DEV_TOOLS): introspection and the explorer of the API are open")
	}
	if !s.LastStop.Clean {
		row("!", "the last stop was not a clean one (%s): %s", count(int(s.LastStop.Unclean), "such stop"), or(s.LastStop.Evidence, "nothing says why"))
	}
	if s.Damaged != "" {
		row("!", "the database is damaged: %s (weir doctor says what to do)", printable(s.Damaged))
	}
	if s.Log.Refusing {
		row("!", "new messages are refused: %s", strings.Join(refusals(s.Log.RefusingFor), "; "))
	}
	if s.Log.Slowing != nil {
		row("!", "%s", printable(s.Log.Slowing.String()))
	}
	if s.Log.Error != "" {
		row("!", "the log refuses appends: %s", printable(s.Log.Error))
	}
	for _, l := range s.Log.Losses {
		row("!", "lost of the log: %s", printable(l.String()))
	}
	if s.Clock != "" {
		row("!", "%s", s.Clock)
	}
	if s.Waiting != "" {
		row("!", "%s", printable(s.Waiting))
	}
	_ = t.Flush() // the reader has gone
}

func printBalance(row func(name, format string, args ...any), unbalanced int) {
	if unbalanced > 0 {
		row("ledger", "does NOT balance in %s: weir ledger", count(unbalanced, "hour"))
		return
	}
	row("ledger", "balanced")
}

// listenersText names the listeners that every instance has, and those of the others that are open.
func listenersText(all operate.Listeners) string {
	shown := []string{operate.APIListener, operate.IngestListener, operate.MQTTListener}
	hidden := append([]string{operate.MetricsListener, operate.SocketListener}, shown...)
	for _, l := range all {
		if !slices.Contains(hidden, l.Name) {
			shown = append(shown, l.Name)
		}
	}
	shown = append(shown, operate.MetricsListener)
	for i, name := range shown {
		shown[i] = name + " " + orNone(all.At(name))
	}
	return strings.Join(shown, ", ")
}

// printCertificate says until when the certificate is good. One that could not be replaced, or is over, wants to be seen.
func printCertificate(row func(name, format string, args ...any), s *operate.CertificateStatus) {
	if s == nil {
		return
	}
	at := s.NotAfter.Local().Format(time.DateTime)
	if left := time.Until(s.NotAfter); left > 0 {
		row("certificate", "%s, expires %s, in %s", s.File, at, count(int(left.Hours()/24), "day"))
	} else {
		row("!", "the certificate %s has expired at %s", s.File, at)
	}
	if s.Problem != "" {
		row("!", "the certificate was not replaced (%s): %s", s.Since.Local().Format(time.DateTime), s.Problem)
	}
}

// printRemoved says how much history went because its time was over: it is not lost, it was asked for.
func printRemoved(row func(name, format string, args ...any), removed map[operate.Retained]int64) {
	for _, k := range operate.AllRetained() {
		if n := removed[k]; n > 0 {
			row("removed", "%d %s, their time was over", n, strings.ReplaceAll(string(k), "_", " "))
		}
	}
}

// printLastReload says how the last reload ended. One that failed, and keys that wait for a restart, want to be seen.
func printLastReload(row func(name, format string, args ...any), r *operate.ReloadReport) {
	if r == nil {
		return
	}
	by := fmt.Sprintf("by %s, %s", r.By, r.At.Local().Format(time.DateTime))
	if len(r.Problems) > 0 {
		row("!", "the last reload failed (%s): the configuration before it applies", by)
		for line := range strings.Lines(yamldoc.Problems(r.Problems).Lines()) {
			row("", "%s", strings.TrimRight(line, "\n"))
		}
		return
	}
	row("reload", "%s taken (%s)", count(len(r.Taken), "key"), by)
	if len(r.Waiting) > 0 {
		var keys []string
		for _, c := range r.Waiting {
			keys = append(keys, c.Path)
		}
		row("!", "waiting for a restart: %s", strings.Join(keys, ", "))
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func orNone(addr string) string {
	if addr == "" {
		return "closed"
	}
	return addr
}

func records(l *operate.LogStatus) string {
	switch {
	case l.Last < l.First:
		return "no records"
	case l.Applied < l.Last:
		return fmt.Sprintf("records %d to %d, applied up to %d, as of %s", l.First, l.Last, l.Applied, l.AsOf.Local().Format(time.DateTime))
	}
	return fmt.Sprintf("records %d to %d, all applied", l.First, l.Last)
}

func count(n int, what string) string { return health.Count(n, what) }

// bytesText is a number of bytes for people.
func bytesText(n int64) string { return health.Bytes(n) }

// refusals say why there is no space for new messages, and which key of the configuration gives more.
func refusals(causes []string) []string {
	said := map[string]string{
		"bytes":   "the log is nearly full (ingest.spool_max_bytes)",
		"records": "the log holds nearly as many messages as it may (ingest.spool_max_messages)",
		"runway":  "the log would be full within half a minute (ingest.spool_max_bytes)",
		"disk":    "the disk has little room left (spool.disk_reserve)",
	}
	out := make([]string, len(causes))
	for i, c := range causes {
		out[i] = said[c]
	}
	return out
}

// commandsText says how many commands are under way, and since when the oldest of each state.
func commandsText(all []operate.CommandsStatus) string {
	var parts []string
	for _, c := range all {
		parts = append(parts, fmt.Sprintf("%d %s (since %s)", c.Count, c.State, c.Oldest.Local().Format(time.DateTime)))
	}
	return strings.Join(parts, ", ")
}

// namedTargets is how many targets that stand still are named.
const namedTargets = 3
