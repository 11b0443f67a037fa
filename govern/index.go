package govern

import (
	"slices"
	"sync"
	"time"

	"weir/model"
)

// entry holds the values of a tenant that admission needs.
type entry struct {
	id         int64
	token      string
	enabled    bool
	notBefore  model.Micros
	tier       int64
	overrides  Values
	aiExternal bool

	bucket *bucket // kept over changes
}

// index holds every tenant in memory, some hundred bytes each. It is loaded at the start and changed as transactions
// commit, so that a change applies when the operator's call returns.
type index struct {
	now      func() time.Time
	platform Values

	mu         sync.RWMutex
	level      int // of shedding
	byToken    map[string]*entry
	byID       map[int64]*entry
	tiers      map[int64]Values
	tierTokens map[int64]string
}

func newIndex(cfg Config, now func() time.Time) *index {
	return &index{now: now, platform: cfg.values(), level: cfg.ManualFloor, byToken: map[string]*entry{},
		byID: map[int64]*entry{}, tiers: map[int64]Values{}, tierTokens: map[int64]string{}}
}

// put adds or replaces a tenant.
func (x *index) put(e entry, tierToken string, tier Values) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.byID[e.id]; old != nil {
		e.bucket = old.bucket
	}
	x.tiers[e.tier], x.tierTokens[e.tier] = tier, tierToken
	x.byToken[e.token], x.byID[e.id] = &e, &e
	x.fit(&e)
}

// fit makes the tenant's bucket as large as its ceiling is now.
func (x *index) fit(e *entry) {
	v := x.effective(e)
	rate, burst := ceiling(v, x.level)
	if e.bucket == nil {
		e.bucket = newBucket(rate, burst, x.now())
		return
	}
	e.bucket.set(rate, burst, x.now())
}

// ceiling is the ingest ceiling in effect: a burst below 256 would never admit a full message.
func ceiling(v Values, level int) (rate, burst float64) {
	f := shedFactor(level, *v.ShedPriority)
	return *v.IngestMessagesPerSecond * f, max(float64(*v.IngestBurst)*f, minBurst)
}

// effective needs the lock.
func (x *index) effective(e *entry) Values { return e.overrides.or(x.tiers[e.tier]).or(x.platform) }

// tierValues are the values of a tier that some tenant has had since the start.
func (x *index) tierValues(id int64) Values {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tiers[id]
}

func (x *index) setTier(id int64, v Values) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tiers[id] = v
	for _, e := range x.byID {
		if e.tier == id {
			x.fit(e)
		}
	}
}

func (x *index) setLevel(level int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.level = level
	x.fitAll()
}

func (x *index) setPlatform(v Values, level int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.platform, x.level = v, level
	x.fitAll()
}

// fitAll needs the lock.
func (x *index) fitAll() {
	for _, e := range x.byID {
		x.fit(e)
	}
}

func (x *index) get(token string) (entry, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	e, ok := x.byToken[token]
	if !ok {
		return entry{}, false
	}
	return *e, true
}

func (x *index) bucketOf(token string) *bucket {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e, ok := x.byToken[token]; ok {
		return e.bucket
	}
	return nil
}

func (x *index) tokenOf(id int64) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e, ok := x.byID[id]; ok {
		return e.token
	}
	return ""
}

func (x *index) tokens() []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	tokens := make([]string, 0, len(x.byToken))
	for token := range x.byToken {
		tokens = append(tokens, token)
	}
	slices.Sort(tokens)
	return tokens
}
