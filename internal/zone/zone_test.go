package zone

import (
	"strings"
	"testing"
	"time"
)

func TestZonesComeFromTheProgramAlone(t *testing.T) {
	for _, set := range []struct{ name, value string }{{"TZ", "America/New_York"}, {"ZONEINFO", t.TempDir()}} {
		t.Setenv(set.name, set.value)
	}
	z := New()
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for name, hour := range map[string]int{"Europe/Berlin": 14, "America/New_York": 8, "UTC": 12, "": 12, "+02:30": 14, "-08:00": 4, "5:00": 17} {
		if at, err := z.Find(name); err != nil || noon.In(at).Hour() != hour {
			t.Errorf("%q: %v, %v; want the hour %d", name, at, err, hour)
		}
	}
	for name, why := range map[string]string{
		"Europe/Berln": "did you mean Europe/Berlin?", "Local": "is no time zone", "posix/Europe/Berlin": "is no time zone", "right/UTC": "is no time zone",
		"../etc/passwd": "is no time zone", "+24:00": "no offset", "--1:00": "no offset", "1:": "no offset", "+02:60": "no offset", "a:00": "no offset",
	} {
		if at, err := z.Find(name); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, %v; want an error with %q", name, at, err, why)
		}
	}
}
