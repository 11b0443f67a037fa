package app

import (
	"fmt"
	"runtime"

	"weir/config"
	"weir/gql"
	"weir/internal/memory"
	"weir/rules"
)

// LeastMemory is the smallest limit that an instance starts with.
const LeastMemory = memory.MinLimit

// programBytes is what the instance needs before it holds anything for anybody: code, stacks, the directories of its own
// tenants and identities, and what the collector has not yet taken.
const programBytes = 24 << 20

// The parts that memory is divided among, as the metrics name them.
const (
	partHead         = "head"             // of readings: one fills while the other is written
	partAltIDs       = "altIds"           // seen, of de-duplication
	partRepeats      = "repeats"          // seen, of MQTT clients
	partRules        = "rule state"       //
	partStoreCache   = "store cache"      // pages of SQLite; outside the Go heap
	partUnsynced     = "unsynced appends" //
	partTail         = "log tail"         // batches that the applier has yet to take
	partBodies       = "large bodies"     // packets and bodies over 64 KiB while they are read
	partMQTT         = "MQTT connections" //
	partIngest       = "HTTP connections" // of the ingest listener
	partAPI          = "API connections"  //
	partGraphQL      = "GraphQL requests" // bodies that are read and run
	partDocuments    = "GraphQL documents"
	partResults      = "GraphQL results"
	partCommands     = "commands" // bodies over 64 KiB of the operator's commands
	largeBody        = 1 << 20    // what one of them may take
	connectionMQTT   = 40 << 10   // what one takes: session, buffers, stacks
	connectionHTTP   = 20 << 10
	bytesPerKey      = 256 // of rule state
	resultsPerByte   = 8   // memory that a byte of an answer takes while it is put together
	commandPerByte   = 2   // memory that a byte of a command takes
	mostIngest       = 4096
	mostAPI          = 2048
	mostLargeBodies  = 32
	leastConnections = 16
)

// shares say how memory is divided: each part gets its least, and of what is left after that its parts per thousand, up to
// its most.
var shares = []memory.Share{
	{Name: partHead, PerMille: 160, Min: 4 << 20, Max: 128 << 20},
	{Name: partAltIDs, PerMille: 70, Min: 1 << 20, Max: 1 << 40},
	{Name: partRepeats, PerMille: 20, Min: 1 << 20, Max: 16 << 20},
	{Name: partRules, PerMille: 100, Min: 2 << 20, Max: 1 << 40},
	{Name: partStoreCache, PerMille: 40, Min: 3 << 20, Max: 32 << 20},
	{Name: partUnsynced, PerMille: 30, Min: 3 << 20, Max: 8 << 20},
	{Name: partTail, PerMille: 30, Min: 1 << 20, Max: 8 << 20},
	{Name: partBodies, PerMille: 70, Min: 2 << 20, Max: 2 * mostLargeBodies * largeBody},
	{Name: partMQTT, PerMille: 240, Min: 4 << 20, Max: 1 << 40},
	{Name: partIngest, PerMille: 50, Min: 1 << 20, Max: mostIngest * connectionHTTP},
	{Name: partAPI, PerMille: 20, Min: 1 << 20, Max: mostAPI * connectionHTTP},
	{Name: partGraphQL, PerMille: 40, Min: 4 << 20, Max: 64 << 20},
	{Name: partDocuments, PerMille: 20, Min: 1 << 20, Max: 16 << 20},
	{Name: partResults, PerMille: 60, Min: 2 << 20, Max: 256 << 20},
	{Name: partCommands, PerMille: 50, Min: 4 << 20, Max: commandPerByte * maxSiteBytes},
}

// Budget is how an instance divides its memory.
type Budget struct {
	Limit int64
	Parts map[string]int64
}

// NewBudget divides a limit.
func NewBudget(limit int64) Budget { return Budget{limit, memory.Divide(limit-programBytes, shares)} }

// MemoryLimit is what limits.memory means on this machine, in bytes.
func MemoryLimit(cfg config.Config) int64 {
	if cfg.Limits.Memory > 0 {
		return int64(cfg.Limits.Memory)
	}
	return memory.Detect("/")
}

// RuntimeLimit is what the Go runtime is told: what SQLite holds lies outside its heap.
func RuntimeLimit(cfg config.Config) int64 {
	limit := MemoryLimit(cfg)
	return limit - NewBudget(limit).Parts[partStoreCache]
}

// CheckMemory returns why an instance cannot start with the memory that it has; nil when it can.
func CheckMemory(cfg config.Config) error {
	if limit := MemoryLimit(cfg); limit < LeastMemory {
		return config.Problems{{Path: "limits.memory",
			Reason: fmt.Sprintf("the container or the machine leaves %s for Weir, which needs %s", config.Size(limit>>20<<20), config.Size(LeastMemory)),
			Hint:   fmt.Sprintf("give it more memory; or say limits.memory: %s, when you know that it is there", config.Size(LeastMemory))}}
	}
	return nil
}

// altIDs is the memory for remembered altIds: what the configuration allows, as far as there is room.
func (in *Instance) altIDs() int64 {
	return min(int64(in.cfg.Ingest.DedupeMaxBytes), in.budget.Parts[partAltIDs])
}

// keysInAll is how many keys all tenants' rules may hold together.
func (b Budget) keysInAll() int { return int(min(b.Parts[partRules]/bytesPerKey, 1<<30)) }

// mqttConnections is how many connections there may be: what the configuration allows, as far as there is room.
func (b Budget) mqttConnections(configured int) int {
	return int(min(int64(configured), max(b.Parts[partMQTT]/connectionMQTT, leastConnections)))
}

func (b Budget) ingestConnections() int {
	return int(max(b.Parts[partIngest]/connectionHTTP, leastConnections))
}
func (b Budget) apiConnections() int {
	return int(max(b.Parts[partAPI]/connectionHTTP, leastConnections))
}

// largeBodies is how many packets, and as many bodies, over 64 KiB are read at a time.
func (b Budget) largeBodies() int { return int(max(b.Parts[partBodies]/(2*largeBody), 1)) }

// commandBytes is how large the bodies of all commands over 64 KiB together may be.
func (b Budget) commandBytes() int64 { return b.Parts[partCommands] / commandPerByte }

// graphQL puts the limits of GraphQL into the budget.
func (b Budget) graphQL(l gql.Limits) gql.Limits {
	l.CacheBytes, l.PendingBytes, l.ResultBytes = b.Parts[partDocuments], b.Parts[partGraphQL], b.Parts[partResults]/resultsPerByte
	l.ResponseBytes = int(min(int64(l.ResponseBytes), l.ResultBytes))
	l.Connections = min(l.Connections, b.apiConnections())
	return l
}

// openAccounts tells the accountant of every part what it may plan with and, where it can be asked, what it holds. The head
// says for itself what it holds.
func (in *Instance) openAccounts() {
	b, a := in.budget.Parts, in.memory
	in.head = a.Open(partHead, b[partHead]/2)
	a.OpenFunc("program", programBytes, nil)
	a.OpenFunc(partAltIDs, in.altIDs(), func() int64 { return in.asked(func() int64 { return in.applier.SeenBytes() }) })
	a.OpenFunc(partRepeats, b[partRepeats], func() int64 { return in.asked(func() int64 { return in.applier.RepeatBytes() }) })
	a.OpenFunc(partRules, b[partRules], func() int64 {
		return in.asked(func() int64 { s := in.applier.RuleStats(); return int64(s.Keys+s.Devices) * bytesPerKey })
	})
	a.OpenFunc(partStoreCache, b[partStoreCache], nil)
	a.OpenFunc(partUnsynced, b[partUnsynced], func() int64 { return in.asked(func() int64 { return in.spool.Stats().UnsyncedBytes }) })
	a.OpenFunc(partTail, b[partTail], func() int64 { return in.asked(func() int64 { return in.spool.Stats().TailBytes }) })
	a.OpenFunc(partBodies, b[partBodies], nil)
	a.OpenFunc(partMQTT, int64(in.budget.mqttConnections(in.cfg.Broker.MaxConnections))*connectionMQTT, func() int64 {
		return in.asked(func() int64 {
			if in.broker == nil {
				return 0
			}
			return int64(in.broker.Connections()) * connectionMQTT
		})
	})
	for _, part := range []string{partIngest, partAPI, partGraphQL, partDocuments, partResults, partCommands} {
		a.OpenFunc(part, b[part], nil)
	}
}

// asked is what a part says that it holds, once everybody stands who may be asked.
func (in *Instance) asked(held func() int64) int64 {
	if !in.ready.Load() {
		return 0
	}
	return held()
}

// MemoryStatus is how the memory is divided and used.
type MemoryStatus struct {
	Limit int64         `json:"limitBytes"`
	Heap  int64         `json:"heapBytes"` // what the Go runtime has from the system
	Parts []memory.Held `json:"parts"`
}

func (in *Instance) memoryStatus() MemoryStatus {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return MemoryStatus{Limit: in.budget.Limit, Heap: int64(m.Sys - m.HeapReleased), Parts: in.memory.Parts()}
}

// ruleLimits are the limits of the rules, those of the memory among them.
func (in *Instance) ruleLimits() rules.Limits {
	d := in.cfg.Detection
	return rules.Limits{MaxDuration: d.MaxRuleDuration, MaxRules: d.MaxRulesPerTenant, MaxKeys: d.MaxKeysPerTenant, MaxKeysInAll: in.budget.keysInAll()}
}
