package health

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// skew is the time that the clock may be before its newest receive time: time servers make small steps back.
const skew = 5 * time.Minute

// Clock checks that the time is plausible: not before built, the build time of this binary (zero: unknown), not before
// the newest file in the directories, and synchronized.
func (m Machine) Clock(built time.Time, dirs ...string) Check {
	return Check{"clock", func(context.Context) Finding {
		const wrong = "set the clock: every record is stamped with it; a gateway without a battery needs a time server at each start"
		now := m.Now()
		if now.Before(built) {
			return Fail(wrong, "the clock says %s, and this binary was made %s", stamp(now), stamp(built))
		}
		if newest := newestFile(dirs); newest.Sub(now) > skew {
			return Fail(wrong, "the clock says %s, and the data directory was written %s", stamp(now), stamp(newest))
		}
		synchronized, by, err := m.ClockState()
		switch {
		case err != nil:
			return Good("%s; whether it is synchronized is unknown: %v", stamp(now), err)
		case !synchronized:
			return Warn("run a time service (systemd-timesyncd, chrony, ntpd)", "%s; %s reports that it is not synchronized", stamp(now), by)
		}
		return Good("%s, synchronized (%s)", stamp(now), by)
	}}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// newestFile is the time of the newest file in one of the directories, zero when there is none.
func newestFile(dirs []string) (newest time.Time) {
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir) // an unreadable file was not written
		for _, e := range entries {
			info, err := os.Stat(filepath.Join(dir, e.Name()))
			if err == nil && !info.IsDir() && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
		}
	}
	return newest
}
