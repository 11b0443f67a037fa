package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weir/health"
	"weir/internal/smallfile"
	"weir/store"
)

// LastStop is how the process before this one ended.
type LastStop struct {
	Clean bool `json:"clean"`
	// Evidence says what may have ended it, "" when nothing does.
	Evidence string `json:"evidence,omitempty"`
	// Unclean is how many stops were no clean ones since the database was made.
	Unclean int64 `json:"uncleanStops"`
}

// running is what an instance notes of itself while it runs, for the one after it to tell what has happened.
type running struct {
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
	health.Traces
}

func runningPath(dir string) string { return filepath.Join(dir, "running.json") }

// maxRunning bounds what is read of the note.
const maxRunning = 4 << 10

func readRunning(dir string) *running {
	b, err := smallfile.Read(runningPath(dir), maxRunning)
	r := &running{}
	if err != nil || json.Unmarshal(b, r) != nil {
		return nil
	}
	return r
}

// noteRunning writes the note. It is for people alone: an instance that cannot write it runs all the same.
func (in *Instance) noteRunning(m health.Machine) {
	b, err := json.Marshal(running{PID: os.Getpid(), Since: in.started.UTC(), Traces: m.Traces()})
	if err == nil {
		err = os.WriteFile(runningPath(in.cfg.DataDir), b, 0o600)
	}
	if err != nil {
		in.log.Warn("what runs cannot be noted for the next start", "error", err)
	}
}

// evidence is what the traces of a process that has ended and those of today say about its end. nil: it left none.
func evidence(was *running, now health.Traces) string {
	switch {
	case was == nil:
		return ""
	case was.Boot != now.Boot && was.Boot != "" && now.Boot != "":
		return "the machine was started anew since: a power cut, a crash or a reboot that did not wait"
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
	told := "not a clean one"
	if s.Evidence != "" {
		told += ": " + s.Evidence
	}
	return health.Warn("nothing acknowledged is lost, refusals of the last moments may not be counted; was it a power cut, or did the system kill it (dmesg)?",
		"%s", told)
}

const metaUncleanStops = "unclean_stops"

// countUnclean counts one more stop that was none, in the transaction that marks the gap.
func countUnclean(tx store.Tx) (int64, error) {
	n, _, err := store.MetaInt(tx, metaUncleanStops)
	if err != nil {
		return 0, err
	}
	return n + 1, store.SetMetaInt(tx, metaUncleanStops, n+1)
}
