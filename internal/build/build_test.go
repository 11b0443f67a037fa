package build

import (
	"testing"
	"time"
)

func TestTheBuildIsNotOlderThanTheFirstWeir(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stamps []string
		want   time.Time
	}{
		{[]string{"", ""}, floor},
		{[]string{"1970-01-01T00:00:00Z"}, floor},
		{[]string{"no time"}, floor},
		{[]string{"2027-03-01T12:00:00+02:00", ""}, time.Date(2027, 3, 1, 10, 0, 0, 0, time.UTC)},
		{[]string{"2027-03-01T12:00:00Z", "2028-01-01T00:00:00Z"}, time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if got := latest(c.stamps...); !got.Equal(c.want) {
			t.Errorf("%q: %v, want %v", c.stamps, got, c.want)
		}
	}
	if Time().Before(floor) {
		t.Error(Time())
	}
}

// The build may set the commit; without that it is the one that Go has noted, if any.
func TestTheCommitIsThatOfTheBuild(t *testing.T) {
	defer func(c string) { commit = c }(commit)
	commit = "a7e83af50b5b-dirty"
	if got := Commit(); got != commit {
		t.Error(got)
	}
}
