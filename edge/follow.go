package edge

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/edgewire"
	"weir/model"
)

// Platform is what the uplink of a platform has of it besides the log: what a Weir above says of the site's devices is followed there, and its rules fire
// for the Weir above.
type Platform interface {
	// Follow makes the tenant what a Weir above says of it, in one change; body is a document of its. device is the one as which the edge signs in.
	Follow(ctx context.Context, tenant, device string, body []byte) error
	// Credentials makes those that the Weir above manages of the tenant's devices what it says.
	Credentials(ctx context.Context, tenant, device string, all []edgewire.Device) error
	// Firings returns the oldest edges that wait for the Weir above, at most limit, counts those that wait, and says how many were dropped because too
	// many did.
	Firings(ctx context.Context, tenant string, limit int) (oldest []edgewire.Firing, waiting, dropped int, err error)
	// Fired removes the edges up to a number, which are above.
	Fired(ctx context.Context, tenant string, number uint64) error
	// Placed returns the published profiles of a tenant that have rules with placement EDGE.
	Placed(ctx context.Context, tenant string) ([]PlacedProfile, error)
}

// PlacedProfile is a published version of a profile with rules with placement EDGE.
type PlacedProfile struct {
	Row     int64
	Profile string
	Version int
}

// Bounds of following and of firings.
const (
	followPause  = 10 * time.Second // after a change
	followFailed = time.Minute      // after what could not be followed
	followFor    = 2 * time.Minute  // a change may take as long
	firingsEvery = 2 * time.Second  // the platform is asked whether there are any
)

// follower follows a Weir above. Only the goroutine that serves the connection uses what has no lock.
type follower struct {
	platform Platform
	tenant   string

	wanted bool
	nonce  string // of what is asked for; "": nothing is
	asked  time.Duration
	next   time.Duration // no sooner

	have   string // digest of what is followed; "": of nothing in this process
	digest string // of what is being asked for
	parts  [][]byte
	after  string // the devices are asked for from there on, once the document is followed
	on     bool   // devices are being asked for
	all    []edgewire.Device

	busy   bool
	ended  chan func() // what follows a change that has ended
	change sync.WaitGroup

	mu  sync.Mutex
	at  time.Time // when everything was followed last
	bad string    // why not, "" for nothing

	firing  bool // a document is on its way
	looked  time.Duration
	notFrom *connection // it does not know firings
	waiting atomic.Int64
}

func newFollower(e *Edge) *follower {
	b := e.deps.Beside
	tenant, _, ok := cutTenant(e.cfg.Uplink.Username)
	if b == nil || b.Platform == nil || !ok || e.cfg.AgentID == "" {
		return nil
	}
	return &follower{platform: b.Platform, tenant: tenant, ended: make(chan func(), 1), looked: -firingsEvery}
}

// begins asks on a new connection. What the one before has not answered is asked for again.
func (e *Edge) beginsToFollow() {
	f := e.follow
	if f == nil {
		return
	}
	now := e.deps.elapsed()
	select {
	case <-e.fired: // of the connection before
	default:
	}
	f.wanted, f.nonce, f.parts, f.all, f.on, f.firing, f.next = true, "", nil, nil, false, false, now
}

// follows asks for what is wanted, as far as it is time. The goroutine that serves the connection calls it.
func (e *Edge) follows(c *connection) {
	f := e.follow
	if f == nil || !c.weir {
		return
	}
	select {
	case then := <-f.ended:
		f.busy = false
		then()
	default:
	}
	if e.cfg.Uplink.Firings {
		e.tellFirings(c)
	}
	if !e.cfg.Uplink.Sync || f.busy {
		return
	}
	now := e.deps.elapsed()
	switch {
	case f.nonce != "" && now-f.asked < syncTimeout:
		return
	case f.nonce != "": // no answer has come
	case f.on: // the document is followed
		e.askFollow(c)
		return
	case f.wanted && now >= f.next:
	case now >= f.next+syncAgain:
	default:
		return
	}
	f.wanted, f.parts, f.all, f.after, f.on = false, nil, nil, "", false
	e.askFollow(c)
}

// askFollow asks for the next part of the document, or of the devices.
func (e *Edge) askFollow(c *connection) {
	up, _, ok := e.topics()
	if !ok {
		return
	}
	f := e.follow
	f.nonce, f.asked = rand.Text(), e.deps.elapsed()
	var ask any = &edgewire.AskSite{Kind: edgewire.KindAskSite, Nonce: f.nonce, Have: f.have, Part: len(f.parts)}
	if f.on {
		ask = &edgewire.Sync{Kind: edgewire.KindSync, Nonce: f.nonce, After: f.after}
	}
	_ = say(c, up, ask, func(byte) {}) // asked again where no answer comes
}

// notFollowed notes why the Weir above is not followed.
func (e *Edge) notFollowed(why string, pause time.Duration) {
	f := e.follow
	f.mu.Lock()
	f.bad = why
	f.mu.Unlock()
	f.on, f.next = false, e.deps.elapsed()+pause
	e.log.Error("what the Weir above says of the devices of this site cannot be followed; what is known stays", "why", why)
}

// heardSite takes in a part of the document.
func (e *Edge) heardSite(c *connection, s *edgewire.Site) {
	f := e.follow
	if f == nil || f.on || f.nonce == "" || s.Nonce != f.nonce {
		return
	}
	f.nonce = ""
	switch {
	case s.Refused != "":
		e.notFollowed(s.Refused, syncAgain)
		return
	case s.Parts == 0 && s.Digest == f.have && len(f.parts) == 0: // nothing has changed
		e.nextDevices()
		return
	case s.Part != len(f.parts) || s.Parts <= s.Part || s.Part > 0 && s.Digest != f.digest: // it has changed meanwhile
		f.wanted, f.parts = true, nil
		return
	}
	f.digest, f.parts = s.Digest, append(f.parts, s.Body)
	if len(f.parts) < s.Parts {
		e.askFollow(c)
		return
	}
	body, err := edgewire.JoinSite(f.digest, f.parts)
	if f.parts = nil; err != nil {
		e.notFollowed(err.Error(), followFailed)
		return
	}
	digest := f.digest
	e.changes(func(ctx context.Context) error { return f.platform.Follow(ctx, f.tenant, e.cfg.AgentID, body) }, func() {
		f.have = digest
		e.nextDevices()
	})
}

// changes makes a change of the platform beside what is served, and then goes on.
func (e *Edge) changes(change func(context.Context) error, then func()) {
	f := e.follow
	f.busy = true
	f.change.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), followFor)
		defer cancel()
		err := change(ctx)
		f.ended <- func() {
			if err != nil {
				e.notFollowed(err.Error(), followFailed)
				return
			}
			then()
		}
		e.forward.hint()
	})
}

// nextDevices asks for the credentials of the devices, where they may be had; else everything is followed.
func (e *Edge) nextDevices() {
	f := e.follow
	if !Secure(e.cfg.Uplink.BrokerURL) {
		e.followed()
		return
	}
	f.on, f.all, f.after = true, nil, ""
}

// heardDevices takes in a page of devices.
func (e *Edge) heardDevices(c *connection, page *edgewire.Devices) {
	f := e.follow
	if f == nil || !f.on || f.nonce == "" || page.Nonce != f.nonce {
		return
	}
	f.nonce = ""
	if page.Refused != "" {
		e.notFollowed(page.Refused, syncAgain)
		return
	}
	if f.all = append(f.all, page.Devices...); len(f.all) > maxSynced {
		f.all = nil
		e.notFollowed("the Weir above has more devices for this edge than it keeps", syncAgain)
		return
	}
	if page.Next != "" && page.Next > f.after {
		f.after = page.Next
		e.askFollow(c)
		return
	}
	all := f.all
	f.all, f.on = nil, false
	e.changes(func(ctx context.Context) error { return f.platform.Credentials(ctx, f.tenant, e.cfg.AgentID, all) }, e.followed)
}

// followed notes that everything is followed.
func (e *Edge) followed() {
	f := e.follow
	f.on, f.next = false, e.deps.elapsed()+followPause
	at, _ := e.clock.time()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.bad = at, ""
}

// Following is how a platform follows a Weir above: when it did so last, zero for never, and why it cannot, "" for nothing.
func (e *Edge) Following() (at time.Time, problem string) {
	f := e.follow
	if f == nil {
		return time.Time{}, ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at, f.bad
}

// tellFirings sends the oldest edges that wait. The goroutine that serves the connection calls it.
func (e *Edge) tellFirings(c *connection) {
	f := e.follow
	now := e.deps.elapsed()
	if f.firing || f.notFrom == c || f.busy || now-f.looked < firingsEvery && f.waiting.Load() == 0 {
		return
	}
	up, _, ok := e.topics()
	if !ok {
		return
	}
	f.looked = now
	ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
	defer cancel()
	oldest, waiting, dropped, err := f.platform.Firings(ctx, f.tenant, edgewire.MaxFirings)
	if err != nil {
		e.log.Error("what rules have fired for the Weir above cannot be read", "error", err)
		return
	}
	f.waiting.Store(int64(waiting))
	e.metrics.firingsDropped.Add(float64(dropped))
	e.metrics.firings.Set(float64(waiting))
	if len(oldest) == 0 {
		return
	}
	f.firing = true
	last := oldest[len(oldest)-1].ID
	_ = say(c, up, &edgewire.Firings{Kind: edgewire.KindFirings, Install: e.InstallID(), Epoch: e.epoch, Firings: oldest}, func(code byte) {
		select {
		case e.fired <- firedUp{c, code, last}:
		default: // one is on its way at a time
		}
		e.forward.hint()
	})
}

// firedUp is the acknowledgement of a document of firings.
type firedUp struct {
	on   *connection
	code byte
	last uint64
}

// answeredFirings takes in such an acknowledgement.
func (e *Edge) answeredFirings(c *connection) {
	f := e.follow
	if f == nil {
		return
	}
	select {
	case a := <-e.fired:
		if a.on != c {
			return
		}
		f.firing = false
		switch {
		case a.code == 0x99 || a.code == 0x87:
			f.notFrom = c
			e.log.Warn("the Weir above takes no edges of rules from this site: it is of an earlier version")
		case a.code < 0x80:
			ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
			defer cancel()
			if err := f.platform.Fired(ctx, f.tenant, a.last); err != nil {
				e.log.Error("edges of rules that are above cannot be removed here; they are sent again, and known there", "error", err)
			}
		}
	default:
	}
}

// judging is what the site judges for the Weir above, in the order of the numbers.
type judging struct {
	edgewire.Runs
	Row int64 `json:"row"`
}

// judges notes what a change of the registry, which a record of the log holds, says of profiles: from the number after last on the site judges them, or no
// more. It is called with the lock held, as the records are loaded to be sent, and reports whether the Weir above has to be told before anything further
// is sent.
func (f *forwarder) judges(changes []model.ViewChange, last uint64) (tell bool) {
	for i := range changes {
		if changes[i].Kind == model.ViewProfile && f.judgesProfile(&changes[i], last) {
			tell = true
		}
	}
	return tell
}

// judgesProfile does so with one profile.
func (f *forwarder) judgesProfile(c *model.ViewChange, last uint64) (tell bool) {
	row, err := strconv.ParseInt(c.Key, 10, 64)
	if err != nil {
		return false
	}
	i := slices.IndexFunc(f.runs, func(j judging) bool { return j.Row == row })
	var p model.ProfileView
	tenant, _, _ := cutTenant(f.e.cfg.Uplink.Username)
	if c.Body != nil && (json.Unmarshal(c.Body, &p) != nil || p.Tenant != tenant) {
		return false
	}
	from := last + 1
	placed := slices.ContainsFunc(p.Rules, func(r model.RuleView) bool { return r.Placement == model.PlacementEdge })
	switch {
	case !placed && i >= 0 && f.runs[i].Until == 0 && from > f.runs[i].From:
		f.runs[i].Until = from
		return true
	case !placed:
		return false
	case i < 0:
		f.runs = append(f.runs, judging{edgewire.Runs{Profile: p.Token, Version: p.Version, From: from}, row})
		return true
	}
	r := &f.runs[i]
	switch {
	case r.Until != 0 && from <= r.Until: // it was read before
		return false
	case r.Until != 0:
		*r = judging{edgewire.Runs{Profile: p.Token, Version: p.Version, From: from}, row}
		return true
	}
	tell = r.Profile != p.Token || from < r.From // the lane of what comes now has seen a later version first
	r.Profile, r.Version, r.From = p.Token, p.Version, min(r.From, from)
	return tell
}

// tells reports whether what the site judges is told to the Weir above.
func (f *forwarder) tells() bool { return f.e.follow != nil && f.e.cfg.Uplink.Firings }

// judged is what the site judges, for a hello, with the lock held. What has ended and was handed over is forgotten.
func (f *forwarder) judged() (out []edgewire.Runs) {
	f.runs = slices.DeleteFunc(f.runs, func(j judging) bool { return j.Until != 0 && j.Until <= f.number+1 })
	for _, j := range f.runs {
		if f.tells() && len(out) < edgewire.MaxRuns {
			out = append(out, j.Runs)
		}
	}
	return out
}

// mustTell reports whether the Weir above has to be told what the site judges before anything further is sent, and nothing is on its way any more.
func (f *forwarder) mustTell() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tell && f.inFlight == 0
}

// told notes that the Weir above was told.
func (f *forwarder) told() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell = false
}

// openFollower takes over what the site judges: what is saved, or where nothing is, what the platform has published.
func (e *Edge) openFollower(saved *saved) error {
	e.fired = make(chan firedUp, 1)
	if e.follow = newFollower(e); e.follow == nil {
		return nil
	}
	f := e.forward
	if f.runs = saved.Runs; f.runs != nil {
		return nil
	}
	f.runs = []judging{}
	ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
	defer cancel()
	all, err := e.follow.platform.Placed(ctx, e.follow.tenant)
	for _, p := range all {
		f.runs = append(f.runs, judging{edgewire.Runs{Profile: p.Profile, Version: p.Version, From: f.number + 1}, p.Row})
	}
	return err
}
