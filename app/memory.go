package app

import (
	"fmt"

	"weir/config"
	"weir/gql"
	"weir/internal/memory"
	"weir/internal/setting"
	"weir/operate"
)

// MinMemory is the smallest limit that an instance starts with.
const MinMemory = memory.MinLimit

// programBytes is what the instance needs before it holds anything: code, stacks, the directories of its own tenants and
// identities, and what the collector has not yet taken.
const programBytes = 24 << 20

const (
	largeBody      = 1 << 20 // what a body over 64 KiB may take
	bytesPerKey    = 256     // of rule state
	bytesPerSample = 24      // that a rule retains
	resultsPerByte = 8       // memory that a byte of an answer takes while it is put together
	commandPerByte = 2       // memory that a byte of a command takes
	maxAPI         = 2048    // connections
	maxLargeBodies = 32
	minConnections = 16
)

// share is the part of the memory that one thing has: declared once, here or next to what uses it.
type share struct {
	memory.Share
	// planned is what the part may plan with of the bytes of its share; nil: all of them.
	planned func(bytes int64, c config.Config) int64
	// held is what it holds, once the instance is ready; nil: it is not known.
	held func(*Instance) int64
	// counted says that the part counts in an account of its own what it holds.
	counted bool
}

var (
	// Readings: one half fills while the other is written.
	headShare = share{Share: memory.Share{Name: "head", PerMille: 140, Min: 4 << 20, Max: 128 << 20}, counted: true,
		planned: func(bytes int64, _ config.Config) int64 { return bytes / 2 }}
	// AltIDs that were seen, of de-duplication.
	altIDShare = share{Share: memory.Share{Name: "altIds", PerMille: 50, Min: 1 << 20, Max: 1 << 40}, planned: func(bytes int64, c config.Config) int64 { return min(int64(c.Ingest.DedupeMaxBytes), bytes) },
		held: func(in *Instance) int64 { return in.applier.ingest.SeenBytes() }}
	// Packet identifiers that were seen, of MQTT clients.
	repeatShare = share{Share: memory.Share{Name: "repeats", PerMille: 20, Min: 1 << 20, Max: 16 << 20},
		held: func(in *Instance) int64 { return in.applier.ingest.RepeatBytes() }}
	// What messages are judged by: devices, types, published profiles, anchors, attributes, groups, fences. Beyond it the registry refuses
	// more of them.
	metadataShare = share{Share: memory.Share{Name: "metadata", PerMille: 60, Min: 2 << 20, Max: 1 << 40},
		held: func(in *Instance) int64 { return in.applier.ingest.MetadataBytes() }}
	ruleShare = share{Share: memory.Share{Name: "rule state", PerMille: 50, Min: 1 << 20, Max: 1 << 40},
		held: func(in *Instance) int64 {
			s := in.applier.ingest.RuleStats()
			return int64(s.Keys+s.Devices) * bytesPerKey
		}}
	// Samples that rules retain: those in their windows, and those that wait for the lateness.
	sampleShare = share{Share: memory.Share{Name: "rule samples", PerMille: 30, Min: 1 << 20, Max: 1 << 40},
		held: func(in *Instance) int64 { return int64(in.applier.ingest.RuleStats().Samples) * bytesPerSample }}
	// Pages of SQLite; outside the Go heap.
	storeCacheShare = share{Share: memory.Share{Name: "store cache", PerMille: 40, Min: 3 << 20, Max: 32 << 20}}
	unsyncedShare   = share{Share: memory.Share{Name: "unsynced appends", PerMille: 30, Min: 3 << 20, Max: 8 << 20},
		held: func(in *Instance) int64 { return in.spool.log.Stats().UnsyncedBytes }}
	// Batches that the applier has yet to take.
	tailShare = share{Share: memory.Share{Name: "log tail", PerMille: 30, Min: 1 << 20, Max: 8 << 20},
		held: func(in *Instance) int64 { return in.spool.log.Stats().TailBytes }}
	// Packets and bodies over 64 KiB while they are read.
	bodyShare = share{Share: memory.Share{Name: "large bodies", PerMille: 70, Min: 2 << 20, Max: 2 * maxLargeBodies * largeBody}}
	apiShare  = share{Share: memory.Share{Name: "API connections", PerMille: 20, Min: 1 << 20, Max: maxAPI * connectionHTTP}}
	// Bodies of GraphQL that are read and run.
	graphQLShare  = share{Share: memory.Share{Name: "GraphQL requests", PerMille: 40, Min: 4 << 20, Max: 64 << 20}}
	documentShare = share{Share: memory.Share{Name: "GraphQL documents", PerMille: 20, Min: 1 << 20, Max: 16 << 20}}
	resultShare   = share{Share: memory.Share{Name: "GraphQL results", PerMille: 60, Min: 2 << 20, Max: 256 << 20}}
	// Bodies over 64 KiB of the operator's commands.
	commandShare = share{Share: memory.Share{Name: "commands", PerMille: 50, Min: 4 << 20, Max: commandPerByte * operate.MaxSiteBytes}}
)

// shares say how memory is divided, in the order in which the status shows them.
func shares() []share {
	all := []share{headShare, altIDShare, repeatShare, metadataShare, ruleShare, sampleShare, storeCacheShare, unsyncedShare, tailShare, bodyShare}
	for _, t := range ownTransports() {
		if t.share != nil {
			all = append(all, *t.share)
		}
	}
	return append(all, apiShare, graphQLShare, documentShare, resultShare, commandShare)
}

// Budget is how an instance divides its memory: each part gets its minimum, and of what is left after that its parts per
// thousand, up to its maximum.
type Budget struct {
	Limit int64
	parts map[string]int64
}

// NewBudget divides a limit.
func NewBudget(limit int64) Budget {
	var all []memory.Share
	for _, s := range shares() {
		all = append(all, s.Share)
	}
	return Budget{limit, memory.Divide(limit-programBytes, all)}
}

func (b Budget) of(s share) int64 { return b.parts[s.Name] }

// MemoryLimit is what limits.memory means on this machine, in bytes.
func MemoryLimit(cfg config.Config) int64 {
	if cfg.Limits.Memory > 0 {
		return int64(cfg.Limits.Memory)
	}
	return memory.Detect("/")
}

// RuntimeLimit is what the Go runtime gets: what SQLite holds lies outside its heap.
func RuntimeLimit(cfg config.Config) int64 {
	limit := MemoryLimit(cfg)
	return limit - NewBudget(limit).of(storeCacheShare)
}

// CheckMemory returns why an instance cannot start with the memory that it has; nil when it can.
func CheckMemory(cfg config.Config) error {
	if limit := MemoryLimit(cfg); limit < MinMemory {
		return config.Problems{{Path: "limits.memory",
			Reason: fmt.Sprintf("the container or the machine leaves %s for Weir, which needs %s", setting.Size(limit>>20<<20), setting.Size(MinMemory)),
			Hint:   fmt.Sprintf("give it more memory; or say limits.memory: %s, when you know that it is there", setting.Size(MinMemory))}}
	}
	return nil
}

// altIDBytes is the memory for remembered altIds: what the configuration allows, as far as memory lasts.
func altIDBytes(b Budget, cfg config.Config) int64 {
	return altIDShare.planned(b.of(altIDShare), cfg)
}

// keysInAll is how many keys all tenants' rules may hold together.
func (b Budget) keysInAll() int { return int(min(b.of(ruleShare)/bytesPerKey, 1<<30)) }

// samplesInAll is how many samples all tenants' rules may retain together.
func (b Budget) samplesInAll() int { return int(min(b.of(sampleShare)/bytesPerSample, 1<<30)) }

func (b Budget) apiConnections() int {
	return int(max(b.of(apiShare)/connectionHTTP, minConnections))
}

// largeBodies is how many packets, and as many bodies, over 64 KiB are read at a time.
func (b Budget) largeBodies() int { return int(max(b.of(bodyShare)/(2*largeBody), 1)) }

// commandBytes is how large the bodies of all commands over 64 KiB together may be.
func (b Budget) commandBytes() int64 { return b.of(commandShare) / commandPerByte }

// graphQL puts the limits of GraphQL into the budget.
func (b Budget) graphQL(l gql.Limits) gql.Limits {
	// The budget replaces what the limits allow in bytes.
	l.CacheBytes, l.PendingBytes, l.ResultBytes = b.of(documentShare), b.of(graphQLShare), b.of(resultShare)/resultsPerByte
	// One answer cannot be larger than all together.
	l.ResponseBytes = int(min(int64(l.ResponseBytes), l.ResultBytes))
	l.Connections = min(l.Connections, b.apiConnections())
	return l
}

// answerBytes is how large one text may be that an answer of GraphQL contains, beside what else is in the answer.
func (b Budget) answerBytes() int64 {
	return int64(b.graphQL(gql.LimitsFromEnv(func(string) string { return "" })).ResponseBytes) - 16<<10
}

// openAccounts reports to the accountant what every part may plan with and, where it is known, what it holds.
func openAccounts(in *Instance) {
	for i, s := range shares() {
		planned := in.budget.of(s)
		// A part may plan with less than its share.
		if s.planned != nil {
			planned = s.planned(planned, in.cfg)
		}
		if s.counted {
			in.accounts[s.Name] = in.memory.Open(s.Name, planned)
		} else {
			in.memory.OpenFunc(s.Name, planned, in.asked(s.held))
		}
		// The program itself is shown after the first share.
		if i == 0 {
			in.memory.OpenFunc("program", programBytes, nil)
		}
	}
}

// asked asks a part what it holds once the instance serves.
func (in *Instance) asked(held func(*Instance) int64) func() int64 {
	if held == nil {
		return nil
	}
	return func() int64 {
		if !in.serving.Load() {
			return 0
		}
		return held(in)
	}
}
