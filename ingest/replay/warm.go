package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"weir/ingest"
	"weir/ingest/view"
	"weir/model"
	"weir/rules"
	"weir/store/past"
)

// life is how long a draft has been a live rule.
type life struct {
	token string // of the rule; "": the draft is not live now, or was not where the window begins
	body  rules.BodyHash
	since model.Offset // of the change that made it live, after which it stayed so up to the window; 0: what is kept of the registry begins after it

	known map[model.RuleView]bool // whether a rule has the body
}

// lived finds out whether the draft is a rule that is live and was live where the window begins. oldest is where what is kept of the
// registry begins.
func (r *run) lived(oldest model.Offset) error {
	versions, err := r.versions()
	if err != nil || len(versions) == 0 {
		return err
	}
	def, err := r.deps.Compiler.Decode([]byte(r.q.Rule.Definition))
	if err != nil {
		return nil // the engine says so
	}
	l := &r.life
	l.body, l.known = def.BodyHash(r.q.Rule.Group, r.q.Rule.GroupVersion), map[model.RuleView]bool{}
	then := len(versions) - 1
	for then >= 0 && versions[then].received > r.q.Window.From {
		then--
	}
	for _, rule := range versions[len(versions)-1].rules {
		if then < 0 || !r.is(rule) || !r.has(versions[then].rules, rule.Token) {
			continue
		}
		first := then
		for first > 0 && r.has(versions[first-1].rules, rule.Token) {
			first--
		}
		if l.token = rule.Token; first > 0 || versions[0].from > oldest {
			l.since = versions[first].from
		}
		break
	}
	return nil
}

// has reports whether a version of the profile has the draft as its rule with a token.
func (r *run) has(version []model.RuleView, token string) bool {
	return slices.ContainsFunc(version, func(v model.RuleView) bool { return v.Token == token && r.is(v) })
}

// is reports whether a rule has the body of the draft.
func (r *run) is(v model.RuleView) bool {
	same, known := r.life.known[v]
	if known {
		return same
	}
	if v.Group == r.q.Rule.Group && v.GroupVersion == r.q.Rule.GroupVersion {
		def, err := r.deps.Compiler.Decode([]byte(v.Definition))
		same = err == nil && def.BodyHash(v.Group, v.GroupVersion) == r.life.body
	}
	r.life.known[v] = same
	return same
}

// published is a version of the profile, or that it had none.
type published struct {
	from     model.Offset
	received model.Micros // of the record with which that began; 0: not known
	rules    []model.RuleView
}

// versions are those of the profile that are known, the oldest first.
func (r *run) versions() (all []published, err error) {
	key, received, at := strconv.FormatInt(r.q.Profile, 10), map[model.Offset]model.Micros{}, map[model.Offset]published{}
	known := func(p past.Place) { received[p.Offset] = p.Received }
	err = past.View(r.past.Tx(), model.ViewProfile, key, 0, r.upto, known, func(c past.Change) error {
		if c.Key != key {
			return nil
		}
		if c.Body == nil {
			if _, replaced := at[c.From]; !replaced {
				at[c.From] = published{from: c.From}
			}
			return nil
		}
		var v model.ProfileView
		if err := json.Unmarshal(c.Body, &v); err != nil {
			return fmt.Errorf("view row %s %q: %w", c.Kind, c.Key, err)
		}
		at[c.From] = published{from: c.From, rules: v.Rules}
		return nil
	})
	for _, from := range slices.Sorted(maps.Keys(at)) {
		v := at[from]
		v.received = received[from]
		all = append(all, v)
	}
	return all, err
}

// standIn takes the place of the draft where it was not live before the window: devices are known as they were, and the state of the draft ends
// and begins as that of the rule did.
const standIn = `{"name":"n","type":"threshold","when":{"metric":"weir stands in","op":"gt","threshold":1e308}}`

// rulesOf are the rules that the engine runs for a version of the profile: the draft. Where it is a live rule, it is so before the window as it was
// live.
func (r *run) rulesOf(profile int64, v *view.Profile) ([]model.RuleView, bool) {
	rule := r.q.Rule
	if r.life.token != "" {
		if rule.Token = r.life.token; r.now < r.q.Window.From && !r.has(v.Rules, rule.Token) {
			rule = model.RuleView{Token: rule.Token, Definition: standIn}
		}
	}
	return []model.RuleView{rule}, profile == r.q.Profile
}

// warm prepares the engine with the state of the live rule as of the snapshot before the window, and returns the place from which the replay
// goes on. ok is false where there is none, or none that serves: then nothing is prepared.
func (r *run) warm(oldest model.Offset) (at model.Offset, ok bool, err error) {
	if r.life.token == "" {
		return 0, false, nil
	}
	for before := r.q.Window.From; ; {
		s, err := r.snapshot(before, oldest)
		if err != nil || s == nil {
			return 0, false, err
		}
		if ok, again, err := r.from(s); err != nil || !again {
			return s.Offset, ok, err
		}
		before = s.Received - 1
	}
}

// snapshot returns the newest one before a receive time: the current state, or one that is kept; nil for none.
func (r *run) snapshot(before model.Micros, oldest model.Offset) (*past.Snapshot, error) {
	now, err := ingest.Published(r.past.Tx())
	if err != nil {
		return nil, err
	}
	if now.Generation > 0 && now.Received.Micros() <= before && now.Offset >= oldest && now.Offset <= r.upto {
		return &past.Snapshot{Generation: now.Generation, Offset: now.Offset, Received: now.Received.Micros(), Listening: int64(now.Listening), Current: true}, nil
	}
	return past.SnapshotBefore(r.past.Tx(), before, oldest, r.upto)
}

// from prepares the engine with a snapshot. again: the one before it is needed, because the clock of a device was ahead there, so that edges of the
// window may lie before the snapshot.
func (r *run) from(s *past.Snapshot) (ok, again bool, err error) {
	n, err := r.past.Count(s.Received, r.q.Window.From)
	if err != nil {
		return false, false, err
	}
	if n > r.mostBefore() {
		r.cold = " (more readings lie between the snapshot of " + s.Day() + " and the window than may be read)"
		return false, false, nil
	}
	if err := r.load(s.Offset, s.Received); err != nil || r.time.shift != 0 { // how time went is not known so far back
		return false, false, err
	}
	r.time.last = rules.Listening(s.Listening)
	err = r.resume(s)
	switch {
	case errors.Is(err, past.ErrDamaged) || errors.Is(err, rules.ErrDamaged) || errors.Is(err, rules.ErrVersion):
		r.degrade("snapshot of %s is damaged: it is not used", s.Day())
		if r.deps.Damaged != nil {
			r.deps.Damaged()
		}
	case err != nil:
		return false, false, err
	case r.engine.Ahead(r.q.Window.From):
		again = true
	default:
		r.lead, r.all = s.Received, true
		return true, false, nil
	}
	r.engine = rules.NewEngine(r.deps.Compiler, nil)
	return false, again, nil
}

// resume loads the state of a snapshot, as a start does.
func (r *run) resume(s *past.Snapshot) error {
	pages, err := s.Pages(r.past.Tx(), r.q.TenantID, r.q.Profile)
	if err != nil {
		return err
	}
	if err := r.engine.LoadRule(r.key, r.life.token, r.life.body, pages.IDs, pages.Read); err != nil {
		return err
	}
	r.now = s.Received
	r.follow()
	r.time.goOn(r.engine)
	r.following.Enable()
	at := rules.Position{Offset: s.Offset, Received: s.Received.Nanos(), Listening: r.time.last}
	if v := r.registry.view.Profiles[r.q.Profile]; v != nil {
		r.following.Install(at, r.q.Profile, v, r.out.Emit)
	} else {
		r.engine.Advance(at, r.out.Emit)
	}
	return nil
}
