package health

import (
	"context"
	"fmt"
	"math"
)

// ownFiles is the number of files that an instance has open besides the connections of devices.
const ownFiles = 200

// OpenFileLimit checks that the limit of open files allows as many connections as the configuration; otherwise Weir
// accepts fewer.
func (m Machine) OpenFileLimit(connections int) Check {
	return Check{"open-files", func(context.Context) Finding {
		limit, err := m.OpenFiles()
		switch need := uint64(connections) + ownFiles; {
		case err != nil:
			return Skip("the limit is unknown: %v", err)
		case limit >= math.MaxInt64:
			return Good("no limit of open files")
		case limit < need:
			return Warn(fmt.Sprintf("raise the limit (LimitNOFILE=%d in a systemd unit, ulimit -n in a shell), or lower broker.max_connections", need),
				"%d files may be open, broker.max_connections is %d", limit, connections)
		}
		return Good("%d files may be open, broker.max_connections is %d", limit, connections)
	}}
}

// Memory is an instance's knowledge of its memory.
type Memory struct {
	Limit      int64 // the limit of the instance
	Configured bool  // by limits.memory; otherwise derived
	Runtime    int64 // the limit of the Go runtime
	Available  int64 // of the machine or the container, 0 when unknown
}

// MemoryLimit checks that the limit of the instance does not exceed the available memory.
func MemoryLimit(mem Memory) Check {
	return Check{"memory", func(context.Context) Finding {
		told := fmt.Sprintf("limit %s", Bytes(mem.Limit))
		switch {
		case mem.Configured && mem.Available > 0:
			told += fmt.Sprintf(", set by limits.memory; %s are available", Bytes(mem.Available))
		case mem.Configured:
			told += ", set by limits.memory"
		case mem.Available > 0:
			told += fmt.Sprintf(", derived from %s", Bytes(mem.Available))
		}
		most := mem.Limit
		if mem.Runtime < math.MaxInt64 && mem.Runtime != mem.Limit {
			most = mem.Runtime // the effective limit of the process
			told += fmt.Sprintf("; GOMEMLIMIT is %s", Bytes(mem.Runtime))
		}
		if mem.Available > 0 && most > mem.Available {
			return Warn("lower limits.memory or GOMEMLIMIT, or the system ends the process when it uses what it was allowed", "%s", told)
		}
		return Good("%s", told)
	}}
}

// Count formats a number with its noun.
func Count[N ~int | ~int64 | ~uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Bytes formats a number of bytes with a unit.
func Bytes[N ~int64 | ~uint64 | ~int](n N) string {
	v, unit := float64(n), -1
	for v >= 1024 && unit < 3 {
		v /= 1024
		unit++
	}
	switch {
	case unit < 0:
		return fmt.Sprintf("%d B", n)
	case v < 10:
		return fmt.Sprintf("%.1f %ciB", v, "KMGT"[unit])
	}
	return fmt.Sprintf("%.0f %ciB", v, "KMGT"[unit])
}
