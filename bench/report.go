package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// report is the table.
type report struct {
	command, machine string
	when             time.Time
	rows             []row
}

type row struct{ what, figure, beside string }

func (b *bench) row(what, figure, format string, args ...any) {
	r := row{what, figure, fmt.Sprintf(format, args...)}
	b.say.Printf("  %s: %s  %s", r.what, r.figure, r.beside)
	b.report.rows = append(b.report.rows, r)
}

func (r *report) markdown() string {
	var s strings.Builder
	fmt.Fprintf(&s, "`%s`, %s, on %s; generator and server on the same machine.\n\n", r.command, r.when.UTC().Format("2006-01-02"), r.machine)
	s.WriteString("| what | measured | beside it |\n|---|---|---|\n")
	for _, w := range r.rows {
		fmt.Fprintf(&s, "| %s | %s | %s |\n", w.what, w.figure, w.beside)
	}
	return s.String()
}

// The table stands between these lines of the document.
const (
	begins = "<!-- bench begins -->"
	ends   = "<!-- bench ends -->"
)

// into puts the table into the document.
func (r *report) into(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := between(string(b), r.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func between(doc, table string) (string, error) {
	before, rest, ok := strings.Cut(doc, begins+"\n")
	_, after, ok2 := strings.Cut(rest, ends+"\n")
	if !ok || !ok2 {
		return "", errors.New("the lines between which the table stands are missing")
	}
	return before + begins + "\n" + table + ends + "\n" + after, nil
}

// count writes a number with commas, to three digits that count.
func count(v float64) string {
	n := int64(v + 0.5)
	for p := int64(1000); p <= 1_000_000_000; p *= 10 {
		if n >= p {
			step := p / 100
			if n < p*10 {
				n = (n + step/2) / step * step
			}
		}
	}
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func perSecond(v float64) string { return count(v) + "/s" }

// short writes a duration with two or three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < 10*time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func mebi(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
