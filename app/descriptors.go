package app

import (
	"fmt"
	"math"

	"weir/config"
	"weir/health"
	"weir/model"
)

// What of the files that the process may have open is for whom: the instance itself (database, log, its own sockets) comes
// first; of the rest MQTT has three quarters, and the API and HTTP ingest an eighth each.
const (
	leastFiles     = 128 // below that nothing goes well
	ownFiles       = 64
	httpShare      = 8
	fewConnections = 1000 // below that a word is due, though nobody has asked for more than the default
	mostShaking    = 1024 // as the broker has it
	shakingShare   = 8
	mqttQuarters   = 3
	quartersInAll  = 4
)

// filesLimit is how many files the process may have open; 0: there is no limit, or it cannot be asked.
func filesLimit(m health.Machine) int {
	n, err := m.OpenFiles()
	if err != nil || n >= math.MaxInt32 {
		return 0
	}
	return int(n)
}

// startFiles looks at the limit before anything is opened.
func (in *Instance) startFiles() error {
	in.files = filesLimit(health.ThisMachine())
	switch most := in.mostConnections(in.cfg.Broker.MaxConnections); {
	case in.files == 0:
		return nil
	case in.files < leastFiles:
		return &model.Error{Message: fmt.Sprintf("the system allows this process %d open files: weir needs %d", in.files, leastFiles),
			Hint: "raise the limit: LimitNOFILE=65536 in a systemd unit, ulimit -n 65536 in a shell, --ulimit nofile=65536 for a container"}
	case most < in.cfg.Broker.MaxConnections && (most < fewConnections || in.cfg.Broker.MaxConnections != config.Default().Broker.MaxConnections):
		in.log.Warn("fewer connections than configured: the system limits the open files", "connections", most,
			"broker.max_connections", in.cfg.Broker.MaxConnections, "files", in.files, "hint", "raise LimitNOFILE (ulimit -n)")
	}
	return nil
}

// spareFiles is what connections may take.
func (in *Instance) spareFiles() int { return in.files - ownFiles }

// mostConnections is how many MQTT connections there may be: as configured, at most what memory and the open files allow.
func (in *Instance) mostConnections(configured int) int {
	most := in.budget.mqttConnections(configured)
	if in.files == 0 {
		return most
	}
	return min(most, max(in.spareFiles()*mqttQuarters/quartersInAll-in.mostHandshakes(), 1))
}

// mostHandshakes is how many connections beside them may be about to become one.
func (in *Instance) mostHandshakes() int {
	if in.files == 0 {
		return mostShaking
	}
	return min(mostShaking, max(in.spareFiles()/shakingShare, 1))
}

// apiConnections and ingestConnections are how many connections the HTTP listeners have between them: more of them wait in the
// system's queue, so that a flood of them keeps neither database nor log from opening a file.
func (in *Instance) apiConnections() int { return in.sparing(in.budget.apiConnections()) }

func (in *Instance) ingestConnections() int { return in.sparing(in.budget.ingestConnections()) }

func (in *Instance) sparing(most int) int {
	if in.files == 0 {
		return most
	}
	return min(most, max(in.spareFiles()/httpShare, 1))
}
