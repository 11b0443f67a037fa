package cli

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"weir/internal/yamldoc"
	"weir/model"
	"weir/operate"
)

// maxReadings is the maximum of readings in one answer.
const maxReadings = 1_000_000

func newReadings(c *command) *cobra.Command {
	q := readingQuery{}
	var asCSV bool
	cmd := &cobra.Command{
		Use:   "readings TENANT DEVICE [METRIC]",
		Short: "Show or export the stored readings of a device, newest first",
		Long: "Show the stored readings of a device, or of one of its metrics, newest first.\n" +
			"--csv writes them for a spreadsheet: time, metric, value, unit. When one of them\n" +
			"was outside the range of its metric, there is a column out_of_range: FLAGGED is a\n" +
			"value as it was sent, CLAMPED the bound in its place.",
		Example: "  weir readings acme boiler-1 --since 1d\n  weir readings acme boiler-1 temp --since 14d --limit 100000 --csv > temp.csv",
		Args:    between(2, "the tenant's token", "the device's token", "the metric"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.limit < 1 || q.limit > maxReadings {
				return usageError{fmt.Errorf("--limit must lie in 1..%d", maxReadings)}
			}
			if asCSV && c.json {
				return usageError{fmt.Errorf("--csv and --json cannot be used together")}
			}
			if q.device = args[1]; len(args) > 2 {
				q.metric = args[2]
			}
			client, err := c.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			list, err := tenantAPI{client, args[0]}.readings(cmd.Context(), q)
			if err != nil {
				return err
			}
			if asCSV {
				err = writeReadings(c.io.Stdout, list.Readings)
			} else {
				c.show(list, func(w io.Writer) { printReadings(w, list.Readings) })
			}
			if left := list.Total - int64(len(list.Readings)); left > 0 && !c.json {
				c.note("%s older; --limit or --until shows them", countText(left, "reading"))
			}
			c.noteLag(cmd.Context(), client)
			return err
		},
	}
	momentVar(cmd.Flags(), &q.since, "since", "", "from then on: a time such as 2026-03-01T08:00:00Z, or how long ago, such as 12h or 1d")
	momentVar(cmd.Flags(), &q.until, "until", "", "up to then, likewise (default: now)")
	cmd.Flags().IntVar(&q.limit, "limit", 100, fmt.Sprintf("at most this many, up to %d", maxReadings))
	cmd.Flags().BoolVar(&asCSV, "csv", false, "write CSV")
	return cmd
}

// between takes the named arguments, the first few of which must be there.
func between(needed int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < needed {
			return usageError{fmt.Errorf("%s: %s is missing", cmd.CommandPath(), names[len(args)])}
		}
		return upTo(names...)(cmd, args)
	}
}

// readingQuery selects readings of a device.
type readingQuery struct {
	device, metric string // "": all metrics
	since, until   *time.Time
	limit          int
}

// readingList is the newest of the selected readings. Total is how many there are in all.
type readingList struct {
	Readings []reading `json:"readings"`
	Total    int64     `json:"total"`
}

// reading is a stored reading. The names are those of the API.
type reading struct {
	ID       string    `json:"id"`
	Occurred time.Time `json:"occurredTime"`
	Metric   string    `json:"name"`
	Value    *float64  `json:"value"`
	Unit     string    `json:"unit,omitempty"`
	DataType string    `json:"dataType,omitempty"`
	// OutOfRange is FLAGGED or CLAMPED, "" for a value in its range.
	OutOfRange string `json:"outOfRange,omitempty"`
}

// readings fetches the newest selected readings page by page.
func (a tenantAPI) readings(ctx context.Context, q readingQuery) (*readingList, error) {
	const document = `query($c: EventSearchCriteria!, $metric: String) { measurementEvents(criteria: $c, name: $metric) {
		results { id occurredTime name value unit dataType outOfRange } pagination { totalRecords } } }`
	criteria := gqlVars{"pageNumber": 1, "deviceToken": q.device}
	variables := gqlVars{"c": criteria}
	if q.metric != "" {
		variables["metric"] = q.metric
	}
	for name, t := range map[string]*time.Time{"startTime": q.since, "endTime": q.until} {
		if t != nil {
			criteria[name] = t.UTC().Format(time.RFC3339Nano)
		}
	}
	list := &readingList{Readings: []reading{}}
	for {
		size := min(q.limit-len(list.Readings), operate.MaxDevicePage)
		criteria["pageSize"] = size
		var got struct {
			MeasurementEvents struct {
				Results    []reading
				Pagination struct{ TotalRecords int64 }
			}
		}
		if err := a.run(ctx, eventArea, document, variables, &got); err != nil {
			return nil, err
		}
		page := &got.MeasurementEvents
		if len(list.Readings) == 0 {
			list.Total = page.Pagination.TotalRecords
		}
		list.Readings = append(list.Readings, page.Results...)
		if len(page.Results) < size || len(list.Readings) >= q.limit {
			break
		}
		criteria["before"] = list.Readings[len(list.Readings)-1].ID
	}
	if list.Total > 0 {
		return list, nil
	}
	return list, a.sends(ctx, q.device, q.metric)
}

// sends refuses a device that does not exist and a metric of which it has no reading at all.
func (a tenantAPI) sends(ctx context.Context, device, metric string) error {
	var found struct{ DevicesByToken []struct{ Token string } }
	if err := a.run(ctx, deviceArea, `query($t: String!) { devicesByToken(tokens: [$t]) { token } }`, gqlVars{"t": device}, &found); err != nil {
		return err
	}
	if len(found.DevicesByToken) == 0 {
		return a.located(model.NotFound("device", device), "")
	}
	if metric == "" {
		return nil
	}
	var latest struct{ LatestMeasurements []struct{ Name string } }
	if err := a.run(ctx, stateArea, `query($t: String!) { latestMeasurements(deviceToken: $t) { name } }`, gqlVars{"t": device}, &latest); err != nil {
		return err
	}
	names := make([]string, len(latest.LatestMeasurements))
	for i, m := range latest.LatestMeasurements {
		names[i] = m.Name
	}
	if slices.Contains(names, metric) {
		return nil
	}
	missing := model.Errorf(model.CodeNotFound, "device %q has sent no metric %q", device, metric)
	missing.Hint = strings.TrimSpace(yamldoc.Suggest(metric, names) + " its latest values are in: weir device show " + a.tenant + " " + device)
	return missing
}

func printReadings(w io.Writer, all []reading) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no readings match")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range readingRows(all, "TIME", "METRIC", "VALUE", "UNIT", "OUT OF RANGE") {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // the reader has gone
}

// writeReadings writes readings as CSV for spreadsheets: with every digit, and no cell is a formula.
func writeReadings(w io.Writer, all []reading) error {
	to := csv.NewWriter(w)
	rows := readingRows(all, "time", "metric", "value", "unit", "out_of_range")
	for i, row := range rows {
		if i > 0 {
			r := &all[i-1]
			row[0], row[1], row[3] = r.Occurred.UTC().Format("2006-01-02T15:04:05.000000Z"), spreadsheetText(r.Metric), spreadsheetText(r.Unit)
			if r.Value != nil {
				row[2] = strconv.FormatFloat(*r.Value, 'f', -1, 64)
			}
		}
		if err := to.Write(row); err != nil {
			return err
		}
	}
	to.Flush()
	return to.Error()
}

// spreadsheetText is a text that others have chosen as a cell of a CSV file. Spreadsheets take what begins with one of = + - @ for a formula:
// an apostrophe makes it a text. What cannot be printed is escaped as \uXXXX, so that two names stay two.
func spreadsheetText(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(s, `\u`) || strings.Contains(s, `\\`) {
		var b strings.Builder
		for _, r := range s {
			switch {
			case r == '\\':
				b.WriteString(`\\`)
			case unicode.IsPrint(r):
				b.WriteRune(r)
			default:
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		}
		s = b.String()
	}
	if s != "" && strings.ContainsRune("=+-@'", rune(s[0])) {
		s = "'" + s
	}
	return s
}

// readingRows is a table of readings below its titles. It has the last column only where one of them has a mark.
func readingRows(all []reading, titles ...string) [][]string {
	columns := len(titles)
	if !slices.ContainsFunc(all, func(r reading) bool { return r.OutOfRange != "" }) {
		columns--
	}
	rows := make([][]string, 0, len(all)+1)
	rows = append(rows, titles[:columns])
	for i := range all {
		rows = append(rows, all[i].fields()[:columns])
	}
	return rows
}

// fields are the columns of a reading.
func (r *reading) fields() []string {
	value := ""
	if r.Value != nil {
		value = strconv.FormatFloat(*r.Value, 'g', -1, 64)
	}
	return []string{r.Occurred.UTC().Format("2006-01-02T15:04:05.000Z"), printable(r.Metric), value, printable(r.Unit), r.OutOfRange}
}
