package main

import (
	"fmt"
	"math"
)

// goal is what a figure is held against: it must reach one bound and aims at another.
type goal struct {
	must, aim float64
	most      bool // the figure may be at most so much; else it is to be at least so much
	write     func(float64) string
}

func atLeast(must, aim float64, write func(float64) string) goal {
	return goal{must: must, aim: aim, write: write}
}

func atMost(must, aim float64, write func(float64) string) goal {
	return goal{must: must, aim: aim, most: true, write: write}
}

// least is a goal with one bound: nothing better is aimed at.
func least(must float64, write func(float64) string) goal {
	return goal{must: must, aim: math.NaN(), write: write}
}

// within is a goal with one bound: nothing better is aimed at.
func within(most float64, write func(float64) string) goal {
	return goal{must: most, aim: math.NaN(), most: true, write: write}
}

// bounds writes must and aim as the table has them.
func (g goal) bounds() (must, aim string) {
	sign := "≥ "
	if g.most {
		sign = "≤ "
	}
	if must = sign + g.write(g.must); !math.IsNaN(g.aim) {
		aim = sign + g.write(g.aim)
	}
	return must, aim
}

// verdicts of a figure.
const (
	aimMet  = "aim met"
	mustMet = "must met"
	missed  = "**missed**"
)

// judge says what v reaches. What is no number reaches nothing.
func (g goal) judge(v float64) string {
	switch {
	case g.reaches(v, g.aim):
		return aimMet
	case g.reaches(v, g.must):
		return mustMet
	}
	return missed
}

func (g goal) reaches(v, bound float64) bool {
	if g.most {
		return v <= bound
	}
	return v >= bound
}

// Units of figures.

func times(v float64) string { return fmt.Sprintf("%.2f ×", v) }

func millis(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.1f ms", v)
	case v < 10_000:
		return fmt.Sprintf("%.0f ms", v)
	}
	return fmt.Sprintf("%.1f s", v/1000)
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", v) }

func cores(v float64) string { return fmt.Sprintf("%.2f cores", v) }

func bytesEach(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f bytes", v)
	}
	return count(v) + " bytes"
}

func mebibytes(v float64) string { return fmt.Sprintf("%.1f MiB", v) }

func megabytes(v float64) string { return fmt.Sprintf("%.1f MB", v) }
