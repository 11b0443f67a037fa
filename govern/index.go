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

	bucket   *bucket // kept over changes, as is outbound
	outbound *bucket
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
	gone       map[int64]bool  // row ids of deleted tenants whose erase is not over
	declared   map[string]bool // tokens of tenants that the site files of the configuration declare
}

func newIndex(cfg Config, now func() time.Time) *index {
	return &index{
		now:        now,
		platform:   cfg.values(),
		level:      cfg.ManualFloor,
		byToken:    map[string]*entry{},
		byID:       map[int64]*entry{},
		tiers:      map[int64]Values{},
		tierTokens: map[int64]string{},
		gone:       map[int64]bool{},
	}
}

// remove removes a tenant that is deleted.
func (x *index) remove(id int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.byID[id]; e != nil {
		delete(x.byToken, e.token)
		delete(x.byID, id)
	}
	x.gone[id] = true
}

func (x *index) isGone(id int64) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.gone[id]
}

func (x *index) declare(tokens []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.declared = map[string]bool{}
	for _, t := range tokens {
		x.declared[t] = true
	}
}

func (x *index) declares(token string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.declared[token]
}

// put adds or replaces a tenant.
func (x *index) put(e entry, tierToken string, tier Values) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// A change must not fill a bucket: it stays the same one.
	if old := x.byID[e.id]; old != nil {
		e.bucket, e.outbound = old.bucket, old.outbound
	}
	x.tiers[e.tier], x.tierTokens[e.tier] = tier, tierToken
	x.byToken[e.token], x.byID[e.id] = &e, &e
	// The new values apply at once.
	x.fit(&e)
}

// fit makes the tenant's buckets as large as its ceilings are now.
func (x *index) fit(e *entry) {
	v := x.effective(e)
	rate, burst := ceiling(v, x.level)
	now := x.now()
	fit(&e.bucket, rate, burst, now)
	fit(&e.outbound, *v.OutboundMessagesPerSecond, max(float64(*v.OutboundBurst), 1), now)
}

func fit(b **bucket, rate, burst float64, now time.Time) {
	if *b == nil {
		*b = newBucket(rate, burst, now)
		return
	}
	(*b).set(rate, burst, now)
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
	// All tenants of the tier follow.
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

func (x *index) outboundOf(token string) *bucket {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e, ok := x.byToken[token]; ok {
		return e.outbound
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
