// Package memory hands out an instance's memory. One Accountant knows the limit, says how much of it each part may plan
// with, and is told what the parts really hold; the Go runtime is given the limit as a whole.
package memory

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits that Detect stays within: less is no room for the program itself, more helps nobody.
const (
	Least = 64 << 20
	Most  = 4 << 30
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
			Help: "Memory that the instance keeps within."}, func() float64 { return float64(limit) }), a)
	}
	return a
}

// Limit is the memory of the whole instance.
func (a *Accountant) Limit() int64 { return a.limit }

// Share is parts per thousand of the limit, within least and most.
func (a *Accountant) Share(perMille, least, most int64) int64 {
	return min(max(a.limit/1000*perMille, least), most)
}

// Open returns an account under a name, with what its part may plan with.
func (a *Accountant) Open(name string, budget int64) *Account {
	acc := &Account{name: name, budget: budget}
	a.mu.Lock()
	a.accounts = append(a.accounts, acc)
	a.mu.Unlock()
	return acc
}

var heldDesc = prometheus.NewDesc("weir_memory_held_bytes", "Memory that a part holds, by its own estimate.", []string{"part"}, nil)
var budgetDesc = prometheus.NewDesc("weir_memory_budget_bytes", "Memory that a part may plan with.", []string{"part"}, nil)

// Describe implements prometheus.Collector.
func (a *Accountant) Describe(ch chan<- *prometheus.Desc) { ch <- heldDesc; ch <- budgetDesc }

// Collect implements prometheus.Collector.
func (a *Accountant) Collect(ch chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, acc := range a.accounts {
		ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(acc.Held()), acc.name)
		ch <- prometheus.MustNewConstMetric(budgetDesc, prometheus.GaugeValue, float64(acc.budget), acc.name)
	}
}

// Account is what one part holds.
type Account struct {
	name   string
	budget int64
	held   atomic.Int64
}

// Budget is what the part may plan with.
func (a *Account) Budget() int64 { return a.budget }

// Held is what the part has said that it holds.
func (a *Account) Held() int64 { return a.held.Load() }

// Grow says that the part holds more.
func (a *Account) Grow(bytes int64) { a.held.Add(bytes) }

// Shrink says that it holds less.
func (a *Account) Shrink(bytes int64) { a.held.Add(-bytes) }

// Detect returns the memory that this process may use: half of the machine's or nine tenths of its container's, whichever is
// less. root is where the file systems of the kernel are ("/").
func Detect(root string) int64 {
	limit := int64(Most)
	if total := meminfo(filepath.Join(root, "proc/meminfo")); total > 0 {
		limit = min(limit, total/2)
	}
	if n := container(root); n > 0 {
		limit = min(limit, n/10*9)
	}
	return max(limit, Least)
}

// Available returns the memory of the machine or of its container, whichever is less, 0 when neither can be read.
func Available(root string) int64 {
	available := meminfo(filepath.Join(root, "proc/meminfo"))
	if n := container(root); n > 0 && (available == 0 || n < available) {
		available = n
	}
	return available
}

// container returns the least limit of a container, 0 when there is none.
func container(root string) (limit int64) {
	for _, file := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return limit
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
