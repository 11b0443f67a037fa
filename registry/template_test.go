package registry

import (
	"bytes"
	"strings"
	"testing"

	"weir/model"
)

// templateTable is the golden table of the templates and the seed of their fuzz test.
var templateTable = []struct {
	in     string
	random bool
	n      int64
	want   string
	refuse string // part of the message; "" = accepted
}{
	{in: "pump", n: 1, want: "pump"},
	{in: "", n: 1, want: ""},
	{in: "pump-{n}", n: 7, want: "pump-7"},
	{in: "pump-{n:04d}", n: 7, want: "pump-0007"},
	{in: "{n:02d}", n: 12345, want: "12345"},
	{in: "{n}-{n:03d}-x", n: 5, want: "5-005-x"},
	{in: "{n:019d}", n: 3147483646, want: "0000000003147483646"},
	{in: "sn:{random}", random: true, n: 1, want: "sn:" + strings.Repeat("ab", 16)},
	{in: "{random}{n}", random: true, n: 2, want: strings.Repeat("ab", 16) + "2"},
	{in: "sn:{random}", refuse: "{random} is allowed in externalIdTemplate only"},
	{in: "{m}", refuse: "{m} is no placeholder"},
	{in: "{}", refuse: "{} is no placeholder"},
	{in: "{n:4d}", refuse: "is no placeholder"},
	{in: "{n:0d}", refuse: "is no placeholder"},
	{in: "{n:00d}", refuse: "is no placeholder"},
	{in: "{n:020d}", refuse: "is no placeholder"},
	{in: "{n:0999999999999d}", refuse: "is no placeholder"},
	{in: "{n:0+1d}", refuse: "is no placeholder"},
	{in: "{N}", refuse: "is no placeholder"},
	{in: "{n", refuse: "an opening brace without a closing one"},
	{in: "n}", refuse: "a closing brace without an opening one"},
	{in: "{{n}}", refuse: "is no placeholder"},
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	for _, c := range templateTable {
		tpl, err := parseTemplate("tokenTemplate", c.in, c.random)
		if c.refuse != "" {
			if model.CodeOf(err) != model.CodeInvalidInput || !strings.Contains(err.Error(), c.refuse) ||
				!strings.HasPrefix(err.Error(), "tokenTemplate:") {
				t.Errorf("%q: got error %v, want INVALID_INPUT naming the field with %q", c.in, err, c.refuse)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		got, err := tpl.expand(c.n, bytes.NewReader(bytes.Repeat([]byte{0xab}, 64)))
		if err != nil || got != c.want {
			t.Errorf("%q with %d: got %q, %v, want %q", c.in, c.n, got, err, c.want)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, c := range templateTable {
		f.Add(c.in, c.random, c.n)
	}
	f.Fuzz(func(t *testing.T, in string, random bool, n int64) {
		tpl, err := parseTemplate("f", in, random)
		if err != nil {
			if model.CodeOf(err) != model.CodeInvalidInput {
				t.Fatalf("%q: refusal without a code: %v", in, err)
			}
			return
		}
		a, errA := tpl.expand(n, bytes.NewReader(make([]byte, 16*len(in)+16)))
		b, errB := tpl.expand(n+1, bytes.NewReader(bytes.Repeat([]byte{1}, 16*len(in)+16)))
		if errA != nil || errB != nil {
			t.Fatalf("%q: %v, %v", in, errA, errB)
		}
		if tpl.varies() != (a != b) {
			t.Fatalf("%q: varies is %v, yet %q and %q", in, tpl.varies(), a, b)
		}
	})
}
