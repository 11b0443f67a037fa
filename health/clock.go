package health

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// skew is how far the clock may lie behind what it has stamped before: small steps back are what time servers do.
const skew = 5 * time.Minute

// Clock checks that the time can be believed: not before built, when this binary was made (zero: not known), not before
// the newest file in the directories, and kept right by somebody.
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
			return Good("%s; whether it is kept right cannot be asked: %v", stamp(now), err)
		case !synchronized:
			return Warn("run a time service (systemd-timesyncd, chrony, ntpd)", "%s; %s says that nothing keeps it right", stamp(now), by)
		}
		return Good("%s, kept right (%s)", stamp(now), by)
	}}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// newestFile is when a file in one of the directories was last written, zero when there is none.
func newestFile(dirs []string) (newest time.Time) {
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir) // what cannot be read was not written
		for _, e := range entries {
			info, err := os.Stat(filepath.Join(dir, e.Name()))
			if err == nil && !info.IsDir() && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
		}
	}
	return newest
}
