package main

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// statedFigure is a figure of size or memory that a page takes from docs/performance.md.
type statedFigure struct {
	page, text string   // the text around the figure, which is its group
	rows       []string // the loads that it is measured by
	of         func(rows []float64) float64
}

func itself(rows []float64) float64 { return rows[0] }

var statedFigures = []statedFigure{
	{"README.md", `(\d+) to \d+ bytes of disk per reading`, []string{"disk per stored reading, two-decimal sensor, a third with an altId"}, itself},
	{"README.md", `\d+ to (\d+) bytes of disk per reading`, []string{"disk per stored reading, random float64"}, itself},
	{"README.md", `some (\d+) MiB of memory of its own`, []string{"memory, idle, no connections"}, itself},
	{"docs/gateway.md", `\| memory, no connections \| some (\d+) MiB`, []string{"memory, idle, no connections"}, itself},
	{"docs/gateway.md", `\| memory, 1,000 devices connected and silent \| (\d+) MiB`, []string{"memory, idle, 1,000 devices connected and silent"}, itself},
	{"docs/gateway.md", `about (\d+) KiB for each further one`,
		[]string{"memory, idle, 1,000 devices connected and silent", "memory, idle, 5,000 devices connected and silent"},
		func(rows []float64) float64 { return (rows[1] - rows[0]) * 1024 / 4000 }},
	{"docs/gateway.md", `\| disk per reading \| (\d+) bytes`, []string{"disk per stored reading, two-decimal sensor, a third with an altId"}, itself},
	{"docs/gateway.md", `; (\d+) for 100,000 devices with one series each`, []string{"100,000 series, one reading each 10 s: on disk per reading"}, itself},
	{"docs/gateway.md", `series each; (\d+) with random values`, []string{"disk per stored reading, random float64"}, itself},
}

// TestTheFiguresOfThePagesAreMeasured: each is that of docs/performance.md, rounded to the digits that the page has.
func TestTheFiguresOfThePagesAreMeasured(t *testing.T) {
	t.Parallel()
	measured := measuredFigures(t)
	for _, f := range statedFigures {
		text := pageText(t, f.page)
		found := regexp.MustCompile(f.text).FindStringSubmatch(text)
		if found == nil {
			t.Errorf("%s does not state %s", f.page, f.text)
			continue
		}
		var rows []float64
		for _, name := range f.rows {
			v, ok := measured[name]
			if !ok {
				t.Errorf("docs/performance.md has no row %q", name)
			}
			rows = append(rows, v)
		}
		if len(rows) != len(f.rows) {
			continue
		}
		digits := 0
		if _, fraction, ok := strings.Cut(found[1], "."); ok {
			digits = len(fraction)
		}
		if want := strconv.FormatFloat(rounded(f.of(rows), digits), 'f', digits, 64); found[1] != want {
			t.Errorf("%s states %s in %q, and docs/performance.md has %s", f.page, found[1], found[0], want)
		}
	}
}

func rounded(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

// pageText is a page with its lines joined.
func pageText(t *testing.T, page string) string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`\s+`).ReplaceAllString(string(b), " ")
}

// measuredFigures are the figures of docs/performance.md by their loads.
func measuredFigures(t *testing.T) map[string]float64 {
	t.Helper()
	b, err := os.ReadFile("docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	row := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([\d.,]+) (?:MB|MiB|bytes) \|`)
	for _, m := range row.FindAllStringSubmatch(string(b), -1) {
		v, err := strconv.ParseFloat(strings.ReplaceAll(m[2], ",", ""), 64)
		if err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		all[m[1]] = v
	}
	return all
}
