package cli

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/sheet"
	"weir/model"
	"weir/operate"
)

func newDeviceImport(c *command) *cobra.Command {
	im := deviceImport{c: c}
	cmd := &cobra.Command{
		Use:   "import TENANT FILE",
		Short: "Create many devices from a CSV file",
		Long: "Create the devices of a CSV file (- is stdin): all of them, or none. The first\n" +
			"line names the columns by the API's names:\n\n" +
			"  " + strings.Join(deviceColumns, ", ") + "\n" +
			"  " + strings.Join(credentialColumns, ", ") + "\n" +
			"  " + accessTokenColumn + ", as in the lists of site files: short for an ACCESS_TOKEN\n\n" +
			"Commas, semicolons or tabs separate the columns; capitals of the names and\n" +
			"blank rows count for nothing. token is required. An empty cell is an absent\n" +
			"value. A device without a\n" +
			"credential gets an access token; the access tokens are written as CSV to --out,\n" +
			"or to stdout. All mistakes in the file are reported at once, with line and\n" +
			"column.",
		Example: "  weir device import acme fleet.csv --dry-run\n  weir device import acme fleet.csv --type boiler --out tokens.csv",
		Args:    exactly("the tenant's token", "the file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			im.tenant, im.file = args[0], args[1]
			return im.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&im.deviceType, "type", "", "device type of rows without one (default: \""+operate.DefaultDeviceType+"\", created if it does not exist)")
	cmd.Flags().StringVar(&im.out, "out", "", "write the access tokens to a new file that only its owner can read")
	cmd.Flags().BoolVar(&im.dryRun, "dry-run", false, "report mistakes and create nothing")
	return cmd
}

// The columns of an import, by the names of the API.
var (
	deviceColumns     = []string{"token", "name", "description", "deviceTypeToken", "externalId", "metadata"}
	credentialColumns = []string{"credentialType", "credentialId", "credentialValue", "expiresAt"}
)

// accessTokenColumn is the one column for a credential that lists of site files have: the id of one of type ACCESS_TOKEN.
const accessTokenColumn = "accessToken"

// importColumns are all that a header may name.
func importColumns() []string {
	return append(slices.Concat(deviceColumns, credentialColumns), accessTokenColumn)
}

// maxImportBytes bounds the file: it travels in one command.
const maxImportBytes = 6 << 20

// deviceImport is one run of weir device import.
type deviceImport struct {
	c                             *command
	tenant, file, deviceType, out string
	dryRun                        bool
}

// csvProblem is what is wrong with a file, at a line and, where it is about one, a column.
type csvProblem struct {
	Line   int    `json:"line"`
	Column string `json:"column,omitempty"`
	Reason string `json:"reason"`
}

func (p csvProblem) String() string {
	if p.Column == "" {
		return fmt.Sprintf("line %d: %s", p.Line, p.Reason)
	}
	return fmt.Sprintf("line %d, %s: %s", p.Line, p.Column, p.Reason)
}

func (im *deviceImport) run(ctx context.Context) error {
	text, err := im.read()
	if err != nil {
		return err
	}
	file := parseDevices(text, im.deviceType)
	rows, problems := file.rows, file.problems
	if len(rows) > operate.MaxDeviceImport {
		return model.Errorf(model.CodeLimitExceeded, "%s has %s devices; one import makes at most %s, so split it", im.file,
			grouped(int64(len(rows))), grouped(operate.MaxDeviceImport))
	}
	op, err := im.c.operator(ctx)
	if err != nil {
		return err
	}
	defer op.Close()
	to, err := im.openOut(len(problems) > 0)
	if err != nil {
		return err
	}
	if isTerminal(im.c.io.Stderr) {
		im.c.note("%s devices; passwords take a while", grouped(int64(len(rows))))
	}
	// What can be read is looked at even when something cannot, so that all mistakes are reported at once.
	made, err := operate.ImportDevices.Ask(ctx, op, operate.DeviceImport{Tenant: im.tenant, Rows: rows, DryRun: im.dryRun || len(problems) > 0})
	if err == nil {
		found := len(problems) + made.Found
		for _, p := range made.Problems {
			problems = append(problems, file.problem(p))
		}
		err = im.refusal(problems, found)
	}
	if err != nil {
		return errors.Join(err, to.discard())
	}
	if lost := im.report(made, file.blank, to); lost != nil {
		return undone(ctx, lost, func(ctx context.Context) error { return im.withdraw(ctx, op, rows) })
	}
	return nil
}

// withdraw removes devices whose access tokens nobody has seen.
func (im *deviceImport) withdraw(ctx context.Context, op operate.Target, rows []operate.DeviceRow) error {
	if im.dryRun {
		return nil
	}
	for some := range slices.Chunk(rows, operate.MaxDevicePage) {
		var tokens []string
		for _, r := range some {
			tokens = append(tokens, r.Device["token"])
		}
		if _, err := (tenantAPI{op, im.tenant}).removeDevices(ctx, tokens); err != nil {
			return err
		}
	}
	return nil
}

func (im *deviceImport) read() ([]byte, error) {
	in := im.c.io.Stdin
	if im.file != "-" {
		f, err := os.Open(im.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxImportBytes+1))
	if err == nil && len(b) > maxImportBytes {
		err = model.Errorf(model.CodeLimitExceeded, "%s is larger than %s; split it", im.file, bytesText(maxImportBytes))
	}
	return b, err
}

// parseDevices reads the rows of a file and, for each, its line. An unreadable row is a problem; the other rows are read.
func parseDevices(text []byte, deviceType string) *importFile {
	read := sheet.Read(text, importColumns())
	f := &importFile{columns: read.Columns, blank: read.Blank}
	for _, p := range read.Problems {
		f.problems = append(f.problems, csvProblem{p.Line, printable(p.Column), printable(p.Reason) + parenthesis(p.Hint)})
	}
	if slices.Contains(f.columns, accessTokenColumn) && (slices.Contains(f.columns, "credentialType") || slices.Contains(f.columns, "credentialId")) {
		f.problems = append(f.problems, csvProblem{1, accessTokenColumn, "stands for credentialType and credentialId, which the header names as well; leave one out"})
	}
	for _, r := range read.Rows {
		f.rows, f.lines = append(f.rows, rowOf(read.Columns, r.Cells, deviceType)), append(f.lines, r.Line)
	}
	return f
}

// importFile is a file as it was read.
type importFile struct {
	columns  []string
	rows     []operate.DeviceRow
	lines    []int // of the rows
	blank    int   // rows without a value
	problems []csvProblem
}

func parenthesis(hint string) string {
	if hint == "" {
		return ""
	}
	return " (" + hint + ")"
}

func rowOf(header, record []string, deviceType string) operate.DeviceRow {
	row := operate.DeviceRow{Device: map[string]string{}, Credential: map[string]string{}}
	if deviceType != "" {
		row.Device["deviceTypeToken"] = deviceType
	}
	for i, name := range header {
		switch {
		case record[i] == "":
		case slices.Contains(deviceColumns, name):
			row.Device[name] = record[i]
		case slices.Contains(credentialColumns, name):
			row.Credential[name] = record[i]
		case name == accessTokenColumn:
			row.Credential["credentialType"], row.Credential["credentialId"] = accessToken, record[i]
		}
	}
	return row
}

// problem is what the registry says of a row, at its line and by the name of its column.
func (f *importFile) problem(p operate.ImportProblem) csvProblem {
	if p.Other >= 0 {
		p.Reason += fmt.Sprintf(", line %d has the same", f.lines[p.Other])
	}
	if p.Field == "credentialId" && slices.Contains(f.columns, accessTokenColumn) {
		p.Field = accessTokenColumn
	}
	return csvProblem{f.lines[p.Row], p.Field, p.Reason}
}

// shownProblems is how many problems are shown to people; a program gets more.
const shownProblems = 50

// refusal reports what is wrong with a file; found is how many problems there are in all.
func (im *deviceImport) refusal(problems []csvProblem, found int) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b csvProblem) int { return a.Line - b.Line })
	text := []string{fmt.Sprintf("%s: nothing was made; %s", im.file, count(found, "problem"))}
	for _, p := range problems[:min(len(problems), shownProblems)] {
		text = append(text, p.String())
	}
	if more := found - shownProblems; more > 0 {
		text = append(text, fmt.Sprintf("… and %s more", grouped(int64(more))))
	}
	return &model.Error{Code: model.CodeInvalidInput, Message: strings.Join(text, "\n  "), Hint: "mend the file and import it again; --dry-run only looks",
		Ext: map[string]any{"problems": problems}}
}

// tokenFile is where minted tokens go; nil: to stdout.
type tokenFile struct{ *os.File }

// openOut makes the file for the tokens before the devices are made: what cannot be written then would be lost.
func (im *deviceImport) openOut(doomed bool) (*tokenFile, error) {
	if im.out == "" || im.dryRun || doomed {
		return nil, nil
	}
	f, err := os.OpenFile(im.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, ownFile)
	if errors.Is(err, os.ErrExist) {
		return nil, inTheWay(im.out, "name a new file with --out")
	}
	if err != nil {
		return nil, err
	}
	return &tokenFile{f}, nil
}

func (t *tokenFile) discard() error {
	if t == nil {
		return nil
	}
	return errors.Join(t.Close(), os.Remove(t.Name()))
}

// keep writes the tokens durably: they are nowhere else.
func (t *tokenFile) keep(minted []operate.MintedToken) error {
	return errors.Join(writeTokens(t, minted), t.Sync(), t.Close())
}

// writeTokens writes tokens with the columns of an import.
func writeTokens(w io.Writer, minted []operate.MintedToken) error {
	to := csv.NewWriter(w)
	_ = to.Write([]string{"token", "credentialType", "credentialId"}) // Error has it
	for _, m := range minted {
		_ = to.Write([]string{m.Device, "ACCESS_TOKEN", m.Secret})
	}
	to.Flush()
	return to.Error()
}

func (im *deviceImport) report(made *operate.DevicesImported, blank int, to *tokenFile) error {
	said := fmt.Sprintf("%s made in tenant %s, %s minted", grouped(int64(made.Made))+" "+plural(made.Made, "device"), made.Tenant,
		grouped(int64(len(made.Minted)))+" "+plural(len(made.Minted), "access token"))
	if made.DryRun {
		said = fmt.Sprintf("%s can be made in tenant %s; nothing was made", grouped(int64(made.Made))+" "+plural(made.Made, "device"), made.Tenant)
	}
	if blank > 0 {
		said += fmt.Sprintf("; %s left out", count(blank, "blank row"))
	}
	if to != nil {
		if err := to.keep(made.Minted); err != nil {
			return errors.Join(err, os.Remove(to.Name()))
		}
		made.Minted, said = nil, said+" and written to "+im.out
	}
	switch {
	case im.c.json:
		im.c.writeJSON(im.c.io.Stdout, made)
	case to != nil || made.DryRun || len(made.Minted) == 0:
		fmt.Fprintln(im.c.io.Stdout, said)
		return nil // nothing that is shown once
	default:
		if err := writeTokens(im.c.io.Stdout, made.Minted); err != nil {
			return err
		}
		im.c.note("%s", said)
	}
	return im.c.out.err()
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}
