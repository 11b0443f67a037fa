package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/yamldoc"
	"weir/model"
)

// day is the unit that time.ParseDuration lacks. It has 24 hours: the command line knows no zone.
const day = 24 * time.Hour

// parseSpan reads a span of time such as 90s, 12h, 1d or 14d12h, with a sign or without. Every span on the command line is
// read here.
func parseSpan(text string) (span time.Duration, ok bool) {
	unsigned := strings.TrimLeft(text, "+-")
	sign := text[:len(text)-len(unsigned)]
	days, rest, found := strings.Cut(unsigned, "d")
	if !found {
		span, err := time.ParseDuration(text)
		return span, err == nil
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || len(sign) > 1 {
		return 0, false
	}
	span = time.Duration(n) * day
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 || strings.HasPrefix(rest, "+") {
			return 0, false
		}
		if span += more; span < 0 {
			return 0, false
		}
	}
	if sign == "-" {
		span = -span
	}
	return span, true
}

// spanVar defines an option that takes a span of time.
func spanVar(f *pflag.FlagSet, to *time.Duration, name string, standard time.Duration, usage string) {
	*to = standard
	f.Var((*spanValue)(to), name, usage)
}

type spanValue time.Duration

func (s *spanValue) Set(text string) error {
	span, ok := parseSpan(text)
	if !ok {
		return errors.New("is no span of time such as 90s, 12h or 14d")
	}
	*s = spanValue(span)
	return nil
}

func (s *spanValue) String() string {
	if *s == 0 {
		return "0"
	}
	return time.Duration(*s).String()
}

func (*spanValue) Type() string { return "duration" }

// accepts reports whether a value may stand behind the option, after a blank.
func (*spanValue) accepts(text string) bool {
	_, ok := parseSpan(text)
	return ok
}

// momentVar defines an option that takes a time, or how long ago it was. The time is nil until it is given; standard, if
// not "", is given from the start.
func momentVar(f *pflag.FlagSet, to **time.Time, name, standard, usage string) {
	m := &momentValue{to: to}
	if standard != "" {
		_ = m.Set(standard) // a constant that reads
	}
	f.Var(m, name, usage)
}

type momentValue struct {
	to   **time.Time
	text string
}

func (m *momentValue) Set(text string) error {
	at, ok := parseMoment(text, time.Now())
	if !ok {
		return errors.New("is neither a time such as 2026-03-01T08:00:00Z nor a span before now such as 12h or 3d")
	}
	*m.to, m.text = &at, text
	return nil
}

func (m *momentValue) String() string { return m.text }

func (*momentValue) Type() string { return "string" }

// parseMoment reads a time, or a span before now.
func parseMoment(text string, now time.Time) (at time.Time, ok bool) {
	if span, ok := parseSpan(text); ok && span >= 0 {
		return now.Add(-span), true
	}
	at, err := model.ParseTime(text)
	return at, err == nil
}

// choiceVar defines an option that takes one of a few values, which a shell completes.
func choiceVar(f *pflag.FlagSet, to *string, name, standard string, of []string, usage string) {
	*to = standard
	f.Var(&choiceValue{to, of}, name, usage)
}

type choiceValue struct {
	to *string
	of []string
}

func (c *choiceValue) Set(text string) error {
	text = strings.ReplaceAll(text, " ", "-") // an outcome was once written with a blank
	if !c.accepts(text) {
		return errors.New(notOneOf(text, c.of))
	}
	*c.to = text
	return nil
}

func (c *choiceValue) String() string { return *c.to }

func (*choiceValue) Type() string { return "string" }

func (c *choiceValue) accepts(text string) bool { return text == "" || slices.Contains(c.of, text) }

// notOneOf says what a value is not, and which one may be meant.
func notOneOf(value string, of []string) string {
	text := "is none of " + strings.Join(of, ", ")
	if len(of) == 2 {
		text = "is neither " + of[0] + " nor " + of[1]
	}
	if near := yamldoc.Suggest(value, of); near != "" {
		text += " (" + near + ")"
	}
	return text
}

// flagError says what is wrong with an option in the words of the command line.
func flagError(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usageError{fmt.Errorf("--%s: %q %s", e.GetFlag().Name, e.GetValue(), refusal(e.GetFlag().Value, e.Unwrap()))}
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok && len(e.GetSpecifiedName()) > 1 {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, "--"+f.Name)
			}
		})
		if near := yamldoc.Suggest("--"+e.GetSpecifiedName(), names); near != "" {
			return usageError{fmt.Errorf("%w (%s)", err, near)}
		}
	}
	return usageError{err}
}

// refusal is why a value does not fit its option.
func refusal(v pflag.Value, err error) string {
	switch v.Type() {
	case "int", "int64", "uint", "uint64":
		return "is no whole number, or too large"
	case "bool":
		return "is neither true nor false"
	}
	return err.Error()
}

// joined writes "--wait 5m" as "--wait=5m" where the value of an option may be left out: pflag would take it for an argument.
func joined(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil {
		return args
	}
	out := slices.Clone(args)
	for i := 0; i+1 < len(out) && out[i] != "--"; i++ {
		name, long := strings.CutPrefix(out[i], "--")
		if !long {
			continue
		}
		f := cmd.Flags().Lookup(name)
		if f == nil || f.NoOptDefVal == "" {
			continue
		}
		if v, ok := f.Value.(interface{ accepts(string) bool }); ok && v.accepts(out[i+1]) {
			out = slices.Replace(out, i, i+2, out[i]+"="+out[i+1])
		}
	}
	return out
}
