// Package memory divides an instance's memory. One Accountant has the limit, gives each part its budget and reports what
// the parts hold; the Go runtime gets the limit as a whole.
package memory

import (
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// MinLimit is the smallest limit that leaves room for the program itself; MaxLimit is the largest that Detect returns,
// because no part uses more.
const (
	MinLimit = 64 << 20
	MaxLimit = 4 << 30
)

// Accountant divides a limit.
type Accountant struct {
	limit int64

	mu       sync.Mutex
	accounts []*Account
}

// New returns an accountant of limit bytes. A nil registerer registers no metrics.
func New(limit int64, reg prometheus.Registerer) *Accountant {
	a := &Accountant{limit: limit}
	if reg != nil {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_memory_limit_bytes",
			Help: "Memory limit of the instance."}, func() float64 { return float64(limit) }), a)
	}
	return a
}

// Limit is the memory of the whole instance.
func (a *Accountant) Limit() int64 { return a.limit }

// Share is a part's share of a limit: its minimum in any case, and PerMille of what remains after all minimums, up to its
// maximum.
type Share struct {
	Name               string
	PerMille, Min, Max int64
}

// Divide gives each share its bytes. Together they are no more than bytes, unless the minimums alone exceed them.
func Divide(bytes int64, shares []Share) map[string]int64 {
	for _, s := range shares {
		bytes -= s.Min
	}
	out := map[string]int64{}
	for _, s := range shares {
		out[s.Name] = min(s.Min+max(bytes, 0)/1000*s.PerMille, s.Max)
	}
	return out
}

// Open returns an account under a name, with the budget of its part.
func (a *Accountant) Open(name string, budget int64) *Account {
	return a.add(&Account{name: name, budget: budget})
}

// OpenFunc opens an account whose memory held returns; nil: it is unknown.
func (a *Accountant) OpenFunc(name string, budget int64, held func() int64) {
	a.add(&Account{name: name, budget: budget, ask: held, unknown: held == nil})
}

func (a *Accountant) add(acc *Account) *Account {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.accounts = append(a.accounts, acc)
	return acc
}

// Held is the budget of a part and the memory that it holds.
type Held struct {
	Part   string `json:"part"`
	Budget int64  `json:"budgetBytes"`
	Held   *int64 `json:"heldBytes,omitempty"` // nil: it is unknown
}

// Parts are all accounts, in the order in which they were opened.
func (a *Accountant) Parts() []Held {
	a.mu.Lock()
	accounts := slices.Clone(a.accounts)
	a.mu.Unlock()
	out := make([]Held, len(accounts))
	for i, acc := range accounts {
		if out[i] = (Held{Part: acc.name, Budget: acc.budget}); !acc.unknown {
			out[i].Held = new(acc.Held())
		}
	}
	return out
}

var heldDesc = prometheus.NewDesc("weir_memory_held_bytes", "Memory held by a part, by its own estimate.", []string{"part"}, nil)
var budgetDesc = prometheus.NewDesc("weir_memory_budget_bytes", "Memory budget of a part.", []string{"part"}, nil)

// Describe implements prometheus.Collector.
func (a *Accountant) Describe(ch chan<- *prometheus.Desc) { ch <- heldDesc; ch <- budgetDesc }

// Collect implements prometheus.Collector.
func (a *Accountant) Collect(ch chan<- prometheus.Metric) {
	for _, p := range a.Parts() {
		ch <- prometheus.MustNewConstMetric(budgetDesc, prometheus.GaugeValue, float64(p.Budget), p.Part)
		if p.Held != nil {
			ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(*p.Held), p.Part)
		}
	}
}

// Account is the account of one part.
type Account struct {
	name    string
	budget  int64
	held    atomic.Int64
	ask     func() int64 // replaces held
	unknown bool
}

// Budget is the part's budget.
func (a *Account) Budget() int64 { return a.budget }

// Held is the memory that the part has reported.
func (a *Account) Held() int64 {
	if a.ask != nil {
		return a.ask()
	}
	return a.held.Load()
}

// Grow reports n bytes more.
func (a *Account) Grow(bytes int64) { a.held.Add(bytes) }

// Shrink reports n bytes less.
func (a *Account) Shrink(bytes int64) { a.held.Add(-bytes) }

// Detect returns the memory that this process may use: half of the machine's (on a small one MinLimit, as long as that is no
// more than three quarters of it) or nine tenths of its container's, whichever is less. It may be below MinLimit, which the
// caller must refuse. root is the root of the kernel's file systems ("/").
func Detect(root string) int64 {
	limit := maxLimit()
	if total := meminfo(filepath.Join(root, "proc/meminfo")); total > 0 {
		limit = min(limit, max(total/2, min(total/4*3, MinLimit)))
	}
	if n := container(root); n > 0 {
		limit = min(limit, n/10*9)
	}
	return limit
}

// maxLimit is MaxLimit, or the memory that a 32-bit process can have besides the files that it maps.
func maxLimit() int64 {
	if bits.UintSize == 32 {
		return MaxLimit / 4
	}
	return MaxLimit
}

// Available returns the memory of the machine or of its container, whichever is less, 0 when neither can be read.
func Available(root string) int64 {
	available := meminfo(filepath.Join(root, "proc/meminfo"))
	if n := container(root); n > 0 && (available == 0 || n < available) {
		available = n
	}
	return available
}

// container returns the lowest limit of a container, 0 when there is none: that of the control group of this process and of
// those above it, in version 2 (memory.max, and memory.high, past which the kernel slows the process down) and 1. A process
// in a container has its own group as the root.
func container(root string) (limit int64) {
	for _, dir := range groups(root) {
		for _, file := range []string{"memory.max", "memory.high", "memory.limit_in_bytes"} {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 && (limit == 0 || n < limit) {
				limit = n
			}
		}
	}
	return limit
}

// groups are the directories of the control groups that this process is in, the roots included.
func groups(root string) []string {
	v2, v1 := filepath.Join(root, "sys/fs/cgroup"), filepath.Join(root, "sys/fs/cgroup/memory")
	dirs := []string{v2, v1}
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return dirs
	}
	for line := range strings.Lines(string(b)) { // hierarchy:controllers:path
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		base := v2
		switch {
		case len(f) < 3:
			continue
		case slices.Contains(strings.Split(f[1], ","), "memory"):
			base = v1
		case f[1] != "":
			continue
		}
		for p := filepath.Clean("/" + f[2]); p != "/"; p = filepath.Dir(p) {
			dirs = append(dirs, filepath.Join(base, p))
		}
	}
	return dirs
}

func meminfo(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == "MemTotal:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}
