package app

import (
	"context"
	"errors"
	"fmt"
	"math"

	"weir/config"
	"weir/health"
	"weir/internal/dirlock"
	"weir/model"
	"weir/operate"
)

// lock owns the data directory, and knows how many files the process may have open.
type lock struct {
	*base
	dir   *dirlock.Lock
	files int // 0 for any number
}

// Start implements component.
func (l *lock) Start(context.Context, context.Context) (err error) {
	// The lock first: nothing may be looked at while another process owns the directory.
	if l.dir, err = operate.TakeDataDir(l.cfg.DataDir); err != nil {
		return err
	}
	l.warn(l.cfg.Warnings())
	// A component that fails at its start is not stopped, so it releases the lock itself.
	if err = l.checkFiles(); err != nil {
		err = errors.Join(err, l.dir.Close())
	}
	return err
}

// Stop implements component.
func (l *lock) Stop(context.Context) error { return l.dir.Close() }

// What of the files that the process may have open goes to what: the instance itself (database, log, its own sockets) comes
// first; of the rest MQTT has three quarters, and the API and HTTP ingest an eighth each.
const (
	minFiles       = 128 // below that the program cannot work
	ownFiles       = 64
	httpShare      = 8
	fewConnections = 1000 // below that the operator is warned, though the default was not raised
	shaking        = 1024 // as the broker has it
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

// checkFiles looks at the limit before anything is opened.
func (l *lock) checkFiles() error {
	l.files = filesLimit(health.ThisMachine())
	switch n := l.maxConnections(l.cfg.Broker.MaxConnections); {
	case l.files == 0:
		return nil
	case l.files < minFiles:
		return &model.Error{Message: fmt.Sprintf("the system allows this process %d open files: weir needs %d", l.files, minFiles),
			Hint: "raise the limit: LimitNOFILE=65536 in a systemd unit, ulimit -n 65536 in a shell, --ulimit nofile=65536 for a container"}
	case n < l.cfg.Broker.MaxConnections && (n < fewConnections || l.cfg.Broker.MaxConnections != config.Default().Broker.MaxConnections):
		l.log.Warn("fewer connections than configured: the system limits the open files", "connections", n,
			"broker.max_connections", l.cfg.Broker.MaxConnections, "files", l.files, "hint", "raise LimitNOFILE (ulimit -n)")
	}
	return nil
}

// spareFiles is what connections may take.
func (l *lock) spareFiles() int { return l.files - ownFiles }

// maxConnections is how many MQTT connections there may be: as configured, at most what memory and the open files allow.
func (l *lock) maxConnections(configured int) int {
	n := l.budget.mqttConnections(configured)
	if l.files == 0 {
		return n
	}
	return min(n, max(l.spareFiles()*mqttQuarters/quartersInAll-l.maxHandshakes(), 1))
}

// maxHandshakes is how many connections besides them may be about to become one.
func (l *lock) maxHandshakes() int {
	if l.files == 0 {
		return shaking
	}
	return min(shaking, max(l.spareFiles()/shakingShare, 1))
}

// apiConnections and ingestConnections are how many connections the HTTP listeners have between them: more of them wait in the
// system's queue, so that a flood of them keeps neither database nor log from opening a file.
func (l *lock) apiConnections() int { return l.sparing(l.budget.apiConnections()) }

func (l *lock) ingestConnections() int { return l.sparing(l.budget.ingestConnections()) }

func (l *lock) sparing(n int) int {
	if l.files == 0 {
		return n
	}
	return min(n, max(l.spareFiles()/httpShare, 1))
}
