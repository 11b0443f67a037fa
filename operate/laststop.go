package operate

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"weir/health"
	"weir/internal/smallfile"
)

// LastStop is how the process before this one ended.
type LastStop struct {
	Clean bool `json:"clean"`
	// Evidence says what may have ended it, "" when nothing does.
	Evidence string `json:"evidence,omitempty"`
	// Unclean is how many stops were no clean ones since the database was made.
	Unclean int64 `json:"uncleanStops"`
}

// Running is what an instance notes of itself while it runs, for the one after it to find out what has happened.
type Running struct {
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
	health.Traces
}

// RunningPath is where the note lies.
func RunningPath(dir string) string { return filepath.Join(dir, "running.json") }

// maxRunning bounds what is read of the note.
const maxRunning = 4 << 10

// ReadRunning reads the note; nil when there is none, or it does not read.
func ReadRunning(dir string) *Running {
	b, err := smallfile.Read(RunningPath(dir), maxRunning)
	r := &Running{}
	if err != nil || json.Unmarshal(b, r) != nil {
		return nil
	}
	return r
}

// Evidence is what the traces of a process that has ended and those of today say about its end. nil: it left none.
func Evidence(was *Running, now health.Traces) string {
	switch {
	case was == nil:
		return ""
	case was.Boot != now.Boot && was.Boot != "" && now.Boot != "":
		return "the machine was restarted since: a power cut, a crash or a reboot that did not wait"
	case now.OOMKills > was.OOMKills:
		return fmt.Sprintf("the system ended %s for want of memory since then, probably this one: lower limits.memory or give it more", health.Count(now.OOMKills-was.OOMKills, "process"))
	case was.Boot == now.Boot && now.Boot != "":
		return "the machine was not restarted: the process was killed (kill -9, a stop that took too long, a container that was removed) or it crashed"
	}
	return ""
}

func (s LastStop) finding() health.Finding {
	if s.Clean {
		return health.Good("clean")
	}
	text := "not a clean one"
	if s.Evidence != "" {
		text += ": " + s.Evidence
	}
	return health.Warn("nothing acknowledged is lost, refusals of the last moments may not be counted; was it a power cut, or did the system kill it (dmesg)?",
		"%s", text)
}
