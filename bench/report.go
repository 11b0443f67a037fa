package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// report is the table, in a block for each part.
type report struct {
	args            []string // those that shape the figures, but for the choice of parts
	machine, commit string
	when            time.Time
	blocks          []block
}

// block is what one part has measured.
type block struct {
	part part
	rows []row
}

type row struct {
	what, figure, must, aim, verdict, beside string
}

func (r *report) begin(p part) { r.blocks = append(r.blocks, block{part: p}) }

// spoil drops the block that was begun last: its part has failed.
func (r *report) spoil() { r.blocks = r.blocks[:len(r.blocks)-1] }

// row adds a figure that nothing is asked of.
func (b *bench) row(what, figure, format string, args ...any) {
	b.add(row{what: what, figure: figure, beside: fmt.Sprintf(format, args...)})
}

// judged adds a figure and what it is held against.
func (b *bench) judged(g goal, what string, v float64, format string, args ...any) {
	must, aim := g.bounds()
	b.add(row{what, g.write(v), must, aim, g.judge(v), fmt.Sprintf(format, args...)})
}

func (b *bench) add(r row) {
	b.say.Printf("  %s: %s %s  %s", r.what, r.figure, r.verdict, r.beside)
	last := &b.report.blocks[len(b.report.blocks)-1]
	last.rows = append(last.rows, r)
}

// command is what measures one block again.
func (r *report) command(p part) string {
	return strings.Join(append([]string{"go run ./bench -only", p.name}, r.args...), " ")
}

func (r *report) markdown(b block) string {
	var s strings.Builder
	at := ""
	if r.commit != "" {
		at = ", commit " + r.commit
	}
	fmt.Fprintf(&s, "### %s\n\n`%s`, %s%s, on %s.\n\n", b.part.title, r.command(b.part), r.when.UTC().Format("2006-01-02"), at, r.machine)
	s.WriteString("| load | measured | must | aim | | remarks |\n|---|---|---|---|---|---|\n")
	for _, w := range b.rows {
		fmt.Fprintf(&s, "| %s | %s | %s | %s | %s | %s |\n", w.what, w.figure, w.must, w.aim, w.verdict, w.beside)
	}
	return s.String()
}

func (r *report) String() string {
	var s strings.Builder
	for _, b := range r.blocks {
		s.WriteString(r.markdown(b) + "\n")
	}
	return s.String()
}

// The blocks stand between these lines of the document, each behind a line that names its part.
const (
	begins = "<!-- bench begins -->\n"
	ends   = "<!-- bench ends -->\n"
)

var partLine = regexp.MustCompile(`(?m)^<!-- part ([a-z0-9]+) -->\n`)

// into puts the blocks in the place of those of the same parts in the document; the others stay as they are.
func (r *report) into(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := r.merge(string(b))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func (r *report) merge(doc string) (string, error) {
	before, rest, ok := strings.Cut(doc, begins)
	old, after, ok2 := strings.Cut(rest, ends)
	if !ok || !ok2 {
		return "", errors.New("the lines between which the table stands are missing")
	}
	blocks := blocksOf(old)
	for _, b := range r.blocks {
		blocks[b.part.name] = r.markdown(b)
	}
	var all strings.Builder
	for _, p := range parts() {
		if text, ok := blocks[p.name]; ok {
			fmt.Fprintf(&all, "<!-- part %s -->\n%s\n", p.name, text)
		}
	}
	return before + begins + summary(all.String()) + "\n" + all.String() + ends + after, nil
}

// blocksOf are the blocks of a document, by the names of their parts.
func blocksOf(text string) map[string]string {
	out := map[string]string{}
	at := partLine.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		out[text[m[2]:m[3]]] = strings.TrimSpace(text[m[1]:end]) + "\n"
	}
	return out
}

// summary counts the verdicts of all blocks and names what is missed.
func summary(blocks string) string {
	n := map[string]int{}
	var names []string
	for line := range strings.Lines(blocks) {
		cells := strings.Split(line, " | ")
		if len(cells) < 6 {
			continue
		}
		if v := cells[4]; slices.Contains([]string{aimMet, mustMet, missed}, v) {
			if n[v]++; v == missed {
				names = append(names, strings.TrimPrefix(cells[0], "| ")+" ("+cells[1]+", must "+cells[2]+")")
			}
		}
	}
	text := fmt.Sprintf("Figures with a bound: %d. The aim is met by %d, the must by %d more; missed: %d", n[aimMet]+n[mustMet]+n[missed], n[aimMet], n[mustMet], n[missed])
	if len(names) > 0 {
		text += ", " + strings.Join(names, "; ")
	}
	return text + ".\n"
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

func mebi(n int64) string { return mebibytes(float64(n) / (1 << 20)) }

// inMillis is a duration as the figures of goals have it.
func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
