package keylimit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/setting"
)

// settings are keys whose limits the test declares.
type settings struct {
	//limit:what things of a tenant
	//limit:chapter Things
	//limit:bound {} of a tenant, {section.size}
	//limit:bound each
	//limit:keys section.size
	//limit:level weir_things weir_things_max
	//limit:met weir_things_refused_total{cause="rows"}
	//limit:then refused
	//limit:cost a row
	//limit:what things at once
	//limit:chapter Others
	//limit:bound 2
	//limit:then they wait
	Things int64 `yaml:"things" default:"100000"`

	Section section `yaml:"section"`
	embedded
}

type section struct {
	Size setting.Size `yaml:"size" default:"64MiB"`
}

type embedded struct {
	//limit:what members
	//limit:chapter Things
	//limit:bound {}
	//limit:then the oldest is forgotten
	Members []member `yaml:"members"`
	//limit:what age
	//limit:chapter Things
	//limit:bound {}
	//limit:then removed
	Age time.Duration `yaml:"age" default:"720h"`
}

type member struct {
	//limit:what messages of a member
	//limit:chapter Things
	//limit:bound {} a second
	//limit:then they wait
	Rate float64 `yaml:"rate" default:"2000"`
}

// wrong has declarations that say too little.
type wrong struct {
	//limit:bound 2
	A int `yaml:"a"`
	//limit:what b
	//limit:when never
	B int `yaml:"b"`
	//limit:what c
	//limit:chapter Things
	//limit:bound {nowhere}
	//limit:then refused
	C int `yaml:"c"`
}

// failures is a test of which only the errors are kept.
type failures struct {
	testing.TB
	errors []string
}

func (f *failures) Helper() {}
func (f *failures) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func TestALimitIsReadBesideItsKey(t *testing.T) {
	t.Parallel()
	f := &failures{TB: t}
	got := Declared(f, "../../..", settings{})
	want := []Limit{
		{"Things", "things of a tenant", "100,000 of a tenant, 64 MiB each", []string{"things", "section.size"}, []string{"weir_things", "weir_things_max"},
			[]string{`weir_things_refused_total{cause="rows"}`}, "refused", "a row"},
		{"Others", "things at once", "2", []string{"things"}, nil, nil, "they wait", ""},
		{"Things", "members", "", []string{"members"}, nil, nil, "the oldest is forgotten", ""},
		{"Things", "messages of a member", "2,000 a second", []string{"members[].rate"}, nil, nil, "they wait", ""},
		{"Things", "age", "30 days", []string{"age"}, nil, nil, "removed", ""},
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if len(f.errors) != 1 || !strings.HasPrefix(f.errors[0], "members: the bound shows the default of members") {
		t.Errorf("%q", f.errors)
	}
}

func TestALimitThatSaysTooLittleIsRefused(t *testing.T) {
	t.Parallel()
	f := &failures{TB: t}
	Declared(f, "../../..", wrong{})
	for _, want := range []string{"a: the first line of a limit is //limit:what", "b: //limit:when has no meaning", `b: the limit "b" needs chapter, bound and then`,
		"c: the bound shows the default of nowhere, which has none"} {
		if !slices.Contains(f.errors, want) {
			t.Errorf("%q lacks %q", f.errors, want)
		}
	}
}

func TestDefaultsAreShownAsPagesHaveThem(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	for d, want := range map[time.Duration]string{time.Hour: "1 h", 24 * time.Hour: "24 h", 48 * time.Hour: "2 days", 90 * time.Second: "90 s", 10 * time.Minute: "10 min",
		5 * time.Millisecond: "5ms"} {
		if got := duration(d); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}
