package cli

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"
)

func TestReadingsForSpreadsheets(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 8, 0, 0, 123456000, time.UTC)
	var all []reading
	for _, m := range []string{"=1+1", "+1", "-1", "@x", "'=1", "temp", "a\tb", "a\nb", `a\u0009b`, "a\ufffdb", "\u202ea", "ä,\"b\"", ""} {
		all = append(all, reading{Metric: m, Occurred: at, Value: new(1e-7), Unit: "=°C"})
	}
	all[0].Value, all[1].Value = new(-1234567890123.0), new(1e21)
	var b strings.Builder
	if err := writeReadings(&b, all); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, row := range rows[1:] {
		if seen[row[1]] {
			t.Errorf("%q has the name of another metric", row[1])
		}
		seen[row[1]] = true
		for _, cell := range []string{row[1], row[3]} {
			if cell != "" && strings.ContainsRune("=+-@\t\r\n", rune(cell[0])) {
				t.Errorf("%q of %q is a formula", cell, all[i].Metric)
			}
		}
		if want := []string{"-1234567890123", "1000000000000000000000", "0.0000001"}[min(i, 2)]; row[2] != want || row[0] != "2026-03-01T08:00:00.123456Z" {
			t.Errorf("%v, want the value %s", row, want)
		}
	}
	if got := rows[6][1]; got != "temp" {
		t.Errorf("an ordinary name is %q", got)
	}
}
